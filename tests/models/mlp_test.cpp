// The dense classifier: gradients against finite differences, the same ones however memory is saved, and what it
// refuses.
#include "models/mlp.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sizing_engine.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

ModelConfig small_mlp() {
  ModelConfig config;
  config.family = Family::mlp;
  config.layers = 3;
  config.width = 32;
  config.features = 20;
  config.classes = 5;
  config.init_std = 0.3;
  return config;
}

// The model on one batch of normal features, with the memory that a dry run asks for.
class MlpOnBatch {
 public:
  MlpOnBatch(const ModelConfig& config, const PrecisionConfig& precision, Memory memory = Memory::balanced)
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
  Mlp model;
};

PrecisionConfig recipe(const std::string& name) {
  PrecisionConfig precision;
  precision.recipe = name;
  return precision;
}

// Along a direction of one parameter, half random and half along its gradient, the loss must change as the gradient
// says.
void expect_gradients_of(const ModelConfig& config, double tolerance) {
  MlpOnBatch batch(config, recipe("fp32"));
  batch.loss(Pass::train);
  for (Parameter& parameter : batch.model.parameters().all()) {
    const auto count = static_cast<std::size_t>(parameter.count());
    std::vector<float> direction(count);
    random_normals({17, 0, stream_of(parameter.name.c_str())}, 0, direction.data(), parameter.count());
    double predicted = 0;
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i) {
      direction[i] = 0.3F * direction[i] + 10 * parameter.gradient.f32()[i];
      predicted += static_cast<double>(parameter.gradient.f32()[i]) * direction[i];
      squares += static_cast<double>(direction[i]) * direction[i];
    }
    float* weight = parameter.weight.f32();
    const std::vector<float> before(weight, weight + count);
    const double step = 0.001 * std::sqrt(static_cast<double>(count) / squares);
    const auto loss_at = [&](double distance) {
      for (std::size_t i = 0; i < count; ++i) weight[i] = before[i] + static_cast<float>(distance * direction[i]);
      batch.refresh_weights();
      return batch.loss(Pass::evaluate);
    };
    const double measured = (loss_at(step) - loss_at(-step)) / (2 * step);
    loss_at(0);
    EXPECT_NEAR(measured, predicted, tolerance * std::abs(predicted) + 3e-6 / step) << parameter.name;
  }
}

TEST(Mlp, GradientsAgreeWithFiniteDifferences) {
  ModelConfig config = small_mlp();
  expect_gradients_of(config, 0.01);
  config.layers = 1;
  expect_gradients_of(config, 0.01);
  config.layers = 2;
  config.activation_scale = 1.5;
  expect_gradients_of(config, 0.01);
  config.activation = MlpActivation::relu;
  config.activation_clip = 4;
  expect_gradients_of(config, 0.05);  // finite differences straddle the corners
}

// Requantizing gives the codes of the first cast.
TEST(Mlp, GradientsDoNotDependOnWhatMemoryKeeps) {
  for (const char* name : {"fp32", "bf16", "fp8-delayed", "fp8-current", "fp8-row", "fp8-block", "mxfp8", "nvfp4"}) {
    MlpOnBatch speed(small_mlp(), recipe(name), Memory::speed);
    MlpOnBatch balanced(small_mlp(), recipe(name), Memory::balanced);
    MlpOnBatch small(small_mlp(), recipe(name), Memory::small);
    EXPECT_EQ(speed.gradients(), balanced.gradients()) << name;
    EXPECT_EQ(speed.gradients(), small.gradients()) << name;
    EXPECT_LE(small.bytes, speed.bytes) << name;
  }
}

TEST(Mlp, RowsWithoutAClassHaveNoLoss) {
  MlpOnBatch batch(small_mlp(), recipe("fp32"));
  for (std::size_t row = 0; row < 6; ++row) batch.classes[row] = -1;
  const std::vector<float> without = batch.gradients();
  for (std::size_t i = 0; i < 6 * 20; ++i) batch.features[i] = 7;
  EXPECT_EQ(batch.gradients(), without);
}

TEST(Mlp, ItsLayersAreNamedInTheOrderTheyRun) {
  const Mlp model(resolved(small_mlp()));
  std::vector<std::string> names;
  for (const LayerShape& layer : model.layers()) names.push_back(layer.name);
  EXPECT_THAT(names, testing::ElementsAre("blocks.0.linear", "blocks.1.linear", "blocks.2.linear", "head"));
  EXPECT_EQ(model.parameters().count(), 20 * 32 + 32 + 2 * (32 * 32 + 32) + 32 * 5);
  EXPECT_DOUBLE_EQ(model.flops_per_token(1), 6 * (20 * 32 + 2 * 32 * 32 + 32 * 5));
}

TEST(Mlp, RefusesBatchesOfAnotherShape) {
  MlpOnBatch batch(small_mlp(), recipe("fp32"));
  batch.classes[3] = 5;
  EXPECT_THROW(batch.loss(Pass::train), Error);
  batch.classes[3] = 4;
  EXPECT_NO_THROW(batch.loss(Pass::train));
  batch.features.pop_back();
  EXPECT_THROW(batch.loss(Pass::train), Error);
}

TEST(Mlp, TakesItsShapeFromTheData) {
  ModelConfig config = small_mlp();
  config.features = config.classes = 0;
  EXPECT_EQ(for_data(config, {.features = 784, .classes = 10}).features, 784);
  EXPECT_EQ(for_data(config, {.features = 784, .classes = 10}).classes, 10);
  EXPECT_THROW(for_data(config, {.vocab = 64}), Error);
  EXPECT_THROW(resolved(config), Error) << "nobody gave it any";
  config.features = 783;
  EXPECT_THROW(for_data(config, {.features = 784, .classes = 10}), Error);
  config.features = 784;
  config.classes = 16;
  EXPECT_EQ(for_data(config, {.features = 784, .classes = 10}).classes, 16) << "more than the data has";
  EXPECT_THROW(for_data(config, {.features = 784, .classes = 17}), Error);
}

TEST(Mlp, IsNotUnitScaled) {
  ModelConfig config = small_mlp();
  config.parametrization = Parametrization::umup;
  EXPECT_THROW(resolved(config), Error);
  config.parametrization = Parametrization::automatic;
  config.init = Init::depth;
  EXPECT_THROW(resolved(config), Error);
  config.init = Init::gpt2;
  EXPECT_NO_THROW(resolved(config));
  config.family = Family::gpt;
  config.vocab = 64;
  config.init = Init::he;
  EXPECT_THROW(resolved(config), Error);
}

}  // namespace
}  // namespace quaver::test
