// A model folder while it is written: under another name until it is complete, its tensors in one safetensors file or
// several with an index, written in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace quaver {

// A folder under another name beside its own, which it gets when it is complete. The name must be free, or that of an
// empty folder: Error otherwise.
class StagedFolder {
 public:
  explicit StagedFolder(const std::filesystem::path& target);
  ~StagedFolder();  // removes what was not committed
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  std::filesystem::path operator/(const std::string& name);  // a file to be written
  void copy(const std::filesystem::path& file);              // under its own name
  std::vector<std::filesystem::path> commit();               // the files, where they are now

 private:
  std::filesystem::path target_;
  std::filesystem::path staged_;
  std::vector<std::string> names_;
};

// Files with all their tensors at their full size, so that a disk without the room is known at once.
class WeightFiles {
 public:
  struct File {
    std::string name;
    std::vector<TensorSpec> tensors;
  };
  WeightFiles(StagedFolder& folder, const std::vector<File>& files);

  // Bytes of a tensor from an offset within it. Threads may write at a time.
  void write(const std::string& tensor, std::uint64_t offset, std::span<const std::byte> bytes);

  // Once all is written: makes it durable, and adds the index unless there is one file that has a model's usual name.
  enum class Index : std::uint8_t { where_needed, none };
  void finish(Index index = Index::where_needed);
  std::uint64_t bytes() const { return bytes_; }  // of all tensors

 private:
  struct Place {
    std::size_t file = 0;
    std::uint64_t offset = 0;
  };
  StagedFolder& folder_;
  std::vector<std::string> names_;
  std::deque<SharedFile> files_;
  std::map<std::string, Place, std::less<>> places_;
  std::uint64_t bytes_ = 0;
};

}  // namespace quaver
