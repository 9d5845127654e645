#include "nn/norm.h"

namespace quaver {

Norm::Norm(Registry& registry, const NormShape& shape)
    : shape_(shape),
      gain_(registry.parameters().add({.name = shape.name + ".weight",
                                       .kind = ParameterKind::vector,
                                       .rows = 1,
                                       .cols = shape.width,
                                       .init_mean = 1,
                                       .learning_rate_factor = shape.learning_rate_factor})) {
  if (shape.kind == NormKind::layer) {
    shift_ = &registry.parameters().add({.name = shape.name + ".bias",
                                         .kind = ParameterKind::vector,
                                         .rows = 1,
                                         .cols = shape.width,
                                         .learning_rate_factor = shape.learning_rate_factor});
  }
}

NormParameters Norm::parameters() const {
  return {shape_.kind, gain_.weight, shift_ != nullptr ? shift_->weight : View{}, shape_.eps};
}

NormGradients Norm::gradients(Size tokens) const {
  return {gain_.gradient, shift_ != nullptr ? shift_->gradient : View{}, gradient_factor(tokens)};
}

void Norm::propagate_ratio(double ratio_at_output, Size tokens) {
  gain_.gradient_ratio = static_cast<float>(ratio_at_output * gradient_factor(tokens));
  if (shift_ != nullptr) shift_->gradient_ratio = gain_.gradient_ratio;
}

}  // namespace quaver
