#include "study/estimate.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/load.h"
#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/resolved_config.h"
#include "train/run.h"

namespace quaver {
namespace {

using testing::HasSubstr;

using Flags = std::vector<std::string>;

Config config_of(Flags flags) {
  flags.insert(flags.begin(), {"train.device=cpu", "data.kind=synthetic"});
  return load_config({.files = {}, .texts = {}, .flags = flags});
}

// A model of milliseconds.
Flags miniature(const Flags& more) {
  Flags flags = {"preset=tiny",      "model.layers=2", "model.width=64",  "model.heads=2",
                 "model.context=64", "train.batch=4",  "train.threads=2", "train.steps=2"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Estimate memory_of(const Flags& flags, EstimateOptions options = {}) {
  options.timing = Timing::leave_out;
  return estimate(config_of(flags), options);
}

// The plan against a trainer that really has the memory, after it has used it.
void expect_as_trained(const Flags& flags) {
  SCOPED_TRACE(flags.back());
  const Config config = config_of(flags);
  const auto engine = make_cpu_engine(config.train.threads);
  const TrainingData data = open_training_data(config.data, config.train.seed, config.model.context);
  Trainer trainer(config, data, *engine, [](const std::string&) {});
  trainer.step();
  trainer.evaluate(1);
  trainer.step();
  const MemoryUse use = trainer.memory();
  const MemoryPlan plan = memory_of(flags).plan;
  EXPECT_EQ(plan.workspace, static_cast<Size>(engine->device().workspace_bytes()));
  EXPECT_EQ(plan.weights, use.weights);
  EXPECT_EQ(plan.activations, use.activations);
  EXPECT_EQ(plan.scratch, use.scratch);
  EXPECT_NEAR(static_cast<double>(plan.optimizer), static_cast<double>(use.optimizer), 16384);
  EXPECT_NEAR(static_cast<double>(plan.gradients), static_cast<double>(use.gradients), 16384);  // alignment
  EXPECT_NEAR(static_cast<double>(plan.quantized_weights), static_cast<double>(use.quantized_weights), 16384);
}

TEST(MemoryPlanTest, IsWhatATrainerTakesUnderEveryRecipe) {
  for (const RecipeInfo& recipe : recipes()) {
    expect_as_trained(miniature({"precision.recipe=" + std::string(recipe.name)}));
  }
}

TEST(MemoryPlanTest, IsWhatATrainerTakesWhateverElseIsSet) {
  const std::string fp8 = "precision.recipe=fp8-block";
  expect_as_trained(miniature({fp8, "model.family=llama", "model.qk_norm=true", "train.memory=small"}));
  expect_as_trained(miniature({fp8, "optim.moments=fp8", "optim.master=bf16-stochastic"}));
  expect_as_trained(miniature({fp8, "optim.optimizer=muon"}));
  expect_as_trained(
      miniature({"precision.recipe=fp32", "model.family=llama", "optim.moments=bf16", "optim.optimizer=muon"}));
  expect_as_trained(miniature({fp8, "train.statistics_every=1"}));
  expect_as_trained(miniature({fp8, "precision.accumulator=hopper"}));
  expect_as_trained(miniature({"precision.recipe=fp8-unit", "model.parametrization=munit"}));
  expect_as_trained(miniature({fp8, "precision.layers.head=fp8-row"}));
}

// Peaks that `bench step` measured on an H200, in GiB (docs/results.md).
TEST(MemoryPlanTest, AgreesWithMeasuredPeaksOfAGpu) {
  struct Measured {
    const char* preset;
    const char* recipe;
    Size batch;
    const char* memory;
    double gib;
  };
  constexpr std::array<Measured, 8> peaks = {{{"gpt-350m", "bf16", 64, "balanced", 56.8},
                                              {"gpt-350m", "fp8-delayed", 64, "balanced", 39.3},
                                              {"gpt-350m", "fp8-static", 64, "balanced", 39.3},
                                              {"gpt-350m", "fp8-current", 64, "balanced", 49.5},
                                              {"gpt-350m", "fp8-row", 64, "balanced", 49.5},
                                              {"gpt-350m", "fp8-block", 64, "balanced", 49.9},
                                              {"qwen2.5-0.5b", "fp8-delayed", 32, "balanced", 30.7},
                                              {"qwen2.5-1.5b", "fp8-delayed", 16, "balanced", 49.4}}};
  for (const Measured& peak : peaks) {
    SCOPED_TRACE(std::string(peak.preset) + " " + peak.recipe);
    const Config config =
        load_config({.files = {},
                     .texts = {},
                     .flags = {std::string("preset=") + peak.preset, std::string("precision.recipe=") + peak.recipe,
                               "train.batch=" + std::to_string(peak.batch), "train.context=1024",
                               std::string("train.memory=") + peak.memory, "train.statistics_every=0"}});
    const MemoryPlan plan = plan_memory(resolve_shape(config, {.vocab = config.model.vocab}),
                                        {.kind = HardwareKind::gpu, .architecture = 90});
    const double gib = static_cast<double>(plan.engine_total()) / 0x1p30;
    EXPECT_NEAR(gib, peak.gib, 0.02 * peak.gib);
  }
}

// What is decoded before it is multiplied needs room that native products do not.
TEST(MemoryPlanTest, CountsDecodedOperandsOfGpusWithoutFp8) {
  const Config config = resolve_shape(config_of({"preset=gpt-124m", "precision.recipe=fp8-delayed"}), {.vocab = 50304});
  const MemoryPlan hopper = plan_memory(config, {.kind = HardwareKind::gpu, .architecture = 90});
  const MemoryPlan ampere = plan_memory(config, {.kind = HardwareKind::gpu, .architecture = 80});
  const Size largest = 2 * config.train.batch * config.train.context * 4 * config.model.width;  // BF16, into the MLP
  EXPECT_GE(ampere.workspace - hopper.workspace, largest);
  EXPECT_EQ(ampere.arena(), hopper.arena());
}

// --- against the real peak of a process
// -------------------------------------------------------------------------------

constexpr const char* child_flags = "QUAVER_TEST_ESTIMATE_FLAGS";
constexpr const char* child_folder = "QUAVER_TEST_ESTIMATE_FOLDER";

// Run in a process of its own by the test below: estimates, writes the number down, trains.
TEST(EstimateChild, DISABLED_EstimatesAndTrains) {
  const char* text = std::getenv(child_flags);
  const char* folder = std::getenv(child_folder);
  ASSERT_TRUE(text != nullptr && folder != nullptr);
  Flags flags;
  std::istringstream words(text);
  for (std::string word; words >> word;) flags.push_back(word);
  flags.push_back(std::string("run.dir=") + folder + "/run");
  std::ofstream(std::string(folder) + "/needed") << memory_of(flags).needed;
  run_training(config_of(flags), {});
}

struct Peak {
  double needed = 0;  // as estimated
  double real = 0;
};

Peak run_child(const std::string& flags) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("quaver-estimate-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  setenv(child_flags, flags.c_str(), 1);
  setenv(child_folder, folder.c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stdout);
    execl("/proc/self/exe", "study_tests", "--gtest_also_run_disabled_tests",
          "--gtest_filter=EstimateChild.DISABLED_EstimatesAndTrains", nullptr);
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  Peak peak;
  std::ifstream(folder / "needed") >> peak.needed;
  peak.real = static_cast<double>(usage.ru_maxrss) * 1024;
  std::filesystem::remove_all(folder);
  EXPECT_EQ(status, 0);
  return peak;
}

TEST(EstimateTest, IsWithinFivePercentOfTheRealPeak) {
#ifdef QUAVER_SANITIZED
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  for (const char* flags : {"preset=tiny precision.recipe=fp8-delayed train.steps=2 train.eval_batches=1",
                            "preset=small precision.recipe=nvfp4 train.batch=4 train.steps=2 train.eval_batches=1"}) {
    SCOPED_TRACE(flags);
    const Peak peak = run_child(flags);
    EXPECT_NEAR(peak.needed / peak.real, 1.0, 0.05);
  }
}

TEST(MemoryPlanTest, SmallKeepsNoHiddenMatrix) {
  const auto kept = [](const std::string& recipe, const std::string& memory) {
    const Config config =
        config_of({"preset=gpt-350m", "train.batch=4", "precision.recipe=" + recipe, "train.memory=" + memory});
    const MemoryPlan plan =
        plan_memory(resolve_shape(config, {.vocab = 50304}), {.kind = HardwareKind::gpu, .architecture = 90});
    return static_cast<double>(plan.activations);
  };
  constexpr Size tokens = 4 * 1024;
  constexpr Size hidden = 24 * tokens * 4096 * 2;
  constexpr Size input = 24 * tokens * 1024;  // codes that are kept in its place; BF16 is kept anyway
  constexpr Size alignment = 24 * 1024;
  EXPECT_NEAR(kept("bf16", "balanced") - kept("bf16", "small"), hidden, alignment);
  EXPECT_NEAR(kept("fp8-delayed", "balanced") - kept("fp8-delayed", "small"), hidden - input, alignment);
}

// --- what makes it fit
// ------------------------------------------------------------------------------------------------

Flags with_settings(Flags flags, const FittingChange& change) {
  flags.insert(flags.end(), change.settings.begin(), change.settings.end());
  return flags;
}

const Flags too_large = {"preset=gpt-350m", "precision.recipe=fp8-current", "train.batch=64", "train.accumulation=2"};

TEST(EstimateTest, FindsAChangeThatFitsAndKeepsTheTokensOfAStep) {
  for (const char* memory : {"35GiB", "24GiB", "12GiB", "6GiB", "5.5GiB"}) {
    SCOPED_TRACE(memory);
    const EstimateOptions options{.gpu = "h100", .gpu_memory = parse_bytes(memory)};
    const Estimate before = memory_of(too_large, options);
    ASSERT_FALSE(before.fits());
    ASSERT_TRUE(before.change);
    const Estimate after = memory_of(with_settings(too_large, *before.change), options);
    EXPECT_TRUE(after.fits());
    EXPECT_EQ(after.needed, before.change->needed);
    EXPECT_EQ(after.tokens_per_step, before.tokens_per_step);
  }
}

TEST(EstimateTest, ChangesTheNumbersOnlyWhereNothingMilderHelps) {
  const auto settings = [](const char* memory) {
    const auto change = memory_of(too_large, {.gpu = "h100", .gpu_memory = parse_bytes(memory)}).change;
    std::string text;
    for (const std::string& setting : change.value().settings) text += setting + " ";
    return text;
  };
  EXPECT_THAT(settings("35GiB"), testing::Not(HasSubstr("optim.")));
  EXPECT_THAT(settings("5.5GiB"), HasSubstr("optim.moments=fp8"));
}

TEST(EstimateTest, SaysWhereNothingFits) {
  const Estimate hopeless = memory_of(too_large, {.gpu = "h100", .gpu_memory = parse_bytes("2GiB")});
  EXPECT_FALSE(hopeless.fits());
  EXPECT_FALSE(hopeless.change);
  EXPECT_THAT(estimate_text(hopeless), HasSubstr("Choose a smaller model"));
}

TEST(EstimateTest, TakesTheConfigsOwnLimit) {
  const Estimate limited = memory_of(miniature({"train.memory_limit_mb=2"}));
  EXPECT_EQ(limited.available, 2 * 1024 * 1024);
  EXPECT_FALSE(limited.fits());
}

// --- time
// -------------------------------------------------------------------------------------------------------------

TEST(EstimateTest, MeasuresTimeOnTheProcessors) {
  const Estimate small = estimate(config_of(miniature({"train.steps=100"})), {});
  ASSERT_TRUE(small.time);
  EXPECT_EQ(small.time->origin, Origin::measured);
  EXPECT_GT(small.time->seconds_per_step, 0);
  EXPECT_LT(small.time->seconds_per_step, 5);
}

TEST(EstimateTest, AssumesTimeForAGpuThatIsNotHereAndSaysSo) {
  const Flags flags = {"preset=gpt-350m", "train.batch=64", "train.accumulation=8"};
  const auto seconds = [&](const char* recipe, const char* gpu) {
    Flags all = flags;
    all.push_back(std::string("precision.recipe=") + recipe);
    const Estimate result = estimate(config_of(all), {.gpu = gpu, .gpu_memory = std::nullopt});
    EXPECT_EQ(result.time.value().origin, Origin::assumed);
    EXPECT_THAT(estimate_text(result), HasSubstr("assumed"));
    return result.time->seconds_per_step;
  };
  // 524,288 tokens at the rates that an H200 reached (docs/results.md).
  EXPECT_NEAR(seconds("bf16", "h200"), 524288.0 / 227508, 0.15 * 524288.0 / 227508);
  EXPECT_NEAR(seconds("fp8-delayed", "h200"), 524288.0 / 292251, 0.15 * 524288.0 / 292251);
  EXPECT_DOUBLE_EQ(seconds("fp8-delayed", "a100-80gb"), seconds("bf16", "a100-80gb"));  // no FP8 there
  EXPECT_DOUBLE_EQ(seconds("nvfp4", "h200"), seconds("bf16", "h200"));                  // through BF16
}

// --- how it is told
// ---------------------------------------------------------------------------------------------------

TEST(EstimateTest, JsonAddsUp) {
  const auto json = nlohmann::json::parse(estimate_json(memory_of(miniature({}))));
  Size sum = 0;
  for (const auto& part : json.at("memory_bytes").at("parts")) sum += part.get<Size>();
  EXPECT_EQ(sum, json.at("memory_bytes").at("needed").get<Size>());
  EXPECT_TRUE(json.at("memory_bytes").at("fits").get<bool>());
  EXPECT_EQ(json.at("tokens_per_step"), 4 * 64);
  EXPECT_TRUE(json.at("time").is_null());
  const auto gpu =
      nlohmann::json::parse(estimate_json(memory_of(too_large, {.gpu = "l4", .gpu_memory = std::nullopt})));
  EXPECT_FALSE(gpu.at("memory_bytes").at("change").at("settings").empty());
}

TEST(EstimateTest, NeedsNoData) {
  const Config config = load_config({.files = {}, .texts = {}, .flags = {"preset=tiny", "train.device=cpu"}});
  const Estimate result = estimate(config, {.gpu = "", .gpu_memory = std::nullopt, .timing = Timing::leave_out});
  EXPECT_THAT(result.notes, testing::Contains(HasSubstr("vocabulary")));
}

TEST(ParseBytes, KnowsUnitsAndRefusesTheRest) {
  EXPECT_EQ(parse_bytes("80GiB"), Size{80} << 30);
  EXPECT_EQ(parse_bytes("24 GB"), 24'000'000'000);
  EXPECT_EQ(parse_bytes("0.5MiB"), 524288);
  EXPECT_EQ(parse_bytes("1024"), 1024);
  for (const char* text : {"", "GiB", "-1GiB", "80 apples", "nan", "inf", "1e99TiB", "0"}) {
    EXPECT_THROW(parse_bytes(text), Error) << text;
  }
}

TEST(GpuModels, UnknownNamesAreAnsweredWithTheKnownOnes) {
  EXPECT_EQ(find_gpu_model("h200").architecture, 90);
  try {
    find_gpu_model("voodoo");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.remedy(), HasSubstr("h100"));
  }
}

}  // namespace
}  // namespace quaver
