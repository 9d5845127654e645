// The arithmetic of a comparison, against numbers computed by hand.
#include "cli/comparison.h"

#include <gmock/gmock.h>

#include "quaver/error.h"

namespace quaver {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

SeedRun seed_run(std::uint64_t seed, double validation_loss) {
  SeedRun run;
  run.seed = seed;
  run.result.final_train_loss = 9;
  run.result.final_validation_loss = validation_loss;
  return run;
}

Contender recipe_with(const std::string& recipe, std::vector<SeedRun> runs) {
  Contender contender{recipe, {}, std::move(runs)};
  contender.config.precision.recipe = recipe;
  return contender;
}

// Three seeds each; fp8 is worse by 0.1, 0.2 and 0.6, that is by 5, 8 and 20 % of the base at the same seed.
std::vector<Contender> three_seeds() {
  return {recipe_with("fp8-delayed", {seed_run(1, 2.1), seed_run(2, 2.7), seed_run(3, 3.6)}),
          recipe_with("fp32", {seed_run(1, 2.0), seed_run(2, 2.5), seed_run(3, 3.0)})};
}

TEST(MeanOverSeeds, IsTheMeanAndTheSampleDeviation) {
  // Squares of 2, 4, 4, 4, 5, 5, 7, 9 around 5 sum to 32; over 7 that is 4.571428…
  const std::vector<double> values{2, 4, 4, 4, 5, 5, 7, 9};
  const auto found = mean_over(values);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->mean, 5);
  EXPECT_THAT(found->deviation, Optional(DoubleNear(2.1380899352993952, 1e-12)));
}

TEST(MeanOverSeeds, OfOneValueHasNoDeviationAndOfNoneThereIsNone) {
  const std::vector<double> one{3};
  EXPECT_EQ(mean_over(one)->mean, 3);
  EXPECT_EQ(mean_over(one)->deviation, std::nullopt);
  EXPECT_EQ(mean_over({}), std::nullopt);
}

TEST(Comparison, HasMeansOverSeedsAndGapsSeedBySeed) {
  const std::vector<Contender> contenders = three_seeds();
  const Comparison found = compare(contenders, "");
  EXPECT_EQ(found.loss_kind, LossKind::validation);
  EXPECT_EQ(found.seeds, 3U);
  const RecipeMetrics& tested = found.recipes[0];
  EXPECT_EQ(tested.base, 1U) << "fp32 has the highest precision, wherever it stands";
  EXPECT_NEAR(tested.loss->mean, 2.8, 1e-12);
  EXPECT_NEAR(tested.loss->deviation.value(), 0.7549834435270750, 1e-12);        // √((0.49 + 0.01 + 0.64) / 2)
  EXPECT_NEAR(tested.gap_percent->mean, 11, 1e-9);                               // (5 + 8 + 20) / 3, not 12 = 0.3 / 2.5
  EXPECT_NEAR(tested.gap_percent->deviation.value(), 7.9372539331937717, 1e-9);  // √((36 + 9 + 81) / 2)
  EXPECT_THAT(tested.seeds[1].gap_percent, Optional(DoubleNear(8, 1e-9)));
  const RecipeMetrics& base = found.recipes[1];
  EXPECT_EQ(base.base, 1U);
  EXPECT_NEAR(base.loss->mean, 2.5, 1e-12);
  EXPECT_NEAR(base.loss->deviation.value(), 0.5, 1e-12);
  EXPECT_EQ(base.gap_percent->mean, 0);
}

TEST(Comparison, PairsSeedsByTheirNumberAndNotByTheirPlace) {
  std::vector<Contender> contenders = three_seeds();
  std::swap(contenders[0].runs[0], contenders[0].runs[2]);
  EXPECT_NEAR(compare(contenders, "").recipes[0].gap_percent->mean, 11, 1e-9);
}

TEST(Comparison, OfOneSeedHasNoDeviations) {
  const std::vector<Contender> contenders{recipe_with("fp32", {seed_run(1, 2.0)}),
                                          recipe_with("bf16", {seed_run(1, 2.5)})};
  const Comparison found = compare(contenders, "");
  EXPECT_EQ(found.recipes[1].loss->deviation, std::nullopt);
  EXPECT_NEAR(found.recipes[1].gap_percent->mean, 25, 1e-12);
  EXPECT_EQ(found.recipes[1].gap_percent->deviation, std::nullopt);
}

