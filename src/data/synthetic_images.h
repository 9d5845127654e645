// Endless images whose best possible accuracy is known: a classifier trained on them has a mark to reach, so that what
// a number format costs can be read off in percent.
#pragma once

#include <vector>

#include "data/image_source.h"

namespace quaver {

struct SyntheticImagesOptions {
  int classes = 10;
  std::int64_t pixels = 256;  // of all channels together, at least as many as classes
  std::int64_t channels = 1;
  // Patterns repeat in tiles of so many pixels down and across, so that a small window knows them; 0: they do not
  // repeat. Else the image is a square of whole tiles, with no fewer values in a tile than classes.
  std::int64_t tile = 0;
  double strength = 4;       // how far a prototype lies from the mean image, in standard deviations of the noise
  std::uint64_t seed = 0;    // of the prototypes and of the images
  std::uint32_t stream = 0;  // which images of the same classes: 0 to train on, 1 to validate with
};

// Each class has a pattern, orthogonal to those of the others; an image is the pattern or its negative, with Gaussian
// noise on every pixel. As all classes have the same mean, a linear classifier does no better than chance. Pixels have
// zero mean, and unit variance over all of an image.
class SyntheticImages final : public ImageSource {
 public:
  explicit SyntheticImages(const SyntheticImagesOptions& options);

  void fill(std::uint64_t batch_index, std::int64_t batch, float* images, std::int32_t* labels) const override;
  ImageShape shape() const override;
  int classes() const override { return options_.classes; }
  std::uint64_t images() const override { return 0; }
  std::uint64_t content_hash() const override;

  // Of the classifier that knows the patterns: that of the largest projection is the likeliest class.
  double best_accuracy() const;
  // Its cross-entropy in nats, a mean over 65,536 draws: within 0.01 of the expectation.
  double best_loss() const;

  // The pattern of a class, with unit norm.
  const double* pattern(int of_class) const { return patterns_.data() + of_class * options_.pixels; }

 private:
  SyntheticImagesOptions options_;
  std::vector<double> patterns_;  // [classes × pixels], orthonormal rows
  double noise_;                  // its standard deviation: 1 less what the patterns add
};

}  // namespace quaver
