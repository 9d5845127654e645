// The model of a cast where it can be computed by hand: elements spread evenly over one binade.
#include <cmath>
#include <gtest/gtest.h>

#include "numerics/what_if.h"

namespace quaver::test {
namespace {

// A million elements in [2^exponent, 2^(exponent+1)), of which neither end is known.
Distribution one_binade(int exponent) {
  Distribution distribution;
  distribution.binades[static_cast<std::size_t>(exponent - lowest_binade)] = 1'000'000;
  return distribution;
}

double decibels(double signal2, double error2) { return 10 * std::log10(signal2 / error2); }

// Over [1, 2) the mean square is 7/3. Nearest rounding to steps of 2^-m has an error of a twelfth of the step's square,
// stochastic rounding of a sixth.
TEST(WhatIfByHand, RoundingNoiseOfFineFormats) {
  const Distribution values = one_binade(0);
  for (const auto& [format, bits] :
       {std::pair(Format::bf16, 7), std::pair(Format::f16, 10), std::pair(Format::tf32, 10)}) {
    const double step2 = std::exp2(-2.0 * bits);
    EXPECT_NEAR(what_if(values, format, 1.0F).sqnr_db, decibels(7.0 / 3, step2 / 12), 0.05) << info(format).name;
    EXPECT_NEAR(what_if(values, format, 1.0F, Rounding::stochastic).sqnr_db, decibels(7.0 / 3, step2 / 6), 0.05)
        << info(format).name;
    EXPECT_EQ(what_if(values, format, 1.0F).scale, 1);
  }
}

TEST(WhatIfByHand, RoundingNoiseOfLowPrecision) {
  const Distribution values = one_binade(0);
  for (const auto& [format, bits] :
       {std::pair(Format::e4m3, 3), std::pair(Format::e5m2, 2), std::pair(Format::e2m1, 1)}) {
    const double step2 = std::exp2(-2.0 * bits);
    EXPECT_NEAR(what_if(values, format, 1.0F).sqnr_db, decibels(7.0 / 3, step2 / 12), 0.1) << info(format).name;
    EXPECT_NEAR(what_if(values, format, 1.0F, Rounding::stochastic).sqnr_db, decibels(7.0 / 3, step2 / 6), 0.1)
        << info(format).name;
  }
}

// E4M3's smallest value is 2^-9: nearest rounding gives zero below 2^-10, stochastic rounding with probability 1 − x/u
// below u = 2^-9, which is a quarter over the upper half of that.
TEST(WhatIfByHand, Underflow) {
  EXPECT_NEAR(what_if(one_binade(-11), Format::e4m3, 1.0F).underflow_percent, 100, 1e-6);
  EXPECT_NEAR(what_if(one_binade(-10), Format::e4m3, 1.0F).underflow_percent, 0, 1e-6);
  EXPECT_NEAR(what_if(one_binade(-10), Format::e4m3, 1.0F, Rounding::stochastic).underflow_percent, 25, 0.1);
  EXPECT_NEAR(what_if(one_binade(-11), Format::e4m3, 1.0F, Rounding::stochastic).underflow_percent, 62.5, 0.1);
  EXPECT_NEAR(what_if(one_binade(-11), Format::e4m3, 2.0F).underflow_percent, 0, 1e-6) << "the scale moves it";
  // F16's is 2^-24.
  EXPECT_NEAR(what_if(one_binade(-26), Format::f16, 1.0F).underflow_percent, 100, 1e-6);
  EXPECT_NEAR(what_if(one_binade(-25), Format::f16, 1.0F).underflow_percent, 0, 1e-6);
}

// E4M3 ends at 448, which a quarter of [256, 512) exceeds; what is clipped is off by the rest: over the clipped quarter
// (64²)/3 on average.
TEST(WhatIfByHand, Saturation) {
  const CastPrediction clipped = what_if(one_binade(8), Format::e4m3, 1.0F);
  EXPECT_NEAR(clipped.saturated_percent, 25, 0.1);
  const double error2 = 0.25 * 64.0 * 64 / 3 + 0.75 * 32.0 * 32 / 12;
  EXPECT_NEAR(clipped.sqnr_db, decibels(7.0 / 3 * 65536, error2), 0.05);
  EXPECT_NEAR(clipped.headroom_log2, std::log2(448.0 / 512), 1e-6);
  EXPECT_EQ(what_if(one_binade(7), Format::e4m3, 1.0F).saturated_percent, 0);
  // F16 ends at 65504: of [65536, 131072) all is clipped, and off by x − 65504.
  EXPECT_NEAR(what_if(one_binade(16), Format::f16, 1.0F).saturated_percent, 100, 1e-6);
  const auto cube = [](double x) { return x * x * x; };
  const double beyond2 = (cube(131072 - 65504.0) - cube(65536 - 65504.0)) / 3 / 65536;
  EXPECT_NEAR(what_if(one_binade(16), Format::f16, 1.0F).sqnr_db, decibels(7.0 / 3 * 0x1p32, beyond2), 0.05);
}

// The largest element is known exactly, and only it lies beyond the format.
TEST(WhatIfByHand, TheLargestElementCountsByItself) {
  Distribution values = one_binade(8);
  values.binades[static_cast<std::size_t>(8 - lowest_binade)] = 1;
  values.amax = 480;
  const CastPrediction clipped = what_if(values, Format::e4m3, 1.0F);
  EXPECT_EQ(clipped.saturated_percent, 100);
  EXPECT_NEAR(clipped.sqnr_db, decibels(480.0 * 480, 32.0 * 32), 1e-6);
  values.amax = 448;
  EXPECT_EQ(what_if(values, Format::e4m3, 1.0F).saturated_percent, 0);
  EXPECT_NEAR(what_if(values, Format::e4m3, 1.0F).headroom_log2, 0, 1e-6);
  values.amax = 264;  // between 256 and 288
  EXPECT_NEAR(what_if(values, Format::e4m3, 1.0F).sqnr_db, decibels(264.0 * 264, 64), 1e-6);
  EXPECT_NEAR(what_if(values, Format::e4m3, 1.0F, Rounding::stochastic).sqnr_db, decibels(264.0 * 264, 8 * 24.0), 1e-6);
}

// A largest value that contradicts the histogram is not believed: nothing can lie above the last binade that is filled.
TEST(WhatIfByHand, AnImpossibleLargestValueIsNotBelieved) {
  for (const int exponent : {0, 22}) {
    Distribution values = one_binade(exponent);
    values.amax = std::ldexp(4.0F, exponent);
    EXPECT_NEAR(what_if(values, Format::bf16, 1.0F).headroom_log2,
                std::log2(static_cast<double>(info(Format::bf16).max)) - exponent - 1, 1e-5);
  }
}

// Half of the elements are zeros: what is lost is a share of all.
TEST(WhatIfByHand, ZerosCountAsElements) {
  Distribution values = one_binade(-11);
  values.count = 2'000'000;
  EXPECT_NEAR(what_if(values, Format::e4m3, 1.0F).underflow_percent, 50, 1e-6);
  Distribution inferred = one_binade(-11);
  inferred.rms = std::sqrt(7.0 / 3 / 2) * 0x1p-11;
  EXPECT_NEAR(what_if(inferred, Format::e4m3, 1.0F).underflow_percent, 50, 0.5);
}

TEST(WhatIfByHand, RangesOfFormats) {
  const FormatRange e4m3 = format_range(Format::e4m3, 4);
  EXPECT_NEAR(e4m3.lowest, -10 - 2, 1e-9);
  EXPECT_NEAR(e4m3.smallest_normal, -6 - 2, 1e-9);
  EXPECT_NEAR(e4m3.largest, std::log2(448.0) - 2, 1e-6);
}

}  // namespace
}  // namespace quaver::test
