#include "quaver/format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "quaver/error.h"

namespace quaver {
namespace {

constexpr FormatInfo table[] = {
    {"f32", 32, 8, 23, 127, 0x1.FFFFFEp127F, 0x1p-126F, 0x1p-149F, true, true},
    {"tf32", 32, 8, 10, 127, 0x1.FFCp127F, 0x1p-126F, 0x1p-136F, true, true},
    {"bf16", 16, 8, 7, 127, 0x1.FEp127F, 0x1p-126F, 0x1p-133F, true, true},
    {"f16", 16, 5, 10, 15, 65504.0F, 0x1p-14F, 0x1p-24F, true, true},
    {"e4m3", 8, 4, 3, 7, 448.0F, 0x1p-6F, 0x1p-9F, false, true},
    {"e5m2", 8, 5, 2, 15, 57344.0F, 0x1p-14F, 0x1p-16F, true, true},
    {"e2m1", 4, 2, 1, 1, 6.0F, 1.0F, 0.5F, false, false},
    {"e3m4", 8, 3, 4, 3, 15.5F, 0.25F, 0x1p-6F, true, true},
    {"e3m2", 8, 3, 2, 3, 28.0F, 0.25F, 0.0625F, false, false},
    {"e2m3", 8, 2, 3, 1, 7.5F, 1.0F, 0.125F, false, false},
    // Subnormals of a format without exponent bits: units of 1.
    {"int8", 8, 0, 7, -6, 127.0F, 1.0F, 1.0F, false, false},
};

// Bits between the end of a code's mantissa and the end of the code: only TF32 has any.
int padding_bits(const FormatInfo& f) { return code_bits(f) - 1 - f.exponent_bits - f.mantissa_bits; }

std::uint32_t all_ones(int count) { return static_cast<std::uint32_t>((std::uint64_t{1} << count) - 1); }

// Largest exponent field, and the code of +inf where there is one.
std::uint32_t exponent_ones(const FormatInfo& f) { return all_ones(f.exponent_bits) << f.mantissa_bits; }

// |x| = (floor + fraction) units in the last place, at or above `base`, the code of the first value with that unit.
struct Units {
  std::uint32_t base;
  std::uint32_t floor;
  double fraction;
};

Units split(const FormatInfo& f, double magnitude) {
  const int lowest = 1 - f.bias;
  const int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  const double units = std::ldexp(magnitude, f.mantissa_bits - exponent);
  const double floor = std::floor(units);
  // A normal value's leading one is among its units, so the first binade needs no base of its own.
  return {static_cast<std::uint32_t>(exponent - lowest) << f.mantissa_bits, static_cast<std::uint32_t>(floor),
          units - floor};
}

template <typename RoundUp>
std::uint32_t encode_with(Format format, float x, RoundUp round_up) {
  if (format == Format::f32) return std::bit_cast<std::uint32_t>(x);
  const FormatInfo& f = info(format);
  const std::uint32_t sign = std::signbit(x) ? 1U << (code_bits(f) - 1) : 0U;
  if (std::isnan(x)) return f.has_nan ? all_ones(code_bits(f) - 1) & ~all_ones(padding_bits(f)) : 0U;
  if (std::isinf(x) && f.has_infinity) return sign | (exponent_ones(f) << padding_bits(f));
  if (std::isinf(x) && !f.has_nan) return 0U;
  const Units units = split(f, std::min(std::abs(static_cast<double>(x)), static_cast<double>(f.max)));
  const std::uint32_t code = units.base + units.floor + (round_up(units) ? 1U : 0U);
  if (format == Format::int8) return static_cast<std::uint8_t>(sign != 0 ? 0U - code : code);
  return sign | (code << padding_bits(f));
}

}  // namespace

const FormatInfo& info(Format format) { return table[static_cast<std::size_t>(format)]; }

Format parse_format(std::string_view name) {
  std::string known;
  for (const Format format : all_formats) {
    if (info(format).name == name) return format;
    known += known.empty() ? "" : ", ";
    known += info(format).name;
  }
  throw Error("unknown number format \"" + std::string(name) + "\"", "use one of " + known);
}

std::uint32_t encode(Format format, float x) {
  return encode_with(format, x, [](const Units& u) {
    const bool odd = ((u.base + u.floor) & 1U) != 0;
    return u.fraction > 0.5 || (u.fraction == 0.5 && odd);
  });
}

std::uint32_t encode_stochastic(Format format, float x, std::uint32_t random) {
  return encode_with(
      format, x, [random](const Units& u) { return static_cast<double>(random >> 8) < std::ldexp(u.fraction, 24); });
}

float decode(Format format, std::uint32_t code) {
  if (format == Format::int8) return static_cast<std::int8_t>(code);
  const FormatInfo& f = info(format);
  const std::uint32_t magnitude = (code & all_ones(code_bits(f) - 1)) >> padding_bits(f);
  const bool negative = ((code >> (code_bits(f) - 1)) & 1U) != 0;
  const std::uint32_t mantissa = magnitude & all_ones(f.mantissa_bits);
  const auto field = static_cast<int>(magnitude >> f.mantissa_bits);
  double result = field == 0 ? std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits)
                             : std::ldexp(mantissa + (1U << f.mantissa_bits), field - f.bias - f.mantissa_bits);
  if (f.has_infinity && magnitude >= exponent_ones(f)) {
    result = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (!f.has_infinity && f.has_nan && magnitude == all_ones(code_bits(f) - 1)) {
    result = std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<float>(negative ? -result : result);
}

float decode_e8m0(std::uint8_t code) {
  return code == 0xFF ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, static_cast<int>(code) - 127);
}

std::uint8_t encode_e8m0(float x, ExponentRounding rounding) {
  int exponent = 0;
  const float fraction = std::frexp(x, &exponent);  // in [0.5, 1): a power of two has exactly 0.5
  if (rounding == ExponentRounding::down || fraction == 0.5F) --exponent;
  return static_cast<std::uint8_t>(std::clamp(exponent, -127, 127) + 127);
}

}  // namespace quaver
