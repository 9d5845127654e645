// How a blockwise GEMM is divided among thread blocks: tiles of the result, each by a pair of blocks, and the reduction
// in parts where tiles are too few. A rule of the shape and the number of multiprocessors alone, so that the bits of a
// result depend on nothing else. Nothing of CUDA is included.
#pragma once

#include <algorithm>
#include <cstdint>

#include "quaver/format.h"

namespace quaver::cuda {

struct BlockGemmSchedule {
  static constexpr std::int64_t tile_rows = 128;  // of a block; a cluster's two blocks own neighboring rows
  static constexpr std::int64_t tile_cols = 256;
  static constexpr std::int64_t cluster_rows = 2 * tile_rows;
  static constexpr std::int64_t slice = 128;  // of the reduction, with one scale

  int column_tiles = 0;
  int row_pairs = 0;
  int slices = 0;
  int splits = 1;  // parts of the reduction, added in their order
  int slices_per_split = 0;
  int clusters = 0;  // that run at once

  constexpr int tiles() const { return column_tiles * row_pairs; }
  constexpr int items() const { return tiles() * splits; }
};

// Parts only of FP32 results, which are added to in place, and only where there are fewer tiles than clusters.
inline BlockGemmSchedule block_gemm_schedule(std::int64_t m, std::int64_t n, std::int64_t k, Format out,
                                             int multiprocessors) {
  constexpr int most_splits = 16;
  constexpr int item_overhead = 4;  // what starting and storing a tile costs, in slices
  const auto parts = [](std::int64_t count, std::int64_t size) { return static_cast<int>((count + size - 1) / size); };
  BlockGemmSchedule schedule{.column_tiles = parts(n, BlockGemmSchedule::tile_cols),
                             .row_pairs = parts(m, BlockGemmSchedule::cluster_rows),
                             .slices = parts(k, BlockGemmSchedule::slice)};
  const int pairs = std::max(1, multiprocessors / 2);
  const bool splits = out == Format::f32 && schedule.tiles() < pairs;
  const int limit = splits ? std::min({most_splits, pairs, std::max(1, schedule.slices / 8)}) : 1;
  std::int64_t least = 0;
  for (int wanted = 1; wanted <= limit; ++wanted) {
    BlockGemmSchedule candidate = schedule;
    candidate.slices_per_split = parts(schedule.slices, wanted);
    candidate.splits = parts(schedule.slices, candidate.slices_per_split);
    // The parts of a tile run at once, on clusters that start in their order: no part waits for one that cannot start.
    candidate.clusters = pairs / candidate.splits * candidate.splits;
    const std::int64_t cost =
        std::int64_t{parts(candidate.items(), candidate.clusters)} * (candidate.slices_per_split + item_overhead);
    if (wanted > 1 && cost >= least) continue;
    least = cost;
    schedule.splits = candidate.splits;
    schedule.slices_per_split = candidate.slices_per_split;
    schedule.clusters = candidate.clusters;
  }
  schedule.clusters = std::min(schedule.clusters, schedule.items());
  return schedule;
}

// Whether the kernel is faster than cuBLASLt's (bench/cuda/block_gemm.cu, on an H200), with scales of 128 × 128 blocks
// for b: where tiles fill the multiprocessors and few of their columns lie outside of the result.
inline bool block_gemm_is_faster(std::int64_t m, std::int64_t n, std::int64_t k, int multiprocessors) {
  const BlockGemmSchedule schedule = block_gemm_schedule(m, n, k, Format::bf16, multiprocessors);
  const std::int64_t padded = schedule.column_tiles * BlockGemmSchedule::tile_cols;
  return schedule.tiles() >= multiprocessors && 16 * (padded - n) <= padded;
}

// At most this many bytes, and the bytes of the counters by which the parts of a tile take turns: one for each half of
// a warpgroup's tile.
inline constexpr std::int64_t block_gemm_turns_limit = 4096;
inline std::int64_t block_gemm_turns(const BlockGemmSchedule& schedule) {
  constexpr int halves_of_cluster = 2 * 2 * 2;
  return schedule.splits == 1 ? 0 : std::int64_t{4} * halves_of_cluster * schedule.tiles();
}

}  // namespace quaver::cuda
