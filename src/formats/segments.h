// Walks a tile of a matrix as one side's copy sees it: runs of contiguous elements along the reduction dimension,
// transposed and rotated on the way where the side and the spec ask for it. Internal to this module.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "formats/cast_loops.h"
#include "formats/hadamard.h"

namespace quaver {

// Rows [first_row, first_row + rows) of a matrix of `cols` columns, `stride` apart.
struct Tile {
  const float* x;
  Size stride;
  Size first_row;
  Size rows;
  Size cols;
};

// Elements [col, col + count) of a row of the side's matrix. At most run_limit, beginning at a multiple of tile_rows.
struct Segment {
  Size row;
  Size col;
  const float* x;
  Size count;
};

namespace detail {

inline constexpr Size strip_columns = 32;
using Strip = std::array<float, strip_columns * tile_rows>;

// `cols` columns of the tile from `first_col`, each as tile_rows consecutive floats.
void transpose_strip(const Tile& tile, Size first_col, Size cols, Strip& strip);

template <typename Visit>
void visit_rows(const Tile& tile, const std::optional<RotationSigns>& signs, Visit&& visit) {
  std::array<float, run_limit> rotated;
  for (Size r = 0; r < tile.rows; ++r) {
    for (Size c = 0; c < tile.cols; c += run_limit) {
      const Size count = std::min(run_limit, tile.cols - c);
      const float* x = tile.x + r * tile.stride + c;
      if (signs) {
        std::copy_n(x, count, rotated.data());
        rotate_groups(rotated.data(), count, *signs);
        x = rotated.data();
      }
      visit(Segment{tile.first_row + r, c, x, count});
    }
  }
}

template <typename Visit>
void visit_columns(const Tile& tile, const std::optional<RotationSigns>& signs, Visit&& visit) {
  Strip strip;
  for (Size first = 0; first < tile.cols; first += strip_columns) {
    const Size cols = std::min(strip_columns, tile.cols - first);
    transpose_strip(tile, first, cols, strip);
    for (Size c = 0; c < cols; ++c) {
      float* x = strip.data() + c * tile_rows;
      if (signs) rotate_groups(x, tile.rows, *signs);
      visit(Segment{first + c, tile.first_row, x, tile.rows});
    }
  }
}

}  // namespace detail

// The tile must have at most tile_rows rows on the columns side.
template <typename Visit>
void visit_segments(const Tile& tile, Side side, const std::optional<RotationSigns>& signs, Visit&& visit) {
  if (side == Side::rows) {
    detail::visit_rows(tile, signs, visit);
  } else {
    detail::visit_columns(tile, signs, visit);
  }
}

}  // namespace quaver
