#include "quaver/quantize.h"

#include <cmath>
#include <limits>

#include "api/extent.h"
#include "api/quantized_state.h"

#include "engine/engine.h"
#include "quaver/error.h"

namespace quaver {

Size checked_count(Size rows, Size cols, std::size_t given, const std::string& what) {
  if (rows <= 0 || cols <= 0 || rows > std::numeric_limits<Size>::max() / 64 / cols) {
    throw Error(what + " is " + std::to_string(rows) + " × " + std::to_string(cols),
                "give a matrix with at least one row and column that fits into memory");
  }
  if (static_cast<std::uint64_t>(rows * cols) != given) {
    throw Error(what + " is " + std::to_string(rows) + " × " + std::to_string(cols) + " but has " +
                    std::to_string(given) + " values",
                "pass rows × cols values, row by row");
  }
  return rows * cols;
}

void check_cast(const CastSettings& settings) {
  check(settings.spec, "the spec");
  if (std::isfinite(settings.scale) && settings.scale >= 0) return;
  throw Error("the scale of a cast is " + std::to_string(settings.scale), "give a positive number, or 0 for none");
}

QuantizedMatrix::QuantizedMatrix(const Matrix& x, const CastSettings& settings) {
  check_cast(settings);
  checked_count(x.rows, x.cols, x.values.size(), "the matrix to cast");
  auto state = std::make_shared<State>();
  state->settings = settings;
  const bool transposed = settings.side == Side::columns;
  CodeMatrix& matrix = state->matrix;
  matrix.spec = resolved(settings.spec, settings.scale);
  matrix.rows = transposed ? x.cols : x.rows;
  matrix.cols = transposed ? x.rows : x.cols;
  state->codes.resize(static_cast<std::size_t>(matrix.code_bytes()));
  if (matrix.has_block_scales()) {
    state->block_scales.resize(static_cast<std::size_t>(matrix.scale_rows() * matrix.scale_cols()));
    matrix.block_scales = state->block_scales.data();
  }
  matrix.codes = state->codes.data();
  matrix.tensor_scale = &state->tensor_scale;
  const CastOptions options{settings.side, settings.scale, state->random(), settings.detail};
  state->statistics = quaver::quantize({x.values.data(), x.rows, x.cols}, options, matrix);
  state_ = std::move(state);
}

const CastSettings& QuantizedMatrix::settings() const { return state_->settings; }
Size QuantizedMatrix::rows() const { return state_->matrix.rows; }
Size QuantizedMatrix::cols() const { return state_->matrix.cols; }
std::span<const std::byte> QuantizedMatrix::codes() const {
  return {state_->matrix.codes, static_cast<std::size_t>(state_->matrix.code_bytes())};
}
Size QuantizedMatrix::row_bytes() const { return state_->matrix.row_bytes(); }
std::span<const float> QuantizedMatrix::block_scales() const {
  if (!state_->matrix.has_block_scales()) return {};
  return {state_->matrix.block_scales, static_cast<std::size_t>(scale_rows() * scale_cols())};
}
Size QuantizedMatrix::scale_rows() const { return state_->matrix.scale_rows(); }
Size QuantizedMatrix::scale_cols() const { return state_->matrix.scale_cols(); }
const float* QuantizedMatrix::tensor_scale_address() const { return state_->matrix.tensor_scale; }
bool QuantizedMatrix::on_gpu() const { return state_->engine != nullptr && state_->engine->is_gpu(); }

namespace {

void require_host(const QuantizedMatrix& matrix) {
  if (matrix.on_gpu()) throw Error("the matrix is in a GPU's memory", "pass an array there for the result");
}

}  // namespace

void QuantizedMatrix::dequantize(std::span<float> out) const {
  require_host(*this);
  checked_count(rows(), cols(), out.size(), "the matrix to dequantize into");
  make_cpu_engine(0)->run(Dequantize{state_->matrix, state_->random(), {out.data(), Format::f32, rows(), cols()}});
}

std::vector<float> QuantizedMatrix::dequantize() const {
  std::vector<float> out(static_cast<std::size_t>(rows() * cols()));
  dequantize(out);
  return out;
}

namespace {

void require_same_rotation(const CastSettings& a, const CastSettings& b) {
  const bool rotated = a.spec.rotation != Rotation::none;
  if (a.spec.rotation != b.spec.rotation || (rotated && a.seed != b.seed)) {
    throw Error("the operands of the GEMM are not rotated alike", "rotate both with one seed, or neither");
  }
}

}  // namespace

void check_gemm(const QuantizedMatrix& a, const QuantizedMatrix& b) {
  if (a.cols() != b.cols()) {
    throw Error(
        "the operands of the GEMM have " + std::to_string(a.cols()) + " and " + std::to_string(b.cols()) + " columns",
        "both are contiguous along the dimension that is summed over: cast one with Side::columns");
  }
  require_same_rotation(a.settings(), b.settings());
}

void gemm(const QuantizedMatrix& a, const QuantizedMatrix& b, std::span<float> out, Accumulator accumulator) {
  check_gemm(a, b);
  require_host(a);
  require_host(b);
  checked_count(a.rows(), b.rows(), out.size(), "the result of the GEMM");
  const std::unique_ptr<Engine> engine = make_cpu_engine(0);
  engine->run(Gemm{.a = {a.state_->matrix},
                   .b = {b.state_->matrix},
                   .out = {out.data(), Format::f32, a.rows(), b.rows()},
                   .accumulator = accumulator});
}

}  // namespace quaver
