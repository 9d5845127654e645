#include "formats/scales.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "formats/lane.h"
#include "formats/simd.h"

namespace quaver {
namespace {

using lane::Bits;

// limit / amax, kept normal and finite; 1 for a block of zeros.
QUAVER_LANE float scale_for(float limit, float amax) {
  const float s = limit / amax;
  const Bits clamped = lane::larger(lane::smaller(lane::bits(s), lane::bits(FLT_MAX)), lane::bits(FLT_MIN));
  return lane::value(lane::select(lane::less(0U, lane::bits(amax)), clamped, lane::bits(1.0F)));
}

QUAVER_SIMD void f32_scales(float limit, Bits kept, const float* __restrict amax, Size count,
                            float* __restrict stored) {
  for (Size i = 0; i < count; ++i) {
    const Bits s = lane::bits(scale_for(limit, amax[i])) & kept;
    stored[i] = 1.0F / lane::value(s);
  }
}

// 2^e for e = ceil or floor of log2(amax / limit), from the difference of the two floats' bits: `round` is all ones
// below the exponent to round up, 0 to round down.
QUAVER_SIMD void e8m0_scales(Bits limit, Bits round, const float* __restrict amax, Size count,
                             float* __restrict stored) {
  constexpr std::int32_t lowest = -lane::float_bias;
  for (Size i = 0; i < count; ++i) {
    const Bits a = lane::bits(amax[i]);
    const auto difference = static_cast<std::int32_t>(a + round - limit);
    const std::int32_t e = difference >> lane::float_mantissa;
    const std::int32_t clamped = e < lowest ? lowest : e;
    // 2^-127 has no exponent field of its own: half of 2^-126.
    const Bits power = lane::exponent(clamped + lane::float_bias);
    const Bits scale = lane::select(lane::less(power, 1U), lane::bits(FLT_MIN) >> 1, power);
    stored[i] = lane::value(lane::select(lane::less(0U, a), scale, lane::bits(1.0F)));
  }
}

QUAVER_SIMD void e4m3_scales(float tensor_s, float limit, const float* __restrict amax, Size count,
                             float* __restrict stored) {
  for (Size i = 0; i < count; ++i) {
    const float wanted = amax[i] * tensor_s / limit;
    stored[i] = lane::round_magnitude<Format::e4m3, Rounding::nearest_even>(lane::bits(wanted), 0U).value;
  }
}

QUAVER_SIMD void quotients(float numerator, const float* __restrict stored, Size count, float* __restrict factors) {
  for (Size i = 0; i < count; ++i) {
    const Bits q = lane::smaller(lane::bits(numerator / stored[i]), lane::bits(FLT_MAX));
    factors[i] = lane::value(q & lane::mask(lane::less(0U, lane::bits(stored[i]))));
  }
}

// What rounding |x| · factor to e2m1 loses, squared, in 2^-12; what it loses on average where it is stochastic. An
// integer, so that sums do not depend on their order, and so coarse that codes which became BF16 on their way lose
// nothing when they are cast again.
template <Rounding R>
QUAVER_LANE std::int32_t squared_error(float x, float factor) {
  constexpr Bits most = lane::bits(262144.0F);  // of a value beyond its scale's codes; 256 of them fit into the sum
  const Bits a = lane::bits(x) & lane::magnitude_mask;
  const float scaled = lane::value(a & lane::mask(lane::less(a, lane::infinity_bits))) * factor;
  // The two are the same code to nearest; else those on either side, which the words that never and always round up
  // give.
  const float below = lane::round_magnitude<Format::e2m1, R>(lane::bits(scaled), ~0U).value;
  const float above = lane::round_magnitude<Format::e2m1, R>(lane::bits(scaled), 0U).value;
  const float square = (scaled - below) * (scaled - above) * 4096.0F;
  return static_cast<std::int32_t>(lane::value(lane::smaller(lane::bits(square) & lane::magnitude_mask, most)));
}

constexpr Size nvfp4_block = 16;
constexpr Size most_blocks = run_limit / nvfp4_block;

template <Rounding R>
QUAVER_SIMD void add_errors(const float* __restrict x, Size blocks, const float* __restrict factors,
                            std::int32_t* __restrict errors) {
  for (Size b = 0; b < blocks; ++b) {
    std::int32_t sum = 0;
    for (Size i = 0; i < nvfp4_block; ++i) sum += squared_error<R>(x[b * nvfp4_block + i], factors[b]);
    errors[b] += sum;
  }
}

// The blocks of a strip under scales that make their largest values `limit`.
struct ScaledBlocks {
  std::array<float, most_blocks> stored;
  std::array<std::int32_t, most_blocks> errors{};

