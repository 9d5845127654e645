// The parameters of a layer or RMS norm, and what backward needs of its last pass.
#pragma once

#include "nn/registry.h"
#include "nn/step.h"
#include "precision/unit_scaling.h"

namespace quaver {

struct NormShape {
  std::string name;
  Size width = 0;
  NormKind kind = NormKind::layer;
  float eps = 1e-5F;
  float learning_rate_factor = 1;
  bool unit_scaled = false;
};

class Norm {
 public:
  Norm(Registry& registry, const NormShape& shape);

  NormParameters parameters() const;
  NormGradients gradients(Size tokens) const;

  // Statistics of each row, saved for backward: allocated in every forward pass.
  View stats(Step& step) { return stats_ = step.arena.saved(step.tokens(), 2, Format::f32); }
  View stats() const { return stats_; }

  void propagate_ratio(double ratio_at_output, Size tokens);

 private:
  float gradient_factor(Size tokens) const { return shape_.unit_scaled ? unit_norm_gradient(tokens) : 1.0F; }

  NormShape shape_;
  Parameter& gain_;
  Parameter* shift_ = nullptr;
  View stats_;
};

}  // namespace quaver
