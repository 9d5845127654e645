#include "models/mlp.h"

#include <array>
#include <cmath>
#include <fmt/format.h>

#include "models/classifier_batch.h"
#include "nn/output_gradients.h"

namespace quaver {

namespace {

float hidden_std(const ModelConfig& config, Size fan_in) {
  if (config.init == Init::unit) return 1;
  return config.init == Init::he ? std::sqrt(2.0F / static_cast<float>(fan_in)) : static_cast<float>(config.init_std);
}

View matrix_of(const FeatureBatch& batch, Size width) {
  const Size rows = static_cast<Size>(batch.features.size()) / width;
  return {const_cast<float*>(batch.features.data()), Format::f32, rows, width};  // a View does not tell who writes
}

// u-µP's of a hidden layer, without residual branches.
float learning_rate_of(const ModelConfig& config, Size fan_in) {
  const bool unit = config.parametrization != Parametrization::standard;
  return unit ? 1.0F / std::sqrt(static_cast<float>(fan_in)) : 1.0F;
}

}  // namespace

Mlp::Mlp(const ModelConfig& config, const ScaleRules& rules)
    : Model(rules),
      config_(config),
      activation_(config.activation == MlpActivation::relu ? ActivationKind::relu : ActivationKind::gelu),
      hidden_(static_cast<std::size_t>(config.layers)) {
  for (Size i = 0; i < config.layers; ++i) {  // a section each
    if (i > 0) parameters().begin_section();
    const Size in = i == 0 ? config.features : config.width;
    layers_.push_back(
        std::make_unique<Linear>(registry(), LinearShape{.name = fmt::format("blocks.{}.linear", i),
                                                         .in = in,
                                                         .out = config.width,
                                                         .block = i,
                                                         .bias = !is_unit_scaled(),
                                                         .init_std = hidden_std(config, in),
                                                         .learning_rate_factor = learning_rate_of(config, in),
                                                         .unit_scaled = is_unit_scaled()}));
  }
  parameters().begin_section();
  head_ = std::make_unique<Head>(registry(),
                                 HeadShape{.in = config.width,
                                           .classes = config.classes,
                                           .init_std = is_unit_scaled() ? 1.0F : static_cast<float>(config.init_std),
                                           .unit_scaled = is_unit_scaled()});
}

OpFactors Mlp::activation_factors() const {
  if (is_unit_scaled()) return activation_ == ActivationKind::relu ? unit_relu() : unit_gelu();
  const auto scale = static_cast<float>(config_.activation_scale);
  return {scale, scale, 1};
}

void Mlp::prepare(Step& step) {
  if (!is_unit_scaled()) return;
  double ratio = head_->propagate_ratio(step.tokens());
  for (std::size_t i = layers_.size(); i-- > 0;) {
    ratio *= activation_factors().input_gradient / activation_factors().output;
    ratio = layers_[i]->propagate_ratio(ratio, step.tokens());
  }
}

Batch Mlp::blank_batch(const Step& step, BatchStorage& storage) const {
  return blank_features({config_.features, config_.classes}, step, storage);
}

Size Mlp::check(const Step& step, const Batch& batch) const {
  return check_batch({config_.features, config_.classes}, step, batch);
}

void Mlp::activate(Step& step, View hidden, QuantizedTensor& out) const {
  step.engine.run(Activation{.kind = activation_,
                             .x = hidden,
                             .factor = activation_factors().output,
                             .limit = static_cast<float>(config_.activation_clip),
                             .out = out,
                             .casting = step.casting});
}

void Mlp::forward(Step& step, View features) {
  const Arena::Scope scope(step.arena);
  std::array<View, 2> passing;  // a layer's output is read once where there is no backward pass
  if (step.pass == Pass::evaluate) passing = {step.scratch(config_.width), step.scratch(config_.width)};
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Arena::Scope layer_scope(step.arena);
    if (i == 0) {
      layers_[i]->input_from(step, features, 1);
    } else {
      activate(step, hidden_[i - 1], layers_[i]->input(step, Linear::Producer::can_requantize));
    }
    hidden_[i] = step.pass == Pass::evaluate ? passing[i % 2] : step.saved(config_.width);
    step.use(static_cast<Size>(i));
    layers_[i]->forward(step, hidden_[i]);
  }
  activate(step, hidden_.back(), head_->input(step));
}

// A layer's wgrad is deferred until its x is requantized, by the activation before it.
void Mlp::backward(Step& step, View features, View gradient) {
  std::vector<Linear*> layers;
  for (const auto& layer : layers_) layers.push_back(layer.get());
  OutputGradients output_gradients(step, layers, std::nullopt);
  for (std::size_t i = layers.size(); i-- > 0;) {
    const Arena::Scope scope(step.arena);
    Linear* next = i + 1 < layers.size() ? layers[i + 1] : nullptr;
    step.engine.run(ActivationBackward{.kind = activation_,
                                       .x = hidden_[i],
                                       .out_gradient = gradient,
                                       .forward_factor = activation_factors().output,
                                       .factor = activation_factors().input_gradient,
                                       .limit = static_cast<float>(config_.activation_clip),
                                       .in_gradient = output_gradients.of(i),
                                       .out = next != nullptr ? next->requantized_input(step) : nullptr,
                                       .casting = step.casting});
    if (next != nullptr) wgrad(step, i + 1);
    if (i > 0) {
      step.use(static_cast<Size>(i));
      layers[i]->dgrad(step, gradient);
    }
  }
  if (QuantizedTensor* requantized = layers.front()->requantized_input(step)) {
    step.engine.run(Quantize{features, *requantized, step.casting.unobserved()});
  }
  wgrad(step, 0);
}

void Mlp::wgrad(Step& step, std::size_t layer) {
  step.begin_gradients(static_cast<Size>(layer));
  layers_[layer]->wgrad(step);
  step.end_gradients(static_cast<Size>(layer));
}

void Mlp::run(Step& step, const Batch& batch, const float* gradient_scale, double* loss_sum) {
  const auto& rows = std::get<FeatureBatch>(batch);
  const View features = matrix_of(rows, config_.features);
  forward(step, features);
  const bool train = step.pass != Pass::evaluate;
  const View gradient = train ? step.scratch(config_.width) : View{};
  const auto section = static_cast<Size>(layers_.size());
  step.use(section);
  if (train) step.begin_gradients(section);
  head_->loss(step, rows.classes, gradient_scale, loss_sum, gradient);
  if (train) step.end_gradients(section);
  if (train) backward(step, features, gradient);
}

}  // namespace quaver
