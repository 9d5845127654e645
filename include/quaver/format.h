// Number formats: what a code means, and casts of single values. The scalar functions here are the reference that
// every vectorized or device cast must match bit for bit.
#pragma once

#include <cstdint>
#include <string_view>

namespace quaver {

// int8: the integers from −127 to 127, in two's complement; the code 0x80 is never written and decodes to −128.
enum class Format : std::uint8_t { f32, tf32, bf16, f16, e4m3, e5m2, e2m1, e3m4, e3m2, e2m3, int8 };

enum class Rounding : std::uint8_t { nearest_even, stochastic };

struct FormatInfo {
  std::string_view name;
  int storage_bits;  // tf32 is stored in 32 bits, e3m2 and e2m3 in the low 6 of 8
  int exponent_bits;
  int mantissa_bits;
  int bias;
  float max;            // largest finite value
  float min_normal;     // smallest normal value
  float min_subnormal;  // smallest positive value
  bool has_infinity;
  bool has_nan;
};

const FormatInfo& info(Format format);
Format parse_format(std::string_view name);  // throws Error with the known names

inline constexpr Format all_formats[] = {Format::f32,  Format::tf32, Format::bf16, Format::f16,
                                         Format::e4m3, Format::e5m2, Format::e2m1, Format::e3m4,
                                         Format::e3m2, Format::e2m3, Format::int8};

// Bits that a code may have set.
constexpr int code_bits(const FormatInfo& format) {
  return format.storage_bits == 32 ? 32 : 1 + format.exponent_bits + format.mantissa_bits;
}

// 8 bits and fewer: formats that need a scale.
constexpr bool is_low_precision(Format format) { return format >= Format::e4m3; }
constexpr bool is_fp8(Format format) { return format == Format::e4m3 || format == Format::e5m2; }

// The code of x in the format, as an unsigned integer in the low bits. Finite values beyond max saturate to ±max; NaN
// becomes the canonical NaN, all ones below a clear sign bit (F32 keeps its own); E4M3 takes ±inf to ±max; E5M2, E3M4,
// F16, BF16, TF32 and F32 keep inf. E2M1, E3M2, E2M3 and INT8 have neither: a non-finite input gives 0 and callers
// count it.
std::uint32_t encode(Format format, float x);

// As encode, but rounds up in magnitude with probability equal to the discarded fraction: with u = random >> 8, up if
// u < fraction · 2^24. Exact for values on the grid; saturation as above.
std::uint32_t encode_stochastic(Format format, float x, std::uint32_t random);

float decode(Format format, std::uint32_t code);

// E8M0, the power-of-two scale of MX blocks: 2^(code − 127), 0xFF is NaN.
float decode_e8m0(std::uint8_t code);
enum class ExponentRounding : std::uint8_t { up, down };
std::uint8_t encode_e8m0(float x, ExponentRounding rounding);  // x > 0, finite; clamped to 2^±127

}  // namespace quaver
