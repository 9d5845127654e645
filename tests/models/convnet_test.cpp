// The convolution network: gradients against finite differences, the same ones however memory is saved, the shapes of
// its layers, and what it refuses.
#include "models/convnet.h"

#include <gmock/gmock.h>

#include "models/classifier_on_batch.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

ModelConfig small_convnet() {
  ModelConfig config;
  config.family = Family::convnet;
  config.features = 6 * 5 * 2;
  config.image_height = 6;
  config.image_width = 5;
  config.image_channels = 2;
  config.classes = 3;
  config.stage_widths = "8,16";
  config.stage_blocks = "2,1";
  config.init_std = 0.3;
  return config;
}

// Batch norms see the batch: the loss is that of the training pass.
TEST(ConvNet, GradientsAgreeWithFiniteDifferences) {
  ModelConfig config = small_convnet();
  expect_gradients_of<ConvNet>(config, 0.06, Pass::train);  // finite differences straddle the corners of ReLU
  config.stage_widths = "4";
  config.stage_blocks = "1";
  config.stem_kernel = 5;
  config.stem_stride = 2;
  expect_gradients_of<ConvNet>(config, 0.06, Pass::train);
  config = small_convnet();
  config.feature_norm = FeatureNorm::layer;
  expect_gradients_of<ConvNet>(config, 0.06, Pass::train);
}

// Requantizing patches gives the codes of the first cast.
TEST(ConvNet, GradientsDoNotDependOnWhatMemoryKeeps) {
  for (const char* name : {"fp32", "bf16", "fp8-delayed", "fp8-current", "fp8-row", "fp8-block", "mxfp8", "nvfp4"}) {
    ClassifierOnBatch<ConvNet> speed(small_convnet(), recipe(name), Memory::speed);
    ClassifierOnBatch<ConvNet> balanced(small_convnet(), recipe(name), Memory::balanced);
    ClassifierOnBatch<ConvNet> small(small_convnet(), recipe(name), Memory::small);
    EXPECT_EQ(speed.gradients(), balanced.gradients()) << name;
    EXPECT_EQ(speed.gradients(), small.gradients()) << name;
    EXPECT_LE(small.bytes, speed.bytes) << name;
  }
}

TEST(ConvNet, ItsLayersAreNamedInTheOrderTheyRun) {
  const ConvNet model(resolved(small_convnet()));
  std::vector<std::string> names;
  for (const LayerShape& layer : model.layers()) names.push_back(layer.name);
  EXPECT_THAT(names,
              testing::ElementsAre("stem", "blocks.0.conv1", "blocks.0.conv2", "blocks.1.conv1", "blocks.1.conv2",
                                   "blocks.2.conv1", "blocks.2.conv2", "blocks.2.shortcut", "head"));
  // Rows of patches are multiples of 16: 18 taps of the stem become 32, 72 of the others 80.
  const double stem = 30 * 32 * 8;
  const double first_stage = 4 * 30 * 80 * 8;
  const double second_stage = 9 * (80 * 16 + 144 * 16 + 16 * 16);
  EXPECT_DOUBLE_EQ(model.flops_per_token(1), 6 * (stem + first_stage + second_stage + 16 * 3));
}

TEST(ConvNet, EvaluationReadsTheMovingAverages) {
  ClassifierOnBatch<ConvNet> batch(small_convnet(), recipe("fp32"));
  const double before = batch.loss(Pass::evaluate);
  const double trained = batch.loss(Pass::train);
  EXPECT_EQ(batch.loss(Pass::evaluate), before) << "a pass alone does not move them";
  for (Parameter& parameter : batch.model.parameters().all()) {
    if (!parameter.averages) continue;
    std::copy_n(parameter.gradient.f32(), parameter.count(), parameter.weight.f32());
  }
  const double with_batch = batch.loss(Pass::evaluate);
  EXPECT_NE(with_batch, before);
  EXPECT_NEAR(with_batch, trained, 0.05) << "those of this batch, but for the unbiased variance";
}

TEST(ConvNet, WithLayerNormsEvaluationIsTheTrainingPass) {
  ModelConfig config = small_convnet();
  config.feature_norm = FeatureNorm::layer;
  ClassifierOnBatch<ConvNet> batch(config, recipe("fp32"));
  EXPECT_EQ(batch.loss(Pass::evaluate), batch.loss(Pass::train));
  for (const Parameter& parameter : batch.model.parameters().all()) EXPECT_FALSE(parameter.averages);
}

TEST(ConvNet, RefusesBatchesOfAnotherShape) {
  ClassifierOnBatch<ConvNet> batch(small_convnet(), recipe("fp32"));
  batch.classes[3] = 3;
  EXPECT_THROW(batch.loss(Pass::train), Error);
  batch.classes[3] = 2;
  EXPECT_NO_THROW(batch.loss(Pass::train));
  batch.features.pop_back();
  EXPECT_THROW(batch.loss(Pass::train), Error);
}

TEST(ConvNet, TakesItsShapeFromTheData) {
  ModelConfig config = small_convnet();
  config.features = config.classes = config.image_height = config.image_width = config.image_channels = 0;
  const DataShape images{.features = 3072, .classes = 10, .height = 32, .width = 32, .channels = 3};
  const ModelConfig fitted = resolved(for_data(config, images));
  EXPECT_EQ(fitted.image_height, 32);
  EXPECT_EQ(fitted.image_channels, 3);
  EXPECT_EQ(fitted.layers, 3);
  EXPECT_EQ(fitted.width, 16);
  EXPECT_THROW(for_data(config, {.vocab = 64}), Error);
  EXPECT_THROW(for_data(config, {.features = 3072, .classes = 10}), Error) << "rows that are no images";
  EXPECT_THROW(resolved(config), Error) << "nobody gave it any";
  config.image_height = 16;
  EXPECT_THROW(for_data(config, images), Error);
}

TEST(ConvNet, StagesAreListsOfNumbers) {
  ModelConfig config = small_convnet();
  config.stage_widths = "64,128";
  config.stage_blocks = "2,3";
  ASSERT_EQ(stages_of(config).size(), 2U);
  EXPECT_EQ(stages_of(config)[1].width, 128);
  EXPECT_EQ(stages_of(config)[1].blocks, 3);
  for (const char* wrong : {"", ",", "64,", ",64", "64,,128", "64 ,128", "64,0", "-1,2", "64;128",
                            "64,99999999999999999999", "64,70000", "6.4,2", "a,b"}) {
    config.stage_widths = wrong;
    EXPECT_THROW(stages_of(config), Error) << wrong;
  }
  config.stage_widths = "64";
  EXPECT_THROW(stages_of(config), Error) << "one width, and two stages of blocks";
}

TEST(ConvNet, HasNoUnitScalingNoAdaptersAndOneInitialization) {
  ModelConfig config = small_convnet();
  EXPECT_NO_THROW(resolved(config));
  config.parametrization = Parametrization::umup;
  EXPECT_THROW(resolved(config), Error);
  config = small_convnet();
  config.init = Init::gpt2;
  EXPECT_THROW(resolved(config), Error);
  config = small_convnet();
  config.lora_rank = 4;
  EXPECT_THROW(resolved(config), Error);
  config = small_convnet();
  config.stem_kernel = 4;
  EXPECT_THROW(resolved(config), Error);
}

}  // namespace
}  // namespace quaver::test
