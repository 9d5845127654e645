#include "nn/linear.h"

namespace quaver {

namespace {

// What its weight holds, for optimizers that update matrices as such; those outside of blocks map from or to no hidden
// state.
std::vector<Size> projections_of(const LinearShape& shape) {
  if (shape.block < 0) return {};
  return shape.projections.empty() ? std::vector<Size>{shape.out} : shape.projections;
}

Parameter& own_weight(Parameters& parameters, const LinearShape& shape) {
  return parameters.add({.name = shape.name + ".weight",
                         .kind = ParameterKind::matrix,
                         .rows = shape.out,
                         .cols = shape.in,
                         .projections = projections_of(shape),
                         .init_std = shape.init_std,
                         .learning_rate_factor = shape.learning_rate_factor});
}

LayerShape layer_of(const Registry& registry, const LinearShape& shape) {
  const bool adapted = registry.adapts(shape.name, shape.block);
  return {shape.name,
          shape.in,
          shape.out,
          shape.block,
          shape.high_precision,
          adapted ? Adaptation::adapted : Adaptation::none,
          shape.pixels};
}

}  // namespace

Linear::Linear(Registry& registry, const LinearShape& shape)
    : shape_(shape),
      sites_(registry.add(layer_of(registry, shape))),
      weight_(shape.tied != nullptr ? *shape.tied : own_weight(registry.parameters(), shape)) {
  weight_.site = &sites_.w;
  weight_.code_section = registry.parameters().section();
  weight_.tied = shape.tied != nullptr;
  if (shape.bias) {
    bias_ = &registry.parameters().add(
        {.name = shape.name + ".bias", .kind = ParameterKind::vector, .rows = 1, .cols = shape.out});
  }
  const LayerShape layer = layer_of(registry, shape);
  if (layer.adaptation == Adaptation::adapted) adapter_ = std::make_unique<Adapter>(registry, layer);
}

QuantizedTensor& Linear::place_input(const QuantizedTensor& x, ColumnsCast columns) {
  if (adapter_ != nullptr) adapter_->begin_pass();
  return x_.place(x, columns);
}

OpFactors Linear::factors(Size tokens) const {
  return shape_.unit_scaled ? unit_linear(shape_.in, shape_.out, tokens) : OpFactors{};
}

QuantizedTensor& Linear::input(Step& step, Producer producer) {
  const bool requantized = producer == Producer::can_requantize && step.requantizes(sites_.x);
  const ColumnsCast columns = requantized ? ColumnsCast::requantized : step.columns_cast();
  const Copies copies = requantized ? Copies::rows_only : Copies::both;
  if (recomputes(step)) return place_input(step.saved(sites_.x, shape_.in, copies), columns);
  return place_input(requantized ? step.scratch(sites_.x, shape_.in, copies) : step.operand(sites_.x, shape_.in),
                     columns);
}

bool Linear::recomputes(const Step& step) const {
  return shape_.can_recompute && step.memory == Memory::small && step.pass != Pass::evaluate;
}

QuantizedTensor& Linear::input_from(Step& step, View matrix, float factor) {
  if (!shape_.unit_scaled && factor == 1.0F && step.is_own_codes(sites_.x, matrix)) {
    if (!step.can_skip_cast(sites_.x, matrix)) step.observe_uncast(sites_.x, matrix);
    return place_input(QuantizedTensor(sites_.x, matrix, step.one), step.columns_cast());
  }
  QuantizedTensor& x = input(step, Producer::can_requantize);
  step.engine.run(Quantize{matrix, x, step.casting, factor});
  return x;
}

QuantizedTensor& Linear::output_gradient_from(Step& step, View matrix, float factor) {
  if (!shape_.unit_scaled && factor == 1.0F && step.can_skip_cast(sites_.dy, matrix)) {
    if (bias_ != nullptr) step.engine.run(SumColumns{matrix, bias_->gradient});
    return dy_.place(QuantizedTensor(sites_.dy, matrix, step.one), ColumnsCast::with_rows);
  }
  QuantizedTensor& dy = output_gradient(step);
  step.engine.run(Quantize{matrix, dy, step.casting, factor});
  return dy;
}

QuantizedTensor* Linear::requantized_input(Step& step) {
  if (!x_.awaits_requantization()) return nullptr;
  return &x_.requantize(step.scratch(sites_.x, shape_.in, Copies::columns_only));
}

QuantizedTensor& Linear::output_gradient(Step& step) {
  return output_gradient(step.scratch(sites_.dy, shape_.out, Copies::both));
}

QuantizedTensor& Linear::output_gradient(const QuantizedTensor& dy) {
  QuantizedTensor& placed = dy_.place(dy, ColumnsCast::with_rows);
  if (bias_ != nullptr) placed.column_sums = bias_->gradient;
  return placed;
}

void Linear::forward(Step& step, View y) {
  step.engine.run(Gemm{.a = x_.rows(),
                       .b = weight_.quantized.rows(),
                       .out = y,
                       .bias = bias_ != nullptr ? bias_->weight : View{},
                       .alpha = factors(step.tokens()).output,
                       .accumulator = step.accumulators.fprop,
                       .rows = step.decodes_one() ? GemmRows::apart : GemmRows::together});
  if (adapter_ != nullptr) adapter_->forward(step, x_.rows(), y);
  if (!recomputes(step)) x_.drop_rows();
}

void Linear::dgrad(Step& step, View dx) {
  step.engine.run(Gemm{.pass = GemmPass::dgrad,
                       .a = dy_.rows(),
                       .b = weight_.quantized.columns(),
                       .out = dx,
                       .alpha = factors(step.tokens()).input_gradient,
                       .accumulator = step.accumulators.dgrad});
  if (adapter_ != nullptr) adapter_->dgrad(step, dy_.rows(), dx);
}

void Linear::wgrad(Step& step) {
  if (weight_.has_gradient()) {
    step.engine.run(Gemm{.pass = GemmPass::wgrad,
                         .a = dy_.columns(),
                         .b = x_.columns(),
                         .out = weight_.gradient,
                         .alpha = factors(step.tokens()).weight_gradient,
                         .accumulate = true,
                         .accumulator = step.accumulators.wgrad});
  }
  if (adapter_ != nullptr) adapter_->wgrad(step, dy_.columns(), x_.columns());
  x_.release();
  dy_.release();
}

double Linear::propagate_ratio(double ratio_at_output, Size tokens) {
  const OpFactors factor = factors(tokens);
  weight_.gradient_ratio = static_cast<float>(ratio_at_output * factor.weight_gradient / factor.output);
  if (bias_ != nullptr) bias_->gradient_ratio = static_cast<float>(ratio_at_output);
  return ratio_at_output * factor.input_gradient / factor.output;
}

}  // namespace quaver
