// MX block scales at the low end of E8M0, whose smallest value, 2^-127, is no normal number in FP32.
#include <cmath>
#include <gtest/gtest.h>

#include "formats/scales.h"

namespace quaver {
namespace {

float scale_of(Format format, ScaleFormat scale, float amax) {
  const QuantSpec spec{.format = format, .block = block::b1x32, .scale = scale, .policy = ScalePolicy::current};
  float stored = -1;
  block_scales_from_amax(spec, 1, &amax, 1, &stored);
  return stored;
}

// The smallest power of two that takes amax into the format: ceil(log2(amax / 6)) for E2M1.
TEST(E8m0Scales, AreRoundedUpAndEndAtTheirSmallestValue) {
  const auto scale = [](double amax) { return scale_of(Format::e2m1, ScaleFormat::e8m0, static_cast<float>(amax)); };
  EXPECT_EQ(scale(6), 1);
  EXPECT_EQ(scale(6.0001), 2);
  EXPECT_EQ(scale(6 * 0x1p-125), 0x1p-125F);
  EXPECT_EQ(scale(6 * 0x1p-126), 0x1p-126F);
  EXPECT_EQ(scale(6 * 0x1p-127), 0x1p-127F);
  EXPECT_EQ(scale(6.0001 * 0x1p-127), 0x1p-126F);
  EXPECT_EQ(scale(6 * 0x1p-128), 0x1p-127F) << "there is nothing smaller";
  EXPECT_EQ(scale(0x1p-149), 0x1p-127F);
  EXPECT_EQ(scale(0), 1) << "a block of zeros";
}

// As the OCP specification has it: floor(log2(amax)) less the exponent of the format's largest value, 2 for E2M1 and 8
// for E4M3.
TEST(E8m0Scales, AreRoundedDownByTheSpecification) {
  const auto scale = [](double amax) {
    return scale_of(Format::e2m1, ScaleFormat::e8m0_floor, static_cast<float>(amax));
  };
  EXPECT_EQ(scale(7.99), 1);
  EXPECT_EQ(scale(8), 2);
  EXPECT_EQ(scale(0x1p-124), 0x1p-126F);
  EXPECT_EQ(scale(0x1p-125), 0x1p-127F);
  EXPECT_EQ(scale(0x1p-126), 0x1p-127F);
  EXPECT_EQ(scale_of(Format::e4m3, ScaleFormat::e8m0_floor, 0x1p-118F), 0x1p-126F);
  EXPECT_EQ(scale_of(Format::e4m3, ScaleFormat::e8m0_floor, 0x1p-119F), 0x1p-127F);
}

}  // namespace
}  // namespace quaver
