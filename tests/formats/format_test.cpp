#include "quaver/format.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "formats/naive.h"
#include "formats/oracle.h"
#include "quaver/error.h"

namespace quaver {
namespace {

TEST(Format, EveryCodeDecodesAsDefined) {
  for (const Format format : oracle::searchable) {
    if (format == Format::int8) continue;  // has a sign, but no bit for it alone
    const std::uint32_t codes = 1U << oracle::code_width(format);
    for (std::uint32_t code = 0; code < codes; ++code) {
      const std::uint32_t magnitude = code & ~oracle::sign_bit(format);
      const float decoded = decode(format, code);
      if (magnitude < oracle::grid(format).size()) {
        ASSERT_EQ(static_cast<double>(decoded), oracle::value(format, code)) << info(format).name << " " << code;
        ASSERT_EQ(std::signbit(decoded), magnitude != code);
      } else if (info(format).has_infinity && magnitude == oracle::special_code(format, infinity)) {
        ASSERT_EQ(decoded, magnitude != code ? -infinity : infinity);
      } else {
        ASSERT_TRUE(std::isnan(decoded)) << info(format).name << " " << code;
      }
    }
  }
}

TEST(Format, E2M1IsTheSixteenKnownValues) {
  const float values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(decode(Format::e2m1, i), values[i]);
    EXPECT_EQ(decode(Format::e2m1, i | 8U), -values[i]);
  }
}

TEST(Format, Int8IsTheIntegersInTwosComplement) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    EXPECT_EQ(decode(Format::int8, code), static_cast<float>(static_cast<std::int8_t>(code)));
  }
  EXPECT_EQ(encode(Format::int8, -128.0F), 0x81U) << "symmetric: −127 is the least that is written";
  EXPECT_EQ(encode(Format::int8, -0.0F), 0U);
  EXPECT_EQ(encode(Format::int8, 2.5F), 2U);
  EXPECT_EQ(encode(Format::int8, -3.5F), 0xFCU);
}

TEST(Format, EveryFiniteCodeEncodesAsItself) {
  for (const Format format : oracle::searchable) {
    for (std::uint32_t code = 0; code < 1U << oracle::code_width(format); ++code) {
      const float value = decode(format, code);
      if (!std::isfinite(value) || (format == Format::int8 && code == 0x80)) continue;
      ASSERT_EQ(encode(format, value), code) << info(format).name;
      ASSERT_EQ(encode_stochastic(format, value, 0), code) << info(format).name;
      ASSERT_EQ(code >> code_bits(info(format)), 0U);
    }
  }
}

TEST(Format, InfoAgreesWithTheGrid) {
  for (const Format format : oracle::searchable) {
    const FormatInfo& f = info(format);
    EXPECT_EQ(f.max, oracle::grid(format).back());
    EXPECT_EQ(f.min_subnormal, oracle::grid(format)[1]);
    const std::size_t first_normal = f.exponent_bits == 0 ? 1 : std::size_t{1} << f.mantissa_bits;
    EXPECT_EQ(f.min_normal, oracle::grid(format)[first_normal]);
    EXPECT_EQ(parse_format(f.name), format);
  }
}

TEST(Format, UnknownNameListsTheKnownOnes) {
  try {
    parse_format("fp7");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("fp7"), std::string::npos);
    EXPECT_NE(e.remedy().find("e4m3"), std::string::npos);
  }
}

class EncodeNearest : public testing::TestWithParam<Format> {};

TEST_P(EncodeNearest, FindsTheNearestWithTiesToEven) {
  const Format format = GetParam();
  std::vector<float> wrong;
  oracle::for_each_input([&](float x) {
    if (encode(format, x) != oracle::nearest(format, x)) wrong.push_back(x);
  });
  ASSERT_TRUE(wrong.empty()) << wrong.size() << " wrong, the first is " << wrong.front();
}

INSTANTIATE_TEST_SUITE_P(Formats, EncodeNearest, testing::ValuesIn(oracle::searchable),
                         [](const auto& i) { return std::string(quaver::info(i.param).name); });

// True where y is x rounded to eleven significant bits, ties to even, and saturated.
bool is_tf32_of(float x, std::uint32_t code) {
  const float y = decode(Format::tf32, code);
  if ((code & 0x1FFFU) != 0) return false;
  if (std::isnan(x)) return std::isnan(y);
  if (std::isinf(x)) return x == y;
  if (std::abs(x) > info(Format::tf32).max) return y == std::copysign(info(Format::tf32).max, x);
  const double half = std::ldexp(0.5, std::max(x == 0 ? -126 : std::ilogb(x), -126) - 10);
  const double error = std::abs(static_cast<double>(x) - static_cast<double>(y));
  return std::signbit(x) == std::signbit(y) && (error < half || (error == half && ((code >> 13) & 1U) == 0));
}

TEST(Format, Tf32KeepsTenBitsOfTheMantissa) {
  std::vector<float> wrong;
  oracle::for_each_input([&](float x) {
    if (!is_tf32_of(x, encode(Format::tf32, x))) wrong.push_back(x);
  });
  ASSERT_TRUE(wrong.empty()) << wrong.size() << " wrong, the first is " << wrong.front();
}

TEST(Format, F32IsTheIdentity) {
  for (const float x : {0.0F, -0.0F, 1.5F, -3e38F, 1e-45F, infinity}) {
    EXPECT_EQ(encode(Format::f32, x), std::bit_cast<std::uint32_t>(x));
    EXPECT_EQ(decode(Format::f32, encode(Format::f32, x)), x);
  }
  EXPECT_TRUE(std::isnan(decode(Format::f32, encode(Format::f32, nan))));
}

