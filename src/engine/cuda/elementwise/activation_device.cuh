// The functions themselves, on eight elements. What backward requantizes must be what forward cast, to the bit.
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

// y ← clip(factor · y, ±limit)
__device__ inline void scale_and_clip(float (&y)[8], float factor, float limit) {
  if (factor != 1.0F) {
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = __fmul_rn(factor, y[i]);
  }
  if (limit <= 0) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] = fminf(fmaxf(y[i], -limit), limit);
}

__device__ inline float relu(float x) { return x > 0 ? x : __fmul_rn(0.0F, x); }

// x ← clip(factor · f(x), ±limit); `up` is swiglu's other half.
template <Function F>
__device__ void activate(float (&x)[8], const float (&up)[8], float factor, float limit) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if constexpr (F == Function::gelu) x[i] = __fmul_rn(x[i], gelu_sigmoid(x[i]));
    if constexpr (F == Function::relu) x[i] = relu(x[i]);
    if constexpr (F == Function::swiglu) x[i] = __fmul_rn(__fmul_rn(x[i], sigmoid(x[i])), up[i]);
  }
  scale_and_clip(x, factor, limit);
}

// The forward pass's factor, that of the gradient, and the limit that the forward pass clipped to; 0: none.
struct BackwardFactors {
  float forward;
  float factor;
  float limit;
};

// dy ← factor · f′(x) · dy, zero where forward · f(x) was clipped; swiglu's other half goes into dup. x ← f(x), the
// bits of activate() before its factor: the exponentials are what takes time.
template <Function F>
__device__ void activate_backward(float (&x)[8], const float (&up)[8], BackwardFactors factors, float (&dy)[8],
                                  float (&dup)[8]) {
  const auto [forward, factor, limit] = factors;
  float slope[8];  // f′(x); swiglu: of the gate, without up
  float gate[8];   // swiglu: silu(x)
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if constexpr (F == Function::relu) {
      slope[i] = x[i] > 0 ? 1.0F : 0.0F;
      x[i] = relu(x[i]);
    } else if constexpr (F == Function::gelu) {
      const float s = gelu_sigmoid(x[i]);
      const float inner = __fmaf_rn(3 * gelu_cubic, x[i] * x[i], gelu_linear);
      x[i] = __fmul_rn(x[i], s);
      slope[i] = __fmaf_rn(__fmaf_rn(-x[i], s, x[i]), inner, s);
    } else {
      const float s = sigmoid(x[i]);
      gate[i] = __fmul_rn(x[i], s);
      slope[i] = __fmaf_rn(-gate[i], s, s + gate[i]);
      x[i] = __fmul_rn(gate[i], up[i]);
    }
  }
  if (limit > 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) dy[i] = fabsf(__fmul_rn(forward, x[i])) <= limit ? dy[i] : 0.0F;
  }
  if (factor != 1.0F) {
#pragma unroll
    for (int i = 0; i < 8; ++i) dy[i] = factor * dy[i];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if constexpr (F == Function::swiglu) {
      dup[i] = dy[i] * gate[i];
      dy[i] = dy[i] * up[i] * slope[i];
    } else if constexpr (F == Function::relu) {
      dy[i] = slope[i] != 0 ? dy[i] : 0.0F;
    } else {
      dy[i] = dy[i] * slope[i];
    }
  }
}

}  // namespace quaver::cuda