  ScaledBlocks(const QuantSpec& spec, float tensor_scale, const BlockStrip& strip, const float* amax, float limit) {
    const Size blocks = (strip.cols + nvfp4_block - 1) / nvfp4_block;
    const Size whole = strip.cols / nvfp4_block;
    e4m3_scales(factor_from_stored(tensor_scale * spec.shrink), limit, amax, blocks, stored.data());
    std::array<float, most_blocks> factors;
    factors_from_blocks(spec, tensor_scale, stored.data(), blocks, factors.data());
    const bool stochastic = spec.rounding == Rounding::stochastic;
    const auto add_row = stochastic ? add_errors<Rounding::stochastic> : add_errors<Rounding::nearest_even>;
    for (Size r = 0; r < strip.rows; ++r) {
      const float* row = strip.x + r * strip.stride;
      add_row(row, whole, factors.data(), errors.data());
      if (whole == blocks) continue;
      std::array<float, nvfp4_block> rest{};
      std::copy(row + whole * nvfp4_block, row + strip.cols, rest.begin());
      add_row(rest.data(), 1, factors.data() + whole, errors.data() + whole);
    }
  }

  float error(Size block) const { return static_cast<float>(errors[block]) * (stored[block] * stored[block]); }
};

void four_over_six_scales(const QuantSpec& spec, float tensor_scale, const BlockStrip& strip, const float* amax,
                          float* out) {
  const ScaledBlocks six(spec, tensor_scale, strip, amax, 6.0F);
  const ScaledBlocks four(spec, tensor_scale, strip, amax, 4.0F);
  for (Size b = 0; b * nvfp4_block < strip.cols; ++b) {
    // A scale of 0 loses the whole block, which its error in units of the scale does not show.
    const bool takes_four = six.stored[b] == 0 || four.error(b) < six.error(b);
    out[b] = takes_four ? four.stored[b] : six.stored[b];
  }
}

float limit_of(const QuantSpec& spec) { return std::ldexp(info(spec.format).max, -spec.margin); }

}  // namespace

float tensor_limit(const QuantSpec& spec) {
  // Of a block with the tensor's amax: 256 where that becomes 6, and 384 where it becomes 4. e4m3 has both.
  if (spec.scale == ScaleFormat::e4m3_4over6) return 256.0F * info(spec.format).max;
  return spec.scale == ScaleFormat::e4m3 ? info(Format::e4m3).max * info(spec.format).max : limit_of(spec);
}

std::uint32_t kept_scale_bits(ScaleFormat format) {
  return format == ScaleFormat::f32_power_of_two ? lane::infinity_bits : lane::magnitude_mask;
}

float tensor_scale_for(const QuantSpec& spec, float amax) {
  if (spec.policy == ScalePolicy::none || !std::isfinite(amax) || amax <= 0) return 1.0F;
  return lane::value(lane::bits(scale_for(tensor_limit(spec), amax)) & kept_scale_bits(spec.scale));
}

float stored_tensor_scale(const QuantSpec& spec, float s) { return 1.0F / (spec.shrink * s); }

float factor_from_stored(float tensor_scale) { return std::min(1.0F / tensor_scale, FLT_MAX); }

void block_scales_from_amax(const QuantSpec& spec, float tensor_scale, const float* amax, Size count, float* stored) {
  const Bits max = lane::bits(info(spec.format).max);
  switch (spec.scale) {
    case ScaleFormat::f32:
    case ScaleFormat::f32_power_of_two:
      return f32_scales(limit_of(spec), kept_scale_bits(spec.scale), amax, count, stored);
    case ScaleFormat::e8m0:
      return e8m0_scales(max, ~lane::infinity_bits & lane::magnitude_mask, amax, count, stored);
    case ScaleFormat::e8m0_floor:
      return e8m0_scales(max & lane::infinity_bits, 0U, amax, count, stored);
    case ScaleFormat::e4m3:
    case ScaleFormat::e4m3_4over6:
      return e4m3_scales(factor_from_stored(tensor_scale * spec.shrink), info(spec.format).max, amax, count, stored);
  }
}

void block_scales(const QuantSpec& spec, float tensor_scale, const BlockStrip& strip, float* stored) {
  std::array<float, most_blocks> amaxes{};
  for (Size r = 0; r < strip.rows; ++r) {
    block_amax(strip.x + r * strip.stride, strip.cols, strip.width, amaxes.data());
  }
  if (spec.scale == ScaleFormat::e4m3_4over6) {
    return four_over_six_scales(spec, tensor_scale, strip, amaxes.data(), stored);
  }
  block_scales_from_amax(spec, tensor_scale, amaxes.data(), (strip.cols + strip.width - 1) / strip.width, stored);
}

void factors_from_blocks(const QuantSpec& spec, float tensor_scale, const float* stored, Size count, float* factors) {
  const bool under_tensor = is_e4m3(spec.scale);
  quotients(under_tensor ? factor_from_stored(tensor_scale) : spec.shrink, stored, count, factors);
}

}  // namespace quaver
