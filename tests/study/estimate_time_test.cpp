// From steps of shallow models to a step of the whole, by hand.
#include "study/estimate_time.h"

#include <gtest/gtest.h>

#include "config/load.h"
#include "train/resolved_config.h"
#include "train/trainer.h"
#include "train/training_data.h"

namespace quaver {
namespace {

TrainConfig train_of(Size accumulation, Size batch) {
  TrainConfig train;
  train.accumulation = accumulation;
  train.batch = batch;
  return train;
}

// One layer takes 10 ms a micro-batch and a second one 4 ms more; the optimizer 1 ns a parameter.
const ShallowStep one{.micro_step = 0.010, .optimizer = 0.001, .parameters = 1'000'000};
const ShallowStep two{.micro_step = 0.014, .optimizer = 0.0012, .parameters = 1'200'000};

TEST(SecondsOfStep, GrowsByALayerATime) {
  EXPECT_NEAR(seconds_of_step(train_of(1, 8), 1, 8, one, one), 0.011, 1e-12);
  EXPECT_NEAR(seconds_of_step(train_of(1, 8), 2, 8, one, two), 0.0152, 1e-12);
  // 10 + 11 · 4 ms, and 1 + 11 · 0.2 million parameters.
  EXPECT_NEAR(seconds_of_step(train_of(1, 8), 12, 8, one, two), 0.054 + 0.0032, 1e-12);
}

// Every micro-batch costs its passes; the optimizer runs once per step.
TEST(SecondsOfStep, HasAsManyMicroBatchesAsTheStep) {
  EXPECT_NEAR(seconds_of_step(train_of(4, 8), 2, 8, one, two), 4 * 0.014 + 0.0012, 1e-12);
  EXPECT_NEAR(seconds_of_step(train_of(4, 8), 2, 2, one, two), 16 * 0.014 + 0.0012, 1e-12) << "a smaller probe";
  EXPECT_NEAR(seconds_of_step(train_of(1, 3), 2, 2, one, two), 1.5 * 0.014 + 0.0012, 1e-12);
}

TEST(SecondsOfStep, ALayerThatSeemsToTakeNoTimeTakesNone) {
  const ShallowStep faster{.micro_step = 0.009, .optimizer = 0.0012, .parameters = 1'200'000};
  EXPECT_NEAR(seconds_of_step(train_of(1, 8), 5, 8, one, faster), 0.010 + 0.0018, 1e-12);
}

Config probed(const std::string& preset, Size batch) {
  Config config = load_config({.files = {}, .texts = {}, .flags = {"preset=" + preset}});
  config.train.batch = batch;
  return resolve_shape(config, stand_in_data(config, 256).shape());
}

// What is trained is a model of another depth, for the speed of one micro-batch alone.
TEST(Probe, TrainsWhateverNamesBlocksOrDividesSteps) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"train.accumulation=4", "train.reduction_groups=4"},
        std::vector<std::string>{"optim.optimizer=muon", "optim.muon_matrices=*.mlp.*,blocks.3.*"},
        std::vector<std::string>{"lora.rank=2", "lora.targets=blocks.3.attn.*"}}) {
    std::vector<std::string> all{"preset=tiny", "model.width=32", "model.vocab=64", "train.threads=1"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Config config =
        shallow(resolve_shape(load_config({.files = {}, .texts = {}, .flags = all}), {.vocab = 64}), 1, 1);
    const auto engine = make_cpu_engine(1);
    const TrainingData data = stand_in_data(config, 64);
    EXPECT_NO_THROW(Trainer(config, data, *engine, [](const std::string&) {})) << flags.back();
  }
}

// Small models are measured as they are, large ones by few layers and tokens; a GPU has the run's micro-batch.
TEST(Probe, IsAsMuchAsTheCpuTrainsInAMoment) {
  EXPECT_TRUE(is_measured_whole(probed("tiny", 16), HardwareKind::cpu));
  EXPECT_FALSE(is_measured_whole(probed("tiny", 16), HardwareKind::gpu));
  EXPECT_FALSE(is_measured_whole(probed("gpt-350m", 1), HardwareKind::cpu));
  EXPECT_TRUE(is_measured_whole(probed("convnet-small", 64), HardwareKind::gpu)) << "its blocks differ";
  EXPECT_EQ(probe_batch(probed("tiny", 16), HardwareKind::cpu), 16);
  EXPECT_EQ(probe_batch(probed("gpt-350m", 16), HardwareKind::cpu), 1);
  EXPECT_EQ(probe_batch(probed("gpt-350m", 16), HardwareKind::gpu), 16);
  const Size some = probe_batch(probed("small", 512), HardwareKind::cpu);
  EXPECT_GT(some, 4);
  EXPECT_LT(some, 512);
}

Estimate estimate_of(const std::string& recipe, double low_precision_share) {
  Estimate estimate;
  estimate.config.precision.recipe = recipe;
  estimate.flops_per_token = 2e9;
  estimate.tokens_per_step = 500'000;  // 1000 TFLOP a step
  estimate.low_precision_share = low_precision_share;
  return estimate;
}

constexpr GpuModel hopper{"planted", 90, 80, 1000, 2000};
constexpr GpuModel ampere{"older", 80, 80, 400, 0};

// Half of the peak in BF16, 35 % of it in FP8.
TEST(AssumedTime, IsTheWorkOverTheAssumedShareOfThePeak) {
  const TimeEstimate bf16 = assume_time(estimate_of("bf16", 0), hopper);
  EXPECT_EQ(bf16.origin, Origin::assumed);
  EXPECT_NEAR(bf16.seconds_per_step, 1000 / 500.0, 1e-9);
  EXPECT_NEAR(assume_time(estimate_of("fp8-delayed", 0.8), hopper).seconds_per_step, 200 / 500.0 + 800 / 700.0, 1e-9);
  EXPECT_NEAR(assume_time(estimate_of("fp8-delayed", 0.8), ampere).seconds_per_step, 1000 / 200.0, 1e-9)
      << "without FP8 arithmetic everything runs in BF16";
}

}  // namespace
}  // namespace quaver