TEST(Comparison, LeavesOutASeedThatDivergedAndTheGapThatNeedsIt) {
  std::vector<Contender> contenders = three_seeds();
  contenders[0].runs[2].status = SeedStatus::diverged;
  contenders[0].runs[2].failure = "the run diverged at step 12";
  contenders[1].runs[1].status = SeedStatus::failed;
  const Comparison found = compare(contenders, "");
  const RecipeMetrics& tested = found.recipes[0];
  EXPECT_EQ(tested.completed, 2U);
  EXPECT_NEAR(tested.loss->mean, 2.4, 1e-12) << "of 2.1 and 2.7";
  EXPECT_NEAR(tested.gap_percent->mean, 5, 1e-9) << "of seed 1 alone: the base lacks seed 2";
  EXPECT_EQ(tested.gap_percent->deviation, std::nullopt);
  ASSERT_EQ(tested.seeds.size(), 3U);
  EXPECT_EQ(tested.seeds[2].status, SeedStatus::diverged);
  EXPECT_EQ(tested.seeds[2].failure, "the run diverged at step 12");
  EXPECT_EQ(tested.seeds[2].loss, std::nullopt);
}

TEST(Comparison, CallsARunWithoutAFiniteLossDiverged) {
  std::vector<Contender> contenders = three_seeds();
  contenders[0].runs[1].result.final_validation_loss = INFINITY;
  const RecipeMetrics tested = compare(contenders, "").recipes[0];
  EXPECT_EQ(tested.seeds[1].status, SeedStatus::diverged);
  EXPECT_NEAR(tested.loss->mean, 2.85, 1e-12) << "of 2.1 and 3.6";
}

TEST(Comparison, UsesTheFinalTrainingLossWhereNothingWasValidated) {
  std::vector<Contender> contenders = three_seeds();
  for (Contender& contender : contenders) {
    for (SeedRun& run : contender.runs) run.result.final_validation_loss.reset();
  }
  contenders[0].runs[0].result.final_train_loss = 12;
  contenders[0].runs[2].result.final_train_loss.reset();
  const Comparison found = compare(contenders, "");
  EXPECT_EQ(found.loss_kind, LossKind::training);
  EXPECT_NEAR(found.recipes[0].loss->mean, 10.5, 1e-12) << "of 12 and 9";
  EXPECT_EQ(found.recipes[0].seeds[2].status, SeedStatus::diverged);
}

TEST(Comparison, MeasuresAllAgainstAChosenBase) {
  const std::vector<Contender> contenders{recipe_with("fp32", {seed_run(1, 2.0)}),
                                          recipe_with("bf16", {seed_run(1, 4.0)}),
                                          recipe_with("mxfp8", {seed_run(1, 5.0)})};
  const Comparison found = compare(contenders, "bf16");
  EXPECT_TRUE(found.is_base_chosen);
  for (const RecipeMetrics& recipe : found.recipes) EXPECT_EQ(recipe.base, 1U);
  EXPECT_NEAR(found.recipes[0].gap_percent->mean, -50, 1e-12);
  EXPECT_NEAR(found.recipes[2].gap_percent->mean, 25, 1e-12);
  EXPECT_THROW(compare(contenders, "tf32"), Error);
}

TEST(Comparison, SumsOverflowsAndSkippedStepsAndAveragesTimes) {
  std::vector<Contender> contenders = three_seeds();
  double seconds = 1;
  for (SeedRun& run : contenders[0].runs) {
    run.result.overflows = 3;
    run.result.skipped = 2;
    run.result.seconds_per_step = seconds;
    run.result.tokens_per_second = 12 / seconds;
    seconds *= 2;
  }
  const RecipeMetrics tested = compare(contenders, "").recipes[0];
  EXPECT_EQ(tested.overflows, 9U);
  EXPECT_EQ(tested.skipped, 6);
  EXPECT_NEAR(tested.seconds_per_step->mean, 7.0 / 3, 1e-12);
  EXPECT_NEAR(tested.tokens_per_second->mean, 7, 1e-12) << "of 12, 6 and 3";
}

// Constant losses stay as they are when smoothed: 1 and 3 at every step, mean 2, σ √2.
TEST(Comparison, HasTheMeanCurveAtStepsThatAllSeedsHave) {
  std::vector<Contender> contenders{recipe_with("fp32", {seed_run(1, 2.0), seed_run(2, 2.0)})};
  contenders[0].runs[0].result.losses = {{1, 1.0}, {2, 1.0}, {4, 1.0}};
  contenders[0].runs[1].result.losses = {{1, 3.0}, {3, 3.0}, {4, 3.0}};
  const MeanCurve curve = compare(contenders, "").recipes[0].train_loss;
  EXPECT_THAT(curve.step, ElementsAre(1, 4));
  EXPECT_THAT(curve.mean, ElementsAre(DoubleNear(2, 1e-12), DoubleNear(2, 1e-12)));
  EXPECT_THAT(curve.deviation, ElementsAre(DoubleNear(std::sqrt(2), 1e-12), DoubleNear(std::sqrt(2), 1e-12)));
  contenders[0].runs.pop_back();
  contenders[0].runs[0].result.losses = {{1, 1.0}, {2, 5.0}};
  const MeanCurve single = compare(contenders, "").recipes[0].train_loss;
  EXPECT_THAT(single.mean, ElementsAre(1, 5)) << "not smoothed: the chart does it";
  EXPECT_THAT(single.deviation, IsEmpty());
}

