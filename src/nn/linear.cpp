#include "nn/linear.h"

namespace quaver {

namespace {

Parameter& own_weight(Parameters& parameters, const LinearShape& shape) {
  return parameters.add({.name = shape.name + ".weight",
                         .kind = ParameterKind::matrix,
                         .rows = shape.out,
                         .cols = shape.in,
                         .init_std = shape.init_std,
                         .learning_rate_factor = shape.learning_rate_factor});
}

}  // namespace

Linear::Linear(Registry& registry, const LinearShape& shape)
    : shape_(shape),
      sites_(registry.add({shape.name, shape.in, shape.out, shape.block, shape.high_precision})),
      weight_(shape.tied != nullptr ? *shape.tied : own_weight(registry.parameters(), shape)) {
  weight_.site = &sites_.w;
  if (shape.bias) {
    bias_ = &registry.parameters().add(
        {.name = shape.name + ".bias", .kind = ParameterKind::vector, .rows = 1, .cols = shape.out});
  }
}

OpFactors Linear::factors(Size tokens) const {
  return shape_.unit_scaled ? unit_linear(shape_.in, shape_.out, tokens) : OpFactors{};
}

QuantizedTensor& Linear::input(Step& step, Producer producer) {
  again_ = producer == Producer::can_requantize && step.requantizes(sites_.x);
  if (recomputes(step)) {
    return x_ = step.saved(sites_.x, shape_.in, again_ ? Copies::rows_only : Copies::both);
  }
  return x_ = again_ ? step.scratch(sites_.x, shape_.in, Copies::rows_only) : step.operand(sites_.x, shape_.in);
}

bool Linear::recomputes(const Step& step) const {
  return shape_.can_recompute && step.memory == Memory::small && step.pass != Pass::evaluate;
}

QuantizedTensor& Linear::input_from(Step& step, View wide, float factor) {
  again_ = false;
  if (!shape_.unit_scaled && factor == 1.0F && step.is_own_codes(sites_.x, wide)) {
    if (!step.takes_as_is(sites_.x, wide)) step.look_at(sites_.x, wide);
    return x_ = QuantizedTensor(sites_.x, wide, step.one);
  }
  step.engine.quantize(wide, input(step, Producer::can_requantize), step.casting, factor);
  return x_;
}

QuantizedTensor& Linear::output_gradient_from(Step& step, View wide, float factor) {
  if (!shape_.unit_scaled && factor == 1.0F && step.takes_as_is(sites_.dy, wide)) {
    if (bias_ != nullptr) step.engine.sum_columns(wide, bias_->gradient);
    return dy_ = QuantizedTensor(sites_.dy, wide, step.one);
  }
  step.engine.quantize(wide, output_gradient(step), step.casting, factor);
  return dy_;
}

QuantizedTensor* Linear::requantized_input(Step& step) {
  if (!again_) return nullptr;
  x_ = step.scratch(sites_.x, shape_.in, Copies::columns_only);
  return &x_;
}

QuantizedTensor& Linear::output_gradient(Step& step) {
  return output_gradient(step.scratch(sites_.dy, shape_.out, Copies::both));
}

QuantizedTensor& Linear::output_gradient(QuantizedTensor dy) {
  dy_ = dy;
  if (bias_ != nullptr) dy_.column_sums = bias_->gradient;
  return dy_;
}

void Linear::forward(Step& step, View y) {
  step.engine.matmul({.a = x_.rows(),
                      .b = weight_.quantized.rows(),
                      .out = y,
                      .bias = bias_ != nullptr ? bias_->weight : View{},
                      .alpha = factors(step.tokens()).output,
                      .accumulator = step.accumulators.forward});
}

void Linear::input_gradient(Step& step, View dx) {
  step.engine.matmul({.a = dy_.rows(),
                      .b = weight_.quantized.columns(),
                      .out = dx,
                      .alpha = factors(step.tokens()).input_gradient,
                      .accumulator = step.accumulators.input_gradient});
}

void Linear::weight_gradient(Step& step) {
  step.engine.matmul({.a = dy_.columns(),
                      .b = x_.columns(),
                      .out = weight_.gradient,
                      .alpha = factors(step.tokens()).weight_gradient,
                      .accumulate = true,
                      .accumulator = step.accumulators.weight_gradient});
}

double Linear::propagate_ratio(double ratio_at_output, Size tokens) {
  const OpFactors factor = factors(tokens);
  weight_.gradient_ratio = static_cast<float>(ratio_at_output * factor.weight_gradient / factor.output);
  if (bias_ != nullptr) bias_->gradient_ratio = static_cast<float>(ratio_at_output);
  return ratio_at_output * factor.input_gradient / factor.output;
}

}  // namespace quaver
