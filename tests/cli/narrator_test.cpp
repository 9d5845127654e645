// What the narrator of a run prints of its steps and its end, from reports that are made up.
#include "cli/narrator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "train/own_text.h"

namespace quaver::test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

Config narrated_config() {
  Config config = small_config("fp8-delayed", "unused");
  config.train.steps = 100;
  config.train.log_every = 1;
  return config;
}

StepReport step_of(Size step, double seconds) {
  StepReport report;
  report.step = step;
  report.loss = 2.5;
  report.learning_rate = 0.125;
  report.gradient_norm = 4;
  report.tokens = 256;
  report.seconds = seconds;
  report.overflows = 3;
  report.skipped = step == 2;
  return report;
}

TEST(Narrator, TellsRatesPerSecondAndSumsOverSteps) {
  OwnTrainer own(narrated_config());
  ::testing::internal::CaptureStdout();
  {
    Narrator narrator(narrated_config(), Output::json);
    const RunObserver observer = narrator.observer();
    observer.started(own.trainer, 0);
    observer.stepped(step_of(1, 0.5), std::nullopt);
    observer.stepped(step_of(2, 0.25), 3.5);
  }
  std::istringstream lines(::testing::internal::GetCapturedStdout());
  std::vector<nlohmann::json> steps;
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object["event"] == "step") steps.push_back(object);
  }
  ASSERT_EQ(steps.size(), 2U);
  const double flops = own.trainer.model().flops_per_token(32);
  EXPECT_EQ(steps[0]["step"], 1);
  EXPECT_EQ(steps[0]["steps"], 100);
  EXPECT_EQ(steps[0]["loss"], 2.5);
  EXPECT_EQ(steps[0]["learning_rate"], 0.125);
  EXPECT_EQ(steps[0]["gradient_norm"], 4.0);
  EXPECT_EQ(steps[0]["tokens_per_second"], 512.0);
  EXPECT_NEAR(steps[0]["tflops"].get<double>(), 512 * flops / 1e12, 1e-12);
  EXPECT_NEAR(steps[0]["narrow_percent"].get<double>(), 100 * low_precision_share(own.trainer.format_shares()), 1e-9);
  EXPECT_GT(steps[0]["narrow_percent"], 50);
  EXPECT_EQ(steps[0]["overflows"], 3);
  EXPECT_EQ(steps[0]["skipped"], 0);
  EXPECT_FALSE(steps[0].contains("validation_loss"));
  EXPECT_EQ(steps[1]["tokens_per_second"], 1024.0);
  EXPECT_EQ(steps[1]["validation_loss"], 3.5);
  EXPECT_EQ(steps[1]["overflows"], 6) << "so far";
  EXPECT_EQ(steps[1]["skipped"], 1);
}

std::string concluded(const RunResult& result) {
  ::testing::internal::CaptureStdout();
  Narrator narrator(narrated_config(), Output::human);
  narrator.conclude(result);
  return ::testing::internal::GetCapturedStdout();
}

TEST(Narrator, ConcludesWithTheLossesAndTheRate) {
  RunResult result;
  result.directory = "runs/one";
  result.losses = {{1, 2.0}};
  result.final_train_loss = 2.12344;
  result.final_validation_loss = 2.5;
  result.best_loss = 1.5;
  result.tokens_per_second = 12'340;
  EXPECT_EQ(concluded(result),
            "runs/one: final training loss 2.1234, validation loss 2.5000 (best possible 1.5000), 12.3k tokens/s\n");
  result.end = RunEnd::interrupted;
  EXPECT_THAT(concluded(result), EndsWith("continue with: quaver train --resume runs/one\n"));
}

TEST(Narrator, IntroducesTheModelByItsSize) {
  OwnTrainer own(narrated_config());
  ::testing::internal::CaptureStdout();
  {
    Narrator narrator(narrated_config(), Output::human);
    narrator.observer().started(own.trainer, 0);
  }
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("fp8-delayed · 256 tokens"));
}

TEST(Narrator, TellsAClassifiersAccuracyInPercent) {
  Config config = narrated_config();
  config.data.kind = DataKind::synthetic_images;
  RunResult result;
  result.directory = "runs/x";
  result.losses = {{1, 2.5}};
  result.final_validation_loss = 0.5;
  result.best_loss = 0.25;
  result.final_validation_accuracy = 0.875;
  result.best_accuracy = 0.96875;
  result.tokens_per_second = 1000;
  ::testing::internal::CaptureStdout();
  {
    Narrator narrator(config, Output::human);
    StepReport report = step_of(1, 0.5);
    report.validation_accuracy = 0.75;
    narrator.observer().stepped(report, 1.5);
    narrator.conclude(result);
  }
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("512 img/s"), HasSubstr("accuracy 75.00%\n"),
                    HasSubstr("validation loss 0.5000 (best possible 0.2500), validation accuracy 87.50% (best "
                              "possible 96.88%), 1.00k images/s")));
}

}  // namespace
}  // namespace quaver::test
