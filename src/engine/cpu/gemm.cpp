#include "engine/cpu/gemm.h"

#include <algorithm>
#include <cblas.h>
#include <cmath>
#include <omp.h>
#include <string>
#include <vector>

#include "engine/cpu/workspace_sizes.h"
#include "engine/tensor_cores.h"
#include "formats/simd.h"
#include "quaver/error.h"

namespace quaver {

namespace {

// The operand's values without its tensor multiplier, as it is stored.
const float* decoded(Workspace& workspace, Workspace::Slot slot, const CodeMatrix& matrix) {
  const Size floats = decoded_floats(matrix);
  if (floats == 0) return reinterpret_cast<const float*>(matrix.codes);
  float* values = workspace.floats(slot, floats);
  constexpr Size rows_at_once = 64;
#pragma omp parallel for schedule(static) if (floats > worth_waking)
  for (Size first = 0; first < matrix.rows; first += rows_at_once) {
    const Size count = std::min(rows_at_once, matrix.rows - first);
    decode_rows(matrix, first, count, values + first * matrix.cols, matrix.cols);
  }
  return values;
}

// Every row of out = bias (+ out): the GEMM then adds to it, which costs no more than clearing out would.
void fill_with_bias(const Gemm& op) {
  const float* bias = op.bias.f32();
#pragma omp parallel for schedule(static)
  for (Size r = 0; r < op.out.rows; ++r) {
    float* row = op.out.f32() + r * op.out.cols;
    for (Size c = 0; c < op.out.cols; ++c) row[c] = op.accumulate ? row[c] + bias[c] : bias[c];
  }
}

void add_into(const float* x, Size count, float* out) {
#pragma omp parallel for simd schedule(static)
  for (Size i = 0; i < count; ++i) out[i] += x[i];
}

// a transposed copy, [cols × rows]
std::vector<float> transposed(const float* x, Size rows, Size cols) {
  std::vector<float> out(static_cast<std::size_t>(rows * cols));
  for (Size r = 0; r < rows; ++r) {
    for (Size c = 0; c < cols; ++c) out[static_cast<std::size_t>(c * rows + r)] = x[r * cols + c];
  }
  return out;
}

// Scales of rows and blocks are part of the decoded values, whose least exponent is then not that of the format.
int least_exponent(const CodeMatrix& matrix) {
  return matrix.has_block_scales() ? no_exponent : std::ilogb(info(matrix.spec.format).min_normal);
}

// Dot products of x with four vectors at once, so that their sums do not wait for each other. The order of a sum
// depends on k alone.
struct FourSums {
  float of[4];
};
QUAVER_SIMD FourSums dot_four(const float* x, const float* const (&b)[4], Size k) {
  const float* b0 = b[0];
  const float* b1 = b[1];
  const float* b2 = b[2];
  const float* b3 = b[3];
  float s0 = 0;
  float s1 = 0;
  float s2 = 0;
  float s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
  for (Size i = 0; i < k; ++i) {
    s0 += x[i] * b0[i];
    s1 += x[i] * b1[i];
    s2 += x[i] * b2[i];
    s3 += x[i] * b3[i];
  }
  return {{s0, s1, s2, s3}};
}

// Rows [first, first + count) of b, decoded.
struct DecodedRows {
  const float* values;
  Size first;
  Size count;
};

// The columns of out that belong to these rows of b.
void multiply_rows(const Gemm& op, const float* a, const DecodedRows& b, float alpha) {
  const Size k = op.a.reduction();
  const float* bias = op.bias.empty() ? nullptr : op.bias.f32() + b.first;
  for (Size r = 0; r < op.out.rows; ++r) {
    float* out = op.out.f32() + r * op.out.cols + b.first;
    for (Size j = 0; j < b.count; j += 4) {
      const auto row = [&](Size i) { return b.values + std::min(j + i, b.count - 1) * k; };
      const FourSums sums = dot_four(a + r * k, {row(0), row(1), row(2), row(3)}, k);
      for (Size i = 0; i < std::min<Size>(4, b.count - j); ++i) {
        const float before = (op.accumulate ? out[j + i] : 0.0F) + (bias != nullptr ? bias[j + i] : 0.0F);
        out[j + i] = alpha * sums.of[i] + before;
      }
    }
  }
}

void gemm_of_rows_apart(Workspace& workspace, const Gemm& op, const float* a, float alpha) {
  const CodeMatrix& matrix = op.b.matrix;
  const Size tile = decoded_tile_floats(op);
  float* memory = workspace.floats(Workspace::Slot::operand_b, tile * omp_get_max_threads());
#pragma omp parallel for schedule(static) if (matrix.rows * matrix.cols > worth_waking)
  for (Size first = 0; first < matrix.rows; first += decoded_tile_rows) {
    const Size count = std::min(decoded_tile_rows, matrix.rows - first);
    const float* b = reinterpret_cast<const float*>(matrix.codes) + first * matrix.cols;
    if (tile > 0) {
      float* decoded_rows = memory + tile * omp_get_thread_num();
      decode_rows(matrix, first, count, decoded_rows, matrix.cols);
      b = decoded_rows;
    }
    multiply_rows(op, a, {b, first, count}, alpha);
  }
}

void emulated_gemm(const Gemm& op, Accumulator accumulator, const float* a, const float* b, float alpha) {
  const Size m = op.a.extent();
  const Size n = op.b.extent();
  const Size k = op.a.reduction();
  std::vector<float> a_copy;
  std::vector<float> b_copy;
  if (op.a.transposed) a = (a_copy = transposed(a, k, m)).data();
  if (!op.b.transposed) b = (b_copy = transposed(b, n, k)).data();
  std::vector<float> product(static_cast<std::size_t>(m * n));
  low_precision_gemm({.accumulator = accumulator,
                      .a = {a, least_exponent(op.a.matrix)},
                      .b = {b, least_exponent(op.b.matrix)},
                      .m = m,
                      .n = n,
                      .k = k,
                      .alpha = alpha,
                      .out = product.data()});
  if (!op.bias.empty()) {
    fill_with_bias(op);
  } else if (!op.accumulate) {
    std::fill_n(op.out.f32(), m * n, 0.0F);
  }
  add_into(product.data(), m * n, op.out.f32());
}

}  // namespace

Accumulator accumulator_of(const Gemm& op) {
  if (op.accumulator != Accumulator::hopper && op.accumulator != Accumulator::hopper_split) return op.accumulator;
  constexpr int hopper = 90;
  const QuantSpec& a = op.a.matrix.spec;
  const QuantSpec& b = op.b.matrix.spec;
  if (!why_not_native(hopper, "Hopper", a, b).empty()) return Accumulator::fp32;
  return allows_fast_accumulation(scaling_of(a)) ? op.accumulator : Accumulator::hopper_split;
}

bool multiplies_rows_apart(const Gemm& op) {
  return op.rows == GemmRows::apart && !op.a.transposed && !op.b.transposed && accumulator_of(op) == Accumulator::fp32;
}

void cpu_gemm(Workspace& workspace, const Gemm& op) {
  const Size m = op.a.extent();
  const Size n = op.b.extent();
  const Size k = op.a.reduction();
  if (op.b.reduction() != k || op.out.rows != m || op.out.cols != n) {
    throw Error("GEMM of [" + std::to_string(m) + " × " + std::to_string(k) + "] and [" + std::to_string(n) + " × " +
                    std::to_string(op.b.reduction()) + "]ᵀ into [" + std::to_string(op.out.rows) + " × " +
                    std::to_string(op.out.cols) + "]: the shapes do not meet",
                "this is a defect of the layer that asked for it");
  }
  const float* a = decoded(workspace, Workspace::Slot::operand_a, op.a.matrix);
  const float alpha = op.alpha * (*op.a.matrix.tensor_scale * *op.b.matrix.tensor_scale);
  if (multiplies_rows_apart(op)) return gemm_of_rows_apart(workspace, op, a, alpha);
  const float* b = decoded(workspace, Workspace::Slot::operand_b, op.b.matrix);
  const Accumulator accumulator = accumulator_of(op);
  if (accumulator != Accumulator::fp32) return emulated_gemm(op, accumulator, a, b, alpha);
  if (!op.bias.empty()) fill_with_bias(op);
  const float beta = op.accumulate || !op.bias.empty() ? 1.0F : 0.0F;
  cblas_sgemm(CblasRowMajor, op.a.transposed ? CblasTrans : CblasNoTrans, op.b.transposed ? CblasNoTrans : CblasTrans,
              static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(op.a.matrix.cols), b, static_cast<int>(op.b.matrix.cols), beta, op.out.f32(),
              static_cast<int>(n));
}

}  // namespace quaver
