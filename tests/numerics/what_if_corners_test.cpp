// The model of a cast at the ends of the histogram, for single elements, and from what statistics say.
#include <cmath>
#include <gtest/gtest.h>

#include "numerics/what_if.h"

namespace quaver::test {
namespace {

std::size_t bin_of(int exponent) { return static_cast<std::size_t>(exponent - lowest_binade); }

// The outermost binades count what lies beyond them: how far, the smallest and the largest value tell.
TEST(WhatIfCorners, TheOutermostBinadesReachAsFarAsTheirValues) {
  Distribution large;
  large.binades.back() = 1000;
  large.amax = 0x1p30F;
  EXPECT_NEAR(what_if(large, Format::e4m3, 1.0F).headroom_log2, std::log2(448.0) - 30, 1e-5);
  Distribution small;
  small.binades.front() = 1'000'000;
  small.min_nonzero = 0x1p-60F;
  // Evenly in the logarithm over 2^-60 … 2^-39, of which E4M3 at a scale of 2^40 loses what lies below 2^-50.
  EXPECT_NEAR(what_if(small, Format::e4m3, 0x1p40F).underflow_percent, 100 * 10.0 / 21, 3);
}

// Two elements, of which the larger is known: the other is still there.
TEST(WhatIfCorners, TheLargestElementIsTakenFromItsOwnBinadeAlone) {
  Distribution two;
  two.binades[bin_of(-12)] = 1;
  two.binades[bin_of(0)] = 1;
  two.amax = 1;
  EXPECT_NEAR(what_if(two, Format::e4m3, 1.0F).underflow_percent, 50, 1e-6);
}

// 0.375 of the smallest value of E4M3, 2^-9: stochastic rounding takes five eighths of such elements to zero.
TEST(WhatIfCorners, AnElementBelowTheSmallestValueIsOftenZero) {
  Distribution one;
  one.binades[bin_of(-11)] = 1;
  one.amax = 1.5F * 0x1p-11F;
  EXPECT_NEAR(what_if(one, Format::e4m3, 1.0F, Rounding::stochastic).underflow_percent, 62.5, 1e-6);
  EXPECT_NEAR(what_if(one, Format::e4m3, 1.0F).underflow_percent, 100, 1e-6);
  one.amax = 1.25F * 0x1p-11F;
  EXPECT_NEAR(what_if(one, Format::e4m3, 1.0F, Rounding::stochastic).underflow_percent, 100 * (1 - 0.3125), 1e-6);
}

TEST(WhatIfCorners, AScaleTakesItsBinadesFromTheHeadroom) {
  Distribution one;
  one.binades[bin_of(0)] = 10;
  one.amax = 1.75F;
  EXPECT_NEAR(what_if(one, Format::e4m3, 1.0F).headroom_log2, 8, 1e-6);
  EXPECT_NEAR(what_if(one, Format::e4m3, 4.0F).headroom_log2, 6, 1e-6);
  EXPECT_NEAR(what_if(one, Format::e4m3, 0.5F).headroom_log2, 9, 1e-6);
  EXPECT_NEAR(what_if(one, Format::e4m3).headroom_log2, 0, 1e-6);
  EXPECT_EQ(what_if(one, Format::e4m3).scale, 256);
  EXPECT_EQ(what_if(one, Format::e4m3).format, Format::e4m3);
}

TEST(WhatIfCorners, ADistributionIsOfFullStatisticsAlone) {
  CastStatistics seen;
  seen.count = 10;
  seen.nonfinite = 4;
  seen.amax = 3;
  seen.min_nonzero = 0.25F;
  seen.sum2 = 24;
  seen.binades[7] = 5;
  EXPECT_EQ(distribution_of(seen).count, 0);
  EXPECT_EQ(distribution_of(seen).binades[7], 0U);
  seen.full = true;
  const Distribution full = distribution_of(seen);
  EXPECT_EQ(full.count, 6);
  EXPECT_EQ(full.amax, 3);
  EXPECT_EQ(full.min_nonzero, 0.25F);
  EXPECT_EQ(full.binades[7], 5U);
  EXPECT_EQ(full.rms, seen.rms());
  seen.min_nonzero = std::numeric_limits<float>::infinity();
  EXPECT_EQ(distribution_of(seen).min_nonzero, 0);
}

TEST(WhatIfCorners, ADistributionOfFiguresTakesWhatIsUsable) {
  SiteSample values;
  Binades binades{};
  binades[3] = 2;
  values[Statistic::amax] = 4;
  values[Statistic::min_nonzero] = std::numeric_limits<float>::infinity();
  const Distribution found = distribution_of(values, binades);
  EXPECT_EQ(found.amax, 4);
  EXPECT_EQ(found.min_nonzero, 0);
  EXPECT_EQ(found.rms, 0);
  EXPECT_EQ(found.count, 0);
  EXPECT_EQ(found.binades[3], 2U);
  values[Statistic::min_nonzero] = 0.5F;
  values[Statistic::rms] = 2;
  EXPECT_EQ(distribution_of(values, binades).min_nonzero, 0.5F);
  EXPECT_EQ(distribution_of(values, binades).rms, 2);
}

TEST(WhatIfCorners, FormatsStandInTheirOrder) {
  const auto formats = what_if_formats();
  const std::vector<Format> expected{Format::e2m1, Format::e4m3, Format::e5m2, Format::f16, Format::bf16};
  EXPECT_EQ(std::vector<Format>(formats.begin(), formats.end()), expected);
}

}  // namespace
}  // namespace quaver::test
