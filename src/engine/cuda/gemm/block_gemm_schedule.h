// How a blockwise GEMM is divided among thread blocks, and where our kernel is faster than cuBLASLt: rules of the shape
// and the number of multiprocessors alone, so that the bits of a result depend on nothing else. Nothing of CUDA is
// included.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quaver::cuda {

struct BlockGemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

struct BlockGemmSchedule {
  static constexpr std::int64_t tile_rows = 128;  // of a block; a cluster's two blocks own neighboring rows
  static constexpr std::int64_t tile_cols = 256;
  static constexpr std::int64_t cluster_rows = 2 * tile_rows;
  static constexpr std::int64_t slice = 128;  // of the reduction, with one scale

  int column_tiles = 0;
  int row_pairs = 0;
  int slices = 0;
  int clusters = 0;  // that run at once

  constexpr int tiles() const { return column_tiles * row_pairs; }  // of clusters
};

inline BlockGemmSchedule block_gemm_schedule(const BlockGemmShape& shape, int multiprocessors) {
  const auto parts = [](std::int64_t count, std::int64_t size) { return static_cast<int>((count + size - 1) / size); };
  BlockGemmSchedule schedule{.column_tiles = parts(shape.n, BlockGemmSchedule::tile_cols),
                             .row_pairs = parts(shape.m, BlockGemmSchedule::cluster_rows),
                             .slices = parts(shape.k, BlockGemmSchedule::slice)};
  schedule.clusters = std::min(schedule.tiles(), std::max(1, multiprocessors / 2));
  return schedule;
}

// By bench/cuda/block_gemm.cu on an H200: where every multiprocessor has at least two tiles, and at most a sixteenth of
// the tiles' columns lies outside of the result.
inline bool block_gemm_is_faster(const BlockGemmShape& shape, int multiprocessors) {
  const BlockGemmSchedule schedule = block_gemm_schedule(shape, multiprocessors);
  const std::int64_t cols = schedule.column_tiles * BlockGemmSchedule::tile_cols;
  return schedule.tiles() >= multiprocessors && 16 * (cols - shape.n) <= cols;
}

}  // namespace quaver::cuda
