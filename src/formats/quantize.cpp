#include "formats/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "formats/cast_loops.h"
#include "formats/hadamard.h"
#include "formats/scales.h"
#include "formats/segments.h"
#include "formats/tile_caster.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr Size amax_chunk = Size{1} << 16;

// Fewer elements than this are done before other threads have woken up.
[[maybe_unused]] constexpr Size worth_threads = Size{1} << 16;

std::optional<RotationSigns> signs_for(const QuantSpec& spec, const RandomKey& random) {
  if (spec.rotation == Rotation::none) return std::nullopt;
  return rotation_signs(random);
}

bool scales_whole_tensor(const QuantSpec& spec) {
  const bool current_tensor = spec.block == block::tensor && spec.policy == ScalePolicy::current;
  return current_tensor || is_e4m3(spec.scale);
}

bool has_2d_blocks(const QuantSpec& spec) { return spec.block.rows > 1; }

Amax amax_over_threads(const float* x, Size count) {
  float value = 0;
  std::uint64_t nonfinite = 0;
#pragma omp parallel for reduction(max : value) reduction(+ : nonfinite) schedule(static) if (count > worth_threads)
  for (Size first = 0; first < count; first += amax_chunk) {
    const Amax part = amax(x + first, std::min(amax_chunk, count - first));
    value = std::max(value, part.value);
    nonfinite += part.nonfinite;
  }
  return {value, nonfinite};
}

// amax of what the cast will see after the rotation.
Amax rotated_amax_over_threads(const float* x, Size rows, Size cols, Side side,
                               const std::optional<RotationSigns>& signs) {
  float value = 0;
  std::uint64_t nonfinite = 0;
#pragma omp parallel for reduction(max : value) reduction(+ : nonfinite) schedule(static) if (rows * cols > worth_threads)
  for (Size first = 0; first < rows; first += tile_rows) {
    const Tile tile{x + first * cols, cols, first, std::min(tile_rows, rows - first), cols};
    visit_segments(tile, side, signs, [&](const Segment& s) {
      const Amax part = amax(s.x, s.count);
      value = std::max(value, part.value);
      nonfinite += part.nonfinite;
    });
  }
  return {value, nonfinite};
}

// One scale for each column of x, which is a whole row of the columns side.
Amax set_column_scales(const float* x, Size rows, Size cols, const std::optional<RotationSigns>& signs,
                       const CodeMatrix& out) {
  constexpr Size strip = detail::strip_columns;
  float value = 0;
  std::uint64_t nonfinite = 0;
#pragma omp parallel for reduction(max : value) reduction(+ : nonfinite) schedule(static) if (rows * cols > worth_threads)
  for (Size first_col = 0; first_col < cols; first_col += strip) {
    const Size width = std::min(strip, cols - first_col);
    std::array<float, strip> amaxes{};
    for (Size first = 0; first < rows; first += tile_rows) {
      const Tile tile{x + first * cols + first_col, cols, first, std::min(tile_rows, rows - first), width};
      visit_segments(tile, Side::columns, signs, [&](const Segment& s) {
        const Amax part = amax(s.x, s.count);
        amaxes[s.row] = std::max(amaxes[s.row], part.value);
        nonfinite += part.nonfinite;
      });
    }
    for (Size c = 0; c < width; ++c) value = std::max(value, amaxes[c]);
    block_scales_from_amax(out.spec, *out.tensor_scale, amaxes.data(), width, out.block_scales + first_col);
  }
  return {value, nonfinite};
}

// Scales of 2-D blocks: the same rowwise and columnwise, so they are computed from x and stored transposed if need
// be.
void set_2d_scales(const Tile& tile, Side side, const CodeMatrix& out) {
  const Size size = out.spec.block.rows;
  constexpr Size most_blocks = run_limit / 16;
  for (Size r = 0; r < tile.rows; r += size) {
    const Size band = std::min(size, tile.rows - r);
    const Size block_row = (tile.first_row + r) / size;
    for (Size c = 0; c < tile.cols; c += run_limit) {
      const Size width = std::min(run_limit, tile.cols - c);
      const Size blocks = (width + size - 1) / size;
      std::array<float, most_blocks> stored;
      block_scales(out.spec, *out.tensor_scale, {tile.x + r * tile.stride + c, tile.stride, band, width, size},
                   stored.data());
      for (Size b = 0; b < blocks; ++b) {
        const Size block_col = c / size + b;
        const Size at =
            side == Side::rows ? block_row * out.scale_cols() + block_col : block_col * out.scale_cols() + block_row;
        out.block_scales[at] = stored[b];
      }
    }
  }
}

// A scale for every whole row, each just before its row is cast and while that row is in cache.
void cast_by_rows(const Tile& tile, const std::optional<RotationSigns>& signs, const CodeMatrix& out,
                  TileCaster& caster) {
  for (Size r = 0; r < tile.rows; ++r) {
    const Tile row{tile.x + r * tile.stride, tile.stride, tile.first_row + r, 1, tile.cols};
    float row_amax = 0;
    visit_segments(row, Side::rows, signs, [&](const Segment& s) { block_amax(s.x, s.count, s.count, &row_amax); });
    block_scales_from_amax(out.spec, *out.tensor_scale, &row_amax, 1, out.block_scales + row.first_row);
    visit_segments(row, Side::rows, signs, [&](const Segment& s) { caster.cast(s); });
  }
}

