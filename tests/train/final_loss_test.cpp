// The final training loss is one number: the run's result, a resumed run's and the store's agree with the log.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "store/reader.h"
#include "train/metrics.h"
#include "train/run_history.h"
#include "train/run_record.h"
#include "train/support.h"

namespace quaver::test {
namespace {

using ::testing::DoubleEq;
using ::testing::Optional;

StepReport trained(Size step, double loss) {
  StepReport report;
  report.step = step;
  report.loss = loss;
  return report;
}

StepReport skipped(Size step) {
  StepReport report = trained(step, 1e6);
  report.skipped = true;
  return report;
}

std::optional<double> final_loss_of(const RunHistory& history) {
  RunResult result;
  history.write_to(result);
  return result.final_train_loss;
}

TEST(FinalTrainLoss, IsTheMeanOfTheLastTwentiethWithoutSkippedSteps) {
  RunHistory history;
  for (Size step = 1; step <= 57; ++step) history.add(trained(step, 9));
  history.add(trained(58, 3));
  history.add(skipped(59));
  history.add(trained(60, 2));
  EXPECT_THAT(final_loss_of(history), Optional(2.5)) << "of steps 58 to 60, a twentieth of sixty";
}

TEST(FinalTrainLoss, IsAbsentWhereTheLastTwentiethTrainedNothing) {
  RunHistory history;
  EXPECT_EQ(final_loss_of(history), std::nullopt);
  for (Size step = 1; step <= 38; ++step) history.add(trained(step, 9));
  history.add(skipped(39));
  history.add(skipped(40));
  EXPECT_EQ(final_loss_of(history), std::nullopt);
}

TEST(FinalTrainLoss, OfAResumedRunCountsTheStepsBefore) {
  RunHistory history;
  history.continue_from(39, {{37, 9}, {38, 9}, {39, 4}});
  EXPECT_THAT(final_loss_of(history), Optional(4.0)) << "a twentieth of 39 is one step";
  history.add(trained(40, 1));
  EXPECT_THAT(final_loss_of(history), Optional(2.5)) << "of steps 39 and 40";
  history.rewind(38);
  history.add(trained(39, 7));
  EXPECT_THAT(final_loss_of(history), Optional(7.0));
}

TEST(FinalTrainLoss, IsReadFromALogWithoutSkippedStepsAndEvents) {
  const MetricsHistory history = read_metrics(
      "{\"step\":1,\"loss\":3.5}\n{\"step\":2,\"loss\":null,\"skipped\":true}\n{\"step\":2,\"event\":\"notice\"}\n"
      "{\"step\":3,\"loss\":8,\"skipped\":true}\n{\"step\":4,\"loss\":2.5}\n{\"step\":5,\"loss\":1.5}\n",
      4);
  ASSERT_EQ(history.losses.size(), 2U);
  EXPECT_EQ(history.losses[0].step, 1);
  EXPECT_EQ(history.losses[0].loss, 3.5);
  EXPECT_EQ(history.losses[1].step, 4);
  EXPECT_EQ(history.losses[1].loss, 2.5);
}

TEST(ReadMetrics, AddsUpTheTimeOfStepsSkippedOnesToo) {
  const MetricsHistory history = read_metrics(
      "{\"step\":1,\"loss\":3,\"seconds\":2}\n{\"step\":2,\"loss\":null,\"seconds\":4,\"skipped\":true}\n"
      "{\"step\":2,\"event\":\"interrupted\"}\n{\"step\":3,\"loss\":2,\"seconds\":8}\n"
      "{\"step\":4,\"loss\":2,\"seconds\":\"long\"}\n{\"step\":5,\"loss\":2,\"seconds\":-1e9}\n"
      "{\"step\":6,\"loss\":2,\"seconds\":64}\n",
      5);
  std::vector<double> seconds;
  for (const LossPoint& point : history.losses) seconds.push_back(point.seconds);
  EXPECT_EQ(seconds, (std::vector<double>{2, 14, 14, 14})) << "what is no time counts as none";
}

// The mean of the losses that the log has from a step on.
double mean_in_log(const std::filesystem::path& log, Size from) {
  std::istringstream lines(contents(log));
  double sum = 0;
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (!entry.contains("loss") || entry["step"].get<Size>() < from) continue;
    sum += entry["loss"].get<double>();
    ++count;
  }
  return sum / count;
}

TEST(FinalTrainLoss, IsTheSameInTheResultTheLogAndTheStore) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  Config config = miniature_config("bf16", run);
  config.train.steps = 60;
  config.train.eval_every = 0;
  config.train.checkpoint_every = 0;
  std::atomic<bool> stop{false};
  RunOptions options;
  options.stop = &stop;
  options.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step == 59; };
  ASSERT_EQ(run_training(config, options).end, RunEnd::interrupted);
  options.start = RunStart::resume;
  stop = false;
  const RunResult resumed = run_training(config, options);
  ASSERT_EQ(resumed.losses.size(), 60U) << "of both sessions";
  const double expected = mean_in_log(run / "metrics.jsonl", 58);
  EXPECT_THAT(resumed.final_train_loss, Optional(DoubleEq(expected)));
  const StoreReader store(folder.path() / store_file_name);
  EXPECT_THAT(store.run(run_id(run)).summary.final_train_loss, Optional(DoubleEq(expected)));
  EXPECT_NE(store.run(run_id(run)).summary.loss, expected) << "the last step's loss is another figure";
}

}  // namespace
}  // namespace quaver::test
