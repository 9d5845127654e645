#include "formats/random.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "formats/philox.h"

namespace quaver {
namespace {

TEST(Philox, KnownAnswers) {
  const PhiloxBlock zero = philox_block({0, 0, 0, 0}, 0, 0);
  EXPECT_EQ(zero.w0, 0x6627E8D5U);
  EXPECT_EQ(zero.w1, 0xE169C58DU);
  EXPECT_EQ(zero.w2, 0xBC57AC4CU);
  EXPECT_EQ(zero.w3, 0x9B00DBD8U);
  constexpr std::uint32_t ones = 0xFFFFFFFFU;
  const PhiloxBlock all = philox_block({ones, ones, ones, ones}, ones, ones);
  EXPECT_EQ(all.w0, 0x408F276DU);
  EXPECT_EQ(all.w1, 0x41C83B0EU);
  EXPECT_EQ(all.w2, 0xA20BC7C6U);
  EXPECT_EQ(all.w3, 0x6D5451FDU);
}

TEST(Random, WordsDependOnlyOnKeyAndIndex) {
  const RandomKey key{0x123456789ABCDEFULL, 7, 42};
  for (const std::uint64_t first : {0ULL, 1ULL, 5ULL, 4294967295ULL * 4 - 3, 0xFFFFFFFFFFULL}) {
    for (std::int64_t count = 0; count <= 131; ++count) {
      std::vector<std::uint32_t> words(static_cast<std::size_t>(count) + 1, 0xABCDU);
      random_words(key, first, words.data(), count);
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(words[i], random_word(key, first + static_cast<std::uint64_t>(i))) << first << " " << i;
      }
      ASSERT_EQ(words.back(), 0xABCDU);
    }
  }
}

TEST(Random, SeedStepAndStreamEachChangeTheWords) {
  const std::uint32_t base = random_word({1, 2, 3}, 10);
  EXPECT_NE(base, random_word({2, 2, 3}, 10));
  EXPECT_NE(base, random_word({1ULL << 32 | 1, 2, 3}, 10));
  EXPECT_NE(base, random_word({1, 3, 3}, 10));
  EXPECT_NE(base, random_word({1, 2, 4}, 10));
  EXPECT_NE(base, random_word({1, 2, 3}, 11));
}

TEST(Random, NormalsHaveTheMomentsOfANormal) {
  constexpr std::int64_t n = 1 << 18;
  std::vector<float> x(n);
  random_normals({3, 1, 4}, 0, x.data(), n);
  double sum = 0, sum2 = 0, sum3 = 0, sum4 = 0;
  for (const float v : x) {
    const double d = v;
    sum += d;
    sum2 += d * d;
    sum3 += d * d * d;
    sum4 += d * d * d * d;
  }
  // Five standard deviations of each estimate: variances 1, 2, 15 and 96 over n.
  EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(sum2 / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(sum3 / n, 0, 5 * std::sqrt(15.0 / n));
  EXPECT_NEAR(sum4 / n, 3, 5 * std::sqrt(96.0 / n));
}

TEST(Random, NormalsCanBeDrawnInPieces) {
  std::vector<float> whole(1000), piece(300);
  const RandomKey key{9, 9, 9};
  random_normals(key, 0, whole.data(), 1000);
  random_normals(key, 501, piece.data(), 300);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(piece[i], whole[501 + i]);
}

TEST(Random, StreamOfIsFnv1a) {
  EXPECT_EQ(stream_of(""), 0x811C9DC5U);
  EXPECT_EQ(stream_of("a"), 0xE40C292CU);
  EXPECT_EQ(stream_of("foobar"), 0xBF9CF968U);
}

}  // namespace
}  // namespace quaver
