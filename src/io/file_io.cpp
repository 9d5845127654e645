#include "io/file_io.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace quaver {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 18;

std::string remedy_for(int error_number, const fs::path& path) {
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return fmt::format("free space on the file system of {} (or raise the quota), or write elsewhere",
                         directory.string());
    case EFBIG:
      return "raise the file size limit (ulimit -f), or write to a file system that holds larger files";
    case EROFS:
      return "the file system is mounted read-only: remount it for writing, or write elsewhere";
    case EACCES:
    case EPERM:
      return fmt::format("check the owner and the permissions of {}", directory.string());
    case ENOENT:
      return "check the path: the file or a directory on the way to it does not exist";
    case ENOTDIR:
    case EISDIR:
      return "check the path: a file stands where a directory is expected, or the reverse";
    case ENAMETOOLONG:
      return "use a shorter path";
    case EMFILE:
    case ENFILE:
      return "too many files are open: raise the limit (ulimit -n)";
    case ENOMEM:
      return "free memory, or raise the address space limit (ulimit -v)";
    case EIO:
      return "the device reported a fault: check the disk, then the system log";
    default:
      return fmt::format("check {} and try again", directory.string());
  }
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Distinct for every open file of every process, so that two writers of one target do not share a temporary.
fs::path temporary_name(const fs::path& target) {
  static std::atomic<unsigned> counter{0};
  return directory_of(target) / fmt::format(".tmp-{}-{}-{}", target.filename().string(), getpid(), counter++);
}

// tables[k][b]: the CRC of byte b followed by k zero bytes.
constexpr auto make_crc_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}
constexpr auto crc_tables = make_crc_tables();

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::span<const std::byte> bytes, std::uint32_t previous) {
  std::uint64_t crc = ~previous;
  const std::byte* data = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; data += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  auto crc32 = static_cast<std::uint32_t>(crc);
  for (; left > 0; ++data, --left) crc32 = __builtin_ia32_crc32qi(crc32, std::to_integer<std::uint8_t>(*data));
  return ~crc32;
}

bool has_sse42() {
  static const bool supported = __builtin_cpu_supports("sse4.2") != 0;
  return supported;
}
#endif

}  // namespace

Error system_error(std::string_view action, const fs::path& path, int error_number) {
  return Error(
      fmt::format("{} {}: {}", action, path.string(), std::error_code(error_number, std::generic_category()).message()),
      remedy_for(error_number, path));
}

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t previous) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  const auto& t = crc_tables;
  std::uint32_t crc = ~previous;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint32_t low = crc ^ (at(i) | at(i + 1) << 8 | at(i + 2) << 16 | at(i + 3) << 24);
    crc = t[7][low & 0xFFU] ^ t[6][(low >> 8) & 0xFFU] ^ t[5][(low >> 16) & 0xFFU] ^ t[4][low >> 24] ^ t[3][at(i + 4)] ^
          t[2][at(i + 5)] ^ t[1][at(i + 6)] ^ t[0][at(i + 7)];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8) ^ t[0][(crc ^ at(i)) & 0xFFU];
  return ~crc;
}

namespace {

// The product of two polynomials modulo CRC-32C's, bits reflected as in the checksum.
std::uint32_t crc_product(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t polynomial = 0x82F63B78U;
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1U) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1U) ^ ((b & 1U) != 0 ? polynomial : 0U);
  }
  return product;
}

}  // namespace

// A checksum moves past n bytes by a factor of x^(8n).
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  std::uint32_t factor = 0x80000000U;  // 1
  std::uint32_t square = 0x00800000U;  // x⁸
  for (std::uint64_t n = second_bytes; n != 0; n >>= 1U) {
    if ((n & 1U) != 0) factor = crc_product(factor, square);
    square = crc_product(square, square);
  }
  return crc_product(first, factor) ^ second;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (has_sse42()) return crc32c_sse42(bytes, previous);
#endif
  return crc32c_portable(bytes, previous);
}

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)), temporary_(temporary_name(target_)) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw system_error("cannot create", target_, errno);
  buffer_.reserve(buffer_bytes);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    descriptor_ = -1;
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    temporary_.clear();
  }
}

void AtomicFile::fail(std::string_view action, int error_number) {
  discard();
  throw system_error(action, target_, error_number);
}

