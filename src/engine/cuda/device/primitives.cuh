// The smallest pieces that kernels share: where rows start, pairs of BF16 in a word, addresses in shared memory and
// copies on their way there, fast powers of two. For device code only.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>

namespace quaver::cuda {

// Where a row of a matrix starts: one instruction, as both are 32 bits wide.
inline __device__ std::int64_t offset_of(int row, int width) {
  return static_cast<std::int64_t>(std::uint64_t{static_cast<std::uint32_t>(row)} * static_cast<std::uint32_t>(width));
}

constexpr float log2_e = 1.4426950408889634F;

inline __device__ std::uint32_t pack_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
inline __device__ float low_of(std::uint32_t pair) { return __uint_as_float(pair << 16U); }
inline __device__ float high_of(std::uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000U); }

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
