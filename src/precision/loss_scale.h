// Adaptive loss scale: a power of two that keeps small gradients representable. Overflow halves it and skips the step;
// a window of steps without overflow doubles it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "precision/precision_config.h"

namespace quaver {

class LossScale {
 public:
  static constexpr int largest_log2 = 32;

  LossScale() = default;
  LossScale(LossScaling mode, int log2, int window) : mode_(mode), log2_(clamp(log2)), window_(window) {}

  float value() const { return mode_ == LossScaling::off ? 1.0F : std::ldexp(1.0F, log2_); }
  LossScaling mode() const { return mode_; }
  int log2() const { return log2_; }
  int clean_steps() const { return clean_; }

  void after_step(bool finite) {
    if (mode_ != LossScaling::adaptive) return;
    if (!finite) {
      log2_ = clamp(log2_ - 1);
      clean_ = 0;
    } else if (++clean_ >= window_) {
      log2_ = clamp(log2_ + 1);
      clean_ = 0;
    }
  }

  void restore(int log2, int clean_steps) {
    log2_ = clamp(log2);
    clean_ = clean_steps;
  }

 private:
  static int clamp(int log2) { return std::clamp(log2, 0, largest_log2); }

  LossScaling mode_ = LossScaling::off;
  int log2_ = 0;
  int window_ = 200;
  int clean_ = 0;
};

}  // namespace quaver
