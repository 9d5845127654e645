// FP8 casts of eight elements at a time, bit for bit those of the formats module, with the counts that are always
// gathered. Not-finite and saturating elements are rare: one comparison of the group's largest magnitude finds them.
#pragma once

#include <cuda_fp8.h>

#include "engine/cuda/cast/fused_target.h"

namespace quaver::cuda {

// What the casts of one thread saw.
struct CastCounts {
  unsigned amax = 0;
  unsigned nonfinite = 0;
  unsigned saturated = 0;
  unsigned underflowed = 0;
};

// The multiplier that is stored beside a target's codes.
__device__ inline float stored_scale(const FusedTarget& target) {
  return __fdiv_rn(1.0F, target.scale != nullptr ? *target.scale : 1.0F);
}

// Casts to one format.
template <Format kFormat>
struct Fp8CasterTo {
  static_assert(kFormat == Format::e4m3 || kFormat == Format::e5m2);

  float factor;           // x · factor is rounded
  unsigned saturates_at;  // bits of |x · factor| above which it is counted

  __device__ uint2 cast(const float (&x)[8]) const {
    uint2 codes = rounded(x);
    // E4M3 has no infinity, and what the conversion makes of one and of NaN is what the formats module does.
    if constexpr (kFormat == Format::e5m2) {
      if (!(largest(x) <= 3.402823466e38F)) {
        CastCounts unused;
        count_rare(x, codes, unused);
      }
    }
    return codes;
  }

  // Elements beyond a row's end must be zero: they count as nothing.
  __device__ uint2 cast(const float (&x)[8], CastCounts& counts) const {
    uint2 codes = rounded(x);
    const uint2 marks = make_uint2(nonzero_marks(codes.x), nonzero_marks(codes.y));
    if (__builtin_expect((marks.x & marks.y & all_marks) != all_marks, 0)) {
      counts.underflowed += zero_codes(marks) - zero_elements(x);
    }
    const float top = largest(x);
    if (__builtin_expect(__float_as_uint(__fmul_rn(top, factor)) > saturates_at, 0)) {  // NaN's bits are above as well
      count_rare(x, codes, counts);
    } else {
      counts.amax = max(counts.amax, __float_as_uint(top));
    }
    return codes;
  }

 private:
  static constexpr unsigned all_marks = 0x80808080U;

  __device__ static unsigned pair(float low, float high) {
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE,
                                    kFormat == Format::e5m2 ? __NV_E5M2 : __NV_E4M3);
  }

  // Codes of inf and NaN as the formats module defines them: E5M2 keeps infinities, NaN has a clear sign.
  __device__ static unsigned code_of_nonfinite(unsigned bits) {
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0x7FU;
    return (kFormat == Format::e5m2 ? 0x7CU : 0x7EU) | (bits >> 31) << 7;
  }

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
    return larger(larger(larger(x[0], x[1]), larger(x[2], x[3])), larger(larger(x[4], x[5]), larger(x[6], x[7])));
  }
  __device__ static float larger(float a, float b) {
    float top;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(top) : "f"(fabsf(a)), "f"(fabsf(b)));
    return top;
  }

  // The high bit of every code that is not zero; the other bits are anything.
  __device__ static unsigned nonzero_marks(unsigned codes) {
    constexpr unsigned magnitudes = 0x7F7F7F7FU;
    return (codes & magnitudes) + magnitudes;
  }
  __device__ static int zero_codes(uint2 marks) {
    return 8 - __popc((marks.x & all_marks) | (marks.y & all_marks) >> 1);
  }

  __device__ static int zero_elements(const float (&x)[8]) {
    const auto smaller = [](float a, float b) { return fminf(fabsf(a), fabsf(b)); };
    const float least =
        smaller(smaller(smaller(x[0], x[1]), smaller(x[2], x[3])), smaller(smaller(x[4], x[5]), smaller(x[6], x[7])));
    if (least != 0) return 0;
    int count = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) count += x[i] == 0.0F ? 1 : 0;
    return count;
  }

  // What is not finite gets its code; it is counted, and so is what saturates. One element after another: this is rare,
  // and must not take instruction cache from the common path.
  __device__ void count_rare(const float (&x)[8], uint2& codes, CastCounts& counts) const {
    float left[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) left[i] = x[i];
    unsigned long long all = static_cast<unsigned long long>(codes.y) << 32 | codes.x;
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const unsigned bits = __float_as_uint(left[0]);
      const unsigned magnitude = bits & 0x7FFFFFFFU;
      unsigned long long code = all & 0xFFU;
      if (magnitude >= 0x7F800000U) {
        ++counts.nonfinite;
        code = code_of_nonfinite(bits);
      } else {
        counts.amax = max(counts.amax, magnitude);
        if ((__float_as_uint(__fmul_rn(left[0], factor)) & 0x7FFFFFFFU) > saturates_at) ++counts.saturated;
      }
      all = all >> 8 | code << 56;
#pragma unroll
      for (int j = 0; j < 7; ++j) left[j] = left[j + 1];
    }
    codes = make_uint2(static_cast<unsigned>(all), static_cast<unsigned>(all >> 32));
  }
};

// The caster of a target, whose format the kernel learns as it starts.
struct Fp8Caster {
  bool e5m2;
  float factor;  // the stored multiplier's correctly rounded inverse

  __device__ static Fp8Caster into(const FusedTarget& target) {
    return {target.format == Format::e5m2, fminf(__fdiv_rn(1.0F, stored_scale(target)), 3.402823466e38F)};
  }

  // Calls body with the caster to that format: choosing per element would execute both conversions.
  template <class Body>
  __device__ void with_format(const Body& body) const {
    constexpr unsigned beyond = 4;  // bits by which a scale's own rounding may take an element over the end
    if (e5m2) {
      body(Fp8CasterTo<Format::e5m2>{factor, __float_as_uint(57344.0F) + beyond});
    } else {
      body(Fp8CasterTo<Format::e4m3>{factor, __float_as_uint(448.0F) + beyond});
    }
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
