// The functions themselves, on one element.
#pragma once

namespace quaver::cuda {

enum class Function : int { identity, gelu, relu, swiglu };

__device__ inline float sigmoid(float x) { return __fdividef(1.0F, 1.0F + __expf(-x)); }

constexpr float root_2_over_pi_twice = 1.5957691216F;  // 2·√(2/π)
constexpr float gelu_cubic = 0.044715F;

__device__ inline float gelu_sigmoid(float x) {
  return sigmoid(root_2_over_pi_twice * __fmaf_rn(gelu_cubic * x * x, x, x));
}

// Forward and backward call the same function, so that what backward casts once more is what forward cast.
template <Function F>
__device__ inline float activate(float x, float up, float factor, float limit) {
  float y = x;
  if constexpr (F == Function::gelu) y = __fmul_rn(x, gelu_sigmoid(x));
  if constexpr (F == Function::relu) y = x > 0 ? x : 0.0F * x;
  if constexpr (F == Function::swiglu) y = __fmul_rn(__fmul_rn(x, sigmoid(x)), up);
  y = __fmul_rn(factor, y);
  return limit > 0 ? fminf(fmaxf(y, -limit), limit) : y;
}

struct Slopes {
  float x;
  float up;  // swiglu only
};

// dy times the derivative of factor · f, zero where forward · f was clipped.
template <Function F>
__device__ inline Slopes activate_backward(float x, float up, float dy, float forward, float factor, float limit) {
  if constexpr (F == Function::relu) {
    const bool inside = limit <= 0 || fabsf(forward * x) <= limit;
    return {x > 0 && inside ? factor * dy : 0.0F, 0};
  } else if constexpr (F == Function::gelu) {
    const float s = gelu_sigmoid(x);
    const float slope = s + x * s * (1 - s) * root_2_over_pi_twice * (1 + 3 * gelu_cubic * x * x);
    const bool inside = limit <= 0 || fabsf(forward * x * s) <= limit;
    return {inside ? factor * slope * dy : 0.0F, 0};
  } else {
    const float s = sigmoid(x);
    const float silu = x * s;
    const bool inside = limit <= 0 || fabsf(forward * silu * up) <= limit;
    const float g = inside ? factor * dy : 0.0F;
    return {g * up * (s + silu * (1 - s)), g * silu};
  }
}

}  // namespace quaver::cuda
