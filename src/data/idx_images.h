// Images and labels in IDX files, as MNIST and Fashion-MNIST are published. The files are hostile until checked: every
// size in a header is compared with the file before anything is read by it.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "data/image_source.h"
#include "io/file_reader.h"

namespace quaver {

// Pixels become (byte − mean) / deviation.
struct Normalization {
  double mean = 0;
  double deviation = 1;
};

// once: in order, and behind the last image there is none. shuffled: endless, every epoch in an order of its own that
// depends only on seed and epoch.
enum class ImageOrder : std::uint8_t { once, shuffled };

struct IdxOptions {
  ImageOrder order = ImageOrder::shuffled;
  std::uint64_t seed = 0;
  std::optional<Normalization> normalization = {};  // empty: to zero mean and unit variance over all these images
  int classes = 0;                                  // 0: one more than the largest label
};

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

class IdxImages final : public ImageSource {
 public:
  // Reads everything once. Throws Error for what is not a pair of such files.
  IdxImages(const IdxFiles& files, const IdxOptions& options);

  void fill(std::uint64_t batch_index, std::int64_t batch, float* images, std::int32_t* labels) const override;
  std::int64_t pixels() const override { return pixels_; }
  int classes() const override { return classes_; }
  std::uint64_t images() const override { return labels_.size(); }
  std::uint64_t content_hash() const override { return hash_; }
  const Normalization& normalization() const { return normalization_; }

 private:
  void measure(const IdxOptions& options);
  void check_labels(const std::filesystem::path& path);

  FileReader file_;
  std::uint64_t first_byte_ = 0;  // of the first image
  std::int64_t pixels_ = 0;
  std::vector<std::uint8_t> labels_;
  int classes_;
  ImageOrder order_;
  std::uint64_t seed_;
  Normalization normalization_;
  std::uint64_t hash_ = 0;
};

}  // namespace quaver
