// A run that stops and resumes must end in the same bytes as one that does not: weights, moments, scales, everything.
#include <algorithm>

#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/support.h"

namespace quaver::test {
namespace {

// Stops the run after a number of steps, as Ctrl-C would.
RunResult run_until(const Config& config, RunStart start, Size steps) {
  std::atomic<bool> stop{false};
  RunOptions options;
  options.start = start;
  options.stop = &stop;
  options.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step >= steps; };
  return run_training(config, options);
}

void expect_same_end(const std::filesystem::path& a, const std::filesystem::path& b) {
  for (const char* part : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::filesystem::path file = std::filesystem::path("checkpoints") / "step-000006" / part;
    EXPECT_EQ(contents(a / file), contents(b / file)) << part;
  }
}

class Resume : public testing::TestWithParam<std::string> {};

TEST_P(Resume, EndsInTheSameBytes) {
  const TemporaryFolder folder;
  const Config straight = small_config(GetParam(), folder.path() / "straight");
  const Config halted = small_config(GetParam(), folder.path() / "halted");
  const RunResult whole = run_training(straight, {});
  EXPECT_EQ(run_until(halted, RunStart::fresh, 3).end, RunEnd::interrupted);
  const RunResult resumed = run_until(halted, RunStart::resume, 100);
  EXPECT_EQ(resumed.end, RunEnd::finished);
  EXPECT_EQ(resumed.final_validation_loss, whole.final_validation_loss);
  EXPECT_TRUE(std::isfinite(*whole.final_validation_loss));
  expect_same_end(straight.run.dir, halted.run.dir);
}

std::vector<std::string> all_recipes() {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : recipes()) names.emplace_back(recipe.name);
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// What is kept for backward and what is cast once more is a matter of memory, never of the result.
TEST_P(Resume, MemoryModesGiveTheSameBytes) {
  const TemporaryFolder folder;
  Config kept = small_config(GetParam(), folder.path() / "kept");
  kept.train.memory = Memory::speed;
  run_training(kept, {});
  for (const Memory memory : {Memory::balanced, Memory::small}) {
    Config again = small_config(GetParam(), folder.path() / (memory == Memory::small ? "small" : "balanced"));
    again.train.memory = memory;
    run_training(again, {});
    expect_same_end(kept.run.dir, again.run.dir);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Resume, testing::ValuesIn(all_recipes()), test_name);

TEST(ResumeOptions, LowPrecisionStateAndSwitchOfRecipe) {
  const TemporaryFolder folder;
  const auto config_in = [&](const char* name) {
    Config config = small_config("nvfp4", folder.path() / name);
    config.optim.master = MasterWeights::bf16_stochastic;
    config.optim.moments = MomentFormat::fp8;
    config.precision.switch_to = "fp8-delayed";
    config.precision.switch_at = 0.34;  // after the second step
    config.precision.layers = {{"blocks.0.attn.*", "mxfp8"}};
    return config;
  };
  run_training(config_in("straight"), {});
  run_until(config_in("halted"), RunStart::fresh, 1);
  run_until(config_in("halted"), RunStart::resume, 4);
  run_until(config_in("halted"), RunStart::resume, 100);
  expect_same_end(folder.path() / "straight", folder.path() / "halted");
}

TEST(ResumeOptions, FallsBackToTheCheckpointBeforeADamagedOne) {
  const TemporaryFolder folder;
  const Config straight = small_config("fp8-delayed", folder.path() / "straight");
  const Config damaged = small_config("fp8-delayed", folder.path() / "damaged");
  run_training(straight, {});
  run_until(damaged, RunStart::fresh, 4);
  const auto newest = std::filesystem::path(damaged.run.dir) / "checkpoints" / "step-000004" / "model.safetensors";
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) / 2);
  std::vector<std::string> warnings;
  RunOptions options;
  options.start = RunStart::resume;
  options.observer.warning = [&](const std::string& text) { warnings.push_back(text); };
  run_training(damaged, options);
  ASSERT_FALSE(warnings.empty());
  EXPECT_NE(warnings.front().find("step-000004"), std::string::npos) << warnings.front();
  expect_same_end(straight.run.dir, damaged.run.dir);
}

