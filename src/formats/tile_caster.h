// Casts the segments of a tile: finds or makes the scales of the blocks they touch, draws the random words, and runs
// the loops. Internal to this module.
#pragma once

#include <array>
#include <cstdint>

#include "formats/cast_loops.h"
#include "formats/segments.h"

namespace quaver {

// Block scales spread over the elements of a run, in memory of its own.
class BlockFactors {
 public:
  // The stored scales of row `row`, columns [col, col + count) of the matrix, where col is a multiple of tile_rows.
  Factors stored_scales(const CodeMatrix& matrix, Size row, Size col, Size count);

  // values[b] for the elements of block b, `block` elements each.
  Factors spread(const float* values, Size blocks, Size block);

 private:
  std::array<float, run_limit> each_;
};

class TileCaster {
 public:
  TileCaster(const CodeMatrix& out, Side side, const RandomKey& random, Detail detail, CastStatistics& stats);

  void cast(const Segment& segment);

  // True where the codes of a whole tile follow each other under one scale, so that it can be cast as one long row.
  bool rows_are_contiguous() const;
  void cast_contiguous(const Tile& tile);

 private:
  static constexpr Size most_blocks = run_limit / 16;

  void set_factors(const Segment& segment, CastRun& run);
  void finish(CastRun& run, std::uint64_t index);
  void prefetch_rows_ahead(const Segment& segment, const std::byte* codes) const;

  const CodeMatrix& out_;
  Side side_;
  RandomKey random_;
  Detail detail_;
  CastStatistics& stats_;
  float tensor_factor_;
  BlockFactors scales_, multipliers_;
  std::array<std::uint32_t, run_limit> words_;
};

}  // namespace quaver
