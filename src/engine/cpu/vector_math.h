// Elementary functions in a form that compilers vectorize: branch-free, no calls, errors of a few units in the last
// place.
#pragma once

#include <bit>
#include <cstdint>

namespace quaver {

// eˣ, clamped to FP32's normal range; NaN stays NaN.
[[gnu::always_inline]] inline float vector_exp(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.3F ? 88.3F : x;
  constexpr float to_integer = 12582912.0F;  // 1.5 · 2^23: adding it leaves round(x) in the low mantissa bits
  const float shifted = x * 1.44269504F + to_integer;
  const float n = shifted - to_integer;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(to_integer) + 127U)
                              << 23U;
  return p * std::bit_cast<float>(power);
}

[[gnu::always_inline]] inline float vector_sigmoid(float x) { return 1.0F / (1.0F + vector_exp(-x)); }

}  // namespace quaver
