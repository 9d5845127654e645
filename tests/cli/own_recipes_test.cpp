// Recipes of a config's own, wherever the program takes the name of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace quaver::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const own_recipes =
    "[recipes.own-rows]\nsummary = 'INT8 by rows'\nx = 'int8 row current'\nw = 'int8 row current'\n"
    "dy = 'e4m3 row current'\n[recipes.own-wide]\nx = 'bf16'\nw = 'bf16'\ndy = 'bf16'\n";

class OwnRecipesVerb : public testing::Test {
 protected:
  // The verb on a model of a few thousand parameters, with the recipes' file among its words.
  Outcome run(const Words& verb, const Words& more) const {
    const Words model{file_,
                      "--model.layers=1",
                      "--model.width=32",
                      "--model.heads=2",
                      "--model.context=16",
                      "--data.kind=synthetic",
                      "--train.batch=2",
                      "--train.threads=1"};
    return quaver(folder_, verb + model + more);
  }

  TemporaryFolder folder_;
  std::string file_ = folder_.write("own.toml", own_recipes).string();
};

TEST_F(OwnRecipesVerb, TrainResumesAndEvaluatesWithoutTheFile) {
  ASSERT_EQ(run({"train"}, {"--recipe=own-rows", "--steps=2", "--dir=run"}).status, 0);
  std::filesystem::remove(file_);
  const Outcome resumed = quaver(folder_, {"train", "--resume", "run", "--train.steps=3"});
  EXPECT_EQ(resumed.status, 0) << resumed.error;
  const Outcome other = quaver(folder_, {"eval", "run", "--recipe=own-wide"});
  EXPECT_EQ(other.status, 0) << other.error;
  const Outcome defined = quaver(folder_, {"eval", "run", "--recipe=late",
                                           "--recipes.late={ x = \"bf16\", w = \"e3m4 row current\", dy = \"bf16\" }"});
  EXPECT_EQ(defined.status, 0) << defined.error;
}

TEST_F(OwnRecipesVerb, CompareTakesThemInItsList) {
  const Outcome outcome =
      run({"compare"}, {"--recipes", "own-wide,own-rows", "--steps=2", "--out", "comparison", "--base", "own-wide"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("\nown-wide "), HasSubstr("\nown-rows ")));
}

TEST_F(OwnRecipesVerb, LocalizeWritesThemIntoItsPlan) {
  const Outcome outcome = run(
      {"localize"}, {"--recipe=own-rows", "--out", "map", "--batches", "2", "--warmup-steps", "0", "--group", "layer"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const Outcome plan = quaver(folder_, {"inspect", "plan", "map/precision.toml", "--model.layers=1"});
  EXPECT_EQ(plan.status, 0) << plan.error;
  EXPECT_THAT(contents(folder_.path() / "map/precision.toml"), HasSubstr("[recipes.own-rows]"));
}

TEST_F(OwnRecipesVerb, EstimateCountsThemAndAGpuRefusesWhatItCannotCast) {
  const Outcome cpu = run({"estimate"}, {"--recipe=own-rows", "--train.device=cpu"});
  EXPECT_EQ(cpu.status, 0) << cpu.error;
  const Outcome gpu = run({"estimate"}, {"--recipe=own-rows", "--gpu", "h200", "--tokens-per-second", "1000"});
  EXPECT_NE(gpu.status, 0);
  EXPECT_THAT(gpu.error, AllOf(HasSubstr("no casts to int8"), HasSubstr("train.device")));
}

TEST_F(OwnRecipesVerb, BenchMeasuresThem) {
  const Outcome outcome = run({"bench"}, {"--recipes", "own-rows", "--seconds", "1", "--train.device=cpu"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("own-rows"));
  const Outcome unknown = run({"bench"}, {"--recipes", "own-row"});
  EXPECT_THAT(unknown.error, AllOf(HasSubstr("'own-row'"), HasSubstr("own-rows")));
}

}  // namespace
}  // namespace quaver::test
