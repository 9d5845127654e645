// Images and labels in IDX files, as MNIST and Fashion-MNIST are published. The files are hostile until checked: every
// size in a header is compared with the file before anything is read by it.
#pragma once

#include <filesystem>
#include <optional>

#include "data/byte_images.h"
#include "io/file_reader.h"

namespace quaver {

struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};

// The files of a folder under their published names: train-images-idx3-ubyte, train-labels-idx1-ubyte, and t10k-… for
// validation; train-images.idx3-ubyte and so on will do too. Throws Error where the training files are missing.
struct IdxFolder {
  IdxFiles train;
  std::optional<IdxFiles> valid;
};
IdxFolder find_idx_files(const std::filesystem::path& folder);

class IdxImages final : public ByteImages {
 public:
  // Reads everything once. Throws Error for what is not a pair of such files.
  IdxImages(const IdxFiles& files, const ImageOptions& options);

 private:
  void read(std::uint64_t image, std::span<std::uint8_t> pixels) const override;
  void measure_bytes();

  FileReader file_;
  std::uint64_t first_byte_ = 0;  // of the first image
};

}  // namespace quaver
