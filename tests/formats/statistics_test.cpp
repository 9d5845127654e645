#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "formats/naive.h"
#include "formats/quantize.h"

namespace quaver {
namespace {

CastStatistics cast(const std::vector<float>& x, Detail detail) {
  naive::Storage out({.format = Format::e4m3}, 1, static_cast<Size>(x.size()));
  return quantize({x.data(), 1, static_cast<Size>(x.size())},
                  {.side = Side::rows, .given_scale = 1.0F, .random = {}, .detail = detail}, out.matrix);
}

TEST(Statistics, OfAKnownTensor) {
  const CastStatistics s = cast({3, -1, 0, 1000, 1e-5F, 1.03125F}, Detail::full);
  EXPECT_TRUE(s.full);
  EXPECT_EQ(s.count, 6U);
  EXPECT_EQ(s.saturated, 1U);
  EXPECT_EQ(s.underflowed, 1U);
  EXPECT_EQ(s.amax, 1000.0F);
  EXPECT_EQ(s.min_nonzero, 1e-5F);
  EXPECT_NEAR(s.mean(), (3 - 1 + 1000 + 1e-5 + 1.03125) / 6, 1e-9);
  EXPECT_NEAR(s.error2, 552.0 * 552 + 1e-10 + 0.03125 * 0.03125, 1e-6);
  EXPECT_NEAR(s.saturated_percent(), 100.0 / 6, 1e-12);
  EXPECT_NEAR(s.underflow_percent(), 100.0 / 6, 1e-12);
  EXPECT_EQ(s.binades[40 + 1], 1U);
  EXPECT_EQ(s.binades[40 + 0], 2U);
  EXPECT_EQ(s.binades[40 + 9], 1U);
  EXPECT_EQ(s.binades[40 - 17], 1U);
}

TEST(Statistics, OfANormalAreThoseOfANormal) {
  constexpr Size n = 1 << 16;
  std::vector<float> x(n);
  random_normals({1, 2, 3}, 0, x.data(), n);
  for (float& v : x) v = 2 * v + 1;
  const CastStatistics s = cast(x, Detail::full);
  EXPECT_NEAR(s.mean(), 1.0, 0.05);
  EXPECT_NEAR(s.std(), 2.0, 0.05);
  EXPECT_NEAR(s.rms(), std::sqrt(5.0), 0.05);
  EXPECT_NEAR(s.kurtosis(), (3 * 16 + 6 * 4 + 1) / 25.0, 0.05);
  EXPECT_NEAR(s.sqnr_db(), 31.5, 1.0);  // three mantissa bits: relative error uniform within 2^-4, plus the binades
}

TEST(Statistics, MergingPartsGivesTheWhole) {
  std::vector<float> x(1000);
  random_normals({4, 4, 4}, 0, x.data(), 1000);
  x[100] = std::numeric_limits<float>::quiet_NaN();
  const CastStatistics whole = cast(x, Detail::full);
  CastStatistics merged;
  merged.merge(cast({x.begin(), x.begin() + 333}, Detail::full));
  merged.merge(cast({x.begin() + 333, x.end()}, Detail::full));
  EXPECT_TRUE(merged.full);
  EXPECT_EQ(merged.count, whole.count);
  EXPECT_EQ(merged.nonfinite, 1U);
  EXPECT_EQ(merged.binades, whole.binades);
  EXPECT_EQ(merged.min_nonzero, whole.min_nonzero);
  EXPECT_NEAR(merged.sum, whole.sum, 1e-9);
  EXPECT_NEAR(merged.error2, whole.error2, 1e-9);
  merged.merge(cast(x, Detail::counts));
  EXPECT_FALSE(merged.full) << "its sums no longer cover every element it counts";
}

TEST(Statistics, CountsAreTheSameWithEitherDetail) {
  std::vector<float> x(3000);
  random_normals({5, 4, 4}, 0, x.data(), 3000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= std::exp2(static_cast<float>(i % 30) - 15.0F);
  const CastStatistics a = cast(x, Detail::counts), b = cast(x, Detail::full);
  EXPECT_FALSE(a.full);
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.saturated, b.saturated);
  EXPECT_EQ(a.underflowed, b.underflowed);
  EXPECT_EQ(a.amax, b.amax);
  EXPECT_GT(a.saturated, 0U);
  EXPECT_GT(a.underflowed, 0U);
}

TEST(Statistics, HugeAndTinyValuesDoNotOverflowTheSums) {
  const CastStatistics s = cast({3e38F, -3e38F, 1e-40F}, Detail::full);
  EXPECT_TRUE(std::isfinite(s.sum4));
  EXPECT_TRUE(std::isfinite(s.error2));
  EXPECT_NEAR(s.kurtosis(), 1.5, 1e-9);
  EXPECT_EQ(s.binades[0], 1U);
  EXPECT_EQ(s.binades[63], 2U);
}

TEST(Statistics, OfNothingAreZero) {
  const CastStatistics s;
  EXPECT_EQ(s.mean(), 0.0);
  EXPECT_EQ(s.std(), 0.0);
  EXPECT_EQ(s.rms(), 0.0);
  EXPECT_EQ(s.kurtosis(), 0.0);
  EXPECT_EQ(s.saturated_percent(), 0.0);
  EXPECT_EQ(s.underflow_percent(), 0.0);
  EXPECT_TRUE(std::isinf(s.sqnr_db())) << "nothing was lost";
}

}  // namespace
}  // namespace quaver
