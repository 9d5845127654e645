// Independent oracles for the tests of casts: grids of values built from the definition of a format, nearest found by
// search in double arithmetic. Nothing here shares code or method with src/formats.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quaver/format.h"

namespace quaver::oracle {

// The finite, non-negative values of a format in increasing order: grid[i] is the value of code i.
inline std::vector<double> make_grid(int exponent_bits, int mantissa_bits, int bias, double max) {
  std::vector<double> grid;
  for (int e = 0; e < (1 << exponent_bits); ++e) {
    for (int m = 0; m < (1 << mantissa_bits); ++m) {
      const double steps = std::pow(2.0, mantissa_bits);
      const double v = e == 0 ? m / steps * std::pow(2.0, 1 - bias) : (1 + m / steps) * std::pow(2.0, e - bias);
      if (v > max) return grid;
      grid.push_back(v);
    }
  }
  return grid;
}

inline const std::vector<double>& grid(Format format) {
  static const std::vector<double> f16 = make_grid(5, 10, 15, 65504);
  static const std::vector<double> bf16 = make_grid(8, 7, 127, 0x1.FEp127);
  static const std::vector<double> e4m3 = make_grid(4, 3, 7, 448);
  static const std::vector<double> e5m2 = make_grid(5, 2, 15, 57344);
  static const std::vector<double> e2m1 = make_grid(2, 1, 1, 6);
  static const std::vector<double> e3m4 = make_grid(3, 4, 3, 15.5);
  static const std::vector<double> e3m2 = make_grid(3, 2, 3, 28);
  static const std::vector<double> e2m3 = make_grid(2, 3, 1, 7.5);
  static const std::vector<double> int8 = [] {
    std::vector<double> integers;
    for (int i = 0; i <= 127; ++i) integers.push_back(i);
    return integers;
  }();
  switch (format) {
    case Format::f16:
      return f16;
    case Format::bf16:
      return bf16;
    case Format::e4m3:
      return e4m3;
    case Format::e5m2:
      return e5m2;
    case Format::e3m4:
      return e3m4;
    case Format::e3m2:
      return e3m2;
    case Format::e2m3:
      return e2m3;
    case Format::int8:
      return int8;
    default:
      return e2m1;
  }
}

// Formats with a grid small enough to search.
inline constexpr Format searchable[] = {Format::bf16, Format::f16,  Format::e4m3, Format::e5m2, Format::e2m1,
                                        Format::e3m4, Format::e3m2, Format::e2m3, Format::int8};

inline int code_width(Format format) {
  switch (format) {
    case Format::bf16:
    case Format::f16:
      return 16;
    case Format::e3m2:
    case Format::e2m3:
      return 6;
    case Format::e2m1:
      return 4;
    default:
      return 8;
  }
}

inline std::uint32_t sign_bit(Format format) { return 1U << (code_width(format) - 1); }

// The code of a value whose magnitude has code `magnitude`: a sign bit, or for integers two's complement.
inline std::uint32_t signed_code(Format format, std::uint32_t magnitude, bool negative) {
  if (format == Format::int8) return negative ? (256 - magnitude) % 256 : magnitude;
  return magnitude | (negative ? sign_bit(format) : 0);
}

inline std::uint32_t magnitude_of(Format format, std::uint32_t code) {
  if (format == Format::int8) return code > 127 ? 256 - code : code;
  return code & ~sign_bit(format);
}

// Codes of the special values, as written down in the formats' definitions.
inline std::uint32_t special_code(Format format, float x) {
  const bool nan = std::isnan(x);
  const std::uint32_t sign = std::signbit(x) ? sign_bit(format) : 0;
  switch (format) {
    case Format::bf16:
      return nan ? 0x7FFFU : 0x7F80U | sign;
    case Format::f16:
      return nan ? 0x7FFFU : 0x7C00U | sign;
    case Format::e4m3:
      return nan ? 0x7FU : 0x7EU | sign;
    case Format::e5m2:
      return nan ? 0x7FU : 0x7CU | sign;
    case Format::e3m4:
      return nan ? 0x7FU : 0x70U | sign;
    default:
      return 0;
  }
}

// The two codes around |x| and how far |x| lies between them, 0 at the lower.
struct Neighbors {
  std::uint32_t lower;
  std::uint32_t upper;
  double fraction;
};

inline Neighbors neighbors(Format format, double magnitude) {
  const std::vector<double>& g = grid(format);
  const auto above = std::upper_bound(g.begin(), g.end(), magnitude);
  const auto lower = static_cast<std::uint32_t>(above - g.begin() - 1);
  if (above == g.end()) return {lower, lower, 0.0};
  return {lower, lower + 1, (magnitude - g[lower]) / (g[lower + 1] - g[lower])};
}

inline std::uint32_t nearest(Format format, float x) {
  if (!std::isfinite(x)) return special_code(format, x);
  const Neighbors n = neighbors(format, std::abs(static_cast<double>(x)));
  const bool up = n.fraction > 0.5 || (n.fraction == 0.5 && n.lower % 2 == 1);
  return signed_code(format, up ? n.upper : n.lower, std::signbit(x));
}

inline double value(Format format, std::uint32_t code) {
  const std::uint32_t magnitude = magnitude_of(format, code);
  const std::vector<double>& g = grid(format);
  const double v = magnitude < g.size() ? g[magnitude] : std::numeric_limits<double>::quiet_NaN();
  return (code & sign_bit(format)) != 0 ? -v : v;
}

inline float bf16_pattern(std::uint32_t i) { return std::bit_cast<float>(i << 16); }

// The float of an FP16 bit pattern, from the definition.
inline float f16_pattern(std::uint32_t i) {
  const std::uint32_t field = (i >> 10) & 0x1F;
  const double m = i & 0x3FF;
  double v = field == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, static_cast<int>(field) - 25);
  if (field == 31) v = m == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return static_cast<float>((i & 0x8000U) != 0 ? -v : v);
}

// Every BF16 and FP16 bit pattern, and every 997th of the FP32 ones.
template <typename Visit>
void for_each_input(Visit&& visit) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    visit(bf16_pattern(i));
    visit(f16_pattern(i));
  }
  for (std::uint64_t i = 0; i < (std::uint64_t{1} << 32); i += 997) {
    visit(std::bit_cast<float>(static_cast<std::uint32_t>(i)));
  }
}

}  // namespace quaver::oracle
