// Muon: momentum, and its orthogonalization by Newton–Schulz.
#include <bit>
#include <cmath>
#include <limits>

#include "engine/cpu/gemm.h"
#include "engine/cpu/weight_update.h"
#include "formats/simd.h"

namespace quaver {

namespace {

struct MomentumRule {
  float gradient_factor;
  float limit;  // of a gradient's magnitude; infinity: none
  float beta;
};

QUAVER_SIMD void add_to_momentum(const MomentumRule& rule, const float* gradient, Size n, float* m, float* update) {
#pragma omp simd
  for (Size i = 0; i < n; ++i) {
    float g = gradient[i] * rule.gradient_factor;
    g = g > rule.limit ? rule.limit : g;
    g = g < -rule.limit ? -rule.limit : g;
    m[i] = rule.beta * m[i] + (1 - rule.beta) * g;
    update[i] = (1 - rule.beta) * g + rule.beta * m[i];
  }
}

QUAVER_SIMD void move_weights(const Muon& op, const float* update, Size n, float* weight) {
  const float decay = op.decay;
  const float learning_rate = op.learning_rate;
#pragma omp simd
  for (Size i = 0; i < n; ++i) weight[i] -= decay * weight[i] + learning_rate * update[i];
}

// a · x + b · y
struct Blend {
  float a;
  const float* x;
  float b;
  const float* y;
};

enum class BlendAs : std::uint8_t { f32, bf16 };  // bf16: rounded to it, and kept in FP32, as GEMMs read it here

QUAVER_SIMD void blend_part(const Blend& of, BlendAs as, Size count, float* out) {
  const std::uint32_t half = as == BlendAs::bf16 ? 0x7FFFU : 0U;
  const std::uint32_t odd = as == BlendAs::bf16 ? 1U : 0U;
  const std::uint32_t kept = as == BlendAs::bf16 ? 0xFFFF0000U : 0xFFFFFFFFU;
  const float a = of.a;
  const float b = of.b;
  const float* x = of.x;
  const float* y = of.y;
#pragma omp simd
  for (Size i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(a * x[i] + b * y[i]);
    out[i] = std::bit_cast<float>((bits + half + (bits >> 16U & odd)) & kept);
  }
}

// out may be x or y.
void blend(const Blend& of, BlendAs as, Size count, float* out) {
  constexpr Size part = 1 << 14;
#pragma omp parallel for schedule(static) if (count > worth_waking)
  for (Size first = 0; first < count; first += part) {
    blend_part({of.a, of.x + first, of.b, of.y + first}, as, std::min(part, count - first), out + first);
  }
}

}  // namespace

// In a tall matrix the smaller Gram matrix is Xᵀ·X, and stands on the right: the same as the transpose of a wide one.
void CpuOperations::run(const Orthogonalize& op) {
  const View& x = op.x;
  const Size n = op.gram_size();
  const bool tall = x.rows > x.cols;
  GradientMeasure measure;
  const float ratio = 1;
  run(MeasureGradients{{&x, 1}, {&ratio, 1}, &measure});
  const double norm = std::sqrt(measure.square);
  const float largest = std::numeric_limits<float>::max();
  const float shrink = norm > 0 ? static_cast<float>(std::min<double>(1 / norm, largest)) : 0.0F;

  float* now = workspace_.floats(Workspace::Slot::operand_a, x.count());
  float* gram = workspace_.floats(Workspace::Slot::operand_b, gram_floats(op));
  float* polynomial = gram + n * n;
  float one = 1;
  const auto operand = [&one](float* values, Size rows, Size cols, bool transposed) {
    return Operand{{.rows = rows, .cols = cols, .codes = reinterpret_cast<std::byte*>(values), .tensor_scale = &one},
                   transposed};
  };
  const auto multiply = [this](const Operand& a, const Operand& b, float* out) {
    cpu_gemm(workspace_, Gemm{.a = a, .b = b, .out = {out, Format::f32, a.extent(), b.extent()}});
  };
  const Operand from_right = operand(polynomial, n, n, true);
  blend({shrink, x.f32(), 0, x.f32()}, BlendAs::bf16, x.count(), now);
  for (Size step = 0; step < op.steps; ++step) {  // products are stored in x, which is not needed any more
    const Operand across = operand(now, x.rows, x.cols, tall);
    multiply(across, across, gram);
    blend({1, gram, 0, gram}, BlendAs::bf16, n * n, gram);
    multiply(operand(gram, n, n, false), operand(gram, n, n, true), x.f32());
    blend({Orthogonalize::b, gram, Orthogonalize::c, x.f32()}, BlendAs::bf16, n * n, polynomial);
    const Operand values = operand(now, x.rows, x.cols, !tall);
    if (tall) {
      multiply(values, from_right, x.f32());
    } else {
      multiply(operand(polynomial, n, n, false), values, x.f32());
    }
    if (step + 1 < op.steps) blend({Orthogonalize::a, now, 1, x.f32()}, BlendAs::bf16, x.count(), now);
  }
  blend({op.factor * Orthogonalize::a, now, op.factor, x.f32()}, BlendAs::f32, x.count(), x.f32());
}

void CpuOperations::run(const Muon& op) {
  if (op.summary->skip != 0) return;
  const Size cols = op.weight.cols;
  const MomentumRule rule{.gradient_factor = *op.gradient_factor,
                          .limit = op.value_limit > 0 ? op.value_limit : std::numeric_limits<float>::infinity(),
                          .beta = op.beta};
  float* update = workspace_.floats(Workspace::Slot::staging, op.weight.count());
  const Size tile_floats = update_tile_floats(op.weight);
  float* memory = workspace_.floats(Workspace::Slot::tiles, muon_tiles * tile_floats * omp_get_max_threads());
#pragma omp parallel for schedule(static)
  for (Size first = 0; first < op.weight.rows; first += tile_rows) {
    const Size rows = std::min(tile_rows, op.weight.rows - first);
    float* m = load_moment(op.momentum, first, rows, memory + muon_tiles * tile_floats * omp_get_thread_num());
    add_to_momentum(rule, op.gradient.f32() + first * cols, rows * cols, m, update + first * cols);
    store_moment(op.momentum, first, rows, m, moment_stream(op.random, 1));
  }
  for_each_projection(op, {update, Format::f32, op.weight.rows, cols},
                      [this](const Orthogonalize& part) { run(part); });
  update_weight(workspace_, op, muon_tiles, [&](const WeightTile& tile) {
    const float* moved = update + tile.first * cols;
    move_weights(op, moved, tile.rows * cols, tile.weight);
    return moved;
  });
  if (op.quantized != nullptr) run(Quantize{op.weight, *op.quantized, *op.casting});
}

}  // namespace quaver
