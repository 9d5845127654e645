#include "nn/branch.h"

namespace quaver {

namespace {

Size up_width(const MlpShape& shape) {
  return shape.activation == ActivationKind::swiglu ? 2 * shape.hidden : shape.hidden;
}

std::vector<Size> up_projections(const MlpShape& shape) {  // gate and up
  return std::vector<Size>(shape.activation == ActivationKind::swiglu ? 2 : 1, shape.hidden);
}

}  // namespace

MlpBranch::MlpBranch(Registry& registry, const MlpShape& shape)
    : shape_(shape),
      up_(registry, {.name = shape.name + ".up",
                     .in = shape.width,
                     .out = up_width(shape),
                     .block = shape.block,
                     .bias = shape.bias,
                     .init_std = shape.init_std,
                     .learning_rate_factor = shape.up_learning_rate,
                     .unit_scaled = shape.unit_scaled,
                     .can_recompute = true,
                     .projections = up_projections(shape)}),
      down_(registry, {.name = shape.name + ".down",
                       .in = shape.hidden,
                       .out = shape.width,
                       .block = shape.block,
                       .bias = shape.bias,
                       .init_std = shape.out_init_std,
                       .learning_rate_factor = shape.down_learning_rate,
                       .unit_scaled = shape.unit_scaled}) {}

OpFactors MlpBranch::factors() const {
  if (!shape_.unit_scaled) return {shape_.activation_scale, shape_.activation_scale, 1};
  switch (shape_.activation) {
    case ActivationKind::swiglu:
      return unit_swiglu();
    case ActivationKind::relu:
      return unit_relu();
    case ActivationKind::gelu:
      break;
  }
  return unit_gelu();
}

void MlpBranch::forward(Step& step, View out) {
  const bool kept = step.pass != Pass::evaluate && !up_.recomputes(step);
  hidden_ = kept ? step.saved(up_width(shape_)) : step.scratch(up_width(shape_));
  up_.forward(step, hidden_);
  step.engine.run(Activation{.kind = shape_.activation,
                             .x = hidden_,
                             .factor = factors().output,
                             .limit = shape_.activation_clip,
                             .out = down_.input(step, Linear::Producer::can_requantize),
                             .casting = step.casting});
  down_.forward(step, out);
}

void MlpBranch::backward(Step& step, View dx) {
  if (up_.recomputes(step)) {
    hidden_ = step.scratch(up_width(shape_));
    up_.forward(step, hidden_);
  }
  const View hidden_gradient = step.scratch(shape_.hidden);
  down_.dgrad(step, hidden_gradient);
  step.engine.run(ActivationBackward{.kind = shape_.activation,
                                     .x = hidden_,
                                     .out_gradient = hidden_gradient,
                                     .forward_factor = factors().output,
                                     .factor = factors().input_gradient,
                                     .limit = shape_.activation_clip,
                                     .in_gradient = up_.output_gradient(step),
                                     .out = down_.requantized_input(step),
                                     .casting = step.casting});
  down_.wgrad(step);
  up_.dgrad(step, dx);
}

double MlpBranch::propagate_ratio(double ratio, Step& step) {
  ratio = down_.propagate_ratio(ratio, step.tokens());
  ratio *= factors().input_gradient / factors().output;
  return up_.propagate_ratio(ratio, step.tokens());
}

}  // namespace quaver
