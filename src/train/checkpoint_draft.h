// The tensors of a checkpoint being written, by one process or by the ranks of a run together: the first makes the
// files, each writes the tensors whose data it has, and the checksums of all of them give those of the files.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/file_io.h"
#include "io/safetensors.h"

namespace quaver {

struct CheckpointContent;

class CheckpointDraft {
 public:
  // The content must outlive it.
  CheckpointDraft(std::filesystem::path folder, const CheckpointContent& content);

  void create() const;

  // Of each tensor the checksum; 0 where it is not written here.
  using Checksums = std::vector<std::uint32_t>;
  Checksums write() const;

  std::map<std::string, FileDigest> digests(const Checksums& all) const;

 private:
  struct File {
    std::string name;
    const std::vector<TensorEntry>* tensors;
    SafetensorsLayout layout;
  };

  std::filesystem::path folder_;
  std::array<File, 2> files_;
};

}  // namespace quaver
