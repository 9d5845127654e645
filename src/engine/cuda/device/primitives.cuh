// The smallest pieces that kernels share: where rows start, elements of high precision one by one and in pairs of 16
// bits in a word, addresses in shared memory and copies on their way there, fast powers of two. For device code only.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

namespace quaver::cuda {

// Where a row of a matrix starts: one instruction, as both are 32 bits wide.
inline __device__ std::int64_t offset_of(int row, int width) {
  return static_cast<std::int64_t>(std::uint64_t{static_cast<std::uint32_t>(row)} * static_cast<std::uint32_t>(width));
}

constexpr float log2_e = 1.4426950408889634F;

// Rounds to nearest even. What is beyond FP16 becomes infinite there: a loss scale must see that it was too large.
template <class T>
inline __device__ T from_float(float x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

inline __device__ float to_float(float x) { return x; }
inline __device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
inline __device__ float to_float(__half x) { return __half2float(x); }

// Two BF16, or FP16, in a word.
template <class T = __nv_bfloat16>
inline __device__ std::uint32_t pack_pair(float low, float high) {
  static_assert(sizeof(T) == 2);
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}
template <class T = __nv_bfloat16>
inline __device__ float low_of(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(pair & 0xFFFFU)));
  } else {
    return __uint_as_float(pair << 16U);
  }
}
template <class T = __nv_bfloat16>
inline __device__ float high_of(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16U)));
  } else {
    return __uint_as_float(pair & 0xFFFF0000U);
  }
}

inline __device__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Ends a group of asynchronous copies into shared memory; waits until no more than kAhead groups are on their way.
inline __device__ void end_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kAhead>
inline __device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kAhead) : "memory");
}

// Flushes what is too small to matter.
inline __device__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace quaver::cuda
