// Steps and seconds to a loss, on curves whose crossings are known.
#include "cli/time_to_loss.h"

#include <gmock/gmock.h>

#include "cli/comparison.h"

namespace quaver {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Optional;

// loss(step) at steps 1 … steps, each of so many seconds.
template <class Loss>
RunResult run_of(Size steps, double seconds_per_step, Loss loss) {
  RunResult result;
  result.steps = steps;
  result.tokens_per_step = 32;
  for (Size step = 1; step <= steps; ++step) {
    const auto at = static_cast<double>(step);
    result.losses.push_back({step, loss(at), at * seconds_per_step});
  }
  return result;
}

std::vector<double> losses_of(const std::vector<LossPoint>& curve) {
  std::vector<double> losses;
  for (const LossPoint& point : curve) losses.push_back(point.loss);
  return losses;
}

TEST(RunningMean, IsOverTheStepsOfItsWindow) {
  const std::vector<LossPoint> losses{{1, 8, 1}, {2, 6, 2}, {3, 4, 3}, {5, 1, 5}};  // step 4 was skipped
  EXPECT_THAT(losses_of(running_mean(losses, 1)), ElementsAre(8, 6, 4, 1));
  const std::vector<LossPoint> of_three = running_mean(losses, 3);
  EXPECT_THAT(losses_of(of_three), ElementsAre(6, 2.5)) << "of steps 1 to 3, and of 3 to 5";
  EXPECT_EQ(of_three[1].step, 5);
  EXPECT_EQ(of_three[1].seconds, 5);
  EXPECT_TRUE(running_mean(losses, 9).empty());
  EXPECT_TRUE(running_mean({}, 2).empty());
}

// Losses 100 − step: the mean over the five steps up to s is 102 − s, which is 2 at the last. Where they are 98 − 2 ·
// step it is 102 − 2 · s: 2 at step 50.
TEST(TimeToLoss, IsTheFirstCrossingOfTheRunningMean) {
  const RunResult base = run_of(100, 0.5, [](double step) { return 100 - step; });
  const RunResult fast = run_of(100, 0.25, [](double step) { return 98 - 2 * step; });
  const auto found = time_to_loss_of(base, fast);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps, 50);
  EXPECT_EQ(found->tokens, 1600);
  EXPECT_EQ(found->seconds, 12.5);
  EXPECT_EQ(found->tokens_ratio, 0.5);
  EXPECT_THAT(found->seconds_ratio, Optional(0.25));
}

TEST(TimeToLoss, OfABaseIsItsOwnAtRatioOne) {
  const RunResult base = run_of(137, 0.1, [](double step) { return 1 / step + 0.1 * std::sin(17 * step); });
  const auto found = time_to_loss_of(base, base);
  ASSERT_TRUE(found) << "rounding must not keep a run from its own loss";
  EXPECT_LE(found->steps, 137);
  EXPECT_EQ(found->tokens, 32.0 * static_cast<double>(found->steps));
  EXPECT_EQ(found->tokens_ratio, 1);
  EXPECT_EQ(found->seconds_ratio, 1);
}

TEST(TimeToLoss, IsNothingWhereItIsNotReached) {
  const RunResult base = run_of(100, 1, [](double step) { return 100 - step; });
  const RunResult worse = run_of(100, 1, [](double step) { return 100.001 - step; });
  EXPECT_FALSE(time_to_loss_of(base, worse));
  EXPECT_FALSE(time_to_loss_of(base, RunResult{}));
  EXPECT_FALSE(time_to_loss_of(RunResult{}, base));
}

// One low step among high ones is no crossing: the mean over five steps hardly moves.
TEST(TimeToLoss, IsNotFooledByASingleStep) {
  const RunResult base = run_of(100, 1, [](double step) { return 100 - step; });
  RunResult lucky = base;
  lucky.losses[20].loss = 0;
  EXPECT_EQ(time_to_loss_of(base, lucky)->steps, 100);
}

// A pause of an hour between steps 50 and 51 is in no step's time: RunHistory adds up steps alone. Steps that were
// repeated in vain are: here ten seconds.
TEST(TimeToLoss, OfAResumedRunIsThatOfItsSteps) {
  const RunResult base = run_of(100, 1, [](double step) { return 100 - step; });
  RunResult resumed = base;
  for (std::size_t i = 50; i < 100; ++i) resumed.losses[i].seconds += 10;
  const auto found = time_to_loss_of(base, resumed);
  EXPECT_EQ(found->seconds, 110);
  EXPECT_THAT(found->seconds_ratio, Optional(DoubleNear(1.1, 1e-12)));
  EXPECT_EQ(found->tokens_ratio, 1);
}

Contender contender(const std::string& recipe, const std::vector<RunResult>& results) {
  Contender made{recipe, {}, {}};
  made.config.precision.recipe = recipe;
  for (const RunResult& result : results) {
    SeedRun& run = made.runs.emplace_back();
    run.seed = made.runs.size();
    run.result = result;
    run.result.final_train_loss = 1;
  }
  return made;
}

// The seeds' bases end elsewhere: each is compared with its own. 0.75 and 0.5 of the steps have mean 0.625 and σ √2
// / 8.
TEST(TimeToLoss, IsTakenSeedBySeed) {
  const auto from = [](double start) {
    return run_of(8, 1, [start](double step) { return start - step; });  // the window is one step
  };
  const std::vector<Contender> contenders{contender("fp32", {from(20), from(30), from(40)}),
                                          contender("fp8-delayed", {from(18), from(26), from(41)})};
  const Comparison found = compare(contenders, "");
  EXPECT_EQ(found.recipes[1].seeds[0].to_base_loss->steps, 6);
  EXPECT_EQ(found.recipes[1].seeds[1].to_base_loss->steps, 4);
  EXPECT_FALSE(found.recipes[1].seeds[2].to_base_loss);
  const MeanTimeToLoss& mean = found.recipes[1].to_base_loss;
  EXPECT_EQ(mean.seeds, 3U);
  EXPECT_EQ(mean.reached, 2U);
  EXPECT_EQ(mean.tokens->mean, 160);
  EXPECT_EQ(mean.seconds->mean, 5);
  EXPECT_NEAR(mean.tokens_ratio->mean, 0.625, 1e-12);
  EXPECT_NEAR(mean.tokens_ratio->deviation.value(), std::sqrt(2) / 8, 1e-12);
  EXPECT_EQ(found.recipes[0].to_base_loss.reached, 3U);
  EXPECT_EQ(found.recipes[0].to_base_loss.seconds_ratio->mean, 1);
  EXPECT_THAT(found.recipes[0].train_loss.seconds, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

}  // namespace
}  // namespace quaver
