// Files that survive a crash: written under a temporary name, synced, then renamed into place, so that a reader sees
// the old content or the new, never a part of it. Also read-only mapping of a file, and the CRC-32C that guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quaver/error.h"

namespace quaver {

// An Error for a failed system call: "<action> <path>: <errno text>", with the remedy that fits the errno.
Error system_error(std::string_view action, const std::filesystem::path& path, int error_number);

// CRC-32C (Castagnoli) of the bytes; pass the previous result to continue over several pieces. Uses the SSE 4.2
// instruction where the processor has it, else crc32c_portable, which gives the same value.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t previous = 0);
// Of two pieces one behind the other, from the checksum of each and the length of the second.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

struct FileDigest {
  std::uint64_t size = 0;
  std::uint32_t crc32c = 0;
  bool operator==(const FileDigest&) const = default;
};

// A file being written. Nothing exists under the target's name until commit(); a failed or abandoned file leaves no
// temporary behind and the previous target, if any, untouched. Every failure is an Error with the path and the remedy.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  // Overwrites bytes already written, such as a header whose figures were not known; the end stays where it was. The
  // digest that commit() gives is of the bytes as first written.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  const std::filesystem::path& path() const { return target_; }

  // Flushes, syncs, renames to the target and syncs the directory. Gives what was written; call once, last.
  FileDigest commit();

 private:
  void flush();
  void write_fully(std::span<const std::byte> bytes);
  void discard() noexcept;
  [[noreturn]] void fail(std::string_view action, int error_number);

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::vector<std::byte> buffer_;
  FileDigest digest_;
};

// A file of known size that several writers fill, each its own part. It is in place from the start: what belongs
// together is put into a folder that is renamed when all of them are done.
class SharedFile {
 public:
  static void create(const std::filesystem::path& path, std::uint64_t size);  // of zeros, with room on the disk

  explicit SharedFile(std::filesystem::path path);  // one that was created
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void sync();  // last; in pieces, each of which counts in synced_bytes()

 private:
  std::filesystem::path path_;
  int descriptor_;
};

// What SharedFile::sync has brought to disks in this process, so that a slow one can be told from one that hangs.
std::uint64_t synced_bytes();

FileDigest write_file_atomically(const std::filesystem::path& target, std::string_view text);

// A whole text file, as long as it was when it was opened. Error for what is not a regular file (a pipe is not waited
// for), is longer than limit_bytes, since what reads it keeps it in memory, or is cut while it is read. Every text file
// from outside is read by this.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

// Makes the folder and those above it, where they are not there yet; an empty path is the current one.
void make_folder(const std::filesystem::path& folder);

// Makes the entries of a directory (names made, renamed or removed in it) durable.
void sync_directory(const std::filesystem::path& directory);

// A regular file mapped read-only. The spans it gives live as long as it does. A file that another process shortens
// while it is mapped faults on access; files written by AtomicFile are replaced, never shortened. What others may write
// to is read with FileReader (file_reader.h).
class MappedFile {
 public:
  static MappedFile open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace quaver