float checked_scale(float scale) {
  if (std::isfinite(scale) && scale > 0) return scale;
  throw Error("a delayed or fixed scale is " + std::to_string(scale), "give a positive, finite scale");
}

void check_shape(Size rows, Size cols, Side side, const CodeMatrix& out) {
  const Size out_rows = side == Side::rows ? rows : cols;
  const Size out_cols = side == Side::rows ? cols : rows;
  if (out.rows == out_rows && out.cols == out_cols) return;
  throw Error("a matrix of " + std::to_string(rows) + " by " + std::to_string(cols) + " does not fit codes of " +
                  std::to_string(out.rows) + " by " + std::to_string(out.cols),
              "the columns side holds the transpose of its source, the rows side the same shape");
}

}  // namespace

bool needs_whole_tensor(const QuantSpec& spec, Side side) {
  return scales_whole_tensor(spec) || (spec.block == block::row && side == Side::columns);
}

bool columns_share_rows(const QuantSpec& rows, const QuantSpec& columns) {
  const bool symmetric = rows.block.rows == rows.block.cols;
  return rows == columns && symmetric && rows.rotation == Rotation::none && rows.rounding == Rounding::nearest_even;
}

Amax prepare_scales(const CastSource& source, const CastOptions& options, const CodeMatrix& out) {
  const auto& [x, rows, cols] = source;
  const Side side = options.side;
  const QuantSpec& spec = out.spec;
  const std::optional<RotationSigns> signs = signs_for(spec, options.random);
  Amax seen;
  float s = 1;
  if (scales_whole_tensor(spec)) {
    seen = signs ? rotated_amax_over_threads(x, rows, cols, side, signs) : amax_over_threads(x, rows * cols);
    s = tensor_scale_for(spec, seen.value);
  } else if (spec.policy == ScalePolicy::delayed || spec.policy == ScalePolicy::fixed) {
    s = checked_scale(options.given_scale);
  }
  *out.tensor_scale = stored_tensor_scale(spec, s);
  if (spec.block == block::row && side == Side::columns) seen = set_column_scales(x, rows, cols, signs, out);
  return seen;
}

void quantize_tile(const SourceTile& source, const CastOptions& options, const CodeMatrix& out, CastStatistics& stats) {
  const Side side = options.side;
  const Size cols = side == Side::rows ? out.cols : out.rows;
  const Tile tile{source.x, source.stride, source.first_row, source.rows, cols};
  const std::optional<RotationSigns> signs = signs_for(out.spec, options.random);
  TileCaster caster(out, side, options.random, options.detail, stats);
  if (out.spec.block == block::row && side == Side::rows) return cast_by_rows(tile, signs, out, caster);
  if (has_2d_blocks(out.spec)) set_2d_scales(tile, side, out);
  const bool contiguous = side == Side::rows && !signs && source.stride == cols && caster.rows_are_contiguous();
  if (contiguous) return caster.cast_contiguous(tile);
  visit_segments(tile, side, signs, [&](const Segment& s) { caster.cast(s); });
}

CastStatistics quantize(const CastSource& source, const CastOptions& options, const CodeMatrix& out) {
  const Size rows = source.rows;
  const Size cols = source.cols;
  check_shape(rows, cols, options.side, out);
  prepare_scales(source, options, out);
  const Size tiles = (rows + tile_rows - 1) / tile_rows;
  // Merged in order, so that the sums do not depend on which thread was first.
  std::vector<CastStatistics> parts(static_cast<std::size_t>(tiles));
#pragma omp parallel for schedule(static) if (rows * cols > worth_threads)
  for (Size t = 0; t < tiles; ++t) {
    const Size first = t * tile_rows;
    quantize_tile({source.x + first * cols, cols, first, std::min(tile_rows, rows - first)}, options, out,
                  parts[static_cast<std::size_t>(t)]);
  }
  CastStatistics stats;
  for (const CastStatistics& part : parts) stats.merge(part);
  return stats;
}

void decode_rows(const CodeMatrix& matrix, Size first, Size count, float* out, Size stride) {
  const Format format = matrix.spec.format;
  const int bits = info(format).storage_bits;
  BlockFactors factors;
  for (Size r = 0; r < count; ++r) {
    const std::byte* codes = matrix.codes + (first + r) * matrix.row_bytes();
    for (Size c = 0; c < matrix.cols; c += run_limit) {
      const Size n = std::min(run_limit, matrix.cols - c);
      decode_run(format, codes + c * bits / 8, n, factors.stored_scales(matrix, first + r, c, n), out + r * stride + c);
    }
  }
}

void encode_array(Format format, const float* x, float scale, Size count, std::byte* out) {
  CastStatistics ignored;
  for (Size done = 0; done < count; done += run_limit) {
    const CastRun run{.x = x + done,
                      .count = std::min(run_limit, count - done),
                      .scale = {scale},
                      .dequantize = {},
                      .words = nullptr,
                      .out = out + done * info(format).storage_bits / 8};
    cast_run(format, run, Detail::counts, ignored);
  }
}

void decode_array(Format format, const std::byte* codes, float multiplier, Size count, float* out) {
  decode_run(format, codes, count, {multiplier}, out);
}

}  // namespace quaver
