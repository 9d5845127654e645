#include "data/augmented_images.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "formats/random.h"
#include "quaver/error.h"

namespace quaver {
namespace {

struct Change {
  std::int64_t down = 0;
  std::int64_t right = 0;
  bool mirrored = false;
};

Change change_of(const Augmentation& augmentation, std::uint64_t example) {
  const RandomKey key{augmentation.seed, 0, stream_of("augmentation")};
  const auto draw = [&](std::uint64_t number, std::uint64_t among) {
    return static_cast<std::int64_t>((std::uint64_t{random_word(key, 3 * example + number)} * among) >> 32U);
  };
  const auto places = static_cast<std::uint64_t>(2 * augmentation.shift + 1);
  return {draw(0, places) - augmentation.shift, draw(1, places) - augmentation.shift,
          augmentation.mirror == Mirror::half && draw(2, 2) == 1};
}

// Pixel (y, x) of the result is that of the source moved down and right, and mirrored before.
void apply(const Change& change, const ImageShape& shape, const float* from, float* to) {
  for (std::int64_t y = 0; y < shape.height; ++y) {
    for (std::int64_t x = 0; x < shape.width; ++x, to += shape.channels) {
      const std::int64_t row = y - change.down;
      const std::int64_t moved = x - change.right;
      if (row < 0 || row >= shape.height || moved < 0 || moved >= shape.width) {
        std::fill_n(to, shape.channels, 0.0F);
        continue;
      }
      const std::int64_t col = change.mirrored ? shape.width - 1 - moved : moved;
      std::copy_n(from + (row * shape.width + col) * shape.channels, shape.channels, to);
    }
  }
}

}  // namespace

AugmentedImages::AugmentedImages(std::unique_ptr<ImageSource> source, const Augmentation& augmentation)
    : source_(std::move(source)), augmentation_(augmentation) {
  const ImageShape shape = source_->shape();
  if (augmentation.shift >= 0 && augmentation.shift < std::min(shape.height, shape.width)) return;
  throw Error(
      fmt::format("images of {} × {} pixels cannot be moved by {}", shape.height, shape.width, augmentation.shift),
      "choose a smaller data.augment_shift");
}

void AugmentedImages::fill(std::uint64_t batch_index, std::int64_t batch, float* images, std::int32_t* labels) const {
  source_->fill(batch_index, batch, images, labels);
  const ImageShape shape = source_->shape();
  std::vector<float> before(static_cast<std::size_t>(shape.pixels()));
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::uint64_t example = batch_index * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
    float* image = images + row * shape.pixels();
    std::copy_n(image, shape.pixels(), before.begin());
    apply(change_of(augmentation_, example), shape, before.data(), image);
  }
}

}  // namespace quaver
