// AdamW on four neighboring elements, as one thread handles them: read, decoded, updated, rounded and written in FP32,
// BF16 or E4M3 with a scale for every 128, bit for bit as the CPU engine stores what it has computed.
#pragma once

#include <cstring>
#include <cuda_fp16.h>
#include <type_traits>

#include "engine/adamw_coefficients.h"
#include "engine/cuda/cast/cast_device.cuh"
#include "engine/cuda/device/vectors.cuh"
#include "engine/engine.h"

namespace quaver::cuda {

inline constexpr int quad = 4;

// A thread's four elements.
struct QuadPlace {
  Size index;    // of the first, in the matrix
  int valid;     // how many there are
  bool aligned;  // may be read as one vector
};

template <Format F>
using QuadVector = std::conditional_t<lane::layout(F).width == 32, uint4,
                                      std::conditional_t<lane::layout(F).width == 16, uint2, std::uint32_t>>;

template <Format F>
struct Quad {
  lane::Storage<F> code[quad];
};

template <Format F>
__device__ inline Quad<F> load_quad(const void* codes, const QuadPlace& place) {
  const auto* p = static_cast<const lane::Storage<F>*>(codes) + place.index;
  Quad<F> result{};
  if (place.aligned && place.valid == quad) {
    const auto vector = *reinterpret_cast<const QuadVector<F>*>(p);
    memcpy(&result, &vector, sizeof(result));
    return result;
  }
#pragma unroll
  for (int i = 0; i < quad; ++i) {
    if (i < place.valid) result.code[i] = p[i];
  }
  return result;
}

template <Format F>
__device__ inline void store_quad(void* codes, const QuadPlace& place, const Quad<F>& values) {
  auto* p = static_cast<lane::Storage<F>*>(codes) + place.index;
  if (place.aligned && place.valid == quad) {
    QuadVector<F> vector;
    memcpy(&vector, &values, sizeof(vector));
    *reinterpret_cast<QuadVector<F>*>(p) = vector;
    return;
  }
#pragma unroll
  for (int i = 0; i < quad; ++i) {
    if (i < place.valid) p[i] = values.code[i];
  }
}

__device__ inline Quad<Format::f32> floats_of(const float (&x)[quad]) {
  return {{lane::bits(x[0]), lane::bits(x[1]), lane::bits(x[2]), lane::bits(x[3])}};
}

template <Format F>
__device__ inline float decode_stored(lane::Storage<F> code) {
  if constexpr (F == Format::e4m3) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
  } else {
    return lane::value(static_cast<lane::Bits>(code) << (32 - lane::layout(F).width));
  }
}

template <Format F>
__device__ inline lane::Bits code_of_nonfinite(float x) {
  constexpr lane::Layout l = lane::layout(F);
  if (isnan(x)) return l.nan;
  return l.infinity | ((lane::bits(x) & lane::sign_mask) >> (32 - l.width));
}

// Codes of x · factor; element i of the matrix uses word i of the key's stream.
template <Format F>
__device__ inline Quad<F> encode_quad(const float (&x)[quad], float factor, Rounding rounding, const RandomKey& key,
                                      const QuadPlace& place) {
  Quad<F> result{};
  uint4 words{};
  if (rounding == Rounding::stochastic) words = casts::RandomWords(key, static_cast<std::uint64_t>(place.index)).next();
  const lane::Bits word[quad] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < quad; ++i) {
    lane::Bits code = rounding == Rounding::stochastic ? casts::code_of<F, Rounding::stochastic>(x[i], factor, word[i])
                                                       : casts::code_of<F, Rounding::nearest_even>(x[i], factor, 0U);
    if (!casts::is_finite(lane::bits(x[i]) & lane::magnitude_mask)) code = code_of_nonfinite<F>(x[i]);
    result.code[i] = static_cast<lane::Storage<F>>(code);
  }
  return result;
}