// Differences 0.5 and 1.5 at step 10: mean 1, σ √0.5.
TEST(Comparison, HasTheGapOfValidationLossesSeedBySeed) {
  std::vector<Contender> contenders{recipe_with("fp32", {seed_run(1, 2.0), seed_run(2, 2.0)}),
                                    recipe_with("bf16", {seed_run(1, 2.0), seed_run(2, 2.0)})};
  contenders[0].runs[0].result.validation = {{10, {.loss = 3.0}}};
  contenders[0].runs[1].result.validation = {{10, {.loss = 7.0}}};
  contenders[1].runs[0].result.validation = {{10, {.loss = 3.5}}, {20, {.loss = 1.0}}};
  contenders[1].runs[1].result.validation = {{10, {.loss = 8.5}}, {20, {.loss = 1.0}}};
  const Comparison found = compare(contenders, "");
  EXPECT_THAT(found.recipes[1].validation_gap.step, ElementsAre(10));
  EXPECT_THAT(found.recipes[1].validation_gap.mean, ElementsAre(DoubleNear(1, 1e-12)));
  EXPECT_THAT(found.recipes[1].validation_gap.deviation, ElementsAre(DoubleNear(std::sqrt(0.5), 1e-12)));
  EXPECT_THAT(found.recipes[0].validation_gap.mean, ElementsAre(0));
}

// Accuracies 0.5 and 0.75 at step 10, and none of a language model.
TEST(Comparison, HasTheCurveOfAccuracies) {
  std::vector<Contender> contenders{recipe_with("fp32", {seed_run(1, 2.0), seed_run(2, 2.0)})};
  contenders[0].runs[0].result.validation = {{10, {.loss = 3.0, .accuracy = 0.5}}, {20, {.loss = 2.0}}};
  contenders[0].runs[1].result.validation = {{10, {.loss = 7.0, .accuracy = 0.75}}, {20, {.loss = 2.0}}};
  const MeanCurve curve = compare(contenders, "").recipes[0].accuracy_curve;
  EXPECT_THAT(curve.step, ElementsAre(10));
  EXPECT_THAT(curve.mean, ElementsAre(0.625));
}

std::string base_of(const std::vector<Contender>& contenders, std::size_t index) {
  const Comparison found = compare(contenders, "");
  return found.recipes[found.recipes[index].base].label;
}

TEST(Base, HasTheHighestPrecisionOfAll) {
  const std::vector<const char*> by_precision{"fp32", "tf32", "fp16", "bf16", "fp8-delayed"};
  for (std::size_t highest = 0; highest + 1 < by_precision.size(); ++highest) {
    std::vector<Contender> contenders;
    for (std::size_t i = by_precision.size(); i-- > highest;) {
      contenders.push_back(recipe_with(by_precision[i], {seed_run(1, 2)}));
    }
    for (std::size_t i = 0; i < contenders.size(); ++i) EXPECT_EQ(base_of(contenders, i), by_precision[highest]);
  }
  const std::vector<Contender> low_precision{recipe_with("mxfp8", {seed_run(1, 2)}),
                                             recipe_with("fp8-delayed", {seed_run(1, 2)})};
  EXPECT_EQ(base_of(low_precision, 1), "mxfp8") << "where none is in high precision, the first";
}

// Unit-scaled runs are compared among themselves, if one of them is in high precision.
TEST(Base, IsOfTheSameParametrizationWhereThereIsOne) {
  std::vector<Contender> contenders{recipe_with("fp32", {seed_run(1, 2)}), recipe_with("bf16", {seed_run(1, 2)}),
                                    recipe_with("fp8-unit", {seed_run(1, 3)})};
  EXPECT_EQ(base_of(contenders, 2), "fp32");
  EXPECT_FALSE(compare(contenders, "").recipes[2].is_like_base);
  contenders[1].config.model.parametrization = Parametrization::umup;
  EXPECT_EQ(base_of(contenders, 2), "bf16");
  EXPECT_EQ(base_of(contenders, 1), "bf16");
  EXPECT_EQ(base_of(contenders, 0), "fp32");
  EXPECT_TRUE(compare(contenders, "").recipes[2].is_like_base);
}

}  // namespace
}  // namespace quaver
