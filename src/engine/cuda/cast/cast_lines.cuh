// Lines of a BF16 tile, rows or columns, as threads hold them when only amaxes and codes are wanted: 32 elements each,
// packed in pairs, four lanes per line. Columns are transposed on their way from shared memory (ldmatrix.trans), so
// that both kinds of line are processed alike, with a third of the shuffles and half of the scales that sixteen
// elements per thread need.
#pragma once

#include "engine/cuda/cast/cast_tile.cuh"
#include "engine/cuda/device/ldmatrix.cuh"

namespace quaver::cuda::casts {

inline constexpr int line_passes = 2;  // eight lines of each warp at a time
inline constexpr int line_lanes = 4;   // that share a line
inline constexpr int pairs_a_group = group_size / 2;

// Two groups of a line, the thread's lane among the four and four on.
using LinePairs = Bits[2][pairs_a_group];

// The places of a thread's two groups in the lines of its first pass.
template <Side S>
struct LinePlaces {
  GroupPlace groups[2];
  Size lines;  // of the matrix

  __device__ LinePlaces(const Source& x, const TilePlace& place) : lines(S == Side::rows ? x.rows : x.cols) {
    const int thread = static_cast<int>(threadIdx.x);
    const int line = thread / 32 * (8 * line_passes) + thread % 32 / line_lanes;
    for (int half = 0; half < 2; ++half) {
      groups[half] = group_at<S>(x, place, line, thread % line_lanes + half * line_lanes);
    }
  }
  __device__ void next_pass() {
    for (GroupPlace& at : groups) {
      at.line += 8;
      at.out_line += 8;
      if (at.out_line >= lines) at.count = 0;
    }
  }
};

// `line` is that of the thread in the tile.
template <Side S>
__device__ void read_line(const __nv_bfloat16* tile, int line, LinePairs& pairs) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Bits* to = pairs[half] + 4 * i;
      if constexpr (S == Side::rows) {
        const int col = (lane % line_lanes + half * line_lanes) * group_size + i * 8;
        const uint4 chunk = *reinterpret_cast<const uint4*>(tile + tile_offset<__nv_bfloat16>(line, col));
        to[0] = chunk.x, to[1] = chunk.y, to[2] = chunk.z, to[3] = chunk.w;
      } else {
        // Rows in such an order that what a thread receives from matrix after matrix are the next two of its group.
        const int row = half * 64 + lane % 8 / 2 * group_size + i * 8 + lane / 8 * 2 + lane % 2;
        load_transposed(tile + tile_offset<__nv_bfloat16>(row, line / 8 * 8), to);
      }
    }
  }
}

__device__ inline void unpack(const Bits (&pairs)[pairs_a_group], float (&v)[group_size]) {
#pragma unroll
  for (int i = 0; i < pairs_a_group; ++i) {
    v[2 * i] = lane::value(pairs[i] << 16);
    v[2 * i + 1] = lane::value(pairs[i] & 0xFFFF0000U);
  }
}

// The largest magnitude of the thread's elements as FP32 bits: infinite or NaN where one of them is.
__device__ inline Bits largest_magnitude(const LinePairs& pairs) {
  Bits largest = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < pairs_a_group; ++i) largest = __vmaxu2(largest, pairs[half][i] & 0x7FFF7FFFU);
  }
  return lane::larger(largest << 16, largest & 0xFFFF0000U);
}

__device__ inline Bits finite_amax(const LinePairs& pairs) {
  Bits largest = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float v[group_size];
    unpack(pairs[half], v);
    largest = lane::larger(largest, finite_amax(v));
  }
  return largest;
}

// Over the lanes that share a line.
__device__ inline Bits line_largest(Bits amax) {
#pragma unroll
  for (int step = 1; step < line_lanes; step *= 2) amax = lane::larger(amax, __shfl_xor_sync(~0U, amax, step));
  return amax;
}

}  // namespace quaver::cuda::casts
