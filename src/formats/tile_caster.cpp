#include "formats/tile_caster.h"

#include <algorithm>

#include "formats/scales.h"
#include "formats/simd.h"

namespace quaver {
namespace {

template <int block>
QUAVER_SIMD void spread_loop(const float* __restrict values, Size blocks, float* __restrict each) {
  for (Size b = 0; b < blocks; ++b) {
    for (int i = 0; i < block; ++i) each[b * block + i] = values[b];
  }
}

Size first_scale(const CodeMatrix& matrix, Size row, Size col) {
  const Block& block = matrix.spec.block;
  return (row / block.rows) * matrix.scale_cols() + (block.cols == 0 ? 0 : col / block.cols);
}

}  // namespace

Factors BlockFactors::spread(const float* values, Size blocks, Size block) {
  switch (block) {
    case 16:
      spread_loop<16>(values, blocks, each_.data());
      break;
    case 32:
      spread_loop<32>(values, blocks, each_.data());
      break;
    default:
      for (Size b = 0; b < blocks; ++b) std::fill_n(each_.data() + b * block, block, values[b]);
  }
  return {1.0F, each_.data()};
}

Factors BlockFactors::stored_scales(const CodeMatrix& matrix, Size row, Size col, Size count) {
  if (!matrix.has_block_scales()) return {};
  const float* stored = matrix.block_scales + first_scale(matrix, row, col);
  const Size block = matrix.spec.block.cols;
  if (block == 0) return {*stored};
  return spread(stored, (count + block - 1) / block, block);
}

TileCaster::TileCaster(const CodeMatrix& out, Side side, const RandomKey& random, Detail detail, CastStatistics& stats)
    : out_(out),
      side_(side),
      random_(random),
      detail_(detail),
      stats_(stats),
      tensor_factor_(factor_from_stored(*out.tensor_scale)) {
  if (side == Side::columns) random_.stream ^= columns_stream;
}

void TileCaster::set_factors(const Segment& segment, CastRun& run) {
  const Block& block = out_.spec.block;
  const float tensor_scale = *out_.tensor_scale;
  if (!out_.has_block_scales()) {
    run.scale = {tensor_factor_};
    run.dequantize = {tensor_scale};
    return;
  }
  float* stored = out_.block_scales + first_scale(out_, segment.row, segment.col);
  const Size blocks = block.cols == 0 ? 1 : (segment.count + block.cols - 1) / block.cols;
  if (block.rows == 1 && block.cols > 0) {
    block_scales(out_.spec, tensor_scale, {segment.x, 0, 1, segment.count, block.cols}, stored);
  }
  std::array<float, most_blocks> factors;
  factors_from_blocks(out_.spec, tensor_scale, stored, blocks, factors.data());
  run.scale = block.cols == 0 ? Factors{factors[0]} : scales_.spread(factors.data(), blocks, block.cols);
  if (detail_ == Detail::counts) return;
  for (Size b = 0; b < blocks; ++b) factors[b] = stored[b] * tensor_scale;
  run.dequantize = block.cols == 0 ? Factors{factors[0]} : multipliers_.spread(factors.data(), blocks, block.cols);
}

void TileCaster::finish(CastRun& run, std::uint64_t index) {
  if (out_.spec.rounding == Rounding::stochastic) {
    random_words(random_, index, words_.data(), run.count);
    run.words = words_.data();
  }
  cast_run(out_.spec.format, run, detail_, stats_);
}

void TileCaster::cast(const Segment& segment) {
  CastRun run;
  run.x = segment.x;
  run.count = segment.count;
  run.out = out_.codes + segment.row * out_.row_bytes() + segment.col * info(out_.spec.format).storage_bits / 8;
  if (side_ == Side::columns) prefetch_rows_ahead(segment, run.out);
  set_factors(segment, run);
  finish(run, static_cast<std::uint64_t>(segment.row * out_.cols + segment.col));
}

// Down a column every segment's codes lie in lines of their own, which no hardware prefetcher foresees.
void TileCaster::prefetch_rows_ahead(const Segment& segment, const std::byte* codes) const {
  constexpr Size ahead = 12;
  constexpr Size line = 64;
  if (segment.row + ahead >= out_.rows) return;
  const std::byte* next = codes + ahead * out_.row_bytes();
  const Size bytes = segment.count * info(out_.spec.format).storage_bits / 8;
  for (Size b = 0; b < bytes; b += line) __builtin_prefetch(next + b, 1);
}

bool TileCaster::rows_are_contiguous() const {
  return !out_.has_block_scales() && out_.row_bytes() * 8 == out_.cols * info(out_.spec.format).storage_bits;
}

void TileCaster::cast_contiguous(const Tile& tile) {
  const int bits = info(out_.spec.format).storage_bits;
  const Size first = tile.first_row * tile.cols;
  const Size count = tile.rows * tile.cols;
  for (Size done = 0; done < count; done += run_limit) {
    CastRun run;
    run.x = tile.x + done;
    run.count = std::min(run_limit, count - done);
    run.scale = {tensor_factor_};
    run.dequantize = {*out_.tensor_scale};
    run.out = out_.codes + (first + done) * bits / 8;
    finish(run, static_cast<std::uint64_t>(first + done));
  }
}

}  // namespace quaver
