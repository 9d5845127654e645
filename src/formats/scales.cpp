#include "formats/scales.h"

#include <algorithm>
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

float limit_of(const QuantSpec& spec) { return std::ldexp(info(spec.format).max, -spec.margin); }

}  // namespace

float tensor_limit(const QuantSpec& spec) {
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
      return e4m3_scales(factor_from_stored(tensor_scale * spec.shrink), info(spec.format).max, amax, count, stored);
  }
}

void factors_from_blocks(const QuantSpec& spec, float tensor_scale, const float* stored, Size count, float* factors) {
  const bool under_tensor = spec.scale == ScaleFormat::e4m3;
  quotients(under_tensor ? factor_from_stored(tensor_scale) : spec.shrink, stored, count, factors);
}

}  // namespace quaver
