// Casts of whole matrices: scales, codes, and the statistics that a cast collects.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/random.h"
#include "quaver/quant_spec.h"
#include "quaver/statistics.h"

namespace quaver {

// A matrix of codes as a GEMM reads it: contiguous along the columns, which are the summed dimension.
//   value(r, c) = decode(code(r, c)) · block_scale(r / block.rows, c / block.cols) · *tensor_scale
// All scales are dequantization factors. The cast multiplies x by their quotient and never by a scale that is not
// stored: 1 / *tensor_scale for a whole tensor, shrink / block_scale for blocks, (1 / *tensor_scale) / block_scale for
// e4m3 scales (0 where the block scale is 0), each division correctly rounded and at most FLT_MAX. A view: it owns
// nothing.
struct CodeMatrix {
  QuantSpec spec;
  Size rows = 0;
  Size cols = 0;
  std::byte* codes = nullptr;     // row_bytes() apart; FP4 two to a byte, low nibble first
  float* block_scales = nullptr;  // [scale_rows() × scale_cols()]; null where spec.block is block::tensor
  float* tensor_scale = nullptr;  // one float: 1 where nothing applies to the whole tensor
  Size stride = 0;                // bytes from row to row; 0: as many as a row's codes take

  Size row_bytes() const { return stride != 0 ? stride : (cols * info(spec.format).storage_bits + 7) / 8; }
  Size code_bytes() const { return rows * row_bytes(); }
  Size scale_rows() const { return spec.block.rows == 0 ? 1 : (rows + spec.block.rows - 1) / spec.block.rows; }
  Size scale_cols() const { return spec.block.cols == 0 ? 1 : (cols + spec.block.cols - 1) / spec.block.cols; }
  bool has_block_scales() const { return spec.block != block::tensor; }
};

// amax over the finite elements, and how many were not finite.
struct Amax {
  float value = 0;
  std::uint64_t nonfinite = 0;
};
Amax amax(const float* x, Size count);  // one thread

// s in q = cast(x · s) for a tensor with this amax: fmt_max · 2^-margin / amax; 0 → 1; inf → FLT_MAX.
// f32_power_of_two clears the mantissa of s.
float tensor_scale_for(const QuantSpec& spec, float amax);
float tensor_limit(const QuantSpec& spec);          // what an amax is scaled to
std::uint32_t kept_scale_bits(ScaleFormat format);  // bits of s that stay

// True where no tile can be cast before the whole tensor has been seen: a current scale of the whole tensor, a
// whole-row block columnwise, an e4m3 block scale under the tensor's.
bool needs_whole_tensor(const QuantSpec& spec, Side side);

// True where the columnwise codes are exactly the transpose of the rowwise codes, so that one copy is enough.
bool columns_share_rows(const QuantSpec& rows, const QuantSpec& columns);

// Tiles are this many rows of the source matrix (the last may be shorter): a multiple of every block size.
inline constexpr Size tile_rows = 128;

// A matrix to be cast, [rows × cols] and contiguous.
struct CastSource {
  const float* x = nullptr;
  Size rows = 0;
  Size cols = 0;
};

// Rows [first_row, first_row + rows) of such a matrix, `stride` elements apart; x points at the first.
struct SourceTile {
  const float* x = nullptr;
  Size stride = 0;
  Size first_row = 0;
  Size rows = 0;
};

struct CastOptions {
  Side side = Side::rows;
  float given_scale = 1;  // s for the policies delayed and fixed, ignored by the others
  RandomKey random = {};
  Detail detail = Detail::counts;
};

// Sets *out.tensor_scale, and the block scales that depend on the whole tensor, from the source (out is its transpose
// columnwise; x is not read where !needs_whole_tensor). options.random is the key of the cast to come: a rotated
// tensor's scales are those of its rotated values. Returns the amax where it needed it, else {0, 0}. Uses threads.
Amax prepare_scales(const CastSource& source, const CastOptions& options, const CodeMatrix& out);

// Stochastic rounding of element (r, c) of the code matrix uses random_word(key, r · cols + c), where columnwise casts
// use key.stream ^ columns_stream so that the two copies round independently.
inline constexpr std::uint32_t columns_stream = 0x9E3779B9U;

// Casts one tile of the source: tile_rows rows from a multiple of tile_rows, fewer only at the end. Comes after
// prepare_scales (or, where !needs_whole_tensor, after the caller set *out.tensor_scale = 1 / (shrink · s), with s = 1
// for blocks). Counts what it sees into `stats`. One thread; tiles are independent. For f32, x may be the codes' own
// memory.
void quantize_tile(const SourceTile& source, const CastOptions& options, const CodeMatrix& out, CastStatistics& stats);

// prepare_scales and every tile, over threads.
CastStatistics quantize(const CastSource& source, const CastOptions& options, const CodeMatrix& out);

// decode(code) · block_scale for rows [first, first + count) of the code matrix, without the tensor's factor.
void decode_rows(const CodeMatrix& matrix, Size first, Size count, float* out, Size stride);

// Contiguous casts without statistics, for storage (moments, checkpoints): one thread.
void encode_array(Format format, const float* x, float scale, Size count, std::byte* out);
void decode_array(Format format, const std::byte* codes, float multiplier, Size count, float* out);

// In place: random signs (one per position within the group), then an orthonormal Hadamard transform over groups of 16
// along a row of `count` elements. A last group of fewer than 16 is not rotated. The signs depend on key.seed only, so
// that the two operands of a GEMM, whose streams and steps differ, are rotated alike. unrotate_row is the inverse.
void rotate_row(float* row, Size count, const RandomKey& random);
void unrotate_row(float* row, Size count, const RandomKey& random);

}  // namespace quaver
