// The arithmetic of a cast as kernels do it, sixteen elements (a group) to a thread: rotation, scales, rounding,
// counts. The same bits as formats/lane.h and formats/scales.cpp; every function also runs on the host, where
// it can be held against them. Products that an addition could follow are written so that nothing fuses them.
#pragma once

#include <cfloat>
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "engine/cuda/cast/cast_random.cuh"
#include "formats/lane.h"
#include "formats/quantize.h"

namespace quaver::cuda::casts {

inline constexpr int group_size = 16;  // a Hadamard group, and a divisor of every block

QUAVER_DEVICE float times(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

QUAVER_DEVICE float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

// quotient(1, a) in fewer instructions
QUAVER_DEVICE float inverse(float a) {
#ifdef __CUDA_ARCH__
  return __frcp_rn(a);
#else
  return 1.0F / a;
#endif
}

QUAVER_DEVICE float add_toward_zero(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rz(a, b);
#else
  const double exact = static_cast<double>(a) + static_cast<double>(b);
  const auto rounded = static_cast<float>(exact);
  return rounded > exact ? std::nextafter(rounded, 0.0F) : rounded;
#endif
}

QUAVER_DEVICE int count_ones(Bits word) {
#ifdef __CUDA_ARCH__
  return __popc(word);
#else
  return std::popcount(word);
#endif
}

// NaN wins, so that one test of the result tells whether everything was finite.
QUAVER_DEVICE float larger_or_nan(float a, float b) {
#ifdef __CUDA_ARCH__
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a != a || a > b ? a : b;
#endif
}

// ---- rotation

// Additions in the order of formats/hadamard.cpp: a stage pairs neighbors, sums go below, differences above.
QUAVER_DEVICE void rotate_group(float (&v)[group_size], Bits signs) {
  QUAVER_UNROLL
  for (int i = 0; i < group_size; ++i) v[i] = lane::value(lane::bits(v[i]) ^ (((signs >> i) & 1U) << 31));
  QUAVER_UNROLL
  for (int stage = 0; stage < 4; ++stage) {
    float next[group_size];
    QUAVER_UNROLL
    for (int i = 0; i < group_size / 2; ++i) {
      next[i] = v[2 * i] + v[2 * i + 1];
      next[i + group_size / 2] = v[2 * i] - v[2 * i + 1];
    }
    QUAVER_UNROLL
    for (int i = 0; i < group_size; ++i) v[i] = next[i];
  }
  QUAVER_UNROLL
  for (int i = 0; i < group_size; ++i) v[i] = times(v[i], 0.25F);
}

// ---- scales

enum class TensorScale : std::uint8_t { one, current, given };

// What formats/scales.cpp derives from a spec, as plain numbers.
struct ScaleRule {
  ScaleFormat format = ScaleFormat::f32;
  TensorScale tensor = TensorScale::one;
  float limit = 1;         // the format's max less the margin
  float max = 1;           // the format's max
  float tensor_limit = 1;  // what the tensor's amax is scaled to
  Bits kept = lane::magnitude_mask;
  float shrink = 1;
};

// limit / amax, kept normal and finite; 1 for zeros.
QUAVER_DEVICE float scale_for(float limit, float amax) {
  const Bits s = lane::bits(quotient(limit, amax));
  const Bits clamped = lane::larger(lane::smaller(s, lane::bits(FLT_MAX)), lane::bits(FLT_MIN));
  return amax > 0 ? lane::value(clamped) : 1.0F;
}

// The tensor's stored multiplier; `given` is s of the policies delayed and fixed.
QUAVER_DEVICE float stored_tensor_scale(const ScaleRule& rule, float amax, float given) {
  float s = 1;
  if (rule.tensor == TensorScale::current && amax > 0) {
    s = lane::value(lane::bits(scale_for(rule.tensor_limit, amax)) & rule.kept);
  }
  if (rule.tensor == TensorScale::given) s = given;
  return quotient(1.0F, times(rule.shrink, s));
}

QUAVER_DEVICE float factor_from_stored(float tensor_scale) {
  const float factor = inverse(tensor_scale);
  return FLT_MAX < factor ? FLT_MAX : factor;
}

// 2^e for e = ceil or floor of log2(amax / limit), from the difference of the two floats' bits.
QUAVER_DEVICE float e8m0_scale(Bits limit, Bits round, Bits amax) {
  if (amax == 0) return 1.0F;
  const std::int32_t e = static_cast<std::int32_t>(amax + round - limit) >> lane::float_mantissa;
  const Bits power = lane::exponent((e < -lane::float_bias ? -lane::float_bias : e) + lane::float_bias);
  return lane::value(power == 0 ? lane::bits(FLT_MIN) >> 1 : power);
}

template <Format F, Rounding R>
QUAVER_DEVICE lane::Rounded round_magnitude(Bits a, Bits word);

QUAVER_DEVICE float e4m3_scale(const ScaleRule& rule, float tensor_scale, Bits amax, float limit) {
  const float tensor_s = factor_from_stored(times(tensor_scale, rule.shrink));
  const float wanted = quotient(times(lane::value(amax), tensor_s), limit);
  return round_magnitude<Format::e4m3, Rounding::nearest_even>(lane::bits(wanted), 0U).value;
}

// For e4m3_4over6 that of a block whose largest value becomes 6.
QUAVER_DEVICE float stored_block_scale(const ScaleRule& rule, float tensor_scale, Bits amax) {
  switch (rule.format) {
    case ScaleFormat::e8m0:
      return e8m0_scale(lane::bits(rule.max), ~lane::infinity_bits & lane::magnitude_mask, amax);
    case ScaleFormat::e8m0_floor:
      return e8m0_scale(lane::bits(rule.max) & lane::infinity_bits, 0U, amax);
    case ScaleFormat::e4m3:
    case ScaleFormat::e4m3_4over6:
      return e4m3_scale(rule, tensor_scale, amax, rule.max);
    default:
      return quotient(1.0F, lane::value(lane::bits(scale_for(rule.limit, lane::value(amax))) & rule.kept));
  }
}

// The factor of the cast; 0 for a block whose scale is 0.
QUAVER_DEVICE float block_factor(const ScaleRule& rule, float tensor_scale, float stored) {
  const float numerator = is_e4m3(rule.format) ? factor_from_stored(tensor_scale) : rule.shrink;
  if (!(stored > 0)) return 0;
  return lane::value(lane::smaller(lane::bits(quotient(numerator, stored)), lane::bits(FLT_MAX)));
}

// The same where scales are FP32 and nothing shrinks.
struct BlockScale {
  float stored;
  float factor;
};
QUAVER_DEVICE BlockScale block_scale(float limit, Bits kept, Bits amax) {
  const float stored = inverse(lane::value(lane::bits(scale_for(limit, lane::value(amax))) & kept));
  return {stored, factor_from_stored(stored)};
}

// ---- rounding

template <Format F, Rounding R>
QUAVER_DEVICE lane::Rounded round_mantissa(Bits a, Bits word) {
  constexpr lane::Layout l = lane::layout(F);
  constexpr int drop = lane::float_mantissa - l.mantissa;
  if constexpr (drop == 0) {
    return {a, lane::value(a)};
  } else {
    constexpr Bits rest = (1U << drop) - 1;
    Bits rounded = 0;
    if constexpr (R == Rounding::nearest_even) {
      rounded = (a + (rest >> 1) + ((a >> drop) & 1U)) & ~rest;
    } else {
      const bool up = (word >> 8) < ((a & rest) << (24 - drop));
      rounded = (a & ~rest) + (up ? 1U << drop : 0U);
    }
    return {rounded >> (32 - l.width), lane::value(rounded)};
  }
}

// Adding 2^23 units in the last place leaves the magnitude's own units, rounded as the addition rounds, in the low bits
// of the sum.
template <Format F, Rounding R>
QUAVER_DEVICE lane::Rounded round_scaled(Bits a, Bits word) {
  constexpr lane::Layout l = lane::layout(F);
  constexpr Bits lowest = lane::exponent(lane::float_bias - l.bias + 1);
  constexpr int shift = lane::float_mantissa - l.mantissa;
  const Bits e = lane::larger(a & lane::infinity_bits, lowest);
  const Bits base = e + lane::exponent(shift);
  const Bits below = (e - lowest) >> shift;
  if constexpr (R == Rounding::nearest_even) {
    const float sum = lane::value(a) + lane::value(base);
    return {below + (lane::bits(sum) - base), sum - lane::value(base)};
  } else {
    const float sum = add_toward_zero(lane::value(a), lane::value(base));
    const float floor = sum - lane::value(base);
    const float fraction = times(lane::value(a) - floor, lane::value(lane::exponent(278 + l.mantissa) - e));  // of 2^24
    const bool up = static_cast<float>(static_cast<std::int32_t>(word >> 8)) < fraction;
    const float ulp = lane::value(e - lane::exponent(l.mantissa));
    return {below + (lane::bits(sum) - base) + (up ? 1U : 0U), up ? floor + ulp : floor};
  }
}

// a: magnitude bits, any. Saturates; says nothing about inf and NaN.
template <Format F, Rounding R>
QUAVER_DEVICE lane::Rounded round_magnitude(Bits a, Bits word) {
  const Bits clamped = lane::smaller(a, lane::layout(F).max);
  if constexpr (lane::layout(F).bias == lane::float_bias) {
    return round_mantissa<F, R>(clamped, word);
  } else {
    return round_scaled<F, R>(clamped, word);
  }
}

// ---- four over six: scales that make a block's largest value 6 or 4, and what each loses

// As formats/scales.cpp has it: an integer, in 2^-12.
template <Rounding R>
QUAVER_DEVICE Bits squared_error(float x, float factor) {
  constexpr Bits most = lane::bits(262144.0F);
  const Bits a = lane::bits(x) & lane::magnitude_mask;
  const float scaled = times(lane::value(a < lane::infinity_bits ? a : 0U), factor);
  const float below = round_magnitude<Format::e2m1, R>(lane::bits(scaled), ~0U).value;
  const float above = round_magnitude<Format::e2m1, R>(lane::bits(scaled), 0U).value;
  const Bits square = lane::bits(times(times(scaled - below, scaled - above), 4096.0F)) & lane::magnitude_mask;
  return static_cast<Bits>(lane::value(lane::smaller(square, most)));
}

struct FourOverSix {
  float six;
  float four;
  Bits six_error = 0;
  Bits four_error = 0;

  QUAVER_DEVICE FourOverSix(const ScaleRule& rule, float tensor_scale, Bits amax)
      : six(e4m3_scale(rule, tensor_scale, amax, 6.0F)), four(e4m3_scale(rule, tensor_scale, amax, 4.0F)) {}

  template <Rounding R>
  QUAVER_DEVICE void add(const ScaleRule& rule, float tensor_scale, const float (&v)[group_size]) {
    const float six_factor = block_factor(rule, tensor_scale, six);
    const float four_factor = block_factor(rule, tensor_scale, four);
    QUAVER_UNROLL
    for (int i = 0; i < group_size; ++i) {
      six_error += squared_error<R>(v[i], six_factor);
      four_error += squared_error<R>(v[i], four_factor);
    }
  }

  QUAVER_DEVICE void add(Rounding rounding, const ScaleRule& rule, float tensor_scale, const float (&v)[group_size]) {
    if (rounding == Rounding::stochastic) return add<Rounding::stochastic>(rule, tensor_scale, v);
    add<Rounding::nearest_even>(rule, tensor_scale, v);
  }

  QUAVER_DEVICE float better() const {
    const float of_six = times(static_cast<float>(six_error), times(six, six));
    const float of_four = times(static_cast<float>(four_error), times(four, four));
    return six == 0 || of_four < of_six ? four : six;
  }
};

// ---- groups

// Codes of a group side by side, the first in the low bits.
template <Format F>
inline constexpr int packed_words = lane::layout(F).width / 2;

template <Format F>
using Packed = Bits[packed_words<F>];

QUAVER_DEVICE Bits largest_magnitude(const float (&v)[group_size]) {
  float result = 0;
  QUAVER_UNROLL
  for (int i = 0; i < group_size; ++i) result = larger_or_nan(result, fabsf(v[i]));
  return lane::bits(result) & lane::magnitude_mask;
}

QUAVER_DEVICE bool is_finite(Bits magnitude) { return magnitude < lane::infinity_bits; }

// amax over the finite elements, when the largest magnitude was not.
QUAVER_DEVICE Bits finite_amax(const float (&v)[group_size]) {
  Bits result = 0;
  QUAVER_UNROLL
  for (int i = 0; i < group_size; ++i) {
    const Bits a = lane::bits(v[i]) & lane::magnitude_mask;
    if (is_finite(a)) result = lane::larger(result, a);
  }
  return result;
}

template <Format F, Rounding R>
QUAVER_DEVICE Bits code_of(float v, float factor, Bits word) {
  constexpr int width = lane::layout(F).width;
  const Bits magnitude = lane::bits(times(v, factor)) & lane::magnitude_mask;
  return round_magnitude<F, R>(magnitude, word).code | ((lane::bits(v) & lane::sign_mask) >> (32 - width));
}

template <Format F>
inline constexpr bool has_conversion = F == Format::e4m3 || F == Format::e5m2;

// Two codes by the conversion that the hardware has; the same bits for finite elements.
template <Format F>
QUAVER_DEVICE Bits pair_of(float first, float second, float factor) {
  constexpr __nv_fp8_interpretation_t kind = F == Format::e4m3 ? __NV_E4M3 : __NV_E5M2;
  return __nv_cvt_float2_to_fp8x2({times(first, factor), times(second, factor)}, __NV_SATFINITE, kind);
}

// Codes of v · factor for finite elements; `index` is the first element's in the code matrix.
template <Format F, Rounding R>
QUAVER_DEVICE void encode_group(const float (&v)[group_size], float factor, const RandomKey& key, std::uint64_t index,
                                Packed<F>& packed) {
  constexpr int width = lane::layout(F).width;
  QUAVER_UNROLL
  for (int w = 0; w < packed_words<F>; ++w) packed[w] = 0;
  if constexpr (R == Rounding::stochastic) {
    RandomWords words(key, index);
    QUAVER_UNROLL
    for (int i = 0; i < group_size; i += 4) {
      const uint4 word = words.next();
      const Bits each[4] = {word.x, word.y, word.z, word.w};
      QUAVER_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int at = (i + j) * width;
        packed[at / 32] |= code_of<F, R>(v[i + j], factor, each[j]) << (at % 32);
      }
    }
  } else if constexpr (has_conversion<F>) {
    QUAVER_UNROLL
    for (int i = 0; i < group_size; i += 2) {
      packed[i * width / 32] |= pair_of<F>(v[i], v[i + 1], factor) << (i * width % 32);
    }
  } else {
    QUAVER_UNROLL
    for (int i = 0; i < group_size; ++i) packed[i * width / 32] |= code_of<F, R>(v[i], factor, 0U) << (i * width % 32);
  }
}

// Puts the codes of inf and NaN where v is not finite.
template <Format F>
QUAVER_DEVICE void patch_nonfinite(const float (&v)[group_size], Packed<F>& packed) {
  constexpr lane::Layout l = lane::layout(F);
  constexpr Bits field = 0xFFFFFFFFU >> (32 - l.width);
  QUAVER_UNROLL
  for (int i = 0; i < group_size; ++i) {
    const Bits x = lane::bits(v[i]);
    const Bits a = x & lane::magnitude_mask;
    if (is_finite(a)) continue;
    Bits code = a > lane::infinity_bits ? l.nan : l.infinity | ((x & lane::sign_mask) >> (32 - l.width));
    if constexpr (F == Format::f32) code = x;
    if constexpr (F == Format::e2m1) code = 0;
    Bits& word = packed[i * l.width / 32];
    word = (word & ~(field << (i * l.width % 32))) | (code << (i * l.width % 32));
  }
}

// The first group of CastStatistics, of what one thread saw.
struct GroupCounts {
  Bits amax = 0;
  Bits nonfinite = 0;
  Bits saturated = 0;
  Bits underflowed = 0;
};

template <Format F>
QUAVER_DEVICE int zero_codes(const Packed<F>& packed) {
  constexpr int width = lane::layout(F).width;
  constexpr Bits ones = 0xFFFFFFFFU / (0xFFFFFFFFU >> (32 - width));  // the lowest bit of every code
  constexpr Bits tops = ones << (width - 1);
  int nonzero = 0;
  QUAVER_UNROLL
  for (int w = 0; w < packed_words<F>; ++w) nonzero += count_ones(((packed[w] & ~tops) + ~tops) & tops);
  return group_size - nonzero;
}

template <Format F>
QUAVER_DEVICE void count_rare(const float (&v)[group_size], float factor, GroupCounts& counts, Bits& nonfinite) {
  constexpr Bits rounding_slack = 4;  // as cast_loops.cpp has it: lost nothing
  nonfinite = 0;
  QUAVER_UNROLL
  for (int i = 0; i < group_size; ++i) {
    const bool finite = is_finite(lane::bits(v[i]) & lane::magnitude_mask);
    const Bits scaled = lane::bits(times(v[i], factor)) & lane::magnitude_mask;
    nonfinite += finite ? 0U : 1U;
    counts.saturated += finite && scaled > lane::layout(F).max + rounding_slack ? 1U : 0U;
  }
  counts.nonfinite += nonfinite;
}

// Elements beyond the matrix must be zero. `largest` is largest_magnitude(v), amax that of the finite ones.
template <Format F>
QUAVER_DEVICE void count_group(const float (&v)[group_size], const Packed<F>& packed, float factor, Bits largest,
                               Bits amax, GroupCounts& counts) {
  counts.amax = lane::larger(counts.amax, amax);
  Bits nonfinite = 0;
  const Bits scaled = lane::bits(times(lane::value(amax), factor));
  if (!is_finite(largest) || scaled > lane::layout(F).max) count_rare<F>(v, factor, counts, nonfinite);
  const int zeros = zero_codes<F>(packed);
  if (zeros == 0) return;
  Bits zero_values = F == Format::e2m1 ? nonfinite : 0;
  QUAVER_UNROLL
  for (int i = 0; i < group_size; ++i) zero_values += v[i] == 0 ? 1U : 0U;
  counts.underflowed += static_cast<Bits>(zeros) - zero_values;
}

}  // namespace quaver::cuda::casts
