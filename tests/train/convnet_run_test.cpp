// Runs of the convolution network: recipes reach the accuracy of FP32, a resumed run ends in the same bytes, and moving
// averages do not depend on how a step is divided.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "precision/recipe.h"
#include "train/resumed_run.h"
#include "train/support.h"

namespace quaver::test {
namespace {

Config convnet_config(const std::string& recipe, const std::filesystem::path& directory = "unused") {
  Config config;
  config.model.family = Family::convnet;
  config.model.stage_widths = "8,16";
  config.model.stage_blocks = "1,1";
  config.data.kind = DataKind::synthetic_images;
  config.data.synthetic_classes = 4;
  config.data.synthetic_pixels = 64;
  config.data.synthetic_tile = 2;
  config.data.synthetic_strength = 5;
  config.train.steps = 80;
  config.train.batch = 64;
  config.train.threads = 1;
  config.train.eval_batches = 8;
  config.train.checkpoint_every = 3;
  config.train.keep = 100;
  config.optim.learning_rate = 1e-2;
  config.precision.recipe = recipe;
  config.run.dir = directory.string();
  config.run.store = "none";
  return config;
}

class ConvNetRun : public testing::TestWithParam<std::string> {};

TEST_P(ConvNetRun, LearnsWhatNoLinearModelCan) {
  const Config config = convnet_config(GetParam());
  const TrainingData data = open_training_data(config.data, 1, 1);
  const auto engine = make_cpu_engine(1);
  Trainer trainer(config, data, *engine, [](const std::string&) {});
  while (!trainer.finished()) trainer.step();
  const Validation end = trainer.validate(8).value();
  EXPECT_LT(end.loss, 0.5 * std::log(4)) << "a linear model stays at log 4";
  EXPECT_GT(end.accuracy.value(), 0.8) << "a linear model guesses one in four";
  EXPECT_LT(end.accuracy.value(), data.best_accuracy.value() + 0.02);
}

TEST_P(ConvNetRun, AResumedRunEndsInTheSameBytes) {
  const TemporaryFolder folder;
  const auto config_in = [&](const char* name) {
    Config config = convnet_config(GetParam(), folder.path() / name);
    config.train.steps = 6;
    return config;
  };
  expect_resumed_bytes(folder, config_in);
}

INSTANTIATE_TEST_SUITE_P(Recipes, ConvNetRun,
                         testing::Values("fp32", "bf16", "fp8-delayed", "fp8-current", "fp8-block", "nvfp4"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// 40 records of CIFAR-10, whose classes differ in their mean.
void write_cifar(const TemporaryFolder& folder) {
  std::string records;
  for (int i = 0; i < 40; ++i) {
    records += static_cast<char>(i % 4);
    for (int p = 0; p < 3072; ++p) records += static_cast<char>((i % 4) * 40 + (i * p) % 31);
  }
  folder.write("cifar/data_batch_1.bin", records);
}

TEST(ConvNetRunRules, ARunOnAugmentedImagesResumesIntoTheSameBytes) {
  const TemporaryFolder folder;
  write_cifar(folder);
  const auto config_in = [&](const char* name) {
    Config config = convnet_config("fp8-delayed", folder.path() / name);
    config.data.kind = DataKind::cifar;
    config.data.path = folder / "cifar";
    config.data.augment_shift = 4;
    config.data.augment_mirror = true;
    config.train.batch = 4;
    config.train.steps = 6;
    return config;
  };
  expect_resumed_bytes(folder, config_in);
  const std::filesystem::path weights = std::filesystem::path("checkpoints") / "step-000006" / "model.safetensors";
  Config plain = config_in("plain");
  plain.data.augment_shift = 0;
  plain.data.augment_mirror = false;
  run_training(plain, {});
  EXPECT_NE(contents(folder.path() / "straight" / weights), contents(folder.path() / "plain" / weights));
}

Parameter& running_mean(Trainer& trainer) { return trainer.model().parameters().find("stem_norm.running_mean"); }

// PyTorch's rule, with the mean over the micro-batches of a step.
TEST(ConvNetRunRules, AStepMovesTheAveragesByATenth) {
  Config config = convnet_config("fp32");
  config.train.accumulation = 3;
  const TrainingData data = open_training_data(config.data, 1, 1);
  const auto engine = make_cpu_engine(1);
  Trainer trainer(config, data, *engine, [](const std::string&) {});
  Parameter& mean = running_mean(trainer);
  const std::vector<float> before(mean.weight.f32(), mean.weight.f32() + mean.count());
  trainer.step();
  for (Size i = 0; i < mean.count(); ++i) {
    const float batch_mean = mean.gradient_sum.f32()[i] / 3;
    EXPECT_NE(mean.weight.f32()[i], before[static_cast<std::size_t>(i)]);
    EXPECT_FLOAT_EQ(mean.weight.f32()[i], 0.1F * batch_mean);
  }
}

// What is added up of a batch's mean and variance is no gradient: neither the norm nor a shadow check sees it.
TEST(ConvNetRunRules, AveragesAreNotGradients) {
  Config config = convnet_config("fp8-current");
  const TrainingData data = open_training_data(config.data, 1, 1);
  const auto engine = make_cpu_engine(1);
  Trainer trainer(config, data, *engine, [](const std::string&) {});
  Parameter& mean = running_mean(trainer);
  const double norm = trainer.step().gradient_norm;
  double squares = 0;
  for (const Parameter& parameter : trainer.model().parameters().all()) {
    for (Size i = 0; i < parameter.count() && !parameter.averages; ++i) {
      squares += std::pow(static_cast<double>(parameter.gradient_sum.f32()[i]), 2);
    }
  }
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-4 * norm);
  const std::vector<float> before(mean.weight.f32(), mean.weight.f32() + mean.count());
  trainer.shadow_check();
  EXPECT_EQ(std::vector<float>(mean.weight.f32(), mean.weight.f32() + mean.count()), before);
  EXPECT_EQ(trainer.model().parameters().frozen_count(), 0);
}

}  // namespace
}  // namespace quaver::test
