// Files as the data module needs them: mapped read-only, or written under a temporary name and renamed when complete,
// so that a reader never sees half a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace quaver {

// The bytes of a file, mapped for as long as the object lives. The file must not be shortened meanwhile.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// Writes to "<path>.partial-<pid>"; commit() makes it durable and gives it its name. Destroyed uncommitted, it leaves
// nothing behind.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);  // the end stays where it was
  void commit();

  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// A whole text file. Error if it is longer than limit_bytes: what reads it keeps it in memory.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

}  // namespace quaver
