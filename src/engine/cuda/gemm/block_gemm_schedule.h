// How a blockwise GEMM is divided among thread blocks, and where our kernel is faster than cuBLASLt: rules of the shape
// and the number of multiprocessors alone, so that the bits of a result depend on nothing else. Nothing of CUDA is
// included.
//
// A cluster works on whole tiles as long as there is one for every cluster. The tiles that are left have their
// reduction split where that is faster: into long parts, which run side by side, one on a cluster, and, for the
// clusters that then have none, a short one behind them. So fprop's many tiles are whole, and wgrad's few, summed over
// all tokens, occupy every multiprocessor. First parts go to the result, the others to memory of their own, from where
// they are added in their order: no cluster waits for another.
#pragma once

#include <algorithm>
#include <cstdint>

#include "quaver/format.h"

namespace quaver::cuda {

struct BlockGemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// What a cluster computes at once: some slices of a tile.
struct BlockGemmUnit {
  int tile = 0;
  int first = 0;   // slice
  int slices = 0;  // none: the cluster has no more
  int part = 0;    // of the tile's reduction
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
  int whole = 0;     // tiles that are not split, the first ones; before others a multiple of the clusters
  int long_parts = 0;
  int long_slices = 0;  // of each but for the last, which may have fewer
  int short_slices = 0;
  int cost = 0;  // of the slowest cluster, in slices

  constexpr int tiles() const { return column_tiles * row_pairs; }  // of clusters
  constexpr int split() const { return tiles() - whole; }
  constexpr int parts() const { return long_parts + (short_slices > 0 ? 1 : 0); }  // of a tile that is split
  constexpr int partials() const { return split() == 0 ? 0 : split() * (parts() - 1); }

  constexpr BlockGemmUnit whole_unit(int cluster, int round) const {
    const int tile = cluster + round * clusters;
    return {tile, 0, tile < whole ? slices : 0, 0};
  }
  // Parts of the same slices run at the same time: they share operands in the L2 cache.
  constexpr BlockGemmUnit unit(int cluster, int round) const {
    const BlockGemmUnit early = whole_unit(cluster, round);
    if (early.slices > 0 || split() == 0) return early;
    const int later = round - whole / clusters;
    const int longs = split() * long_parts;
    if (cluster < longs) {
      const int part = cluster / split();
      const int first = part * long_slices;
      return {whole + cluster % split(), first, later > 0 ? 0 : std::min(long_slices, slices - first), part};
    }
    const int place = cluster - longs + later * (clusters - longs);
    return {whole + place, long_parts * long_slices, place < split() ? short_slices : 0, long_parts};
  }
};

namespace block_gemm {

inline constexpr int unit_cost = 4;           // of starting and storing a unit, in slices
inline constexpr int pass_cost = 3;           // of adding partial sums,
inline constexpr int partials_per_slice = 6;  // and of writing and reading them

constexpr int parts_of(std::int64_t count, std::int64_t size) { return static_cast<int>((count + size - 1) / size); }

// With so many long parts. The cluster beyond them work on as many short ones as fill their time.
inline BlockGemmSchedule with_long_parts(BlockGemmSchedule schedule, int parts, int clusters) {
  const int waves = schedule.tiles() / clusters;
  schedule.whole = waves * clusters;
  const int split = schedule.split();
  const int longs = split * parts;
  const int others = clusters - longs;
  const int shorts = others == 0 ? 0 : parts_of(split, others);  // of a cluster
  schedule.long_parts = parts;
  schedule.long_slices = parts_of(schedule.slices, parts);
  int wanted = 0;
  if (shorts > 0) {
    wanted = (schedule.slices + unit_cost * parts * (1 - shorts)) / (shorts * parts + 1);
    if (wanted > 0) schedule.long_slices = parts_of(schedule.slices - wanted, parts);
  }
  schedule.short_slices = std::max(0, schedule.slices - parts * schedule.long_slices);
  const int at_once = longs + (schedule.short_slices > 0 ? std::min(split, others) : 0);
  schedule.clusters = waves > 0 ? clusters : at_once;
  const int of_long = schedule.long_slices + unit_cost;
  const int of_short = schedule.short_slices > 0 ? shorts * (schedule.short_slices + unit_cost) : 0;
  schedule.cost = waves * (schedule.slices + unit_cost) + std::max(of_long, of_short) + pass_cost +
                  schedule.partials() / partials_per_slice;
  return schedule;
}

// No part begins behind the end of the reduction.
constexpr bool is_possible(const BlockGemmSchedule& schedule) {
  return schedule.parts() > 1 && (schedule.long_parts - 1) * schedule.long_slices < schedule.slices;
}

}  // namespace block_gemm

// Only FP32 results are split.
inline BlockGemmSchedule block_gemm_schedule(const BlockGemmShape& shape, Format out, int multiprocessors) {
  using namespace block_gemm;
  BlockGemmSchedule schedule{.column_tiles = parts_of(shape.n, BlockGemmSchedule::tile_cols),
                             .row_pairs = parts_of(shape.m, BlockGemmSchedule::cluster_rows),
                             .slices = parts_of(shape.k, BlockGemmSchedule::slice)};
  const int clusters = std::max(1, multiprocessors / 2);
  schedule.clusters = std::min(schedule.tiles(), clusters);
  schedule.whole = schedule.tiles();
  schedule.cost = parts_of(schedule.tiles(), clusters) * (schedule.slices + unit_cost);
  const int left = schedule.tiles() % clusters;
  if (out != Format::f32 || left == 0) return schedule;
  BlockGemmSchedule best = schedule;
  for (int parts = 1; parts <= clusters / left; ++parts) {
    const BlockGemmSchedule candidate = with_long_parts(schedule, parts, clusters);
    if (is_possible(candidate) && candidate.cost < best.cost) best = candidate;
  }
  return best;
}

// Of the sums that are added to the result afterwards.
inline std::int64_t block_gemm_partial_bytes(const BlockGemmSchedule& schedule) {
  return schedule.partials() * BlockGemmSchedule::cluster_rows * BlockGemmSchedule::tile_cols * 4;
}

// By bench/cuda/block_gemm.cu on an H200: at most a sixteenth of the tiles lies outside of the result (an eighth where
// it is FP32, where cuBLASLt is slower), and every multiprocessor has at least two tiles or, where they may be split,
// is at work three quarters of the time.
inline bool block_gemm_is_faster(const BlockGemmShape& shape, Format out, int multiprocessors) {
  const BlockGemmSchedule schedule = block_gemm_schedule(shape, out, multiprocessors);
  const std::int64_t tile = BlockGemmSchedule::cluster_rows * BlockGemmSchedule::tile_cols;
  const std::int64_t covered = schedule.tiles() * tile;
  const std::int64_t share = out == Format::f32 ? 8 : 16;
  if (share * (covered - shape.m * shape.n) > covered) return false;
  if (schedule.tiles() >= multiprocessors) return true;
  const std::int64_t multiplied = std::int64_t{schedule.tiles()} * schedule.slices;
  return out == Format::f32 && 4 * multiplied >= std::int64_t{3} * schedule.cost * (multiprocessors / 2);
}

}  // namespace quaver::cuda
