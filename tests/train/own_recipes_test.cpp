// Recipes of a config's own: the bits of the one that is built in where they say the same, runs that need no other
// file, and combinations that no built-in recipe has.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>

#include "config/dump.h"
#include "config/load.h"
#include "config/recipe_table.h"
#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/support.h"

namespace quaver::test {
namespace {

// The tensors behind the header, which has the recipe's name.
std::string tensors_of(const std::filesystem::path& path) {
  const std::string file = contents(path);
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  return file.substr(sizeof(header) + header);
}

void expect_same_weights(const std::filesystem::path& a, const std::filesystem::path& b) {
  for (const char* part : {"model.safetensors", "optimizer.safetensors"}) {
    const std::filesystem::path file = std::filesystem::path("checkpoints") / "step-000006" / part;
    EXPECT_TRUE(tensors_of(a / file) == tensors_of(b / file)) << part << " of " << b;
    EXPECT_GT(tensors_of(a / file).size(), 1000U);
  }
}

// The config with a recipe `own` that is read from text.
Config with_text(Config config, const std::string& toml) {
  const Config read = load_config({.files = {}, .texts = {{"recipes.toml", toml}}, .flags = {}});
  config.precision.recipes = read.precision.recipes;
  return config;
}

class OwnRecipe : public testing::TestWithParam<std::string> {};

TEST_P(OwnRecipe, TrainsToTheBitsOfTheOneItWasPrintedFrom) {
  const TemporaryFolder folder;
  const Config built_in = small_config(GetParam(), folder.path() / "built-in");
  run_training(built_in, {});
  Recipe printed = make_recipe(GetParam(), {});
  printed.name = "own";
  run_training(with_text(small_config("own", folder.path() / "own"), recipe_toml(printed)), {});
  expect_same_weights(built_in.run.dir, folder.path() / "own");
}

std::string name_of_recipe(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Those whose formats decide more than the plan: loss scaling, the parametrization, the head, the last blocks.
INSTANTIATE_TEST_SUITE_P(Recipes, OwnRecipe, testing::Values("fp16", "fp8-delayed", "fp8-unit", "nvfp4"),
                         name_of_recipe);

TEST(OwnRecipes, StayWithTheRunAndItsCheckpoints) {
  const TemporaryFolder folder;
  const std::string toml =
      "[recipes.own]\nsummary = 'kept'\nx = 'e4m3 tensor delayed margin 1'\nw = 'e3m4 row current'\n"
      "dy = { rowwise = 'e5m2 1x32/e8m0 current', columnwise = 'bf16' }\n";
  const Config straight = with_text(small_config("own", folder.path() / "straight"), toml);
  run_training(straight, {});
  Config halted = with_text(small_config("own", folder.path() / "halted"), toml);
  std::atomic<bool> stop{false};
  RunOptions options;
  options.stop = &stop;
  options.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step >= 3; };
  run_training(halted, options);
  // Nothing but the folder is read from here on.
  const Config found = load_run_config(halted.run.dir, {});
  EXPECT_EQ(found.precision.recipes, straight.precision.recipes);
  RunOptions resume;
  resume.start = RunStart::resume;
  run_training(found, resume);
  expect_same_weights(straight.run.dir, halted.run.dir);
  EXPECT_NE(contents(folder.path() / "straight/config.toml").find("[recipes.own]"), std::string::npos);
  EXPECT_NE(contents(folder.path() / "straight/plan.toml").find("e3m4 row current"), std::string::npos);
}

// What is kept for backward and what is cast once more is a matter of memory, never of the result: every side is cast
// by its own spec, whichever way it comes about.
TEST(OwnRecipes, MemoryModesGiveTheSameBytesWhateverTheSidesAre) {
  const std::pair<const char*, const char*> recipes[] = {
      {"int8", "x = 'int8 row current'\nw = 'int8 row current'\ndy = 'int8 1x128/pow2 current stochastic'\n"},
      {"mxfp6", "x = 'e2m3 1x32/e8m0 current'\nw = 'e2m3 1x32/e8m0-floor current'\ndy = 'e3m2 1x32/e8m0 current'\n"},
      {"sides",
       "x = { rowwise = 'e4m3 tensor delayed', columnwise = 'e5m2 1x128 current' }\n"
       "w = { rowwise = 'e4m3 16x16 current', columnwise = 'e3m4 tensor current shrink 0.5' }\n"
       "dy = { rowwise = 'e2m1 1x16/e4m3 current stochastic', columnwise = 'int8 row current' }\n"},
      {"high", "x = 'bf16 stochastic'\nw = { rowwise = 'f16', columnwise = 'tf32' }\ndy = 'f32'\n"}};
  const TemporaryFolder reference;
  const double exact = run_training(small_config("fp32", reference.path() / "fp32"), {}).final_validation_loss.value();
  for (const auto& [name, lines] : recipes) {
    const TemporaryFolder folder;
    const auto train = [&](const char* mode, Memory memory) {
      Config config = with_text(small_config("own", folder.path() / mode), std::string("[recipes.own]\n") + lines);
      config.train.memory = memory;
      const RunResult result = run_training(config, {});
      EXPECT_NEAR(result.final_validation_loss.value(), exact, 0.01) << name << " is wrong, not inexact";
    };
    train("speed", Memory::speed);
    train("small", Memory::small);
    expect_same_weights(folder.path() / "speed", folder.path() / "small");
  }
}

}  // namespace
}  // namespace quaver::test
