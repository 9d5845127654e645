// Activation functions and their derivatives, cast into the site of the GEMM that reads them.
#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/site_writer.h"
#include "engine/cpu/vector_math.h"
#include "formats/simd.h"

namespace quaver {

namespace {

constexpr float root_2_over_pi_twice = 1.5957691216F;  // 2·√(2/π)
constexpr float gelu_cubic = 0.044715F;

// GPT-2's tanh form: x·σ(2u) with u = √(2/π)·(x + 0.044715·x³)
[[gnu::always_inline]] inline float gelu(float x) {
  return x * vector_sigmoid(root_2_over_pi_twice * (x + gelu_cubic * x * x * x));
}

[[gnu::always_inline]] inline float gelu_slope(float x) {
  const float s = vector_sigmoid(root_2_over_pi_twice * (x + gelu_cubic * x * x * x));
  return s + x * s * (1 - s) * root_2_over_pi_twice * (1 + 3 * gelu_cubic * x * x);
}

// Of the backward pass: the forward pass's factor, its own, and the limit that the forward pass clipped to.
struct BackwardFactors {
  float forward;
  float backward;
  float limit;
};

// 1 where |y| stays within the limit, else 0: what the clipped function's derivative is multiplied by.
[[gnu::always_inline]] inline float inside(float y, float limit) {
  const float magnitude = y < 0 ? -y : y;
  return magnitude <= limit ? 1.0F : 0.0F;
}

QUAVER_SIMD void gelu_row(const float* x, Size n, float factor, float* out) {
  for (Size i = 0; i < n; ++i) out[i] = factor * gelu(x[i]);
}

QUAVER_SIMD void gelu_row_backward(const float* x, const float* dy, Size n, BackwardFactors f, float* out) {
  for (Size i = 0; i < n; ++i) out[i] = f.backward * gelu_slope(x[i]) * dy[i] * inside(f.forward * gelu(x[i]), f.limit);
}

QUAVER_SIMD void gelu_row_backward_unclipped(const float* x, const float* dy, Size n, float factor, float* out) {
  for (Size i = 0; i < n; ++i) out[i] = factor * gelu_slope(x[i]) * dy[i];
}

QUAVER_SIMD void relu_row(const float* x, Size n, float factor, float* out) {
  for (Size i = 0; i < n; ++i) out[i] = x[i] > 0 ? factor * x[i] : 0.0F * x[i];
}

QUAVER_SIMD void relu_row_backward(const float* x, const float* dy, Size n, BackwardFactors f, float* out) {
  for (Size i = 0; i < n; ++i) out[i] = (x[i] > 0 ? f.backward * dy[i] : 0.0F) * inside(f.forward * x[i], f.limit);
}

QUAVER_SIMD void swiglu_row(const float* x, Size n, float factor, float* out) {
  const float* gate = x;
  const float* up = x + n;
  for (Size i = 0; i < n; ++i) out[i] = factor * gate[i] * vector_sigmoid(gate[i]) * up[i];
}

QUAVER_SIMD void swiglu_row_backward(const float* x, const float* dy, Size n, BackwardFactors f, float* out) {
  const float* gate = x;
  const float* up = x + n;
  for (Size i = 0; i < n; ++i) {
    const float s = vector_sigmoid(gate[i]);
    const float silu = gate[i] * s;
    const float g = f.backward * dy[i] * inside(f.forward * silu * up[i], f.limit);
    out[i] = g * up[i] * (s + silu * (1 - s));
    out[n + i] = g * silu;
  }
}

QUAVER_SIMD void clip_row(float* x, Size n, float limit) {
  for (Size i = 0; i < n; ++i) {
    x[i] = x[i] > limit ? limit : x[i];
    x[i] = x[i] < -limit ? -limit : x[i];
  }
}

constexpr float unlimited = std::numeric_limits<float>::infinity();

}  // namespace

void CpuOperations::run(const Activation& op) {
  const Size n = op.out.cols_count();
  SiteWriter(workspace_, op.out, op.casting).write([&](Size first, Size rows, float* tile, int) {
    for (Size r = 0; r < rows; ++r) {
      const float* x = op.x.f32() + (first + r) * op.x.cols;
      float* out = tile + r * n;
      switch (op.kind) {
        case ActivationKind::gelu:
          gelu_row(x, n, op.factor, out);
          break;
        case ActivationKind::relu:
          relu_row(x, n, op.factor, out);
          break;
        case ActivationKind::swiglu:
          swiglu_row(x, n, op.factor, out);
          break;
      }
      if (op.limit > 0) clip_row(out, n, op.limit);
    }
  });
}

void CpuOperations::run(const ActivationBackward& op) {
  const Size n = op.out_gradient.cols;
  const Size width = op.x.cols;
  const BackwardFactors factors{op.forward_factor, op.factor, op.limit > 0 ? op.limit : unlimited};
  SiteWriter(workspace_, op.in_gradient, op.casting).write([&](Size first, Size rows, float* tile, int) {
    for (Size r = 0; r < rows; ++r) {
      const float* x = op.x.f32() + (first + r) * width;
      const float* dy = op.out_gradient.f32() + (first + r) * n;
      float* out = tile + r * width;
      switch (op.kind) {
        case ActivationKind::gelu:
          if (op.limit > 0) {
            gelu_row_backward(x, dy, n, factors, out);
          } else {
            gelu_row_backward_unclipped(x, dy, n, op.factor, out);
          }
          break;
        case ActivationKind::relu:
          relu_row_backward(x, dy, n, factors, out);
          break;
        case ActivationKind::swiglu:
          swiglu_row_backward(x, dy, n, factors, out);
          break;
      }
    }
  });
  if (op.out == nullptr) return;
  const Casting unobserved = op.casting.unobserved();
  run(op.recompute(unobserved));
}

}  // namespace quaver
