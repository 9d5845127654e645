// Synthetic images: the same for the same seed and index, normalized, and as hard as they claim to be.
#include "data/synthetic_images.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "data/expect_error.h"

namespace quaver::test {
namespace {

struct Images {
  Images(const SyntheticImages& source, std::uint64_t index, std::int64_t batch)
      : pixels(static_cast<std::size_t>(batch * source.pixels())), labels(static_cast<std::size_t>(batch)) {
    source.fill(index, batch, pixels.data(), labels.data());
  }
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
};

// The class whose pattern the image has most of, whichever its sign: what no classifier can beat.
int best_guess(const SyntheticImages& source, const float* image) {
  int best = 0;
  double most = -1;
  for (int c = 0; c < source.classes(); ++c) {
    const double share = std::abs(std::inner_product(image, image + source.pixels(), source.pattern(c), 0.0));
    if (share > most) {
      most = share;
      best = c;
    }
  }
  return best;
}

TEST(SyntheticImages, ABatchIsAFunctionOfSeedAndIndex) {
  const SyntheticImages source({.seed = 3});
  const Images whole(source, 1, 8);
  const Images half(source, 3, 4);  // images 12 to 15 either way
  EXPECT_TRUE(std::equal(half.pixels.begin(), half.pixels.end(), whole.pixels.begin() + 4 * 256));
  EXPECT_TRUE(std::equal(half.labels.begin(), half.labels.end(), whole.labels.begin() + 4));
  EXPECT_NE(Images(source, 2, 8).pixels, whole.pixels);
  EXPECT_NE(Images(SyntheticImages({.seed = 4}), 1, 8).pixels, whole.pixels);
  EXPECT_NE(Images(SyntheticImages({.seed = 3, .stream = 1}), 1, 8).pixels, whole.pixels);
}

TEST(SyntheticImages, ValidationImagesHaveThePatternsOfTraining) {
  const SyntheticImages train({.seed = 3});
  const SyntheticImages valid({.seed = 3, .stream = 1});
  EXPECT_TRUE(std::equal(train.pattern(0), train.pattern(0) + 10 * 256, valid.pattern(0)));
  EXPECT_NE(train.content_hash(), valid.content_hash());
}

// In tiles too, which repeat all over the image.
TEST(SyntheticImages, TiledPatternsAreOrthonormalAndRepeat) {
  const SyntheticImages source({.classes = 7, .pixels = 6 * 6 * 2, .channels = 2, .tile = 2, .seed = 1});
  EXPECT_EQ(source.shape().height, 6);
  EXPECT_EQ(source.shape().channels, 2);
  for (int a = 0; a < 7; ++a) {
    for (int b = 0; b < 7; ++b) {
      const double product = std::inner_product(source.pattern(a), source.pattern(a) + 72, source.pattern(b), 0.0);
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-12) << a << ", " << b;
    }
    for (int i = 0; i + 2 * 12 < 72; ++i) EXPECT_EQ(source.pattern(a)[i], source.pattern(a)[i + 24]) << "two rows down";
    for (int i = 0; i < 8; ++i) EXPECT_EQ(source.pattern(a)[i], source.pattern(a)[i + 4]) << "two pixels right";
  }
}

TEST(SyntheticImages, ShapesThatDoNotFitAreRefused) {
  expect_error([] { SyntheticImages({.pixels = 256, .channels = 3}); }, "256 pixels in 3 channels");
  expect_error([] { SyntheticImages({.pixels = 256, .tile = 3}); }, "not made of tiles of 3 × 3");
  expect_error([] { SyntheticImages({.pixels = 256, .tile = 2}); }, "too small for 10 classes");
  EXPECT_EQ(SyntheticImages({.pixels = 300}).shape().height, 1) << "no square";
}

TEST(SyntheticImages, PatternsAreOrthonormal) {
  const SyntheticImages source({.classes = 7, .pixels = 9, .seed = 1});
  for (int a = 0; a < 7; ++a) {
    for (int b = 0; b < 7; ++b) {
      const double product = std::inner_product(source.pattern(a), source.pattern(a) + 9, source.pattern(b), 0.0);
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-12) << a << ", " << b;
    }
  }
}

TEST(SyntheticImages, PixelsHaveZeroMeanAndUnitVariance) {
  const SyntheticImages source({.classes = 4, .pixels = 16, .strength = 6, .seed = 5});
  const Images images(source, 0, 20000);
  double sum = 0;
  double squares = 0;
  for (const float pixel : images.pixels) {
    sum += pixel;
    squares += static_cast<double>(pixel) * pixel;
  }
  EXPECT_NEAR(sum / static_cast<double>(images.pixels.size()), 0, 0.01);
  EXPECT_NEAR(squares / static_cast<double>(images.pixels.size()), 1, 0.01);
}

TEST(SyntheticImages, TheBestClassifierReachesTheBestAccuracy) {
  for (const double strength : {1.0, 2.5, 4.0}) {
    const SyntheticImages source({.classes = 10, .pixels = 16, .strength = strength, .seed = 2});
    const Images images(source, 0, 20000);
    int correct = 0;
    for (std::size_t i = 0; i < images.labels.size(); ++i) {
      correct += best_guess(source, images.pixels.data() + i * 16) == images.labels[i] ? 1 : 0;
    }
    EXPECT_NEAR(correct / 20000.0, source.best_accuracy(), 0.011) << strength;  // three standard errors
  }
}

TEST(SyntheticImages, WithoutAPatternTheBestIsChance) {
  const SyntheticImages source({.classes = 8, .pixels = 8, .strength = 0});
  EXPECT_NEAR(source.best_accuracy(), 1.0 / 8, 1e-9);
  EXPECT_NEAR(source.best_loss(), std::log(8), 1e-9);
  EXPECT_NEAR(SyntheticImages({.strength = 20}).best_accuracy(), 1, 1e-9);
  EXPECT_NEAR(SyntheticImages({.strength = 20}).best_loss(), 0, 1e-9);
}

// Two classes: the posterior of an image from its two projections, by Bayes' rule.
TEST(SyntheticImages, TheBestLossIsThatOfThePosterior) {
  const SyntheticImages source({.classes = 2, .pixels = 2, .strength = 1.5, .seed = 9});
  const Images images(source, 0, 20000);
  const double noise = 1 / std::sqrt(1 + 1.5 * 1.5 / 2);
  double loss = 0;
  for (std::size_t i = 0; i < images.labels.size(); ++i) {
    double density[2];
    for (int c = 0; c < 2; ++c) {
      density[c] = 0;
      for (const double sign : {-1.0, 1.0}) {
        double distance2 = 0;
        for (int p = 0; p < 2; ++p) {
          const double from =
              images.pixels[2 * i + static_cast<std::size_t>(p)] / noise - sign * 1.5 * source.pattern(c)[p];
          distance2 += from * from;
        }
        density[c] += std::exp(-distance2 / 2);
      }
    }
    loss -= std::log(density[images.labels[i]] / (density[0] + density[1]));
  }
  EXPECT_NEAR(loss / 20000, source.best_loss(), 0.015);
}

TEST(SyntheticImages, RefusesWhatHasNoPatterns) {
  expect_error([] { SyntheticImages({.classes = 1}); }, "1 classes");
  expect_error([] { SyntheticImages({.classes = 17, .pixels = 16}); }, "16 pixels");
  expect_error([] { SyntheticImages({.strength = -1}); }, "strength");
}

}  // namespace
}  // namespace quaver::test
