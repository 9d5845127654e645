// Many GPUs in an estimate of a real config.
#include "study/estimate_scaling.h"

#include <array>
#include <atomic>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/thread_ranks.h"

#include "config/load.h"
#include "quaver/error.h"
#include "train/own_text.h"
#include "train/resolved_config.h"

namespace quaver {
namespace {

using ::testing::HasSubstr;

using Settings = std::vector<std::string>;

Config settings_on(const char* preset, const Settings& more) {
  Settings flags{std::string("preset=") + preset};
  flags.insert(flags.end(), more.begin(), more.end());
  return load_config({.files = {}, .texts = {}, .flags = flags});
}

Config resolved_shape(const Config& config) { return resolve_shape(config, {.vocab = config.model.vocab}); }

EstimateOptions on_gpus(Size gpus) {
  EstimateOptions options;
  options.gpu = "h200";
  options.cluster = make_cluster({.gpus = gpus, .machines = {}, .links = {}});
  return options;
}

constexpr Hardware gpu_of_sm_90{.kind = HardwareKind::gpu, .architecture = 90};

TEST(SentSizesTest, WhatFp8LayersSendIsAByteAndWhatTheRestSendsTheMasterFormat) {
  const Config config = resolved_shape(settings_on("qwen2.5-0.5b", {"precision.recipe=fp8-delayed"}));
  const SentSizes sizes = sent_sizes(config, gpu_of_sm_90, 8);
  Size count = 0;
  Size codes = 0;
  Size whole = 0;
  Size tied = 0;
  for (const ParameterSize& size : sizes.parameters) {
    count += size.count;
    whole += size.whole_bytes;
    if (size.late && size.codes_bytes > 0) tied += size.codes_bytes;
    if (!size.late) codes += size.codes_bytes;
  }
  const Size coded = 24 * 896 * (1152 + 896 + 3 * 4864);  // q, k, v; out; gate, up, down
  EXPECT_EQ(count, 494'032'768);                          // as published for Qwen2.5-0.5B
  EXPECT_GE(codes, coded + 4 * 24 * 4);                   // and a scale for each of four matrices per block
  EXPECT_LE(codes, coded + 4 * 24 * 256) << "with padding";
  EXPECT_EQ(whole, 4 * (count - coded));
  EXPECT_NEAR(static_cast<double>(tied), 2.0 * 151936 * 896, 512) << "the tied head reads it in BF16";
  EXPECT_LT(static_cast<double>(codes) / static_cast<double>(coded), 1.0001) << "bytes per weight of FP8 layers";
  EXPECT_EQ(std::ranges::max(sizes.parameters, {}, &ParameterSize::code_section).code_section, 2 * 24 + 1);
}

TEST(PlanOfARank, ShrinksWithEveryModeAndWithTheRanks) {
  // 7.6 billion weights: Qwen2.5-7B's shape.
  const Config config =
      resolved_shape(settings_on("qwen2.5-1.5b", {"precision.recipe=fp8-delayed", "model.width=3584", "model.ffn=18944",
                                                  "model.heads=28", "model.kv_heads=4", "model.tie_head=no",
                                                  "model.vocab=152064", "train.accumulation=8", "train.batch=1"}));
  const auto fixed = [&](ShardMode mode, int ranks) {
    return plan_heaviest_rank(config, gpu_of_sm_90, mode, ranks).fixed();
  };
  for (const ShardMode mode : shard_modes) EXPECT_EQ(fixed(mode, 1), plan_memory(config, gpu_of_sm_90).fixed());
  for (const int ranks : {2, 4, 8}) {
    EXPECT_LT(fixed(ShardMode::optimizer, ranks), fixed(ShardMode::none, ranks)) << ranks;
    EXPECT_LT(fixed(ShardMode::gradients, ranks), fixed(ShardMode::optimizer, ranks)) << ranks;
    EXPECT_LT(fixed(ShardMode::weights, ranks), fixed(ShardMode::gradients, ranks)) << ranks;
    EXPECT_LT(4 * fixed(ShardMode::weights, ranks), 3 * fixed(ShardMode::weights, ranks / 2)) << ranks;
  }
  const MemoryPlan whole = plan_memory(config, gpu_of_sm_90);
  const MemoryPlan half = plan_heaviest_rank(config, gpu_of_sm_90, ShardMode::optimizer, 2);
  EXPECT_NEAR(static_cast<double>(half.optimizer) / static_cast<double>(whole.optimizer), 0.5, 1e-2);
  EXPECT_EQ(half.quantized_weights, whole.quantized_weights) << "codes are everywhere";
}

TEST(SentSizesTest, BlockScalesAndBf16MastersCount) {
  const Config config = resolved_shape(
      settings_on("qwen2.5-0.5b", {"precision.recipe=fp8-block", "optim.master=bf16-stochastic", "model.layers=1"}));
  const SentSizes sizes = sent_sizes(config, gpu_of_sm_90, 2);
  const auto down = std::ranges::find(sizes.parameters, Size{896} * 4864, &ParameterSize::count);
  ASSERT_NE(down, sizes.parameters.end());
  EXPECT_EQ(down->whole_bytes, 0);
  const Size exact = down->count + 4 * (1 + 7 * 38);  // blocks of 128 × 128
  EXPECT_GE(down->codes_bytes, exact);
  EXPECT_LE(down->codes_bytes, exact + 512);
  EXPECT_EQ(sizes.parameters.front().whole_bytes, 2 * sizes.parameters.front().count);
}

// What trainers on three ranks send in a step, as their communicators count it, is what the model predicts.
TEST(SentSizesTest, AStepSendsWhatIsPredicted) {
  for (const char* recipe : {"fp8-delayed", "fp8-block", "bf16", "nvfp4"}) {
    for (const ShardMode mode : shard_modes) {
      Config config = test::miniature_config(recipe);
      config.train.accumulation = config.train.reduction_groups = 6;
      config.train.shard = mode;
      std::atomic<std::size_t> sent = 0;
      double predicted = 0;
      test::ThreadRanks(3).run([&](Communicator& ranks) {
        const auto engine = make_cpu_engine(1);
        const TrainingData data = test::OwnTrainer::text(0);
        Trainer trainer(
            config, data, *engine, [](const std::string&) {}, ranks);
        trainer.step();
        const std::size_t before = ranks.sent_bytes();
        trainer.step();  // sends the weights of the first one's update
        sent += ranks.sent_bytes() - before;
        if (!ranks.is_first()) return;
        const SentSizes sizes = sent_sizes(trainer.config(), engine->device().hardware(), 3);
        ScalingInput input;
        input.cluster.gpus = 3;
        input.parameters = sizes.parameters;
        input.equal_shares = sizes.equal_shares;
        input.micro_steps = input.rounds = 2;
        const StageScaling scaling = scale(input, mode);
        predicted = 3 * (scaling.gradients_sent + scaling.weights_sent);
        if (mode == ShardMode::none) return;
        std::array<std::size_t, 3> owned{};  // each gradient's norm goes to all
        for (const Parameter& parameter : trainer.model().parameters().all()) {
          ++owned[static_cast<std::size_t>(parameter.owner)];
        }
        predicted += static_cast<double>(3 * 2 * *std::ranges::max_element(owned) * sizeof(GradientMeasure));
      });
      EXPECT_DOUBLE_EQ(static_cast<double>(sent), predicted) << recipe << ", " << name_of(mode);
    }
  }
}

TEST(EstimateScalingTest, OneGpuIsThePlainEstimate) {
  const Config config = settings_on("gpt-350m", {"precision.recipe=fp8-delayed"});
  EstimateOptions plain;
  plain.gpu = "h200";
  const Estimate alone = estimate(config, plain);
  const Estimate one = estimate(config, on_gpus(1));
  ASSERT_TRUE(one.scaling.has_value());
  EXPECT_EQ(one.needed, alone.needed);
  EXPECT_EQ(one.time->seconds_per_step, alone.time->seconds_per_step);
  for (const StageEstimate& stage : one.scaling->stages) {
    EXPECT_EQ(stage.needed, alone.needed);
    EXPECT_EQ(*one.scaling->input.rank_seconds + stage.scaling.whole.apart, alone.time->seconds_per_step);
  }
  EXPECT_FALSE(alone.scaling.has_value());
}

TEST(EstimateScalingTest, RanksDivideTheStepButForTheOptimizer) {
  TimeEstimate time;
  time.seconds_per_step = 9;
  time.optimizer_seconds = 1;
  EXPECT_EQ(rank_seconds(time, 1), 9);
  EXPECT_EQ(rank_seconds(time, 8), 2);
}

TEST(EstimateScalingTest, GivenSpeedReplacesTheEstimate) {
  EstimateOptions options = on_gpus(8);
  options.tokens_per_second = 300'000;
  const Estimate result = estimate(settings_on("gpt-350m", {}), options);
  EXPECT_EQ(result.time->origin, Origin::given);
  EXPECT_NEAR(result.time->seconds_per_step, 524'288 / 300e3, 1e-9);
  EXPECT_NEAR(*result.scaling->input.rank_seconds, 524'288 / 300e3 / 8, 1e-9);
  EXPECT_EQ(result.scaling->input.micro_steps, 4);
  EXPECT_EQ(result.scaling->input.rounds, 1);
}

TEST(EstimateScalingTest, RoundsFollowTheReductionGroups) {
  EstimateOptions options = on_gpus(4);
  options.timing = Timing::leave_out;
  const Estimate result = estimate(settings_on("gpt-124m", {"train.reduction_groups=16"}), options);
  EXPECT_EQ(result.scaling->input.micro_steps, 8);
  EXPECT_EQ(result.scaling->input.rounds, 4);
  EXPECT_FALSE(result.scaling->input.rank_seconds.has_value());
  EXPECT_THAT(estimate_text(result), ::testing::Not(HasSubstr("tokens/s")));
}

TEST(EstimateScalingTest, RefusesWhatRanksCannotDivide) {
  const auto refused = [](Size gpus, const Settings& settings) -> std::string {
    try {
      EstimateOptions options = on_gpus(gpus);
      options.timing = Timing::leave_out;
      estimate(settings_on("gpt-124m", settings), options);
    } catch (const Error& error) {
      return std::string(error.what()) + " → " + error.remedy();
    }
    return "nothing";
  };
  EXPECT_THAT(refused(64, {}), HasSubstr("32 micro-batches"));
  EXPECT_THAT(refused(64, {}), HasSubstr("a multiple of 64"));
  EXPECT_THAT(refused(8, {"train.reduction_groups=4"}), HasSubstr("8 ranks cannot share out 4 groups"));
  EXPECT_THAT(refused(8, {"train.reduction_groups=4"}), HasSubstr("train.reduction_groups = 8"));
}

// LLM.Q from one H100 to eight, in FP8 with gradients in BF16: tokens per second of one and of all (its benchmarks/
// H100x1.md and H100x8.md). It divides weights among ranks evenly, and overlaps what it can; docs/scaling.md.
TEST(EstimateScalingTest, AgreesWithWhatOthersMeasured) {
  struct Measured {
    const char* preset;
    Settings shape;
    Size batch, accumulation;
    double one, eight;
  };
  const std::vector<Measured> measured = {{"qwen2.5-0.5b", {}, 64, 1, 164e3, 1307e3},
                                          {"qwen2.5-1.5b", {}, 32, 2, 73.0e3, 564e3},
                                          {"qwen2.5-1.5b",
                                           {"model.layers=36", "model.width=2048", "model.heads=16", "model.ffn=11008"},
                                           16,
                                           4,
                                           40.3e3,
                                           313e3}};
  for (const Measured& run : measured) {
    Settings settings{"precision.recipe=fp8-delayed",
                      "precision.layers.head=fp8-delayed",
                      "optim.master=bf16-stochastic",
                      "optim.moments=bf16",
                      "train.context=1024",
                      fmt::format("train.batch={}", run.batch),
                      fmt::format("train.accumulation={}", 8 * run.accumulation)};
    settings.insert(settings.end(), run.shape.begin(), run.shape.end());
    EstimateOptions options = on_gpus(8);
    options.gradient_bytes = 2;
    options.tokens_per_second = run.one;
    const Estimate result = estimate(settings_on(run.preset, settings), options);
    const StageScaling& optimizer = result.scaling->stages[1].scaling;
    const double published = run.eight / (8 * run.one);
    const double seconds = *result.scaling->input.rank_seconds;
    EXPECT_NEAR(efficiency(seconds, optimizer.split.apart), published, 0.022) << run.preset;
    EXPECT_NEAR(efficiency(seconds, optimizer.split.overlapped), published, 0.035) << run.preset;
  }
}

// The smallest made-up cluster whose every number is round.
ScalingEstimate round_numbers() {
  ScalingEstimate scaling;
  scaling.input.cluster = make_cluster({.gpus = 16, .machines = 2, .links = {}});
  scaling.input.parameters = {{.count = 1'000'000'000, .codes_bytes = 1'000'000'000}};
  scaling.input.rank_seconds = 0.9;
  scaling.input.tokens_per_step = 2'000'000;
  scaling.time_how = "a clock";
  StageEstimate none;
  none.scaling.gradients_sent = 7.5e9;
  none.scaling.whole = {.apart = 0.1, .overlapped = 0};
  none.scaling.split = {.apart = 0.1, .overlapped = 0};
  none.needed = Size{40} << 30;
  scaling.stages = {none};
  scaling.advice = {ShardMode::none, true, "the only one"};
  return scaling;
}

TEST(ScalingText, HasEveryFigureInItsUnitAndEveryAssumption) {
  const std::string text = scaling_text(round_numbers());
  EXPECT_THAT(
      text,
      HasSubstr(
          "\n16 GPUs, predicted: 2 machines of 8, nvlink, ib; 1 micro-batch per GPU and step\n"
          "  shard    memory  gradients sent  weights sent  exchange      step  tokens/s  efficiency  no overlap   "
          " split\n"
          "  none   40.0 GiB         7.50 GB        0.0 MB  100.0 ms  900.0 ms     2.22M     100.0 %      90.0 %  "
          "100.0 %\n"));
  for (const char* part : {"advised: shard none: the only one", "a rank by itself takes 900.0 ms: a clock",
                           "nvlink: 360 GB/s", "ib: 46 GB/s", "per GPU, 14 µs per message", "gradients: 4 bytes each",
                           "1 time per step", "weights: 1.00 GB of codes", "the largest owner has 16.00 times the mean",
                           "during 90 % of a pass", "not counted: "}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(ScalingText, SaysWhereNothingFits) {
  ScalingEstimate scaling = round_numbers();
  scaling.advice = {ShardMode::weights, false, "no stage fits: too large"};
  EXPECT_THAT(scaling_text(scaling), HasSubstr("\n  no stage fits: too large\n"));
  EXPECT_THAT(scaling_text(scaling), ::testing::Not(HasSubstr("advised")));
  Estimate estimate;
  estimate.scaling = scaling;
  EXPECT_TRUE(nlohmann::json::parse(estimate_json(estimate))["scaling"]["advised"].is_null());
}

TEST(ScalingJson, HasPlainUnits) {
  Estimate estimate;
  estimate.scaling = round_numbers();
  const auto json = nlohmann::json::parse(estimate_json(estimate))["scaling"];
  EXPECT_EQ(json["gpus"], 16);
  EXPECT_EQ(json["nodes"], 2);
  EXPECT_EQ(json["links"][1]["bytes_per_second"], 46e9);
  EXPECT_EQ(json["seconds_alone"], 0.9);
  EXPECT_EQ(json["advised"], "none");
  EXPECT_EQ(json["stages"][0]["sent_bytes"]["gradients"], 7.5e9);
  EXPECT_EQ(json["stages"][0]["without_overlap"]["seconds_per_step"], 1.0);
  EXPECT_EQ(json["stages"][0]["without_overlap"]["efficiency"], 0.9);
  EXPECT_EQ(json["stages"][0]["with_overlap"]["efficiency"], 1.0);
  EXPECT_EQ(json["assumptions"].size(), assumptions(*estimate.scaling).size());
}

}  // namespace
}  // namespace quaver
