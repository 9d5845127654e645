// Which sizes of a GEMM tensor cores take, and how one of other sizes is cut into parts that they do take: a large one,
// and the few rows or columns that are left over. Nothing of CUDA is included: memory plans for GPUs that are not here
// read these rules too.
#pragma once

#include <vector>

#include "engine/cuda/gemm/block_gemm_schedule.h"
#include "engine/tensor_cores.h"

namespace quaver::cuda {

inline constexpr Size row_alignment = 16;  // bytes
inline constexpr Size size_multiple = 8;   // of what runs along a row

inline bool rows_are_aligned(const CodeMatrix& matrix) { return matrix.row_bytes() % row_alignment == 0; }
inline bool rows_are_aligned(const View& matrix) {
  return matrix.row_stride() * info(matrix.format).storage_bits / 8 % row_alignment == 0;
}
inline bool rows_are_aligned(const Gemm& op) {
  return rows_are_aligned(op.a.matrix) && rows_are_aligned(op.b.matrix) && rows_are_aligned(op.out);
}

// Whether our blockwise kernel multiplies operands that tensor cores support as stored, into FP32 or BF16. It takes any
// number of rows and, without a bias, of columns.
inline bool block_gemm_supports(int architecture, const Gemm& op) {
  const QuantSpec& a = op.a.matrix.spec;
  const QuantSpec& b = op.b.matrix.spec;
  const bool blockwise = scaling_of(a) == Scaling::vector128 && scaling_of(b) == Scaling::block128;
  const bool writes = op.out.format == Format::f32 || (op.out.format == Format::bf16 && !op.accumulate);
  const bool fits = rows_are_aligned(op) && (op.bias.empty() || op.out.cols % size_multiple == 0);
  return architecture == 90 && a.format == Format::e4m3 && b.format == Format::e4m3 && blockwise && writes && fits;
}

inline BlockGemmShape block_gemm_shape(const Gemm& op) { return {op.out.rows, op.out.cols, op.a.reduction()}; }

// What our blockwise kernel needs beside the result.
inline Size block_gemm_workspace(const Gemm& op, int multiprocessors) {
  return block_gemm_partial_bytes(block_gemm_schedule(block_gemm_shape(op), op.out.format, multiprocessors));
}

// Whether FP8 tensor cores take these sizes. The reduction may have any: rows of codes are padded with zeros.
inline bool sizes_fit_fp8(int architecture, const Gemm& op) {
  return rows_are_aligned(op) && (op.out.cols % size_multiple == 0 || block_gemm_supports(architecture, op));
}

struct GemmPart {
  enum class Kind : std::uint8_t { whole, rest };
  Gemm op;
  Kind kind = Kind::whole;  // rest: too small for its speed to matter
};

namespace parts {

inline CodeMatrix slice_cols(const CodeMatrix& matrix, Size first, Size count) {
  CodeMatrix slice = matrix;
  slice.stride = matrix.row_bytes();
  slice.cols = count;
  slice.codes += first * info(matrix.spec.format).storage_bits / 8;
  return slice;
}
inline Operand slice_extent(const Operand& operand, Size first, Size count) {
  const auto slice = operand.transposed ? slice_cols : slice_rows;
  return {slice(operand.matrix, first, count), operand.transposed};
}
inline Operand slice_reduction(const Operand& operand, Size first, Size count) {
  const auto slice = operand.transposed ? slice_rows : slice_cols;
  return {slice(operand.matrix, first, count), operand.transposed};
}

inline Gemm columns(const Gemm& op, Size first, Size count) {
  Gemm part = op;
  part.b = slice_extent(op.b, first, count);
  part.out.stride = op.out.row_stride();
  part.out.cols = count;
  part.out.data = op.out.row_data(0) + first * info(op.out.format).storage_bits / 8;
  if (!op.bias.empty()) part.bias = {op.bias.f32() + first, Format::f32, 1, count};
  return part;
}
inline Gemm rows(const Gemm& op, Size first, Size count) {
  Gemm part = op;
  part.a = slice_extent(op.a, first, count);
  part.out = op.out.row_range(first, count);
  return part;
}
inline Gemm reduction(const Gemm& op, Size first, Size count) {
  Gemm part = op;
  part.a = slice_reduction(op.a, first, count);
  part.b = slice_reduction(op.b, first, count);
  return part;
}

// Where a dimension is cut: its largest multiple, or nowhere.
inline Size cut_of(Size extent) { return extent % size_multiple == 0 ? 0 : extent / size_multiple * size_multiple; }

struct Cuts {
  Size cols = 0;
  Size rows = 0;
  Size reduction = 0;
};

// Of 16-bit operands each dimension that runs along some matrix's rows counts. A second launch must be worth it.
inline Cuts cuts_of_16_bits(const Gemm& op) {
  constexpr Size worth_cutting = Size{1} << 27;  // multiplications
  const Size reduction = op.a.reduction();
  if (!rows_are_aligned(op) || op.out.rows * op.out.cols * reduction < worth_cutting) return {};
  const bool along_rows = !op.a.transposed || !op.b.transposed;
  return {.cols = cut_of(op.out.cols),
          .rows = op.a.transposed ? cut_of(op.out.rows) : 0,
          .reduction = along_rows ? cut_of(reduction) : 0};
}

// Of FP8 only what the result's rows run along, and with scales of 1 × 128 blocks on both sides its rows too.
inline Cuts cuts_of_fp8(int architecture, const Gemm& op) {
  const QuantSpec& a = op.a.matrix.spec;
  const QuantSpec& b = op.b.matrix.spec;
  const bool native = why_not_native(architecture, "", a, b).empty() && !op.a.transposed && !op.b.transposed;
  if (!native || !rows_are_aligned(op)) return {};
  const bool vectors = scaling_of(a) == Scaling::vector128 && scaling_of(b) == Scaling::vector128;
  return {.cols = b.block.rows <= 1 ? cut_of(op.out.cols) : 0, .rows = vectors ? cut_of(op.out.rows) : 0};
}

}  // namespace parts

// The GEMMs that together are op, in their order.
inline std::vector<GemmPart> gemm_parts(int architecture, const Gemm& op) {
  const Format format = op.a.matrix.spec.format;
  const bool same = format == op.b.matrix.spec.format;
  parts::Cuts cuts;
  if (same && (format == Format::bf16 || format == Format::f16)) cuts = parts::cuts_of_16_bits(op);
  if (is_fp8(format)) cuts = parts::cuts_of_fp8(architecture, op);
  std::vector<GemmPart> list;
  Gemm whole = op;
  if (cuts.cols > 0) {
    list.push_back({parts::columns(whole, cuts.cols, whole.out.cols - cuts.cols), GemmPart::Kind::rest});
    whole = parts::columns(whole, 0, cuts.cols);
  }
  if (cuts.rows > 0) {
    list.push_back({parts::rows(whole, cuts.rows, whole.out.rows - cuts.rows), GemmPart::Kind::rest});
    whole = parts::rows(whole, 0, cuts.rows);
  }
  if (cuts.reduction > 0) {
    // The rest comes first: the whole then adds to it and rounds the sum, as it would alone.
    Gemm rest = parts::reduction(whole, cuts.reduction, whole.a.reduction() - cuts.reduction);
    rest.bias = {};
    list.push_back({rest, GemmPart::Kind::rest});
    whole = parts::reduction(whole, 0, cuts.reduction);
    whole.accumulate = true;
  }
  list.push_back({whole});
  return list;
}

}  // namespace quaver::cuda
