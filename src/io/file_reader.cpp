#include "io/file_reader.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {
namespace fs = std::filesystem;
namespace {

// The usual soft limit of 1024 open files is less than a large data set has; the hard one is ours to use.
bool raise_open_file_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

int open_descriptor(const fs::path& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer before we can refuse it.
  constexpr int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  int descriptor = ::open(path.c_str(), flags);
  if (descriptor < 0 && errno == EMFILE && raise_open_file_limit()) descriptor = ::open(path.c_str(), flags);
  if (descriptor < 0) throw system_error("cannot open", path, errno);
  return descriptor;
}

// Not the time of the last status change: removing another name of the file sets it.
bool same_content(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

FileReader::FileReader(fs::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

FileReader FileReader::open(const fs::path& path) {
  FileReader file(path, open_descriptor(path));
  if (::fstat(file.descriptor_, &file.opened_) != 0) throw system_error("cannot read", path, errno);
  if (!S_ISREG(file.opened_.st_mode)) {
    throw Error(fmt::format("{} is not a regular file", path.string()), "name a file");
  }
  return file;
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), opened_(other.opened_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(opened_, other.opened_);
  return *this;
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileReader::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto at = static_cast<off_t>(offset + done);
    const ssize_t count = ::pread(descriptor_, out.data() + done, out.size() - done, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw system_error(fmt::format("cannot read bytes {} to {} of", offset, offset + out.size()), path_, errno);
    }
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  // After reading: what changed before or meanwhile may be in the bytes.
  struct stat now {};
  if (::fstat(descriptor_, &now) != 0) throw system_error("cannot read", path_, errno);
  if (same_content(opened_, now) && done == out.size()) return;
  throw Error(fmt::format("{} changed while it was being read, noticed at bytes {} to {}: it had {} bytes, now {}",
                          path_.string(), offset, offset + out.size(), opened_.st_size, now.st_size),
              "restore the file, and leave it alone while it is in use");
}

}  // namespace quaver
