// The functions themselves, on eight elements. Forward and backward call the same activate(), so that what backward
// casts once more is what forward cast.
#pragma once

namespace quaver::cuda {

enum class Function : int { identity, gelu, relu, swiglu };

// 1 / (1 + 2^x), flushing what is too small to matter.
__device__ inline float one_over_one_plus_exp2(float x) {
  float power;
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(__fadd_rn(1.0F, power)));
  return result;
}

constexpr float minus_log2_e = -1.44269504F;

__device__ inline float sigmoid(float x) { return one_over_one_plus_exp2(__fmul_rn(minus_log2_e, x)); }

// GPT-2's tanh form: x·σ(2u) with u = √(2/π)·(x + 0.044715·x³)
constexpr float gelu_linear = 1.5957691216F;  // 2·√(2/π)
constexpr float gelu_cubic = gelu_linear * 0.044715F;

__device__ inline float gelu_sigmoid(float x) {
  const float slope = __fmaf_rn(minus_log2_e * gelu_cubic, __fmul_rn(x, x), minus_log2_e * gelu_linear);
  return one_over_one_plus_exp2(__fmul_rn(slope, x));
}

// x ← clip(factor · f(x), ±limit); `up` is swiglu's other half.
template <Function F>
__device__ void activate(float (&x)[8], const float (&up)[8], float factor, float limit) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float y = x[i];
    if constexpr (F == Function::gelu) y = __fmul_rn(y, gelu_sigmoid(y));
    if constexpr (F == Function::relu) y = y > 0 ? y : 0.0F * y;
    if constexpr (F == Function::swiglu) y = __fmul_rn(__fmul_rn(y, sigmoid(y)), up[i]);
    x[i] = __fmul_rn(factor, y);
  }
  if (limit <= 0) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = fminf(fmaxf(x[i], -limit), limit);
}

// dy ← factor · f′(x) · dy, zero where forward · f(x) was clipped; swiglu's other half goes into dup.
template <Function F>
__device__ void activate_backward(const float (&x)[8], const float (&up)[8], float forward, float factor, float limit,
                                  float (&dy)[8], float (&dup)[8]) {
  if (limit > 0) {
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = x[i];
    activate<F>(y, up, forward, 0);
#pragma unroll
    for (int i = 0; i < 8; ++i) dy[i] = fabsf(y[i]) <= limit ? dy[i] : 0.0F;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float g = factor * dy[i];
    if constexpr (F == Function::relu) {
      dy[i] = x[i] > 0 ? g : 0.0F;
    } else if constexpr (F == Function::gelu) {
      const float s = gelu_sigmoid(x[i]);
      const float y = x[i] * s;
      const float inner = __fmaf_rn(3 * gelu_cubic, x[i] * x[i], gelu_linear);
      dy[i] = g * __fmaf_rn(__fmaf_rn(-y, s, y), inner, s);
    } else {
      const float s = sigmoid(x[i]);
      const float silu = x[i] * s;
      dy[i] = g * up[i] * __fmaf_rn(-silu, s, s + silu);
      dup[i] = g * silu;
    }
  }
}

}  // namespace quaver::cuda
