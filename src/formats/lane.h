// The casts of one element, written without branches so that a loop over them vectorizes. Internal to this module:
// format.cpp has the readable reference, and these agree with it bit for bit.
//
// Conditions are computed as integer arithmetic (a < b becomes the sign bit of a − b) rather than as bool: compilers
// turn the former into vector code on every instruction set, and give up on mixtures of bool and integers.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "quaver/format.h"

#define QUAVER_LANE [[gnu::always_inline]] inline

namespace quaver::lane {

using Bits = std::uint32_t;

inline constexpr Bits magnitude_mask = 0x7FFFFFFFU;
inline constexpr Bits sign_mask = 0x80000000U;
inline constexpr Bits infinity_bits = 0x7F800000U;
inline constexpr int float_mantissa = 23;
inline constexpr int float_bias = 127;

QUAVER_LANE constexpr Bits bits(float x) { return std::bit_cast<Bits>(x); }
QUAVER_LANE constexpr float value(Bits b) { return std::bit_cast<float>(b); }
QUAVER_LANE constexpr Bits exponent(int e) { return static_cast<Bits>(e) << float_mantissa; }

// 1 where a < b, else 0, for a and b below 2^31.
QUAVER_LANE constexpr Bits less(Bits a, Bits b) { return (a - b) >> 31; }
QUAVER_LANE constexpr Bits mask(Bits flag) { return 0U - flag; }
QUAVER_LANE constexpr Bits select(Bits flag, Bits yes, Bits no) { return (yes & mask(flag)) | (no & ~mask(flag)); }
QUAVER_LANE constexpr Bits smaller(Bits a, Bits b) { return a < b ? a : b; }
QUAVER_LANE constexpr Bits larger(Bits a, Bits b) { return a < b ? b : a; }

struct Layout {
  int width;  // bits of a code
  int mantissa;
  int bias;
  Bits max;       // largest finite value, as float bits
  Bits nan;       // code of NaN
  Bits infinity;  // code of +inf
};

constexpr Layout layout(Format format) {
  switch (format) {
    case Format::f32:
      return {32, 23, 127, 0x7F7FFFFFU, 0x7FFFFFFFU, infinity_bits};
    case Format::tf32:
      return {32, 10, 127, 0x7F7FE000U, 0x7FFFE000U, infinity_bits};
    case Format::bf16:
      return {16, 7, 127, 0x7F7F0000U, 0x7FFFU, 0x7F80U};
    case Format::f16:
      return {16, 10, 15, bits(65504.0F), 0x7FFFU, 0x7C00U};
    case Format::e4m3:
      return {8, 3, 7, bits(448.0F), 0x7FU, 0x7EU};
    case Format::e5m2:
      return {8, 2, 15, bits(57344.0F), 0x7FU, 0x7CU};
    case Format::e2m1:
      return {4, 1, 1, bits(6.0F), 0, 0};
    case Format::e3m4:
      return {8, 4, 3, bits(15.5F), 0x7FU, 0x70U};
    case Format::e3m2:
      return {6, 2, 3, bits(28.0F), 0, 0};
    case Format::e2m3:
      return {6, 3, 1, bits(7.5F), 0, 0};
    case Format::int8:
      return {8, 7, -6, bits(127.0F), 0, 0};
  }
  return {};
}

// What an array of codes is made of; two E2M1 codes are packed into one of these afterward.
template <Format F>
using Storage = std::conditional_t<layout(F).width == 32, std::uint32_t,
                                   std::conditional_t<layout(F).width == 16, std::uint16_t, std::uint8_t>>;

struct Rounded {
  Bits code;
  float value;
};

// The rounding of a magnitude (at most the format's max) in a format with f32's exponents: cut bits off the mantissa.
template <Format F, Rounding R>
QUAVER_LANE Rounded round_mantissa(Bits a, Bits word) {
  constexpr Layout l = layout(F);
  constexpr int drop = float_mantissa - l.mantissa;
  if constexpr (drop == 0) {
    return {a, value(a)};
  } else {
    constexpr Bits rest_mask = (1U << drop) - 1;
    Bits rounded = 0;
    if constexpr (R == Rounding::nearest_even) {
      rounded = (a + (rest_mask >> 1) + ((a >> drop) & 1U)) & ~rest_mask;
    } else {
      const Bits up = less(word >> 8, (a & rest_mask) << (24 - drop));
      rounded = (a & ~rest_mask) + (up << drop);
    }
    return {rounded >> (32 - l.width), value(rounded)};
  }
}

// The same in a format with fewer exponents: count units in the last place, which stop shrinking at the subnormals.
template <Format F, Rounding R>
QUAVER_LANE Rounded round_scaled(Bits a, Bits word) {
  constexpr Layout l = layout(F);
  constexpr Bits lowest = exponent(float_bias - l.bias + 1);
  constexpr float integers_from = 8388608.0F;  // 2^23: floats from here on have no fraction bits
  const Bits e = larger(a & infinity_bits, lowest);
  const float ulp = value(e - exponent(l.mantissa));
  const float units = value(a) * value(exponent(2 * float_bias + l.mantissa) - e);
  Bits count = 0;
  float whole = 0;
  if constexpr (R == Rounding::nearest_even) {
    const float shifted = units + integers_from;
    count = bits(shifted) & ~infinity_bits;
    whole = shifted - integers_from;
  } else {
    const auto floor = static_cast<std::int32_t>(units);
    const float fraction = units - static_cast<float>(floor);
    const auto random = static_cast<float>(static_cast<std::int32_t>(word >> 8));
    const Bits up = less(bits(random), bits(fraction * 16777216.0F));
    count = static_cast<Bits>(floor) + up;
    whole = static_cast<float>(static_cast<std::int32_t>(count));
  }
  return {((e - lowest) >> (float_mantissa - l.mantissa)) + count, whole * ulp};
}

// a: magnitude bits, any. Saturates; inf and NaN are the caller's.
template <Format F, Rounding R>
QUAVER_LANE Rounded round_magnitude(Bits a, Bits word) {
  const Bits clamped = smaller(a, layout(F).max);
  if constexpr (layout(F).bias == float_bias) {
    return round_mantissa<F, R>(clamped, word);
  } else {
    return round_scaled<F, R>(clamped, word);
  }
}

// Puts the sign on a magnitude's code, or replaces it where x was not finite.
template <Format F>
QUAVER_LANE Bits finish_code(Bits x, Bits code) {
  constexpr Layout l = layout(F);
  const Bits sign = (x & sign_mask) >> (32 - l.width);
  const Bits magnitude = x & magnitude_mask;
  const Bits finite = less(magnitude, infinity_bits);
  if constexpr (F == Format::f32) {
    return select(finite, code | sign, x);
  } else if constexpr (F == Format::int8) {
    const Bits negative = x >> 31;
    return ((code ^ mask(negative)) + negative) & mask(finite);
  } else if constexpr (l.nan == 0) {
    return (code | sign) & mask(finite);
  } else {
    const Bits nan = less(infinity_bits, magnitude);
    return select(finite, code | sign, select(nan, l.nan, l.infinity | sign));
  }
}

template <Format F>
QUAVER_LANE float decode(Bits code) {
  constexpr Layout l = layout(F);
  if constexpr (l.bias == float_bias) {
    return value(code << (32 - l.width));
  } else if constexpr (F == Format::int8) {
    return static_cast<float>(static_cast<std::int8_t>(code));
  } else {
    constexpr int shift = float_mantissa - l.mantissa;
    constexpr Bits lowest = exponent(float_bias - l.bias + 1);
    constexpr Bits rebias = exponent(float_bias - l.bias);
    const Bits magnitude = code & ((1U << (l.width - 1)) - 1);
    const Bits subnormal = less(magnitude, 1U << l.mantissa);
    const float below = value((magnitude << shift) | lowest) - value(lowest);
    Bits result = select(subnormal, bits(below), (magnitude << shift) + rebias);
    if constexpr (F == Format::e4m3) result |= mask(less(l.nan - 1, magnitude)) & infinity_bits;
    if constexpr (F == Format::e5m2 || F == Format::e3m4 || F == Format::f16) {
      result |= mask(less(l.infinity - 1, magnitude)) & infinity_bits;
    }
    return value(result | ((code << (32 - l.width)) & sign_mask));
  }
}

}  // namespace quaver::lane
