// Augmented images: moved and mirrored as the seed and the example's number say, whatever the batch.
#include "data/augmented_images.h"

#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "data/expect_error.h"

namespace quaver::test {
namespace {

constexpr ImageShape three_by_four{.height = 3, .width = 4, .channels = 2};

// Every value of an image is its place, from 1 on.
class NumberedImages final : public ImageSource {
 public:
  void fill(std::uint64_t, std::int64_t batch, float* images, std::int32_t* labels) const override {
    for (std::int64_t i = 0; i < batch * pixels(); ++i) images[i] = static_cast<float>(i % pixels() + 1);
    for (std::int64_t i = 0; i < batch; ++i) labels[i] = static_cast<std::int32_t>(i % 2);
  }
  ImageShape shape() const override { return three_by_four; }
  int classes() const override { return 2; }
  std::uint64_t images() const override { return 0; }
  std::uint64_t content_hash() const override { return 5; }
};

std::vector<float> augmented(const Augmentation& augmentation, std::uint64_t index, std::int64_t batch) {
  const AugmentedImages source(std::make_unique<NumberedImages>(), augmentation);
  std::vector<float> images(static_cast<std::size_t>(batch * source.pixels()));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(batch));
  source.fill(index, batch, images.data(), labels.data());
  return images;
}

float pixel(const float* image, std::int64_t y, std::int64_t x, std::int64_t channel) {
  const bool inside = y >= 0 && y < 3 && x >= 0 && x < 4;
  return inside ? image[(y * 4 + x) * 2 + channel] : 0.0F;
}

// The image moved by (down, right), and mirrored before.
std::vector<float> moved(std::int64_t down, std::int64_t right, bool mirrored) {
  const std::vector<float> plain = augmented({}, 0, 1);
  std::vector<float> image;
  for (std::int64_t y = 0; y < 3; ++y) {
    for (std::int64_t x = 0; x < 4; ++x) {
      for (std::int64_t c = 0; c < 2; ++c) {
        image.push_back(pixel(plain.data(), y - down, mirrored ? 3 - (x - right) : x - right, c));
      }
    }
  }
  return image;
}

TEST(AugmentedImages, EveryChangeIsAMoveAndAMirrorAndEachOccurs) {
  const std::vector<float> images = augmented({.shift = 1, .mirror = Mirror::half, .seed = 3}, 0, 400);
  std::set<std::vector<float>> expected;
  for (const std::int64_t down : {-1, 0, 1}) {
    for (const std::int64_t right : {-1, 0, 1}) {
      for (const bool mirrored : {false, true}) expected.insert(moved(down, right, mirrored));
    }
  }
  ASSERT_EQ(expected.size(), 18U);
  std::set<std::vector<float>> seen;
  for (auto image = images.begin(); image != images.end(); image += 24) seen.insert({image, image + 24});
  EXPECT_EQ(seen, expected);
}

TEST(AugmentedImages, TheyAreAFunctionOfSeedAndExample) {
  const Augmentation augmentation{.shift = 2, .mirror = Mirror::half, .seed = 3};
  const std::vector<float> whole = augmented(augmentation, 1, 8);
  const std::vector<float> half = augmented(augmentation, 3, 4);  // examples 12 to 15 either way
  EXPECT_TRUE(std::equal(half.begin(), half.end(), whole.begin() + 4 * 24));
  EXPECT_NE(augmented(augmentation, 2, 8), whole);
  EXPECT_NE(augmented({.shift = 2, .mirror = Mirror::half, .seed = 4}, 1, 8), whole);
}

TEST(AugmentedImages, AMoveOutOfTheImageIsRefused) {
  expect_error([] { augmented({.shift = 3}, 0, 1); }, "cannot be moved by 3");
}

}  // namespace
}  // namespace quaver::test
