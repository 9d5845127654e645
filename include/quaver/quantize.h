// Quantized matrices: cast a matrix of floats under a spec, look at its codes, scales and statistics, multiply two of
// them, and get floats back. Bit for bit what training computes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "quaver/device.h"
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

// Memory that a cast on a device needs beside its matrix, in bytes: for codes and scales as long as the quantized
// matrix is there, and scratch until the stream has passed the call's work.
struct CastMemory {
  std::size_t kept = 0;
  std::size_t scratch = 0;
};

// The memory itself; on a GPU it begins at multiples of 16 bytes.
struct DeviceMemory {
  std::span<std::byte> kept;
  std::span<std::byte> scratch;
};

// A matrix of codes, contiguous along the dimension that a GEMM sums over. Immutable; copies share the memory.
//   value(r, c) = decode(code(r, c)) · block_scale(r / block.rows, c / block.cols) · tensor_scale
class QuantizedMatrix {
 public:
  // Throws Error where the spec has no meaning or the matrix is not as large as it says.
  QuantizedMatrix(const Matrix& x, const CastSettings& settings);

  // The same in the memory of x's device, which the caller keeps: bit for bit the codes, scales and statistics of the
  // host's cast. What follows gives addresses in that memory, and waits where it gives numbers of a GPU.
  QuantizedMatrix(const DeviceMatrix& x, const CastSettings& settings, const DeviceMemory& memory);
  static CastMemory memory(const DeviceMatrix& x, const CastSettings& settings);

  const CastSettings& settings() const;
  Size rows() const;  // of the codes: those of the transpose for Side::columns
  Size cols() const;

  std::span<const std::byte> codes() const;  // row_bytes() per row; FP4 two to a byte, low nibble first
  Size row_bytes() const;
  std::span<const float> block_scales() const;  // [scale_rows() × scale_cols()]; empty for one scale per tensor
  Size scale_rows() const;
  Size scale_cols() const;
  float tensor_scale() const;
  const float* tensor_scale_address() const;
  const CastStatistics& statistics() const;
  bool on_gpu() const;

  // [rows() × cols()] values, rotation undone: of a matrix in host memory, or on out's device, where the codes must be.
  void dequantize(std::span<float> out) const;
  std::vector<float> dequantize() const;
  void dequantize(const DeviceMatrix& out) const;

 private:
  struct State;
  friend void gemm(const QuantizedMatrix&, const QuantizedMatrix&, std::span<float>, Accumulator);
  friend void gemm(const QuantizedMatrix&, const QuantizedMatrix&, const DeviceMatrix&, Accumulator);
  std::shared_ptr<const State> state_;
};

// out[M × N] = a[M × K] · b[N × K]ᵀ on the CPU, or on out's device, where all three must be. Throws Error where the K
// differ, where one operand alone is rotated or the two are rotated with other seeds, and where out has another size.
void gemm(const QuantizedMatrix& a, const QuantizedMatrix& b, std::span<float> out,
          Accumulator accumulator = Accumulator::fp32);
void gemm(const QuantizedMatrix& a, const QuantizedMatrix& b, const DeviceMatrix& out,
          Accumulator accumulator = Accumulator::fp32);

}  // namespace quaver