TEST(ResumeOptions, ACheckpointOfAnotherModelIsRefused) {
  const TemporaryFolder folder;
  Config config = small_config("bf16", folder.path() / "run");
  run_until(config, RunStart::fresh, 2);
  config.model.width = 64;
  EXPECT_THROW(run_until(config, RunStart::resume, 4), Error);
  EXPECT_EQ(load_run_config(config.run.dir, {}).model.width, 32);  // the run is as it was
}

TEST(ResumeOptions, AnotherRecipeAppliesFromThereOnAndIsLogged) {
  const TemporaryFolder folder;
  Config config = small_config("nvfp4", folder.path() / "run");
  run_until(config, RunStart::fresh, 3);
  config.precision.recipe = "fp8-delayed";
  run_until(config, RunStart::resume, 100);
  const auto run = open_run(folder.path() / "run", {}, std::nullopt, [](const std::string&) {});
  const ScaleEntry& entry = run->trainer->book().entry("blocks.0.mlp.up/x");
  EXPECT_EQ(entry.site.spec.rows.format, Format::e4m3);
  EXPECT_EQ(entry.changes.front().step, 3U);
  EXPECT_EQ(entry.changes.front().reason, "resumed with fp8-delayed");
}

TEST(ResumeOptions, WideningOneSiteOfARotatedLayerUnrotatesWhatMeetsIt) {
  const TemporaryFolder folder;
  const Config config = small_config("mxfp4", folder.path() / "run");
  const TrainingData data = open_training_data(config.data, 1, 32);
  const auto engine = make_cpu_engine(1);
  Trainer trainer(config, data, *engine, [](const std::string&) {});
  trainer.change_site("blocks.0.mlp.up/w", make_recipe("bf16", config.precision).of(Role::w), "test");
  EXPECT_EQ(trainer.book().entry("blocks.0.mlp.up/dy").site.spec.rows.rotation, Rotation::none);
  EXPECT_EQ(trainer.book().entry("blocks.0.mlp.up/dy").site.spec.columns.rotation, Rotation::hadamard);
  EXPECT_EQ(trainer.book().entry("blocks.0.mlp.up/x").site.spec.columns.rotation, Rotation::hadamard);
  EXPECT_TRUE(std::isfinite(trainer.step().loss));
}

TEST(ResumeOptions, AFreshRunDoesNotOverwriteAnother) {
  const TemporaryFolder folder;
  const Config config = small_config("bf16", folder.path() / "run");
  run_until(config, RunStart::fresh, 2);
  try {
    run_training(config, {});
    FAIL() << "the run was overwritten";
  } catch (const Error& error) {
    EXPECT_NE(error.remedy().find("--resume"), std::string::npos);
  }
}

TEST(ResumeOptions, MetricsHaveEveryStepOnce) {
  const TemporaryFolder folder;
  const Config config = small_config("bf16", folder.path() / "run");
  run_until(config, RunStart::fresh, 3);
  // Lines of steps beyond the checkpoint, as a killed run leaves them, and a torn last line.
  std::ofstream(folder.path() / "run" / "metrics.jsonl", std::ios::app) << "{\"step\":4,\"loss\":9}\n{\"step\":5,\"lo";
  run_until(config, RunStart::resume, 100);
  const std::string text = contents(folder.path() / "run" / "metrics.jsonl");
  for (int step = 1; step <= 6; ++step) {
    const std::string key = "{\"step\":" + std::to_string(step) + ",\"loss\":";
    const auto first = text.find(key);
    ASSERT_NE(first, std::string::npos) << step;
    EXPECT_EQ(text.find(key, first + 1), std::string::npos) << step;
  }
}

}  // namespace
}  // namespace quaver::test
