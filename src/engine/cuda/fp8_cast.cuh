// FP8 casts of eight elements at a time, bit for bit those of the formats module, with the counts that are always
// gathered. Not-finite and saturating elements are rare: one comparison of the group's largest magnitude finds them.
#pragma once

#include <cuda_fp8.h>

#include "engine/cuda/fused_target.h"

namespace quaver::cuda {

// What the casts of one thread saw.
struct CastCounts {
  unsigned amax = 0;
  unsigned nonfinite = 0;
  unsigned saturated = 0;
  unsigned underflowed = 0;
};

struct Fp8Caster {
  bool e5m2;
  float factor;           // x · factor is rounded
  unsigned saturates_at;  // bits of |x · factor| above which it is counted

  // The multiplier that is stored, and the factor that is its correctly rounded inverse.
  __device__ static float stored_scale(const FusedTarget& target) {
    return __fdiv_rn(1.0F, target.scale != nullptr ? *target.scale : 1.0F);
  }

  __device__ static Fp8Caster into(const FusedTarget& target) {
    Fp8Caster caster;
    caster.e5m2 = target.format == Format::e5m2;
    caster.factor = fminf(__fdiv_rn(1.0F, stored_scale(target)), 3.402823466e38F);
    caster.saturates_at = __float_as_uint(caster.e5m2 ? 57344.0F : 448.0F) + 4;
    return caster;
  }

  __device__ unsigned pair(float low, float high) const {
    const float2 both = make_float2(low, high);
    return e5m2 ? __nv_cvt_float2_to_fp8x2(both, __NV_SATFINITE, __NV_E5M2)
                : __nv_cvt_float2_to_fp8x2(both, __NV_SATFINITE, __NV_E4M3);
  }

  // Codes of inf and NaN as the formats module defines them: E5M2 keeps infinities, NaN has a clear sign.
  __device__ unsigned code_of_nonfinite(float x) const {
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0x7FU;
    return (e5m2 ? 0x7CU : 0x7EU) | (bits >> 31) << 7;
  }

  __device__ uint2 cast(const float (&x)[8]) const {
    uint2 codes = rounded(x);
    if (!is_finite(largest(x))) fix_nonfinite(x, codes);
    return codes;
  }

  // Elements beyond a row's end must be zero: they count as nothing.
  __device__ uint2 cast(const float (&x)[8], CastCounts& counts) const {
    uint2 codes = rounded(x);
    const float top = largest(x);
    if (is_finite(top)) {
      counts.amax = max(counts.amax, __float_as_uint(top));
      if (__float_as_uint(__fmul_rn(top, factor)) > saturates_at) count_rare(x, counts);
    } else {
      fix_nonfinite(x, codes);
      count_rare(x, counts);
    }
    if (const int zeros = zero_codes(codes); zeros != 0) counts.underflowed += zeros - zero_elements(x);
    return codes;
  }

 private:
  __device__ uint2 rounded(const float (&x)[8]) const {
    float scaled[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) scaled[i] = __fmul_rn(x[i], factor);
    uint2 codes;
    codes.x = pair(scaled[0], scaled[1]) | pair(scaled[2], scaled[3]) << 16;
    codes.y = pair(scaled[4], scaled[5]) | pair(scaled[6], scaled[7]) << 16;
    return codes;
  }

  // The largest magnitude; NaN where there is one.
  __device__ static float largest(const float (&x)[8]) {
    float top = fabsf(x[0]);
#pragma unroll
    for (int i = 1; i < 8; ++i) asm("max.NaN.f32 %0, %0, %1;" : "+f"(top) : "f"(fabsf(x[i])));
    return top;
  }

  __device__ static bool is_finite(float top) { return top <= 3.402823466e38F; }

  __device__ static int zero_codes(uint2 codes) {
    constexpr unsigned low = 0x7F7F7F7FU;
    constexpr unsigned high = 0x80808080U;
    const unsigned x = ((codes.x & low) + low) & high;  // the high bit of every code that is not zero
    const unsigned y = ((codes.y & low) + low) & high;
    return 8 - __popc(x | y >> 1);
  }

  __device__ static int zero_elements(const float (&x)[8]) {
    int count = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) count += x[i] == 0.0F ? 1 : 0;
    return count;
  }

  __device__ void count_rare(const float (&x)[8], CastCounts& counts) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const unsigned magnitude = __float_as_uint(x[i]) & 0x7FFFFFFFU;
      if (magnitude >= 0x7F800000U) {
        ++counts.nonfinite;
      } else {
        counts.amax = max(counts.amax, magnitude);
        const unsigned scaled = __float_as_uint(__fmul_rn(x[i], factor)) & 0x7FFFFFFFU;
        if (scaled > saturates_at) ++counts.saturated;
      }
    }
  }

  __device__ void fix_nonfinite(const float (&x)[8], uint2& codes) const {
    unsigned long long all = static_cast<unsigned long long>(codes.y) << 32 | codes.x;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((__float_as_uint(x[i]) & 0x7FFFFFFFU) < 0x7F800000U) continue;
      all = (all & ~(0xFFULL << (8 * i))) | static_cast<unsigned long long>(code_of_nonfinite(x[i])) << (8 * i);
    }
    codes = make_uint2(static_cast<unsigned>(all), static_cast<unsigned>(all >> 32));
  }
};

// Adds a block's counts to the site's; `elements` is what this block saw in all. Every thread calls it.
__device__ inline void add_counts(SiteStatistics* statistics, CastCounts counts, unsigned long long elements) {
  if (statistics == nullptr) return;
  counts.amax = __reduce_max_sync(~0U, counts.amax);
  counts.nonfinite = __reduce_add_sync(~0U, counts.nonfinite);
  counts.saturated = __reduce_add_sync(~0U, counts.saturated);
  counts.underflowed = __reduce_add_sync(~0U, counts.underflowed);
  if (threadIdx.x % 32 == 0) {
    atomicMax(&statistics->amax, counts.amax);
    if (counts.nonfinite != 0) atomicAdd(&statistics->nonfinite, counts.nonfinite);
    if (counts.saturated != 0) atomicAdd(&statistics->saturated, counts.saturated);
    if (counts.underflowed != 0) atomicAdd(&statistics->underflowed, counts.underflowed);
  }
  if (threadIdx.x == 0) atomicAdd(&statistics->count, elements);
}

// Eight codes of a row, as a vector where rows allow it.
__device__ inline void store_codes(std::byte* row, int col, int valid, bool aligned, uint2 codes) {
  std::byte* to = row + col;
  if (aligned && valid >= 8) {
    *reinterpret_cast<uint2*>(to) = codes;
    return;
  }
  const unsigned long long all = static_cast<unsigned long long>(codes.y) << 32 | codes.x;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < valid) to[i] = static_cast<std::byte>(all >> (8 * i));
  }
}

// The tensor's multiplier beside its codes: one thread of the grid writes it.
__device__ inline void store_scales(const FusedTarget& target, float stored) {
  if (target.rows_scale != nullptr) *target.rows_scale = stored;
  if (target.columns_scale != nullptr) *target.columns_scale = stored;
}

}  // namespace quaver::cuda
