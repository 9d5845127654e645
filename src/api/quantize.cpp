#include "quaver/quantize.h"

#include <cmath>
#include <limits>

#include "api/extent.h"

#include "engine/engine.h"
#include "formats/quantize.h"
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

struct QuantizedMatrix::State {
  CastSettings settings;
  std::vector<std::byte> codes;
  std::vector<float> block_scales;
  float tensor_scale = 1;
  CodeMatrix matrix;
  CastStatistics statistics;

  RandomKey random() const { return {settings.seed, settings.step, settings.stream}; }
};

QuantizedMatrix::QuantizedMatrix(const Matrix& x, const CastSettings& settings) {
  check(settings.spec, "the spec");
  checked_count(x.rows, x.cols, x.values.size(), "the matrix to cast");
  if (!std::isfinite(settings.scale) || settings.scale < 0) {
    throw Error("the scale of a cast is " + std::to_string(settings.scale), "give a positive number, or 0 for none");
  }
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
std::span<const std::byte> QuantizedMatrix::codes() const { return state_->codes; }
Size QuantizedMatrix::row_bytes() const { return state_->matrix.row_bytes(); }
std::span<const float> QuantizedMatrix::block_scales() const { return state_->block_scales; }
Size QuantizedMatrix::scale_rows() const { return state_->matrix.scale_rows(); }
Size QuantizedMatrix::scale_cols() const { return state_->matrix.scale_cols(); }
float QuantizedMatrix::tensor_scale() const { return state_->tensor_scale; }
const CastStatistics& QuantizedMatrix::statistics() const { return state_->statistics; }

void QuantizedMatrix::dequantize(std::span<float> out) const {
  const CodeMatrix& matrix = state_->matrix;
  checked_count(matrix.rows, matrix.cols, out.size(), "the matrix to dequantize into");
  decode_rows(matrix, 0, matrix.rows, out.data(), matrix.cols);
  for (float& value : out) value *= state_->tensor_scale;
  if (matrix.spec.rotation == Rotation::none) return;
  for (Size row = 0; row < matrix.rows; ++row) {
    unrotate_row(out.data() + row * matrix.cols, matrix.cols, state_->random());
  }
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

void gemm(const QuantizedMatrix& a, const QuantizedMatrix& b, std::span<float> out, Accumulator accumulator) {
  if (a.cols() != b.cols()) {
    throw Error(
        "the operands of the GEMM have " + std::to_string(a.cols()) + " and " + std::to_string(b.cols()) + " columns",
        "both are contiguous along the dimension that is summed over: cast one with Side::columns");
  }
  require_same_rotation(a.settings(), b.settings());
  checked_count(a.rows(), b.rows(), out.size(), "the result of the GEMM");
  const std::unique_ptr<Engine> engine = make_cpu_engine(0);
  engine->run(Gemm{.a = {a.state_->matrix},
                   .b = {b.state_->matrix},
                   .out = {out.data(), Format::f32, a.rows(), b.rows()},
                   .accumulator = accumulator});
}

}  // namespace quaver
