#include "precision/unit_scaling.h"

#include <algorithm>
#include <cmath>

namespace quaver {

namespace {

float inverse_root(Size n) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(n))); }

// u^α · l^(1−α): between l and u on a logarithmic scale.
double log_interpolate(double alpha, double lower, double upper) {
  return std::exp(alpha * std::log(upper) + (1 - alpha) * std::log(lower));
}

}  // namespace

OpFactors unit_linear(Size fan_in, Size fan_out, Size tokens) {
  return {inverse_root(fan_in), inverse_root(fan_out), inverse_root(tokens)};
}

OpFactors unit_head(Size fan_in, Size vocab, Size tokens) {
  return {1.0F / static_cast<float>(fan_in), inverse_root(vocab), inverse_root(tokens)};
}

OpFactors unit_gelu() { return {1.767F, 1.516F, 1}; }

// 1 / √(1/2 − 1/(2π)) and √2, of a standard normal input.
OpFactors unit_relu() { return {1.713F, 1.414F, 1}; }

OpFactors unit_swiglu() { return {1.682F, 1.682F, 1}; }

float unit_loss_gradient(Size vocab) {
  const auto v = static_cast<double>(vocab);
  return static_cast<float>(v / std::sqrt(std::max(1.0, v - 1)));
}

float unit_embedding_gradient(Size vocab, Size tokens) {
  return static_cast<float>(std::sqrt(static_cast<double>(vocab) / static_cast<double>(tokens)));
}

float unit_norm_gradient(Size tokens) { return inverse_root(tokens); }

ResidualFactors umup_residual(Size branch, Size layers, double residual_alpha, double attention_ratio) {
  const double mlp = residual_alpha * std::sqrt(2 / (1 + attention_ratio * attention_ratio));
  const double attention = attention_ratio * mlp;
  const double own = branch % 2 == 0 ? attention : mlp;
  const Size attention_branches = (branch + 1) / 2;  // before this one
  const Size mlp_branches = branch / 2;
  const auto attention_before = static_cast<double>(attention_branches);
  const auto mlp_before = static_cast<double>(mlp_branches);
  const double tau =
      own / std::sqrt(static_cast<double>(layers) + attention_before * attention * attention + mlp_before * mlp * mlp);
  const double norm = std::sqrt(1 + tau * tau);
  return {static_cast<float>(1 / norm), static_cast<float>(tau / norm)};
}

ResidualFactors munit_residual(Size layers, double tau) {
  if (tau <= 0) {
    const double depth = std::clamp(static_cast<double>(layers), 4.0, 40.0);
    tau = log_interpolate((std::log(depth) - std::log(4.0)) / (std::log(40.0) - std::log(4.0)), 0.4, 0.1);
  }
  return {static_cast<float>(std::sqrt(1 - tau)), static_cast<float>(std::sqrt(tau))};
}

}  // namespace quaver
