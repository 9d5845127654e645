// A run's metrics from its steps, those that a rewind takes back left out.
#include "train/run_history.h"

#include <gmock/gmock.h>

namespace quaver {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;

StepReport step_of(Size step, double loss, double seconds) {
  StepReport report;
  report.step = step;
  report.loss = loss;
  report.seconds = seconds;
  return report;
}

RunResult result_of(const RunHistory& history) {
  RunResult result;
  history.write_to(result);
  return result;
}

const auto at_step = [](Size step) { return Field(&LossPoint::step, step); };
const auto validated_at = [](Size step) { return Field(&ValidationPoint::step, step); };

TEST(RunHistory, IsEmptyUntilAStepIsTrainedOrValidated) {
  RunHistory history;
  EXPECT_TRUE(history.is_empty());
  StepReport skipped = step_of(1, 9, 1);
  skipped.skipped = true;
  history.add(skipped);
  EXPECT_TRUE(history.is_empty()) << "a skipped step trains nothing";
  history.add_validation(1, {.loss = 3});
  EXPECT_FALSE(history.is_empty());
  RunHistory trained;
  trained.add(step_of(1, 9, 1));
  EXPECT_FALSE(trained.is_empty());
}

TEST(RunHistory, GivesLossesTimesAndTroubles) {
  RunHistory history;
  for (Size step = 1; step <= 5; ++step) {
    StepReport report = step_of(step, 10.0 - static_cast<double>(step), static_cast<double>(step * step));
    report.skipped = step == 2;
    report.overflows = step == 4 ? 3 : 0;
    history.add(report);
  }
  history.add_validation(2, {.loss = 4.5});
  history.add_validation(5, {.loss = 4.25});
  const RunResult result = result_of(history);
  EXPECT_THAT(result.losses, ElementsAre(at_step(1), at_step(3), at_step(4), at_step(5)));
  EXPECT_THAT(result.validation, ElementsAre(validated_at(2), validated_at(5)));
  EXPECT_EQ(result.final_train_loss, 5) << "of few steps the last";
  EXPECT_EQ(result.final_validation_loss, 4.25);
  EXPECT_EQ(result.seconds_per_step, 9) << "the median of 1, 4, 9, 16, 25";
  EXPECT_EQ(result.skipped, 1);
  EXPECT_EQ(result.overflows, 3U);
}

TEST(RunHistory, ARewindForgetsEverythingOfLaterStepsButTheirTime) {
  RunHistory history;
  for (Size step = 1; step <= 4; ++step) {
    StepReport report = step_of(step, 1, 2);
    report.skipped = step == 2 || step == 4;
    report.overflows = 1;
    history.add(report);
    history.add_validation(step, {.loss = 5});
  }
  history.rewind(2);
  EXPECT_THAT(result_of(history).losses, ElementsAre(at_step(1)));
  history.add(step_of(3, 7, 100));
  const RunResult result = result_of(history);
  EXPECT_THAT(result.losses, ElementsAre(at_step(1), at_step(3)));
  EXPECT_THAT(result.validation, ElementsAre(validated_at(1), validated_at(2)));
  EXPECT_EQ(result.skipped, 1);
  EXPECT_EQ(result.overflows, 2U);
  EXPECT_EQ(result.seconds_per_step, 2) << "of five steps";
}

// 5 seconds before the pause; however long that was, the next step ends 2 later. Skipped steps and those that a rewind
// takes back were waited for all the same.
TEST(RunHistory, CountsTheTimeOfStepsInAllSessionsAndNoPause) {
  RunHistory history;
  history.continue_from(2, {{1, 9, 3.0}, {2, 8, 5.0}});
  EXPECT_TRUE(history.is_empty()) << "nothing in this session";
  StepReport skipped = step_of(3, 7, 4);
  skipped.skipped = true;
  history.add(skipped);
  history.add(step_of(4, 6, 2));
  history.add(step_of(5, 99, 1));
  history.rewind(4);
  history.add(step_of(5, 5, 8));
  const auto after = [](double seconds) { return Field(&LossPoint::seconds, seconds); };
  EXPECT_THAT(result_of(history).losses, ElementsAre(after(3), after(5), after(11), after(20)));
}

}  // namespace
}  // namespace quaver
