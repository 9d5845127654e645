// Transposes a strip of columns into rows, four by four elements at a time in registers.
#include <cstring>

#include "formats/segments.h"

namespace quaver::detail {
namespace {

using Quad [[gnu::vector_size(16)]] = float;
constexpr Size side = 4;
constexpr Size line = 16;  // floats in a line of cache

Quad load(const float* x) {
  Quad q;
  std::memcpy(&q, x, sizeof q);
  return q;
}

void store(Quad q, float* x) { std::memcpy(x, &q, sizeof q); }

void transpose_quad(const float* x, Size stride, float* out) {
  const Quad a = load(x), b = load(x + stride), c = load(x + 2 * stride), d = load(x + 3 * stride);
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store(__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), out);
  store(__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7), out + tile_rows);
  store(__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), out + 2 * tile_rows);
  store(__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7), out + 3 * tile_rows);
}

}  // namespace

void transpose_strip(const Tile& tile, Size first_col, Size cols, Strip& strip) {
  const Size whole_cols = cols - cols % side;
  for (Size r = 0; r < tile.rows; r += side) {
    const float* source = tile.x + r * tile.stride + first_col;
    const bool whole = r + side <= tile.rows;
    if (whole) {
      for (Size c = 0; c < whole_cols; c += side) transpose_quad(source + c, tile.stride, &strip[c * tile_rows + r]);
    }
    for (Size i = r; i < std::min(r + side, tile.rows); ++i, source += tile.stride) {
      if (first_col + 2 * strip_columns <= tile.cols) {  // the next strip is whole: prefetch it
        for (Size c = 0; c < strip_columns; c += line) __builtin_prefetch(source + strip_columns + c);
      }
      for (Size c = whole ? whole_cols : 0; c < cols; ++c) strip[c * tile_rows + i] = source[c];
    }
  }
}

}  // namespace quaver::detail
