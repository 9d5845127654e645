// The numbers of an AdamW step in the form in which every engine's inner loop uses them.
#pragma once

#include <cmath>
#include <limits>

#include "engine/operations.h"

namespace quaver {

struct AdamWCoefficients {
  float limit;  // of a gradient's magnitude; infinity: none
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float decay;
  float correction1;       // 1 / (1 − β₁ᵗ)
  float root_correction2;  // 1 / √(1 − β₂ᵗ)
};

inline AdamWCoefficients coefficients_of(const AdamW& op) {
  return {.limit = op.value_limit > 0 ? op.value_limit : std::numeric_limits<float>::infinity(),
          .learning_rate = op.learning_rate,
          .beta1 = op.beta1,
          .beta2 = op.beta2,
          .epsilon = op.epsilon,
          .decay = op.decay,
          .correction1 = 1.0F / op.bias_correction1,
          .root_correction2 = 1.0F / std::sqrt(op.bias_correction2)};
}

}  // namespace quaver
