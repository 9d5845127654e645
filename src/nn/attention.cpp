#include "nn/branch.h"

namespace quaver {

AttentionBranch::AttentionBranch(Registry& registry, const AttentionShape& shape)
    : shape_(shape),
      qkv_(registry, {.name = shape.name + ".qkv",
                      .in = shape.width,
                      .out = (shape.heads + 2 * shape.kv_heads) * shape.head_size,
                      .block = shape.block,
                      .bias = shape.bias || shape.qkv_bias,
                      .init_std = shape.init_std,
                      .learning_rate_factor = shape.qkv_learning_rate,
                      .unit_scaled = shape.unit_scaled,
                      .projections = {shape.heads * shape.head_size, shape.kv_heads * shape.head_size,
                                      shape.kv_heads * shape.head_size}}),
      out_(registry, {.name = shape.name + ".out",
                      .in = shape.heads * shape.head_size,
                      .out = shape.width,
                      .block = shape.block,
                      .bias = shape.bias,
                      .init_std = shape.out_init_std,
                      .learning_rate_factor = shape.out_learning_rate,
                      .unit_scaled = shape.unit_scaled}) {
  if (!shape.qk_norm) return;
  const auto gain = [&](const std::string& name) {
    return &registry.parameters().add(
        {.name = shape.name + name, .kind = ParameterKind::vector, .rows = 1, .cols = shape.head_size, .init_mean = 1});
  };
  query_gain_ = gain(".q_norm.weight");
  key_gain_ = gain(".k_norm.weight");
}

HeadLayout AttentionBranch::layout(const Step& step) const {
  return {step.batch, step.sequence, shape_.heads, shape_.kv_heads, shape_.head_size};
}

PrepareHeads AttentionBranch::preparation(const Step& step) const {
  return {.layout = layout(step),
          .theta = shape_.rope_theta,
          .query_gain = query_gain_ != nullptr ? query_gain_->weight : View{},
          .key_gain = key_gain_ != nullptr ? key_gain_->weight : View{},
          .eps = shape_.norm_eps,
          .in = raw_,
          .out = ready_,
          .scaling = shape_.rope_scaling,
          .first = step.decoding != nullptr ? step.decoding->at.first : std::span<const std::int32_t>(),
          .positions = step.decoding != nullptr ? step.decoding->cache.shape().capacity : 0};
}

void AttentionBranch::attend(Step& step) const {
  const HeadLayout heads = layout(step);
  if (step.decoding != nullptr) {
    const KeyValues cache = step.decoding->cache.layer(shape_.block);
    step.engine.run(StoreKeyValues{heads, ready_, cache, step.decoding->at});
    if (step.decodes_one()) {
      return step.engine.run(AttentionDecode{.layout = heads,
                                             .qkv = ready_,
                                             .cache = cache,
                                             .at = step.decoding->at,
                                             .scale = shape_.logit_scale,
                                             .result = result_});
    }
  }
  step.engine.run(Attention{.layout = heads,
                            .qkv = ready_,
                            .scale = shape_.logit_scale,
                            .result = result_,
                            .log_sum = log_sum_,
                            .max_logit = step.max_logit,
                            .document_starts = step.document_starts});
}

void AttentionBranch::forward(Step& step, View out) {
  const HeadLayout heads = layout(step);
  raw_ = step.saved(heads.width());
  ready_ = shape_.qk_norm ? step.saved(heads.width()) : raw_;
  result_ = step.saved(shape_.heads * shape_.head_size);
  log_sum_ = step.arena.saved(step.batch * shape_.heads, step.sequence, Format::f32);
  qkv_.forward(step, raw_);
  if (prepares_heads()) step.engine.run(preparation(step));
  attend(step);
  QuantizedTensor& input = out_.input_from(step, result_, factors_[0]);
  if (step.pass == Pass::calibrate && shape_.unit_scaled) {
    factors_[0] = factor_to_unit(factors_[0], input.site(), step.engine);
    step.engine.run(Quantize{result_, input, step.casting, factors_[0]});
  }
  out_.forward(step, out);
}

void AttentionBranch::backward(Step& step, View dx) {
  const View result_gradient = step.scratch(result_.cols);
  out_.dgrad(step, result_gradient);
  if (QuantizedTensor* requantized = out_.requantized_input(step)) {
    step.engine.run(Quantize{result_, *requantized, step.casting.unobserved(), factors_[0]});
  }
  out_.wgrad(step);
  const View qkv_gradient = step.scratch(raw_.cols);
  step.engine.run(AttentionBackward{.layout = layout(step),
                                    .qkv = ready_,
                                    .result = result_,
                                    .log_sum = log_sum_,
                                    .result_gradient = result_gradient,
                                    .scale = shape_.logit_scale,
                                    .qkv_gradient = qkv_gradient,
                                    .document_starts = step.document_starts});
  if (prepares_heads()) {
    step.engine.run(PrepareHeadsBackward{.forward = preparation(step),
                                         .gradient = qkv_gradient,
                                         .query_gain_gradient = query_gain_ != nullptr ? query_gain_->gradient : View{},
                                         .key_gain_gradient = key_gain_ != nullptr ? key_gain_->gradient : View{}});
  }
  QuantizedTensor& dy = qkv_.output_gradient_from(step, qkv_gradient, factors_[1]);
  if (step.pass == Pass::calibrate && shape_.unit_scaled) {
    factors_[1] = factor_to_unit(factors_[1], dy.site(), step.engine);
    step.engine.run(Quantize{qkv_gradient, dy, step.casting, factors_[1]});
  }
  qkv_.dgrad(step, dx);
}

double AttentionBranch::propagate_ratio(double ratio, Step& step) {
  // The gradient of the result lacks the factor it was cast with; the gains take it as it is.
  ratio = out_.propagate_ratio(ratio, step.tokens()) / factors_[0];
  for (Parameter* gain : {query_gain_, key_gain_}) {
    if (gain != nullptr) gain->gradient_ratio = static_cast<float>(ratio);
  }
  ratio *= factors_[1];
  return qkv_.propagate_ratio(ratio, step.tokens());
}

}  // namespace quaver
