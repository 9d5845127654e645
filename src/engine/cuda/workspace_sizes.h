// How much workspace the CUDA engine's operations need, but for attention (attention/attention_sizes.h). Each size is
// computed here, once: the operation allocates it and the memory plan (cuda_sizing.cpp) counts it. Nothing of CUDA is
// included.
#pragma once

#include <algorithm>

#include "engine/cuda/fusion.h"
#include "engine/tensor_cores.h"

namespace quaver::cuda {

// Workspace by use. Each operation reuses the slots; nested operations use different ones.
enum class Slot : std::uint8_t {
  blas,       // cuBLASLt's own
  operand_a,  // operands decoded, or rounded to BF16
  operand_b,
  gemm,          // alpha on the device, scales as cuBLASLt reads them
  large,         // what lives within one operation: a tensor before its cast, attention's scores, logits
  scales,        // amaxes of rows, columns, tensor
  statistics,    // of the parts of a cast
  sums,          // partial sums of reductions over tokens
  logits_codes,  // dlogits where they are cast
  columns,       // a chunk of a transposed copy
  rows,          // per-row losses
  sorting,       // tokens sorted by id
  count
};

inline Size ceil_div(Size a, Size b) { return (a + b - 1) / b; }
inline Size round_up_256(Size bytes) { return ceil_div(bytes, 256) * 256; }

// ---- casts --------------------------------------------------------------------------------------------------------

inline constexpr Size cast_tile_rows = 128;  // of the general cast's tiles, and as many columns

// Amaxes of the tensor (twice, with room to spare), its rows and its columns.
inline constexpr Size tensor_amaxes = 64;
inline Size amax_bytes(Size rows, Size cols) { return 4 * (tensor_amaxes + rows + cols); }
inline Size column_sums_bytes(Size rows, Size cols) { return 4 * ceil_div(rows, cast_tile_rows) * cols; }

// Four moments in double precision for each tile.
inline constexpr Size moments_bytes = 32;
inline Size cast_tile_count(Size rows, Size cols) {
  return ceil_div(rows, cast_tile_rows) * ceil_div(cols, cast_tile_rows);
}

// ---- GEMM ---------------------------------------------------------------------------------------------------------

// Bytes of an operand decoded to `as`; 0 where it is stored so.
inline Size decoded_bytes(const CodeMatrix& matrix, Format as) {
  const Format format = matrix.spec.format;
  const bool as_stored = format == as || (format == Format::tf32 && as == Format::f32);
  return as_stored ? 0 : matrix.rows * matrix.cols * info(as).storage_bits / 8;
}

// Rows of the scales of 128 × 128 blocks begin at multiples of 4 floats.
inline Size padded_scale_cols(const CodeMatrix& matrix) { return ceil_div(matrix.scale_cols(), 4) * 4; }

// Of 16-bit operands cuBLASLt gives results in their own format, of FP8 in BF16; of others FP32 only, which is rounded
// afterwards.
inline bool rounds_result(const Gemm& op, Format operand) {
  const Format out = op.out.format;
  const bool as_it_is = out == Format::f32 || out == operand || (out == Format::bf16 && is_fp8(operand));
  return !as_it_is;
}

// What a GEMM of operands in this format keeps beside the result, one part after another.
struct GemmWorkspace {
  enum class Scales : std::uint8_t { none, operands };

  GemmWorkspace(const Gemm& op, Format operand, Scales scales)
      : scalars(0),
        a_scales(round_up_256(Size{2} * 4)),
        b_scales(a_scales + scale_bytes(op.a.matrix, scales)),
        bias(b_scales + scale_bytes(op.b.matrix, scales)),
        result(bias + round_up_256(op.bias.empty() ? 0 : 2 * op.out.cols)),
        total(result + round_up_256(rounds_result(op, operand) ? 4 * op.out.count() : 0)) {}

  Size scalars;  // where each part begins
  Size a_scales;
  Size b_scales;
  Size bias;    // in 16 bits, where cuBLASLt adds it
  Size result;  // before it is rounded
  Size total;

