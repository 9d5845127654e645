// The vectorized loops against the scalar reference, bit for bit.
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "formats/cast_loops.h"
#include "formats/oracle.h"
#include "formats/quantize.h"

namespace quaver {
namespace {

std::uint32_t code_at(Format format, const std::byte* codes, Size i) {
  const int bits = info(format).storage_bits;
  if (bits == 4) return (static_cast<std::uint32_t>(codes[i / 2]) >> (i % 2 * 4)) & 0xFU;
  std::uint32_t code = 0;
  std::memcpy(&code, codes + i * bits / 8, static_cast<std::size_t>(bits) / 8);
  return code;
}

// What a cast with a scale is defined to give.
std::uint32_t scaled_reference(Format format, float x, float scale) {
  if (!std::isfinite(x)) return encode(format, x);
  const float y = x * scale;
  return encode(format, std::isinf(y) ? std::copysign(std::numeric_limits<float>::max(), y) : y);
}

std::vector<float> all_inputs() {
  std::vector<float> x;
  x.reserve(5'000'000);
  oracle::for_each_input([&x](float v) { x.push_back(v); });
  return x;
}

class Arrays : public testing::TestWithParam<Format> {};

TEST_P(Arrays, EncodeMatchesTheScalarReference) {
  const Format format = GetParam();
  const std::vector<float> x = all_inputs();
  const auto n = static_cast<Size>(x.size());
  std::vector<std::byte> codes(x.size() * 4);
  encode_array(format, x.data(), 1.0F, n, codes.data());
  for (Size i = 0; i < n; ++i) ASSERT_EQ(code_at(format, codes.data(), i), encode(format, x[i])) << x[i];
}

TEST_P(Arrays, ScaledEncodeSaturatesInsteadOfOverflowing) {
  const Format format = GetParam();
  std::vector<float> x;
  for (std::uint32_t i = 0; i < 65536; ++i) x.push_back(oracle::bf16_pattern(i));
  std::vector<std::byte> codes(x.size() * 4);
  for (const float scale : {0.37F, 1e10F, 3e-20F}) {
    encode_array(format, x.data(), scale, 65536, codes.data());
    for (Size i = 0; i < 65536; ++i) {
      if (format == Format::f32 && std::isnan(x[i])) continue;  // its payload is its own business
      ASSERT_EQ(code_at(format, codes.data(), i), scaled_reference(format, x[i], scale)) << x[i] << " " << scale;
    }
  }
}

TEST_P(Arrays, EveryTailIsWrittenAndNothingBeyond) {
  const Format format = GetParam();
  const int bits = info(format).storage_bits;
  for (Size count = 0; count <= 67; ++count) {
    std::vector<float> x(static_cast<std::size_t>(count));
    random_normals({1, 0, 0}, static_cast<std::uint64_t>(count) * 100, x.data(), count);
    std::vector<std::byte> codes(300, std::byte{0xAA});
    encode_array(format, x.data(), 1.0F, count, codes.data());
    for (Size i = 0; i < count; ++i) ASSERT_EQ(code_at(format, codes.data(), i), encode(format, x[i]));
    for (std::size_t b = static_cast<std::size_t>((count * bits + 7) / 8); b < codes.size(); ++b) {
      ASSERT_EQ(codes[b], std::byte{0xAA});
    }
    std::vector<float> back(static_cast<std::size_t>(count) + 1, 99.0F);
    decode_array(format, codes.data(), 3.0F, count, back.data());
    for (Size i = 0; i < count; ++i) ASSERT_EQ(back[i], decode(format, encode(format, x[i])) * 3.0F);
    ASSERT_EQ(back.back(), 99.0F);
  }
}

TEST_P(Arrays, DecodeMatchesTheScalarReferenceForEveryCode) {
  const Format format = GetParam();
  const int bits = info(format).storage_bits;
  const std::uint32_t codes = bits == 32 ? 65536 : 1U << bits;
  std::vector<std::byte> stored(codes * 4);
  std::vector<std::uint32_t> wanted(codes);
  for (std::uint32_t i = 0; i < codes; ++i) {
    wanted[i] = bits == 32 ? i * 65537U & (format == Format::tf32 ? ~0x1FFFU : ~0U) : i;
    if (bits == 4) {
      stored[i / 2] |= static_cast<std::byte>(i << (i % 2 * 4));
    } else {
      std::memcpy(stored.data() + i * static_cast<std::uint32_t>(bits) / 8, &wanted[i],
                  static_cast<std::size_t>(bits) / 8);
    }
  }
  std::vector<float> values(codes);
  decode_array(format, stored.data(), 1.0F, codes, values.data());
  for (std::uint32_t i = 0; i < codes; ++i) {
    const float reference = decode(format, wanted[i]);
    if (std::isnan(reference)) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(reference)) << i;
    }
  }
}

TEST_P(Arrays, StochasticMatchesTheScalarReference) {
  const Format format = GetParam();
  std::vector<float> x;
  for (std::uint32_t i = 0; i < 65536; ++i) x.push_back(oracle::bf16_pattern(i));
  for (std::uint32_t i = 0; i < 65536; ++i) x.push_back(oracle::f16_pattern(i));
  std::vector<std::uint32_t> words(x.size());
  random_words({5, 5, 5}, 0, words.data(), static_cast<Size>(x.size()));
  for (std::size_t i = 0; i < words.size(); i += 7) words[i] = 0;
  for (std::size_t i = 3; i < words.size(); i += 7) words[i] = 0xFFFFFFFFU;
  std::vector<std::byte> codes(run_limit * 4);
  for (std::size_t first = 0; first < x.size(); first += run_limit) {
    CastRun run;
    run.x = x.data() + first;
    run.count = run_limit;
    run.words = words.data() + first;
    run.out = codes.data();
    CastStatistics stats;
    cast_run(format, run, Detail::counts, stats);
    for (Size i = 0; i < run_limit; ++i) {
      ASSERT_EQ(code_at(format, codes.data(), i), encode_stochastic(format, run.x[i], run.words[i])) << run.x[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Arrays, testing::ValuesIn(all_formats),
                         [](const auto& i) { return std::string(quaver::info(i.param).name); });

TEST(Amax, IgnoresAndCountsTheNonFinite) {
  std::vector<float> x(1000);
  random_normals({1, 1, 1}, 0, x.data(), 1000);
  x[17] = -123.5F;
  x[400] = std::numeric_limits<float>::infinity();
  x[999] = std::numeric_limits<float>::quiet_NaN();
  const Amax found = amax(x.data(), 1000);
  EXPECT_EQ(found.value, 123.5F);
  EXPECT_EQ(found.nonfinite, 2U);
  EXPECT_EQ(amax(x.data(), 0).value, 0.0F);
}

}  // namespace
}  // namespace quaver
