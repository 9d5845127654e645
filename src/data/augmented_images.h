// Images of another source, moved and mirrored at random: what keeps a classifier from learning them by heart. What is
// done to an image is a function of the seed and of the example's number, so a resumed run sees the same images.
#pragma once

#include <memory>

#include "data/image_source.h"

namespace quaver {

enum class Mirror : std::uint8_t { never, half };  // half: every second image on average, left to right

struct Augmentation {
  std::int64_t shift = 0;  // by at most so many pixels in each direction; zeros, the mean, move in
  Mirror mirror = Mirror::never;
  std::uint64_t seed = 0;

  bool changes_images() const { return shift > 0 || mirror == Mirror::half; }
};

class AugmentedImages final : public ImageSource {
 public:
  AugmentedImages(std::unique_ptr<ImageSource> source, const Augmentation& augmentation);

  void fill(std::uint64_t batch_index, std::int64_t batch, float* images, std::int32_t* labels) const override;
  ImageShape shape() const override { return source_->shape(); }
  int classes() const override { return source_->classes(); }
  std::uint64_t images() const override { return source_->images(); }
  std::uint64_t content_hash() const override { return source_->content_hash(); }

 private:
  std::unique_ptr<ImageSource> source_;
  Augmentation augmentation_;
};

}  // namespace quaver
