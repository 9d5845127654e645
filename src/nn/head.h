// The output head: a linear layer behind which comes the cross-entropy loss. Logits and their gradient are made in
// chunks of rows inside the loss and never exist whole.
#pragma once

#include "nn/linear.h"

namespace quaver {

struct HeadShape {
  std::string name = "head";
  Size in = 0;
  Size classes = 0;  // a language model's vocabulary
  float init_std = 0.02F;
  bool unit_scaled = false;
  Parameter* tied = nullptr;  // whose weight it shares; null: it has its own
};

class Head {
 public:
  Head(Registry& registry, const HeadShape& shape);

  QuantizedTensor& input(Step& step);  // where the producer puts x

  // Adds the summed loss to *loss_sum; unless the pass evaluates, also the gradients, scaled by *gradient_scale: the
  // weight's are added up, x's are written to dx. Targets and both pointers lie in engine memory.
  void loss(Step& step, std::span<const std::int32_t> targets, const float* gradient_scale, double* loss_sum, View dx);

  // Logits of the last rows alone, as many as there is room for: [rows × classes].
  void last_logits(Step& step, View logits);

  // Notes stored over true gradient for the weight; returns it at x.
  double propagate_ratio(Size tokens);

 private:
  OpFactors factors(Size tokens) const;
  double loss_gradient_ratio(Size tokens) const;  // stored over true gradient of the logits

  HeadShape shape_;
  Linear layer_;
  PassOperand x_;
};

}  // namespace quaver