 private:
  static Size scale_bytes(const CodeMatrix& matrix, Scales scales) {
    return scales == Scales::none ? 0 : round_up_256(4 * matrix.scale_rows() * padded_scale_cols(matrix));
  }
};

// ---- Newton–Schulz -------------------------------------------------------------------------------------------------

// The parts of a sum over a matrix: their number depends on it alone.
inline Size orthogonalize_parts(Size count) { return std::clamp<Size>(ceil_div(count, 4096), 1, 1024); }

// The Gram matrix, or a polynomial of it.
inline Size gram_bytes(const Orthogonalize& op) { return round_up_256(2 * op.gram_size() * op.gram_size()); }

// ---- embedding ----------------------------------------------------------------------------------------------------

// Sorting has three arrays, and about as much again for the sort itself, which cub sizes.
inline Size sorted_tokens_bytes(Size tokens) { return round_up_256(4 * tokens); }
inline Size sorting_bytes(Size tokens) { return 6 * sorted_tokens_bytes(tokens); }

inline constexpr Size embedding_tile = 32;  // tokens
inline Size embedding_sums_bytes(Size tokens, Size cols) {
  return Size{4} * 2 * ceil_div(tokens, embedding_tile) * cols;
}

// ---- logits -------------------------------------------------------------------------------------------------------

// Logits from row to row, as GEMMs take them: vectors of eight. dlogits are zero between rows.
inline constexpr Size logits_multiple = 8;
inline Size logits_stride(Size vocab) { return ceil_div(vocab, logits_multiple) * logits_multiple; }

// Rows of logits that are computed at once, so that they and what dlogits are cast into take no more than `limit`
// bytes: whole blocks of scales.
inline Size logits_chunk(Size tokens, Size vocab, Format high, const Site* gradient, Size limit) {
  Size bits = info(high).storage_bits;
  if (gradient != nullptr && logits_are_cast(gradient->spec, high)) {
    bits += info(gradient->spec.rows.format).storage_bits + info(gradient->spec.columns.format).storage_bits;
  }
  return std::clamp<Size>(limit / (logits_stride(vocab) * bits / 8) / 128 * 128, std::min<Size>(tokens, 128), tokens);
}

// Bytes of the codes and scales of dlogits, both sides.
inline Size logits_codes_bytes(Site& site, Size rows, Size vocab, Sharing sharing) {
  static std::byte nowhere{};
  Size total = 0;
  const QuantizedTensor laid_out(site, rows, vocab, Copies::both, sharing, [&total](std::size_t bytes) {
    total += round_up_256(static_cast<Size>(bytes));
    return &nowhere;
  });
  return total;
}

// Columns [first, first + count) of codes with their scales; first is a multiple of the blocks' columns.
inline CodeMatrix columns_shape(const CodeMatrix& matrix, Size count) {
  CodeMatrix part = matrix;
  part.cols = count;
  part.stride = apart_stride(matrix.spec.format, count);
  return part;
}
inline bool scales_are_cut(const CodeMatrix& matrix) { return matrix.has_block_scales() && matrix.spec.block.cols > 0; }
inline Size columns_bytes(const CodeMatrix& part) {
  const Size scales = scales_are_cut(part) ? part.scale_rows() * part.scale_cols() * 4 : 0;
  return round_up_256(part.code_bytes()) + scales;
}

// ---- batch norm ---------------------------------------------------------------------------------------------------

// Rows are divided into strips, each with two sums per channel; two means per channel follow them. The number of strips
// depends on the matrix alone, so that sums have the same bits on any GPU.
inline constexpr Size batch_norm_cols = 64;  // of a block
inline Size batch_norm_strips(Size rows, Size cols) {
  constexpr Size blocks = 1024;
  constexpr Size fewest_rows = 64;
  const Size across = ceil_div(cols, batch_norm_cols);
  return std::clamp<Size>(std::min(ceil_div(rows, fewest_rows), blocks / across), 1, blocks);
}
inline Size batch_norm_bytes(Size rows, Size cols) { return (batch_norm_strips(rows, cols) + 1) * 2 * cols * 4; }

}  // namespace quaver::cuda