TEST(Format, SpecialValuesFollowTheStatedRules) {
  EXPECT_EQ(decode(Format::e4m3, encode(Format::e4m3, infinity)), 448.0F);
  EXPECT_EQ(decode(Format::e4m3, encode(Format::e4m3, -1e30F)), -448.0F);
  EXPECT_EQ(decode(Format::e5m2, encode(Format::e5m2, -infinity)), -infinity);
  EXPECT_EQ(decode(Format::e5m2, encode(Format::e5m2, 3e38F)), 57344.0F);
  EXPECT_EQ(decode(Format::bf16, encode(Format::bf16, std::numeric_limits<float>::max())), info(Format::bf16).max);
  EXPECT_EQ(encode(Format::e2m1, nan), 0U);
  EXPECT_EQ(encode(Format::e2m1, -infinity), 0U);
  EXPECT_EQ(decode(Format::e2m1, encode(Format::e2m1, -7.0F)), -6.0F);
  EXPECT_EQ(decode(Format::e3m4, encode(Format::e3m4, infinity)), infinity);
  EXPECT_EQ(decode(Format::e3m4, encode(Format::e3m4, 1e9F)), 15.5F);
  EXPECT_TRUE(std::isnan(decode(Format::e3m4, encode(Format::e3m4, nan))));
  for (const Format format : {Format::e3m2, Format::e2m3, Format::int8}) {
    for (const float x : {nan, infinity, -infinity}) EXPECT_EQ(encode(format, x), 0U) << info(format).name;
    EXPECT_EQ(decode(format, encode(format, -1e30F)), -info(format).max);
  }
}

// Beyond what the format can represent and on the grid, no random word may move the value.
void check_stochastic(Format format, float x) {
  const double magnitude = std::abs(static_cast<double>(x));
  const auto code = [&](std::uint32_t of_magnitude) {
    return oracle::signed_code(format, of_magnitude, std::signbit(x));
  };
  const oracle::Neighbors n = oracle::neighbors(format, magnitude);
  const double threshold = n.fraction * 16777216.0;
  const auto first_down = static_cast<std::uint32_t>(std::ceil(threshold));  // the smallest that does not round up
  const std::uint32_t at_zero = n.fraction > 0 ? n.upper : n.lower;
  ASSERT_EQ(encode_stochastic(format, x, 0), code(at_zero)) << x;
  ASSERT_EQ(encode_stochastic(format, x, 0xFFFFFFFFU), code(n.lower)) << x;
  if (first_down > 0) {
    ASSERT_EQ(encode_stochastic(format, x, ((first_down - 1) << 8) | 0xFFU), code(n.upper)) << x;
  }
  if (first_down < 16777216) {
    ASSERT_EQ(encode_stochastic(format, x, first_down << 8), code(n.lower)) << x;
  }
}

class EncodeStochastic : public testing::TestWithParam<Format> {};

TEST_P(EncodeStochastic, RoundsUpExactlyBelowTheThreshold) {
  const Format format = GetParam();
  for (std::uint32_t i = 0; i < 65536; ++i) {
    for (const float x : {oracle::bf16_pattern(i), oracle::f16_pattern(i)}) {
      if (std::isfinite(x)) {
        check_stochastic(format, x);
        ASSERT_FALSE(HasFatalFailure());
      } else {
        ASSERT_EQ(encode_stochastic(format, x, i * 65537U), oracle::special_code(format, x));
      }
    }
  }
}

// The mean over n words of a variable with two outcomes lies within five standard deviations of its expectation.
TEST_P(EncodeStochastic, IsUnbiased) {
  const Format format = GetParam();
  constexpr int n = 1 << 14;
  std::uint32_t word = 12345;
  for (const float x : {0.3F, 1.1F, -2.7F, 5.01F, 0.0071F, 0.26F, -0.9F}) {
    const oracle::Neighbors around = oracle::neighbors(format, std::abs(static_cast<double>(x)));
    int ups = 0;
    for (int i = 0; i < n; ++i) {
      word = word * 1664525U + 1013904223U;
      const std::uint32_t magnitude = oracle::magnitude_of(format, encode_stochastic(format, x, word));
      ASSERT_TRUE(magnitude == around.lower || magnitude == around.upper);
      ups += magnitude == around.upper ? 1 : 0;
    }
    const double p = around.fraction;
    EXPECT_NEAR(static_cast<double>(ups) / n, p, 5 * std::sqrt(p * (1 - p) / n) + 1e-9)
        << info(format).name << " " << x;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EncodeStochastic, testing::ValuesIn(oracle::searchable),
                         [](const auto& i) { return std::string(quaver::info(i.param).name); });

TEST(E8M0, PowersOfTwoRoundTrip) {
  for (int code = 0; code < 255; ++code) {
    const float x = decode_e8m0(static_cast<std::uint8_t>(code));
    EXPECT_EQ(x, std::pow(2.0, code - 127));
    EXPECT_EQ(encode_e8m0(x, ExponentRounding::up), code);
    EXPECT_EQ(encode_e8m0(x, ExponentRounding::down), code);
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(0xFF)));
}

TEST(E8M0, RoundsTheExponentUpOrDownAndClamps) {
  EXPECT_EQ(decode_e8m0(encode_e8m0(3.0F, ExponentRounding::up)), 4.0F);
  EXPECT_EQ(decode_e8m0(encode_e8m0(3.0F, ExponentRounding::down)), 2.0F);
  EXPECT_EQ(encode_e8m0(std::numeric_limits<float>::max(), ExponentRounding::up), 254);
  EXPECT_EQ(encode_e8m0(std::numeric_limits<float>::denorm_min(), ExponentRounding::down), 0);
}

}  // namespace
}  // namespace quaver
