// Runs of the dense classifier: every recipe learns what no linear model can, and a resumed run ends in the same bytes.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/resumed_run.h"
#include "train/support.h"

namespace quaver::test {
namespace {

Config mlp_config(const std::string& recipe, const std::filesystem::path& directory = "unused") {
  Config config;
  config.model.family = Family::mlp;
  config.model.layers = 2;
  config.model.width = 64;
  config.data.kind = DataKind::synthetic_images;
  config.data.synthetic_classes = 4;
  config.data.synthetic_pixels = 32;
  config.train.steps = 120;
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

std::vector<std::string> recipes_of_mlp() {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : recipes()) names.emplace_back(recipe.name);
  return names;
}

RunOptions resuming() {
  RunOptions options;
  options.start = RunStart::resume;
  return options;
}

class MlpRun : public testing::TestWithParam<std::string> {};

TEST_P(MlpRun, LearnsWhatNoLinearModelCan) {
  Config config = mlp_config(GetParam());
  const TrainingData data = open_training_data(config.data, 1, 1);
  const auto engine = make_cpu_engine(1);
  Trainer trainer(config, data, *engine, [](const std::string&) {});
  EXPECT_NEAR(trainer.evaluate(8).value(), std::log(4), 0.1);
  while (!trainer.finished()) trainer.step();
  const Validation end = trainer.validate(8).value();
  EXPECT_LT(end.loss, 0.6 * std::log(4)) << "a linear model stays at log 4";
  EXPECT_GT(end.loss, 0.5 * data.best_loss.value());
  EXPECT_EQ(end.rows, 512);
  EXPECT_GT(end.accuracy.value(), 0.75) << "a linear model guesses one in four";
  EXPECT_LT(end.accuracy.value(), data.best_accuracy.value() + 0.02);
}

TEST_P(MlpRun, AResumedRunEndsInTheSameBytes) {
  const TemporaryFolder folder;
  const auto config_in = [&](const char* name) {
    Config config = mlp_config(GetParam(), folder.path() / name);
    config.train.steps = 6;
    return config;
  };
  expect_resumed_bytes(folder, config_in);
}

INSTANTIATE_TEST_SUITE_P(Recipes, MlpRun, testing::ValuesIn(recipes_of_mlp()), [](const auto& instance) {
  std::string name = instance.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(MlpRunRules, AnImageIsASequenceOfOne) {
  const Config config = mlp_config("fp32");
  const TrainingData data = open_training_data(config.data, 1, 1);
  const auto engine = make_cpu_engine(1);
  Trainer trainer(config, data, *engine, [](const std::string&) {});
  EXPECT_EQ(trainer.config().train.context, 1);
  EXPECT_EQ(trainer.step().tokens, 64);
  const std::vector<std::int32_t> tokens{1, 2};
  EXPECT_THROW(trainer.next_token_logits(tokens), Error);
}

TEST(MlpRunRules, ItsAccuracyIsInItsMetricsAndItsResult) {
  const TemporaryFolder folder;
  Config config = mlp_config("fp32", folder.path() / "run");
  config.train.steps = 4;
  config.train.eval_every = 2;
  config.run.store.clear();
  const RunResult result = run_training(config, {});
  std::vector<nlohmann::json> validated;
  std::ifstream lines(folder.path() / "run" / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line);
    EXPECT_EQ(entry.contains("validation_accuracy"), entry.contains("validation_loss"));
    if (entry.contains("validation_accuracy")) validated.push_back(entry);
  }
  ASSERT_EQ(validated.size(), 2U);
  EXPECT_EQ(validated.back()["validation_accuracy"].get<double>(), result.final_validation_accuracy.value());
  EXPECT_GT(result.best_accuracy.value(), 0.9);
}

TEST(MlpRunRules, ALanguageModelHasNoAccuracy) {
  const TemporaryFolder folder;
  const RunResult result = run_training(miniature_config("fp32", folder.path() / "run"), {});
  EXPECT_TRUE(result.final_validation_loss);
  EXPECT_FALSE(result.final_validation_accuracy);
}

TEST(MlpRunRules, ResumingOnOtherImagesIsRefused) {
  const TemporaryFolder folder;
  Config config = mlp_config("bf16", folder.path() / "run");
  config.train.steps = 3;
  run_training(config, {});
  config.train.steps = 4;
  ++config.data.synthetic_seed;
  EXPECT_THROW(run_training(config, resuming()), Error);
}

}  // namespace
}  // namespace quaver::test
