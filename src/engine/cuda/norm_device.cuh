// What the norm kernels share: how a row is spread over the warps of a team, and the arithmetic of one row.
#pragma once

#include "engine/cuda/code_tile.cuh"
#include "engine/cuda/fp8_cast.cuh"
#include "engine/cuda/packed.cuh"

namespace quaver::cuda {

// A team of kWarps warps holds one row, kVectors groups of eight elements a lane.
template <int kVectors, int kWarps>
struct Team {
  static constexpr Size widest = static_cast<Size>(kVectors) * kWarps * 32 * 8;

  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32 % kWarps;
  int index = static_cast<int>(threadIdx.x) / 32 / kWarps;
  int count = static_cast<int>(blockDim.x) / 32 / kWarps;

  __device__ int column(int vector) const { return ((vector * kWarps + warp) * 32 + lane) * 8; }

  // Sums over the team; every thread of the block calls it.
  __device__ float2 sum(float a, float b) const {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      a += __shfl_xor_sync(~0U, a, offset);
      b += __shfl_xor_sync(~0U, b, offset);
    }
    if constexpr (kWarps == 1) return make_float2(a, b);
    __shared__ float2 parts[32];
    __syncthreads();
    if (lane == 0) parts[threadIdx.x / 32] = make_float2(a, b);
    __syncthreads();
    float2 total = make_float2(0, 0);
    for (int i = 0; i < kWarps; ++i) {
      total.x += parts[index * kWarps + i].x;
      total.y += parts[index * kWarps + i].y;
    }
    return total;
  }
};

struct NormRow {
  float mean;
  float inverse_std;

  __device__ float normal(float x) const { return __fmul_rn(__fsub_rn(x, mean), inverse_std); }
};

// Forward and backward must give the same bits: what backward casts once more is what forward cast.
__device__ inline float scaled_and_shifted(float normal, float gain, float shift) {
  return __fadd_rn(__fmul_rn(normal, gain), shift);
}

// How the columns of one matrix lie: vector accesses are allowed where every row starts on a 16-byte boundary.
template <class T>
bool rows_aligned(const void* data, Size cols) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && cols * static_cast<Size>(sizeof(T)) % 16 == 0;
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

}  // namespace quaver::cuda
