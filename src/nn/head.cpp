#include "nn/head.h"

namespace quaver {

Head::Head(Registry& registry, const HeadShape& shape)
    : shape_(shape),
      layer_(registry, {.name = shape.name,
                        .in = shape.in,
                        .out = shape.classes,
                        .high_precision = true,
                        .init_std = shape.init_std,
                        .unit_scaled = shape.unit_scaled,
                        .tied = shape.tied}) {}

OpFactors Head::factors(Size tokens) const {
  return shape_.unit_scaled ? unit_head(shape_.in, shape_.classes, tokens) : OpFactors{};
}

double Head::loss_gradient_ratio(Size tokens) const {
  return shape_.unit_scaled ? unit_loss_gradient(shape_.classes) * static_cast<double>(tokens) : 1.0;
}

QuantizedTensor& Head::input(Step& step) {
  return x_.place(step.saved(layer_.sites().x, shape_.in), step.columns_cast());
}

void Head::loss(Step& step, std::span<const std::int32_t> targets, const float* gradient_scale, double* loss_sum,
                View dx) {
  const bool train = step.pass != Pass::evaluate;
  const OpFactors factor = factors(step.tokens());
  step.engine.run(CrossEntropy{.x = x_.tensor(),
                               .w = layer_.weight().quantized,
                               .logits_gradient = train ? &layer_.sites().dy : nullptr,
                               .targets = targets,
                               .logit_factor = factor.output,
                               .gradient_factor = static_cast<float>(loss_gradient_ratio(step.tokens())),
                               .gradient_scale = gradient_scale,
                               .input_factor = factor.input_gradient,
                               .weight_factor = factor.weight_gradient,
                               .z_loss = step.z_loss,
                               .loss_sum = loss_sum,
                               .row_losses = step.row_losses,
                               .correct = step.correct,
                               .x_gradient = dx,
                               .weight_gradient = train ? layer_.weight().gradient : View{},
                               .accumulators = step.accumulators,
                               .casting = step.casting});
  x_.release();
}

void Head::last_logits(Step& step, View logits) {
  step.engine.run(Gemm{.a = {slice_rows(x_.rows().matrix, step.tokens() - logits.rows, logits.rows), false},
                       .b = layer_.weight().quantized.rows(),
                       .out = logits,
                       .alpha = factors(step.tokens()).output,
                       .accumulator = step.accumulators.fprop,
                       .rows = step.decodes_one() ? GemmRows::apart : GemmRows::together});
}

double Head::propagate_ratio(Size tokens) {
  const OpFactors factor = factors(tokens);
  const double ratio = loss_gradient_ratio(tokens);
  if (shape_.tied == nullptr) {
    layer_.weight().gradient_ratio = static_cast<float>(ratio * factor.weight_gradient / factor.output);
  }
  return ratio * factor.input_gradient / factor.output;
}

}  // namespace quaver
