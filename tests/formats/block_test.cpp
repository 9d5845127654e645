// What block formats promise: nothing saturates, zeros stay zeros, odd values do not spoil their neighbors.
#include <array>
#include <cfloat>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "formats/naive.h"
#include "formats/quantize.h"

namespace quaver {
namespace {

constexpr RandomKey drawing_key{1, 2, 3};

constexpr QuantSpec nvfp4{
    .format = Format::e2m1, .block = block::b1x16, .scale = ScaleFormat::e4m3, .policy = ScalePolicy::current};

constexpr QuantSpec four_over_six{
    .format = Format::e2m1, .block = block::b1x16, .scale = ScaleFormat::e4m3_4over6, .policy = ScalePolicy::current};

constexpr QuantSpec mx(Format format, ScaleFormat scale = ScaleFormat::e8m0) {
  return {.format = format, .block = block::b1x32, .scale = scale, .policy = ScalePolicy::current};
}

CastStatistics cast_row(const std::vector<float>& x, naive::Storage& out) {
  return quantize({x.data(), 1, static_cast<Size>(x.size())},
                  {.side = Side::rows, .given_scale = 1.0F, .random = drawing_key, .detail = Detail::full}, out.matrix);
}

float value(const naive::Storage& s, Size c) {
  return decode(s.matrix.spec.format, s.code(0, c)) * s.block_scale(0, c) * s.tensor_scale;
}

TEST(Mx, TheExponentIsTheSmallestThatSaturatesNothing) {
  for (const Format format : {Format::e4m3, Format::e5m2, Format::e2m1}) {
    const float max = info(format).max;
    for (int e = -100; e < 100; ++e) {
      const float edge = std::ldexp(max, e);
      for (const float amax : {edge, std::nextafter(edge, infinity), std::nextafter(edge, 0.0F), edge * 0.51F}) {
        std::vector<float> x(32, amax / 3);
        x[7] = -amax;
        naive::Storage out(mx(format), 1, 32);
        const CastStatistics stats = cast_row(x, out);
        const double scale = out.scales[0];
        ASSERT_EQ(stats.saturated, 0U);
        ASSERT_LE(static_cast<double>(amax), static_cast<double>(max) * scale);
        ASSERT_GT(static_cast<double>(amax), static_cast<double>(max) * scale / 2);
        ASSERT_EQ(scale, decode_e8m0(encode_e8m0(out.scales[0], ExponentRounding::up))) << "a power of two";
      }
    }
  }
}

TEST(Mx, TheFloorRuleIsOcps) {
  std::vector<float> x(32, 1.0F);
  x[3] = 7.9F;  // floor(log2) = 2, and e2m1's largest exponent is 2: the scale is 1, and 7.9 saturates
  naive::Storage out(mx(Format::e2m1, ScaleFormat::e8m0_floor), 1, 32);
  const CastStatistics stats = cast_row(x, out);
  EXPECT_EQ(out.scales[0], 1.0F);
  EXPECT_EQ(stats.saturated, 1U);
  EXPECT_EQ(value(out, 3), 6.0F);
}

TEST(Mx, ExtremesOfFloatHaveScales) {
  for (const ScaleFormat scale : {ScaleFormat::e8m0, ScaleFormat::e8m0_floor}) {
    for (const float amax : {2.9e38F, FLT_MIN, std::numeric_limits<float>::denorm_min(), 0.0F}) {
      const std::vector<float> x(32, amax);
      naive::Storage out(mx(Format::e4m3, scale), 1, 32);
      cast_row(x, out);
      EXPECT_TRUE(std::isfinite(value(out, 0))) << amax;
      EXPECT_GT(out.scales[0], 0.0F);
      if (amax == 0) {
        EXPECT_EQ(out.scales[0], 1.0F);
      }
    }
  }
}

TEST(Nvfp4, BlocksOfZerosAndBlocksTooSmallForAScaleAreZero) {
  std::vector<float> x(64, 0.0F);
  for (int i = 0; i < 16; ++i) x[i] = static_cast<float>(i) - 8.0F;
  for (int i = 32; i < 48; ++i) x[i] = 1e-6F;  // below the smallest block scale under a tensor amax of 8
  x[20] = -0.0F;
  naive::Storage out(nvfp4, 1, 64);
  const CastStatistics stats = cast_row(x, out);
  for (Size c = 16; c < 64; ++c) EXPECT_EQ(value(out, c), 0.0F) << c;
  EXPECT_EQ(out.scales[1], 0.0F);
  EXPECT_EQ(out.scales[2], 0.0F);
  EXPECT_EQ(stats.underflowed, 16U);
  EXPECT_EQ(stats.saturated, 0U);
  std::vector<float> decoded(64);
  decode_rows(out.matrix, 0, 1, decoded.data(), 64);
  for (const float v : decoded) EXPECT_TRUE(std::isfinite(v));
}

TEST(Nvfp4, TheLargestElementIsNearlyExact) {
  std::vector<float> x(160);
  random_normals(drawing_key, 0, x.data(), 160);
  x[37] = 11.3F;
  naive::Storage out(nvfp4, 1, 160);
  cast_row(x, out);
  EXPECT_EQ(out.scales[2], 448.0F);
  EXPECT_NEAR(value(out, 37), 11.3F, 11.3F * 1e-6F);
}

TEST(Nvfp4, ErrorsAreWithinTheGridOfEachBlock) {
  std::vector<float> x(1024);
  random_normals(drawing_key, 0, x.data(), 1024);
  naive::Storage out(nvfp4, 1, 1024);
  const CastStatistics stats = cast_row(x, out);
  for (Size c = 0; c < 1024; ++c) {
    const float unit = out.block_scale(0, c) * out.tensor_scale;
    // Half of the widest step (4 to 6), and the block scale itself may have been rounded down by up to 1/16.
    ASSERT_LE(std::abs(value(out, c) - x[c]), unit * 1.0F + std::abs(x[c]) / 16) << c;
  }
  EXPECT_GT(stats.sqnr_db(), 18.0);
}

// Four over six: of 6 and 4 the largest value becomes what rounds its block better. With a largest value of 6, 5 lies
// halfway between two codes; with 4 it becomes 3 1/3.
TEST(FourOverSix, ABlockTakesTheScaleThatLosesLess) {
  std::vector<float> x(48, 0.0F);
  for (int i = 0; i < 16; ++i) x[i] = i % 2 == 0 ? 4.0F : 6.0F;  // both are codes with 6
  for (int i = 16; i < 32; ++i) x[i] = i == 16 ? 6.0F : 4.5F;    // 4.5 is 3 with 4, between 4 and 6 with 6
  for (int i = 32; i < 48; ++i) x[i] = i % 2 == 0 ? -6.0F : static_cast<float>(i % 3);  // 0, 1, 2 are codes with 6
  naive::Storage out(four_over_six, 1, 48);
  const CastStatistics stats = cast_row(x, out);
  EXPECT_EQ(out.scales, (std::vector<float>{256.0F, 384.0F, 256.0F}));
  EXPECT_EQ(stats.saturated, 0U);
  for (Size c = 0; c < 48; ++c) EXPECT_NEAR(value(out, c), x[c], 1e-5F) << c;
}

// Values near the largest gain most, for between 4 and 6 there is no code.
TEST(FourOverSix, LosesLessThanSixesAlone) {
  std::vector<float> x(64 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t word = random_word(drawing_key, i);
    x[i] = (word % 2 == 0 ? 1.0F : -1.0F) * (1.0F + static_cast<float>(word >> 8) * 0x1p-25F);  // 1 to 1.5
  }
  for (const Block block : {block::b1x16, block::b16x16}) {
    std::array<double, 2> sqnr{};
    for (const std::size_t both : {0, 1}) {
      QuantSpec spec = both == 1 ? four_over_six : nvfp4;
      spec.block = block;
      naive::Storage out(spec, 64, 64);
      const CastOptions options{.random = drawing_key, .detail = Detail::full};
      sqnr[both] = quantize({x.data(), 64, 64}, options, out.matrix).sqnr_db();
    }
    EXPECT_GT(sqnr[1], sqnr[0] + 3) << name_of(block);
  }
}

// 4 is tried where 6 has no scale, and nothing is made of a block that has neither.
TEST(FourOverSix, BlocksAtTheSmallestScale) {
  std::vector<float> x(64, 0.0F);
  x[0] = 1536.0F;  // the tensor's scale is 1
  // e4m3's smallest scale is 2^-9. What becomes 6 here would have 0.4 of it, and what becomes 4 has 0.6.
  for (int i = 16; i < 32; ++i) x[i] = 0x1p-10F * 4.8F;
  for (int i = 32; i < 48; ++i) x[i] = 0x1p-10F * 3.0F;
  naive::Storage out(four_over_six, 1, 64);
  cast_row(x, out);
  EXPECT_EQ(out.scales[1], 0x1p-9F);
  EXPECT_EQ(out.scales[2], 0.0F);
  for (Size c = 32; c < 64; ++c) EXPECT_EQ(value(out, c), 0.0F) << c;
}

TEST(Blocks, NonFiniteElementsDoNotSpoilTheScale) {
  for (const QuantSpec& spec : {nvfp4, four_over_six, mx(Format::e4m3), mx(Format::e5m2), mx(Format::e2m1)}) {
    std::vector<float> x(64);
    random_normals(drawing_key, 0, x.data(), 64);
    naive::Storage clean(spec, 1, 64), spoilt(spec, 1, 64);
    x[5] = 0;
    x[40] = 0;
    cast_row(x, clean);
    x[5] = -infinity;
    x[40] = nan;
    const CastStatistics stats = cast_row(x, spoilt);
    EXPECT_EQ(stats.nonfinite, 2U);
    EXPECT_EQ(spoilt.scales, clean.scales);
    EXPECT_EQ(spoilt.tensor_scale, clean.tensor_scale);
    for (Size c = 0; c < 64; ++c) {
      if (c != 5 && c != 40) {
        EXPECT_EQ(spoilt.code(0, c), clean.code(0, c));
      }
    }
    EXPECT_EQ(spoilt.code(0, 5), encode(spec.format, -infinity));
    EXPECT_EQ(spoilt.code(0, 40), encode(spec.format, nan));
    EXPECT_TRUE(std::isfinite(stats.error2));
  }
}

TEST(Blocks, CurrentScalesSaturateNothing) {
  std::vector<float> x(128);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    random_normals({seed, 0, 0}, 0, x.data(), 128);
    for (const Block block : {block::tensor, block::row, block::b1x128, block::b1x32}) {
      for (const Format format : {Format::e4m3, Format::e5m2, Format::e2m1}) {
        naive::Storage out({.format = format, .block = block, .policy = ScalePolicy::current}, 1, 128);
        ASSERT_EQ(cast_row(x, out).saturated, 0U) << seed;
      }
    }
  }
}

TEST(TensorScale, FollowsTheRule) {
  const QuantSpec e4m3{.format = Format::e4m3, .policy = ScalePolicy::current};
  EXPECT_EQ(tensor_scale_for(e4m3, 2.0F), 224.0F);
  EXPECT_EQ(tensor_scale_for(e4m3, 0.0F), 1.0F);
  EXPECT_EQ(tensor_scale_for(e4m3, 1e-40F), FLT_MAX);
  EXPECT_EQ(tensor_scale_for(e4m3, 3.0F), 448.0F / 3.0F);
  QuantSpec spec = e4m3;
  spec.margin = 1;
  EXPECT_EQ(tensor_scale_for(spec, 2.0F), 112.0F);
  spec = e4m3;
  spec.scale = ScaleFormat::f32_power_of_two;
  EXPECT_EQ(tensor_scale_for(spec, 3.0F), 128.0F);
  spec = e4m3;
  spec.policy = ScalePolicy::none;
  EXPECT_EQ(tensor_scale_for(spec, 3.0F), 1.0F);
  EXPECT_EQ(tensor_scale_for(nvfp4, 2.0F), 1344.0F);
}

TEST(TensorScale, TinyAndHugeTensorsStayFinite) {
  for (const float amax : {1e-45F, 1e-38F, 2e38F}) {
    for (const int margin : {0, 16}) {
      const std::vector<float> x(8, amax);
      naive::Storage out({.format = Format::e2m1, .policy = ScalePolicy::current, .margin = margin}, 1, 8);
      const CastStatistics stats = cast_row(x, out);
      EXPECT_TRUE(std::isfinite(out.tensor_scale));
      EXPECT_TRUE(std::isfinite(value(out, 0)));
      EXPECT_EQ(stats.saturated, 0U);
    }
  }
}

}  // namespace
}  // namespace quaver
