// The dense classifier: gradients against finite differences, the same ones however memory is saved, and what it
// refuses.
#include "models/mlp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/classifier_on_batch.h"
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

TEST(Mlp, GradientsAgreeWithFiniteDifferences) {
  ModelConfig config = small_mlp();
  expect_gradients_of<Mlp>(config, 0.01);
  config.layers = 1;
  expect_gradients_of<Mlp>(config, 0.01);
  config.layers = 2;
  config.activation_scale = 1.5;
  expect_gradients_of<Mlp>(config, 0.01);
  config.activation = MlpActivation::relu;
  config.activation_clip = 4;
  expect_gradients_of<Mlp>(config, 0.05);  // finite differences straddle the corners
  config = small_mlp();
  config.parametrization = Parametrization::umup;
  expect_gradients_of<Mlp>(config, 0.01);
}

// Requantizing gives the codes of the first cast.
TEST(Mlp, GradientsDoNotDependOnWhatMemoryKeeps) {
  for (const char* name : {"fp32", "bf16", "fp8-delayed", "fp8-current", "fp8-row", "fp8-block", "mxfp8", "nvfp4"}) {
    ClassifierOnBatch<Mlp> speed(small_mlp(), recipe(name), Memory::speed);
    ClassifierOnBatch<Mlp> balanced(small_mlp(), recipe(name), Memory::balanced);
    ClassifierOnBatch<Mlp> small(small_mlp(), recipe(name), Memory::small);
    EXPECT_EQ(speed.gradients(), balanced.gradients()) << name;
    EXPECT_EQ(speed.gradients(), small.gradients()) << name;
    EXPECT_LE(small.bytes, speed.bytes) << name;
  }
}

TEST(Mlp, RowsWithoutAClassHaveNoLoss) {
  ClassifierOnBatch<Mlp> batch(small_mlp(), recipe("fp32"));
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
  ClassifierOnBatch<Mlp> batch(small_mlp(), recipe("fp32"));
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

TEST(Mlp, IsUnitScaledInOneWay) {
  ModelConfig config = small_mlp();
  config.parametrization = Parametrization::umup;
  EXPECT_EQ(resolved(config).init, Init::unit);
  config.init = Init::he;
  EXPECT_THROW(resolved(config), Error);
  config.init = Init::automatic;
  config.parametrization = Parametrization::munit;
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
