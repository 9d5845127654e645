// Device code of the norm kernels: how a row is distributed over warps, reductions over it, and the arithmetic of a
// row.
#pragma once

#include "engine/cuda/cast/code_tile.cuh"
#include "engine/cuda/cast/fp8_cast.cuh"
#include "engine/cuda/device/packed.cuh"

namespace quaver::cuda {

constexpr int norm_tile_rows = 32;  // rows whose columnwise codes are written together: 32 bytes of each column

// Threads per block for teams of kWarps warps: a multiple of the team.
template <int kWarps>
constexpr int norm_threads = kWarps % 3 == 0 ? 192 : 256;

// A team of kWarps warps holds one row in registers, kVectors groups of eight elements per lane (16 bytes of BF16).
// kEven: the row's length is a multiple of eight, so that no group is partly valid.
template <int kVectors, int kWarps, bool kEven>
struct Team {
  static constexpr int vectors = kVectors;
  static constexpr bool even = kEven;
  static constexpr Size widest = static_cast<Size>(kVectors) * kWarps * 32 * 8;
  static constexpr int threads = norm_threads<kWarps>;
  static constexpr int count = norm_threads<kWarps> / 32 / kWarps;

  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32 % kWarps;
  int index = static_cast<int>(threadIdx.x) / 32 / kWarps;

  __device__ int column(int vector) const { return ((vector * kWarps + warp) * 32 + lane) * 8; }

  // Calls body(vector, column, valid) for the groups that a row of `cols` elements has.
  template <class Body>
  __device__ void for_groups(int cols, const Body& body) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int valid = cols - column(i);
      if (valid > 0) body(i, column(i), kEven ? 8 : valid);
    }
  }

  // Whether the team runs another iteration, for row r of a tile of `rows`. All teams run the same number, some without
  // a row at the end of a short tile: racecheck reports barriers that only some teams reach as races.
  __device__ bool has_round(int r, int rows) const { return r - index < rows; }

  // All-reduce over the team's threads, which must all call it. Two buffers alternate, so that one barrier per call is
  // enough.
  __device__ float2 sum(float2 value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      value.x += __shfl_xor_sync(~0U, value.x, offset);
      value.y += __shfl_xor_sync(~0U, value.y, offset);
    }
    if constexpr (kWarps == 1) return value;
    __shared__ float2 parts[2][32];
    const float2* mine = share(value, parts);
    float2 total = mine[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) {
      total.x += mine[i].x;
      total.y += mine[i].y;
    }
    return total;
  }
  __device__ float sum(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
    if constexpr (kWarps == 1) return value;
    __shared__ float parts[2][32];
    const float* mine = share(value, parts);
    float total = mine[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) total += mine[i];
    return total;
  }

 private:
  // All-gather of one value per warp through shared memory; each team has a named barrier of its own.
  template <class Value>
  __device__ const Value* share(Value value, Value (&parts)[2][32]) {
    buffer ^= 1;
    Value* mine = parts[buffer] + index * kWarps;
    if (lane == 0) mine[warp] = value;
    asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "n"(kWarps * 32) : "memory");
    return mine;
  }

  int buffer = 0;
};

__device__ inline float sum_of(const float (&v)[8]) {
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

struct NormRow {
  float mean;
  float inverse_std;

  __device__ float normal(float x) const { return __fmul_rn(__fsub_rn(x, mean), inverse_std); }
};

// y = x̂ · γ + β, without contraction into an FMA: what backward requantizes must have the bits that forward cast.
__device__ inline float scaled_and_shifted(float normal, float gain, float shift) {
  return __fadd_rn(__fmul_rn(normal, gain), shift);
}

// γ and β of a thread's columns: in registers for up to two vectors per lane, else reloaded for each row.
template <int kVectors, bool kEven>
struct Affine {
  const float* gains;
  const float* shifts;  // null: none
  static constexpr bool keeps = kVectors <= 2;
  float kept_gain[keeps ? kVectors : 1][8] = {};
  float kept_shift[keeps ? kVectors : 1][8] = {};

  template <class Team>
  __device__ Affine(const float* gain, const float* shift, int cols, const Team& team) : gains(gain), shifts(shift) {
    if constexpr (keeps) {
      team.for_groups(cols, [&](int i, int column, int valid) { read(column, valid, kept_gain[i], kept_shift[i]); });
    }
  }

  __device__ void get(int group, int column, int valid, float (&gain)[8], float (&shift)[8]) const {
    if constexpr (keeps) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        gain[i] = kept_gain[group][i];
        shift[i] = kept_shift[group][i];
      }
    } else {
      read(column, valid, gain, shift);
    }
  }

 private:
  __device__ void read(int column, int valid, float (&gain)[8], float (&shift)[8]) const {
    load_floats(gains + column, valid, kEven, gain);
#pragma unroll
    for (int i = 0; i < 8; ++i) shift[i] = 0;
    if (shifts != nullptr) load_floats(shifts + column, valid, kEven, shift);
  }
};

// Zeros the elements beyond a row's end, so that neither amax nor counts see them.
__device__ inline void clear_tail(float (&v)[8], int valid) {
  if (valid >= 8) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i >= valid) v[i] = 0;
  }
}

}  // namespace quaver::cuda
