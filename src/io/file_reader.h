// A file read at any offset through an open descriptor. Where a mapped file that is shortened ends the process with a
// signal, or turns to zeros, this gives an Error that names the file and the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <sys/stat.h>

namespace quaver {

// Safe to use from several threads. Keeps its descriptor: a file that is removed or replaced under its name stays
// readable as it was.
class FileReader {
 public:
  static FileReader open(const std::filesystem::path& path);  // Error for what is not a regular file
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;
  ~FileReader();

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return static_cast<std::uint64_t>(opened_.st_size); }

  // All of out, from the offset. Error where the file ends before, where the device fails, and where the file was
  // written to or cut off since it was opened.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  FileReader(std::filesystem::path path, int descriptor);

  std::filesystem::path path_;
  int descriptor_;
  struct stat opened_ {};
};

}  // namespace quaver
