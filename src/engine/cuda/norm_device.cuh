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

  // Whether the team goes round once more, for row r of a tile of so many. All teams go round as often, the last ones
  // with no row where the tile ends early: racecheck takes barriers that some teams pass and others do not for races.
  __device__ bool has_round(int r, int rows) const { return r - index < rows; }

  // Sums over the team's threads, which all call it. Two buffers take turns, so that one barrier a call is enough.
  __device__ float2 sum(float2 value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      value.x += __shfl_xor_sync(~0U, value.x, offset);
      value.y += __shfl_xor_sync(~0U, value.y, offset);
    }
    return across_warps(value);
  }
  __device__ float sum(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0U, value, offset);
    return across_warps(make_float2(value, 0)).x;
  }

 private:
  __device__ float2 across_warps(float2 value) {
    if constexpr (kWarps == 1) {
      return value;
    } else {
      __shared__ float2 parts[2][32];
      turn ^= 1;
      if (lane == 0) parts[turn][index * kWarps + warp] = value;
      asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "n"(kWarps * 32) : "memory");
      float2 total = parts[turn][index * kWarps];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) {
        total.x += parts[turn][index * kWarps + i].x;
        total.y += parts[turn][index * kWarps + i].y;
      }
      return total;
    }
  }

  int turn = 0;
};

// The rows of one team, tile after tile: where it stands, and where it will stand next.
struct RowCursor {
  Size tile;  // of this block
  int row;    // within the tile

  __device__ Size index(int tile_rows) const { return tile * tile_rows + row; }
  __device__ RowCursor next(int step, int tile_rows, Size rows) const {
    const bool inside = row + step < tile_rows && index(tile_rows) + step < rows;
    return inside ? RowCursor{tile, row + step} : RowCursor{tile + gridDim.x, row % step};
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

// Gains and shifts of a thread's columns: kept where it has eight of them, read again for each row where it has more.
template <int kVectors>
struct Affine {
  const float* gains;
  const float* shifts;  // null: none
  int cols;
  bool aligned;
  float kept_gain[8] = {};
  float kept_shift[8] = {};

  __device__ Affine(const float* gain, const float* shift, int count, bool is_aligned, int first_column)
      : gains(gain), shifts(shift), cols(count), aligned(is_aligned) {
    if (kVectors == 1) read(first_column, kept_gain, kept_shift);
  }

  __device__ void get(int column, float (&gain)[8], float (&shift)[8]) const {
    if constexpr (kVectors > 1) {
      read(column, gain, shift);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        gain[i] = kept_gain[i];
        shift[i] = kept_shift[i];
      }
    }
  }

 private:
  __device__ void read(int column, float (&gain)[8], float (&shift)[8]) const {
    load_floats(gains + column, cols - column, aligned, gain);
#pragma unroll
    for (int i = 0; i < 8; ++i) shift[i] = 0;
    if (shifts != nullptr) load_floats(shifts + column, cols - column, aligned, shift);
  }
};

// What lies beyond a row's end must not be seen by a cast.
__device__ inline void clear_tail(float (&v)[8], int valid) {
  if (valid >= 8) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i >= valid) v[i] = 0;
  }
}

}  // namespace quaver::cuda