void AtomicFile::write_fully(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write", errno);
    if (written == 0) fail("cannot write", ENOSPC);  // a regular file that takes no bytes and gives no errno
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  flush();
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void AtomicFile::flush() {
  write_fully(buffer_);
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) throw Error(fmt::format("{} is already written or has failed", target_.string()), "write first");
  digest_.crc32c = crc32c(bytes, digest_.crc32c);
  digest_.size += bytes.size();
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() >= buffer_bytes) {
    write_fully(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

FileDigest AtomicFile::commit() {
  if (descriptor_ < 0) throw Error(fmt::format("{} is already written or has failed", target_.string()), "commit once");
  flush();
  if (::fsync(descriptor_) != 0) fail("cannot sync", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot close", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot put in place", errno);
  temporary_.clear();
  sync_directory(directory_of(target_));
  return digest_;
}

void SharedFile::create(const fs::path& path, std::uint64_t size) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) throw system_error("cannot create", path, errno);
  int error_number = ::posix_fallocate(descriptor, 0, static_cast<off_t>(size));
  if (error_number == EOPNOTSUPP || error_number == EINVAL) {  // a file system that gives room as it is written to
    error_number = ::ftruncate(descriptor, static_cast<off_t>(size)) == 0 ? 0 : errno;
  }
  ::close(descriptor);
  if (error_number != 0) throw system_error("cannot write", path, error_number);
}

SharedFile::SharedFile(fs::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw system_error("cannot open", path_, errno);
}

SharedFile::~SharedFile() { ::close(descriptor_); }

// The disk begins at once: what is left to wait for in sync() is the last of it.
void SharedFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto begin = static_cast<off_t>(offset);
  const auto size = static_cast<off_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw system_error("cannot write", path_, count < 0 ? errno : ENOSPC);
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  constexpr off_t worth_a_call = off_t{1} << 18;
  if (size >= worth_a_call) ::sync_file_range(descriptor_, begin, size, SYNC_FILE_RANGE_WRITE);
}

namespace {

std::atomic<std::uint64_t> all_synced_bytes = 0;

// No file, or no file system, of which parts can be synced.
bool has_no_parts(int error_number) {
  return error_number == EINVAL || error_number == ESPIPE || error_number == ENOSYS || error_number == EOPNOTSUPP;
}

}  // namespace

std::uint64_t synced_bytes() { return all_synced_bytes; }

void SharedFile::sync() {
  constexpr off_t piece = off_t{1} << 24;
  constexpr unsigned now = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const off_t size = ::lseek(descriptor_, 0, SEEK_END);
  for (off_t begin = 0; begin < size; begin += piece) {
    if (::sync_file_range(descriptor_, begin, piece, now) != 0) {
      if (has_no_parts(errno)) break;
      throw system_error("cannot sync", path_, errno);
    }
    all_synced_bytes += static_cast<std::uint64_t>(std::min(piece, size - begin));
  }
  if (::fsync(descriptor_) != 0) throw system_error("cannot sync", path_, errno);
}

FileDigest write_file_atomically(const fs::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(text);
  return file.commit();
}

void make_folder(const fs::path& folder) {
  if (folder.empty()) return;
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw system_error("cannot make the folder", folder, failure.value());
}

void sync_directory(const fs::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw system_error("cannot open", directory, errno);
  const int error_number = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some network file systems cannot sync a directory and say so with EINVAL; their renames are durable or not, alone.
  if (error_number != 0 && error_number != EINVAL) throw system_error("cannot sync", directory, error_number);
}

MappedFile MappedFile::open(const fs::path& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer before we can refuse it.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw system_error("cannot open", path, errno);
  struct stat status {};
  int error_number = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  const bool regular = error_number == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = nullptr;
  if (regular && size > 0) {
    address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) error_number = errno;
  }
  ::close(descriptor);
  if (error_number != 0) throw system_error("cannot read", path, error_number);
  if (!regular) throw Error(fmt::format("{} is not a regular file", path.string()), "name a file");
  return MappedFile({static_cast<const std::byte*>(address), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string read_file(const fs::path& path, std::uint64_t limit_bytes) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer before we can refuse it.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.number() < 0) throw system_error("cannot open", path, errno);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) throw system_error("cannot read", path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(fmt::format("{} is {}, not a regular file", path.string(), kind_of(status.st_mode)),
                "name a file; what comes from a pipe or a device is saved to one first");
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > limit_bytes) {
    throw Error(fmt::format("{} has {} bytes, more than the {} allowed here", path.string(), size, limit_bytes),
                "check that this is the file you meant");
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.number(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error("cannot read", path, errno);
    if (got == 0) {
      throw Error(fmt::format("{} was cut from {} to {} bytes while it was read", path.string(), size, done),
                  "read it again once nothing writes to it");
    }
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace quaver
