// A classifier on one batch of normal features, and its gradients against finite differences.
#pragma once

#include <cmath>
#include <gtest/gtest.h>

#include "engine/sizing_engine.h"
#include "models/model.h"
#include "models/model_config.h"
#include "precision/plan.h"

namespace quaver::test {

// The model on one batch of normal features, with the memory that a dry run asks for.
template <class Classifier>
class ClassifierOnBatch {
 public:
  ClassifierOnBatch(const ModelConfig& config, const PrecisionConfig& precision, Memory memory = Memory::balanced)
      : config_(resolved(config)), memory_mode_(memory), model(config_) {
    model.book().apply(make_plan(precision, model.layers()));
    model.parameters().allocate(*engine_, Format::f32);
    model.parameters().initialize(*engine_, 11);
    refresh_weights();
    features.resize(static_cast<std::size_t>(rows * config_.features));
    random_normals({3, 0, stream_of("features")}, 0, features.data(), rows * config_.features);
    for (Size row = 0; row < rows; ++row) classes.push_back(static_cast<std::int32_t>(row % config_.classes));
    const auto sizing = make_sizing_engine(engine_->device().hardware(), engine_->high_precision());
    Arena measure;
    for (const Pass pass : {Pass::train, Pass::evaluate}) loss_of(*sizing, measure, pass);
    bytes = measure.peak();
    memory_ = engine_->device().allocate(bytes);
    arena_ = Arena(memory_.get(), bytes);
  }

  // Mean loss; with Pass::train the gradients are computed anew.
  double loss(Pass pass) {
    if (pass == Pass::train) model.parameters().clear_gradients(*engine_);
    return loss_of(*engine_, arena_, pass);
  }
  void refresh_weights() { model.parameters().quantize_all(*engine_, {.seed = 3}); }

  std::vector<float> gradients() {
    loss(Pass::train);
    std::vector<float> all;
    for (const Parameter& parameter : model.parameters().all()) {
      all.insert(all.end(), parameter.gradient.f32(), parameter.gradient.f32() + parameter.count());
    }
    return all;
  }

  static constexpr Size rows = 12;
  std::vector<float> features;
  std::vector<std::int32_t> classes;
  std::size_t bytes = 0;

 private:
  double loss_of(Engine& engine, Arena& arena, Pass pass) {
    Step step{engine, arena, rows, 1, pass, memory_mode_};
    step.casting = {.seed = 3, .step = 1, .observe = false};
    double sum = 0;
    model.loss(step, FeatureBatch{features, classes}, 1, &sum);
    const auto counted = std::count_if(classes.begin(), classes.end(), [](std::int32_t c) { return c >= 0; });
    return sum / static_cast<double>(counted);
  }

  ModelConfig config_;
  Memory memory_mode_;
  std::unique_ptr<Engine> engine_ = make_cpu_engine(1);
  std::shared_ptr<std::byte> memory_;
  Arena arena_;

 public:
  Classifier model;
};

inline PrecisionConfig recipe(const std::string& name) {
  PrecisionConfig precision;
  precision.recipe = name;
  return precision;
}

// Along a direction of one parameter, half random and half along its gradient, the loss must change as the gradient
// says. The pass is the one whose loss that is.
template <class Classifier>
void expect_gradients_of(const ModelConfig& config, double tolerance, Pass pass = Pass::evaluate) {
  ClassifierOnBatch<Classifier> batch(config, recipe("fp32"));
  batch.loss(Pass::train);
  std::vector<std::vector<float>> gradients;
  for (const Parameter& parameter : batch.model.parameters().all()) {
    std::vector<float>& gradient =
        gradients.emplace_back(parameter.gradient.f32(), parameter.gradient.f32() + parameter.count());
    for (float& value : gradient) value /= parameter.gradient_ratio;
  }
  std::size_t number = 0;
  for (Parameter& parameter : batch.model.parameters().all()) {
    const std::vector<float>& gradient = gradients[number++];
    if (parameter.averages) continue;
    const auto count = static_cast<std::size_t>(parameter.count());
    std::vector<float> direction(count);
    random_normals({17, 0, stream_of(parameter.name.c_str())}, 0, direction.data(), parameter.count());
    double predicted = 0;
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i) {
      direction[i] = 0.3F * direction[i] + 10 * gradient[i];
      predicted += static_cast<double>(gradient[i]) * direction[i];
      squares += static_cast<double>(direction[i]) * direction[i];
    }
    float* weight = parameter.weight.f32();
    const std::vector<float> before(weight, weight + count);
    const double step = 0.001 * std::sqrt(static_cast<double>(count) / squares);
    const auto loss_at = [&](double distance) {
      for (std::size_t i = 0; i < count; ++i) weight[i] = before[i] + static_cast<float>(distance * direction[i]);
      batch.refresh_weights();
      return batch.loss(pass);
    };
    const double measured = (loss_at(step) - loss_at(-step)) / (2 * step);
    loss_at(0);
    EXPECT_NEAR(measured, predicted, tolerance * std::abs(predicted) + 3e-6 / step) << parameter.name;
  }
}

}  // namespace quaver::test
