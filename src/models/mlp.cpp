#include "models/mlp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "nn/output_gradients.h"
#include "quaver/error.h"

namespace quaver {

namespace {

float hidden_std(const ModelConfig& config, Size fan_in) {
  return config.init == Init::he ? std::sqrt(2.0F / static_cast<float>(fan_in)) : static_cast<float>(config.init_std);
}

View matrix_of(const FeatureBatch& batch, Size width) {
  const Size rows = static_cast<Size>(batch.features.size()) / width;
  return {const_cast<float*>(batch.features.data()), Format::f32, rows, width};  // a View does not tell who writes
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
    layers_.push_back(std::make_unique<Linear>(registry(), LinearShape{.name = fmt::format("blocks.{}.linear", i),
                                                                       .in = in,
                                                                       .out = config.width,
                                                                       .block = i,
                                                                       .bias = true,
                                                                       .init_std = hidden_std(config, in)}));
  }
  parameters().begin_section();
  head_ = std::make_unique<Head>(
      registry(),
      HeadShape{.in = config.width, .classes = config.classes, .init_std = static_cast<float>(config.init_std)});
}

Batch Mlp::blank_batch(const Step& step, BatchStorage& storage) const {
  storage.features.assign(static_cast<std::size_t>(step.batch * config_.features), 0);
  storage.targets.assign(static_cast<std::size_t>(step.batch), 0);
  return FeatureBatch{storage.features, storage.targets};
}

Size Mlp::check(const Step& step, const Batch& batch) const {
  const auto* rows = std::get_if<FeatureBatch>(&batch);
  if (rows == nullptr) throw Error("a classifier was given sequences of tokens", "give it rows of features");
  if (rows->features.size() != static_cast<std::size_t>(step.batch * config_.features) ||
      rows->classes.size() != static_cast<std::size_t>(step.batch)) {
    throw Error(fmt::format("a batch of {} features and {} classes, where the model reads {} rows of {}",
                            rows->features.size(), rows->classes.size(), step.batch, config_.features),
                "the data has another shape than what the model was made for");
  }
  const auto largest = std::ranges::max_element(rows->classes);
  if (largest != rows->classes.end() && *largest >= config_.classes) {
    throw Error(fmt::format("class {} lies outside the model's {}", *largest, config_.classes),
                "the data has more classes than the model was made for");
  }
  return std::ranges::count_if(rows->classes, [](std::int32_t row_class) { return row_class >= 0; });
}

void Mlp::activate(Step& step, View hidden, QuantizedTensor& out) const {
  step.engine.run(Activation{.kind = activation_,
                             .x = hidden,
                             .factor = static_cast<float>(config_.activation_scale),
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
                                       .forward_factor = static_cast<float>(config_.activation_scale),
                                       .factor = static_cast<float>(config_.activation_scale),
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
