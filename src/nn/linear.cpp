#include "nn/linear.h"

namespace quaver {

Linear::Linear(Parameters& parameters, ScaleBook& book, const Plan& plan, const LinearShape& shape)
    : shape_(shape),
      x_site_(book.add(plan.at(shape.name + "/x"))),
      dy_site_(book.add(plan.at(shape.name + "/dy"))),
      weight_(parameters.add({.name = shape.name + ".weight",
                              .kind = ParameterKind::matrix,
                              .rows = shape.out,
                              .cols = shape.in,
                              .init_std = shape.init_std,
                              .learning_rate_factor = shape.learning_rate_factor})) {
  weight_.site = &book.add(plan.at(shape.name + "/w"));
  if (shape.bias) {
    bias_ =
        &parameters.add({.name = shape.name + ".bias", .kind = ParameterKind::vector, .rows = 1, .cols = shape.out});
  }
}

OpFactors Linear::factors(Size tokens) const {
  return shape_.unit_scaled ? unit_linear(shape_.in, shape_.out, tokens) : OpFactors{};
}

QuantizedTensor& Linear::input(Step& step) { return x_ = step.saved(x_site_, shape_.in); }

QuantizedTensor& Linear::output_gradient(Step& step) {
  dy_ = step.scratch(dy_site_, shape_.out);
  if (bias_ != nullptr) dy_.column_sums = bias_->gradient;
  return dy_;
}

void Linear::forward(Step& step, View y) {
  step.engine.matmul({.a = x_.rows(),
                      .b = weight_.quantized.rows(),
                      .out = y,
                      .bias = bias_ != nullptr ? bias_->weight : View{},
                      .alpha = factors(step.tokens()).output,
                      .accumulator = step.accumulator});
}

void Linear::backward(Step& step, View dx) {
  const OpFactors factor = factors(step.tokens());
  step.engine.matmul({.a = dy_.rows(),
                      .b = weight_.quantized.columns(),
                      .out = dx,
                      .alpha = factor.input_gradient,
                      .accumulator = step.accumulator});
  step.engine.matmul({.a = dy_.columns(),
                      .b = x_.columns(),
                      .out = weight_.gradient,
                      .alpha = factor.weight_gradient,
                      .accumulate = true,
                      .accumulator = step.accumulator});
}

double Linear::propagate_ratio(double ratio_at_output, Size tokens) {
  const OpFactors factor = factors(tokens);
  weight_.gradient_ratio = static_cast<float>(ratio_at_output * factor.weight_gradient / factor.output);
  if (bias_ != nullptr) bias_->gradient_ratio = static_cast<float>(ratio_at_output);
  return ratio_at_output * factor.input_gradient / factor.output;
}

}  // namespace quaver
