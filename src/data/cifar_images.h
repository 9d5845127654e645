// CIFAR-10 and CIFAR-100 in their binary files, as published: 32 × 32 pixels in three planes of bytes behind a label,
// or two. The files are hostile until checked.
#pragma once

#include <filesystem>
#include <vector>

#include "data/byte_images.h"
#include "io/file_reader.h"

namespace quaver {

// The files of a folder under their published names: data_batch_1.bin to data_batch_5.bin and test_batch.bin
// (CIFAR-10), or train.bin and test.bin (CIFAR-100, of which the fine labels are read).
struct CifarFiles {
  std::vector<std::filesystem::path> train = {};
  std::vector<std::filesystem::path> valid = {};  // none: nothing to validate with
  int label_bytes = 1;                            // in front of an image; the last of them is the class
};
// Throws Error where there are none.
CifarFiles find_cifar_files(const std::filesystem::path& folder);

class CifarImages final : public ByteImages {
 public:
  // Reads everything once. Throws Error for what is not such a file.
  CifarImages(const std::vector<std::filesystem::path>& files, int label_bytes, const ImageOptions& options);

 private:
  void read(std::uint64_t image, std::span<std::uint8_t> pixels) const override;

  std::vector<FileReader> files_;
  std::vector<std::uint64_t> ends_;  // of each file: the number of images up to there
  std::uint64_t label_bytes_;
};

}  // namespace quaver
