// Writes a matrix whose elements are computed eight at a time into a fused target: high precision, or FP8 codes of
// either side with their counts. A block writes a vertical strip of tiles of 64 × 64; eight threads share a row.
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/cuda/cast/code_tile.cuh"
#include "engine/cuda/cast/fp8_cast.cuh"
#include "engine/cuda/device/packed.cuh"
#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda::tiles {

inline constexpr int threads = 128;
inline constexpr int tile_side = 64;
inline constexpr int threads_across = tile_side / group_size;
inline constexpr int rows_at_once = threads / threads_across;
using Tile = CodeTile<tile_side>;

struct Extent {
  int rows;
  int cols;
  bool aligned;  // of what is written: every row starts on a vector of eight
};

// Make: columns(col, valid) prepares a thread for its columns, and values(row, v) gives eight of that row; those beyond
// `valid` must be zero.
template <class T, bool kFp8, class Make>
__global__ __launch_bounds__(threads) void write_tiles(const Extent extent, const FusedTarget out, const Make make) {
  __shared__ __align__(128) std::uint8_t memory[kFp8 ? Tile::bytes_for(tile_side) : 16];
  const Tile tile{memory, tile_side};
  const Fp8Caster caster = Fp8Caster::into(out);
  CastCounts counts;
  unsigned long long seen = 0;
  const int across = static_cast<int>(threadIdx.x) % threads_across;
  const int down = static_cast<int>(threadIdx.x) / threads_across;
  const int col0 = static_cast<int>(blockIdx.x) * tile_side;
  const int cols = min(tile_side, extent.cols - col0);
  const int col = col0 + across * group_size;
  const int valid = cols - across * group_size;
  const auto columns = make.columns(col, valid);
  for (int row0 = static_cast<int>(blockIdx.y) * tile_side; row0 < extent.rows;
       row0 += static_cast<int>(gridDim.y) * tile_side) {
    const int rows = min(tile_side, extent.rows - row0);
#pragma unroll 2
    for (int r = down; r < rows; r += rows_at_once) {
      if (valid <= 0) break;
      float v[group_size];
      columns.values(row0 + r, v);
      const std::int64_t at = offset_of(row0 + r, kFp8 ? out.row_bytes : extent.cols) + col;
      if constexpr (kFp8) {
        caster.with_format([&](const auto& to_format) {
          const uint2 codes = to_format.cast(v, counts);
          if (out.rows != nullptr) store_codes(out.rows + at, 0, valid, extent.aligned, codes);
          if (out.columns != nullptr) tile.put(tile.offset(r, across * group_size), codes);
        });
      } else {
        store_packed(pack_as<T>(out.format, v), reinterpret_cast<T*>(out.rows) + at, valid, extent.aligned);
      }
    }
    if constexpr (kFp8) {
      seen += static_cast<unsigned>(rows * cols);
      if (out.columns == nullptr) continue;
      __syncthreads();
      tile.write_columns(out.columns, out.column_bytes, row0, col0, rows, cols);
      __syncthreads();
    }
  }
  if constexpr (kFp8) add_counts(out.statistics, counts, seen);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) store_scales(out, kFp8 ? stored_scale(out) : 1.0F);
}

// T is the engine's high precision.
template <class T, class Make>
void write(Gpu& gpu, Size rows, Size cols, const FusedTarget& out, const Make& make) {
  constexpr int blocks_wanted = 16;  // for each multiprocessor
  const Size across = ceil_div(cols, tile_side);
  const Size fill = ceil_div(Size{blocks_wanted} * gpu.multiprocessors(), across);
  const Size strips = std::clamp<Size>(std::min(ceil_div(rows, tile_side), fill), 1, 65535);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(strips));
  const Size row_length = out.is_fp8() ? out.row_bytes : cols;
  const Extent extent{to_int(rows), to_int(cols), row_length % group_size == 0 && aligned16(out.rows)};
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (out.is_fp8()) {
      write_tiles<T, true, Make><<<grid, threads, 0, gpu.stream()>>>(extent, out, make);
      return check_launch("write_tiles");
    }
  }
  write_tiles<T, false, Make><<<grid, threads, 0, gpu.stream()>>>(extent, out, make);
  check_launch("write_tiles");
}

}  // namespace quaver::cuda::tiles
