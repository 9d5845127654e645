// Quantized matrices: cast a matrix of floats under a spec, look at its codes, scales and statistics, multiply two of
// them, and get floats back. Bit for bit what training computes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "quaver/quant_spec.h"
#include "quaver/statistics.h"

namespace quaver {

// [rows × cols], row-major and contiguous, in the caller's memory.
struct Matrix {
  std::span<const float> values;
  Size rows = 0;
  Size cols = 0;
};

struct CastSettings {
  QuantSpec spec;
  Side side = Side::rows;  // columns: the transpose is cast, for GEMMs that sum along a column of x
  float scale = 0;         // s in q = cast(x · s) for the policies delayed and fixed; 0: from the matrix itself
  std::uint64_t seed = 0;  // of stochastic rounding and random signs, with step and stream
  std::uint32_t step = 0;
  std::uint32_t stream = 0;
  Detail detail = Detail::counts;
};

// A matrix of codes, contiguous along the dimension that a GEMM sums over. Immutable; copies share the memory.
//   value(r, c) = decode(code(r, c)) · block_scale(r / block.rows, c / block.cols) · tensor_scale
class QuantizedMatrix {
 public:
  // Throws Error where the spec has no meaning or the matrix is not as large as it says.
  QuantizedMatrix(const Matrix& x, const CastSettings& settings);

  const CastSettings& settings() const;
  Size rows() const;  // of the codes: those of the transpose for Side::columns
  Size cols() const;

  std::span<const std::byte> codes() const;  // row_bytes() per row; FP4 two to a byte, low nibble first
  Size row_bytes() const;
  std::span<const float> block_scales() const;  // [scale_rows() × scale_cols()]; empty for one scale per tensor
  Size scale_rows() const;
  Size scale_cols() const;
  float tensor_scale() const;
  const CastStatistics& statistics() const;

  // [rows() × cols()] floats, rotation undone.
  void dequantize(std::span<float> out) const;
  std::vector<float> dequantize() const;

 private:
  struct State;
  friend void gemm(const QuantizedMatrix&, const QuantizedMatrix&, std::span<float>, Accumulator);
  std::shared_ptr<const State> state_;
};

// out[M × N] = a[M × K] · b[N × K]ᵀ on the CPU. Throws Error where the K differ, where one operand alone is rotated or
// the two are rotated with other seeds, and where out has another size.
void gemm(const QuantizedMatrix& a, const QuantizedMatrix& b, std::span<float> out,
          Accumulator accumulator = Accumulator::fp32);

}  // namespace quaver
