// Sums of gradients, their norms and clipping, and the AdamW update with its storage formats.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/adamw_coefficients.h"
#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/weight_update.h"
#include "formats/simd.h"

namespace quaver {

namespace {

struct ChunkSum {
  double square = 0;
  std::uint64_t nonfinite = 0;
};

// FP32 squares overflow long before gradients do, so the sum is kept in double.
QUAVER_SIMD ChunkSum sum_chunk(const float* x, Size n) {
  double square = 0;
  std::uint64_t nonfinite = 0;
#pragma omp simd reduction(+ : square, nonfinite)
  for (Size i = 0; i < n; ++i) {
    const double value = x[i];
    square += value * value;
    nonfinite += x[i] - x[i] == 0.0F ? 0U : 1U;
  }
  return {square, nonfinite};
}

// Fixed chunks added in order: the sum does not depend on the number of threads.
ChunkSum sum_squares(const View& x) {
  constexpr Size chunk = 1 << 15;
  const Size chunks = (x.count() + chunk - 1) / chunk;
  std::vector<ChunkSum> sums(static_cast<std::size_t>(chunks));
#pragma omp parallel for schedule(static)
  for (Size i = 0; i < chunks; ++i) {
    sums[static_cast<std::size_t>(i)] = sum_chunk(x.f32() + i * chunk, std::min(chunk, x.count() - i * chunk));
  }
  ChunkSum total;
  for (const ChunkSum& sum : sums) {
    total.square += sum.square;
    total.nonfinite += sum.nonfinite;
  }
  return total;
}

float clip_factor(double norm, float limit) { return norm > limit ? static_cast<float>(limit / (norm + 1e-6)) : 1.0F; }

struct Update : AdamWCoefficients {
  float gradient_factor;
};

QUAVER_SIMD void update_row(const Update& u, const float* gradient, Size n, float* weight, float* m, float* v_root) {
#pragma omp simd
  for (Size i = 0; i < n; ++i) {
    float g = gradient[i] * u.gradient_factor;
    g = g > u.limit ? u.limit : g;
    g = g < -u.limit ? -u.limit : g;
    m[i] = u.beta1 * m[i] + (1 - u.beta1) * g;
    v_root[i] = std::sqrt(u.beta2 * v_root[i] * v_root[i] + (1 - u.beta2) * g * g);
    const float step = m[i] * u.correction1 / (v_root[i] * u.root_correction2 + u.epsilon);
    weight[i] -= u.decay * weight[i] + u.learning_rate * step;
  }
}

// √v that was rounded to zero beside a moment that was not would make the update explode: it counts as half the
// smallest value its block can hold.
void raise_from_zero(const CodeMatrix& moment, Size first, Size rows, float* values) {
  if (!is_low_precision(moment.spec.format)) return;
  const Size width = moment.spec.block.cols;
  const float smallest = info(moment.spec.format).min_subnormal / 2;
  for (Size r = 0; r < rows; ++r) {
    for (Size c = 0; c < moment.cols; ++c) {
      float& value = values[r * moment.cols + c];
      if (value == 0) value = smallest * moment.block_scales[(first + r) * moment.scale_cols() + c / width];
    }
  }
}

}  // namespace

void CpuOperations::run(const SumInOrder& op) {
  constexpr Size chunk = 1 << 14;
  const Size count = op.sum.count();
  const Size chunks = (count + chunk - 1) / chunk;
#pragma omp parallel for schedule(static)
  for (Size i = 0; i < chunks; ++i) {
    const Size first = i * chunk;
    const Size length = std::min(chunk, count - first);
    float* sum = op.sum.f32() + first;
    Size part = 0;
    if (!op.accumulate) std::copy_n(op.parts.f32() + first, length, sum), part = 1;
    for (; part < op.parts.rows; ++part) {
      const float* values = op.parts.f32() + part * count + first;
      for (Size j = 0; j < length; ++j) sum[j] += values[j];
    }
  }
}

void CpuOperations::run(const MeasureGradients& op) {
  for (std::size_t i = 0; i < op.gradients.size(); ++i) {
    const ChunkSum sum = sum_squares(op.gradients[i]);
    op.measures[i] = {sum.square / (static_cast<double>(op.ratios[i]) * op.ratios[i]), sum.nonfinite};
  }
}

void CpuOperations::run(const ClipGradients& op) {
  double total = 0;
  std::uint64_t nonfinite = 0;
  for (std::size_t i = 0; i < op.places.size(); ++i) {
    const GradientMeasure& measure = op.measures[op.places[i]];
    total += measure.square;
    nonfinite += measure.nonfinite;
    const double norm = std::sqrt(measure.square) * op.unscale;
    op.squares[i] = norm * norm;
    op.factors[i] = op.unscale * (op.clip == Clip::group_norm ? clip_factor(norm, op.limit) : 1.0F);
  }
  op.summary->norm = std::sqrt(total) * op.unscale;
  op.summary->nonfinite = nonfinite;
  op.summary->skip = nonfinite;
  if (op.clip != Clip::global_norm) return;
  const float factor = clip_factor(op.summary->norm, op.limit);
  for (std::size_t i = 0; i < op.places.size(); ++i) op.factors[i] *= factor;
}

void CpuOperations::run(const AdamW& op) {
  if (op.summary->skip != 0) return;
  const Update update{coefficients_of(op), *op.gradient_factor};
  const Size tile_floats = update_tile_floats(op.weight);
  update_weight(workspace_, op, adamw_tiles, [&](const WeightTile& tile) {
    const Size first = tile.first;
    float* m = load_moment(op.moment1, first, tile.rows, tile.spare);
    float* v_root = load_moment(op.moment2_root, first, tile.rows, tile.spare + tile_floats);
    raise_from_zero(op.moment2_root, first, tile.rows, v_root);
    update_row(update, op.gradient.f32() + first * op.weight.cols, tile.rows * op.weight.cols, tile.weight, m, v_root);
    store_moment(op.moment1, first, tile.rows, m, moment_stream(op.random, 1));
    store_moment(op.moment2_root, first, tile.rows, v_root, moment_stream(op.random, 2));
    return m;
  });
  if (op.quantized != nullptr) run(Quantize{op.weight, *op.quantized, *op.casting});
}

}  // namespace quaver