// A moment as kernels see it.
struct StoredMoment {
  void* codes;
  float* block_scales;  // of 128 elements, null where the format has none
  float limit;          // what a block's amax is scaled to
  lane::Bits kept;      // bits of a scale that are kept
  Rounding rounding;
  RandomKey key;
};

template <Format F>
__device__ inline float scale_of_block(const StoredMoment& moment, Size block) {
  if constexpr (is_low_precision(F)) return moment.block_scales[block];
  return 1.0F;
}

template <Format F>
__device__ inline void decode_moment(const Quad<F>& codes, float scale, float (&x)[quad]) {
#pragma unroll
  for (int i = 0; i < quad; ++i) x[i] = casts::times(decode_stored<F>(codes.code[i]), scale);
}

// Largest finite magnitude of the warp's elements.
__device__ inline float warp_amax(const float (&x)[quad], int valid) {
  lane::Bits largest = 0;
#pragma unroll
  for (int i = 0; i < quad; ++i) {
    const lane::Bits a = lane::bits(x[i]) & lane::magnitude_mask;
    if (i < valid && casts::is_finite(a)) largest = max(largest, a);
  }
  return lane::value(__reduce_max_sync(0xFFFFFFFFU, largest));
}

// Stores a moment. Low precision: the warp holds a block, whose scale is recomputed; all its lanes call this.
template <Format F>
__device__ inline void store_moment(const StoredMoment& moment, const float (&x)[quad], const QuadPlace& place,
                                    Size block) {
  float factor = 1;
  if constexpr (is_low_precision(F)) {
    const float s = casts::scale_for(moment.limit, warp_amax(x, place.valid));
    const float stored = casts::quotient(1.0F, lane::value(lane::bits(s) & moment.kept));
    if (threadIdx.x % warp_size == 0) moment.block_scales[block] = stored;
    factor = lane::value(lane::smaller(lane::bits(casts::quotient(1.0F, stored)), lane::bits(FLT_MAX)));
  }
  if (place.valid <= 0) return;
  if constexpr (F == Format::f32) {
    store_quad<F>(moment.codes, place, floats_of(x));
  } else {
    store_quad<F>(moment.codes, place, encode_quad<F>(x, factor, moment.rounding, moment.key, place));
  }
}

__device__ inline void update_element(const AdamWCoefficients& u, float gradient, float& weight, float& m,
                                      float& v_root) {
  float g = gradient > u.limit ? u.limit : gradient;
  g = g < -u.limit ? -u.limit : g;
  m = u.beta1 * m + (1 - u.beta1) * g;
  v_root = sqrtf(u.beta2 * v_root * v_root + (1 - u.beta2) * g * g);
  const float step = m * u.correction1 / (v_root * u.root_correction2 + u.epsilon);
  weight -= u.decay * weight + u.learning_rate * step;
}

// √v that was rounded to zero beside a moment that was not would make the update explode: it counts as half the
// smallest value its block can hold.
template <Format F>
__device__ inline float raised_from_zero(float v_root, float scale) {
  if constexpr (!is_low_precision(F)) return v_root;
  static_assert(!is_low_precision(F) || F == Format::e4m3);
  constexpr float half_smallest = 0x1p-10F;
  return v_root == 0 ? half_smallest * scale : v_root;
}

// direction: 0 where the update was, so that the weight was not asked to move
__device__ inline void compare(float decay, const float (&before)[quad], const float (&direction)[quad],
                               const float (&after)[quad], int valid, UpdateStatistics& statistics) {
  float weight2 = 0;
  float update2 = 0;
#pragma unroll
  for (int i = 0; i < quad; ++i) {
    if (i >= valid) break;
    const float delta = after[i] - before[i];
    weight2 += after[i] * after[i];
    update2 += delta * delta;
    const bool wanted = direction[i] != 0.0F || decay * before[i] != 0.0F;
    statistics.unmoved += delta == 0.0F && wanted ? 1U : 0U;
  }
  statistics.weight2 += static_cast<double>(weight2);
  statistics.update2 += static_cast<double>(update2);
  statistics.count += static_cast<unsigned>(valid);
}

}  // namespace quaver::cuda
