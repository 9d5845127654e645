// The shape of the learning rate over a run.
#include "optim/schedule.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace quaver::test {
namespace {

constexpr ScheduleShape shapes[] = {ScheduleShape::constant, ScheduleShape::cosine, ScheduleShape::linear,
                                    ScheduleShape::wsd};

std::vector<double> shares(const OptimConfig& config, Size steps) {
  std::vector<double> result;
  for (Size step = 0; step < steps; ++step) result.push_back(schedule_share(config, step, steps));
  return result;
}

std::size_t warmup_steps(const OptimConfig& config, Size steps) {
  return static_cast<std::size_t>(std::floor(config.warmup * static_cast<double>(steps)));
}

TEST(Schedule, WarmsUpFromAboveZeroToThePeakAndNeverRisesAgain) {
  for (const ScheduleShape shape : shapes) {
    for (const Size steps : {1, 2, 10, 100, 997}) {
      OptimConfig config;
      config.schedule = shape;
      const std::vector<double> share = shares(config, steps);
      const std::size_t peak = warmup_steps(config, steps);
      EXPECT_GT(share[0], 0);
      for (std::size_t i = 1; i <= peak; ++i) EXPECT_GT(share[i], share[i - 1]) << i;
      EXPECT_DOUBLE_EQ(share[peak], 1);
      for (std::size_t i = peak + 1; i < share.size(); ++i) EXPECT_LE(share[i], share[i - 1] + 1e-12) << i;
    }
  }
}

TEST(Schedule, WarmUpIsLinear) {
  OptimConfig config;
  config.warmup = 0.2;
  const std::vector<double> share = shares(config, 100);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(share[i], static_cast<double>(i + 1) / 21.0, 1e-12);
}

TEST(Schedule, DecaysToTheFinalRatioAtTheLastStep) {
  for (const ScheduleShape shape : {ScheduleShape::cosine, ScheduleShape::linear, ScheduleShape::wsd}) {
    for (const Size steps : {20, 100, 1001}) {
      for (const double ratio : {0.0, 0.1, 0.5}) {
        OptimConfig config;
        config.schedule = shape;
        config.final_ratio = ratio;
        EXPECT_NEAR(schedule_share(config, steps - 1, steps), ratio, 1e-12);
        EXPECT_NEAR(schedule_share(config, steps + 5, steps), ratio, 1e-12) << "beyond the end";
      }
    }
  }
}

TEST(Schedule, MidpointsAreThoseOfTheShape) {
  OptimConfig config;
  config.warmup = 0;
  config.final_ratio = 0.2;
  const Size steps = 101;
  for (const ScheduleShape shape : {ScheduleShape::cosine, ScheduleShape::linear}) {
    config.schedule = shape;
    EXPECT_NEAR(schedule_share(config, 50, steps), 0.6, 1e-12);
  }
  config.schedule = ScheduleShape::cosine;
  EXPECT_NEAR(schedule_share(config, 25, steps), 0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  config.schedule = ScheduleShape::linear;
  EXPECT_NEAR(schedule_share(config, 25, steps), 0.8, 1e-12);
}

TEST(Schedule, StableDecayStaysAtThePeakUntilTheDecay) {
  OptimConfig config;
  config.schedule = ScheduleShape::wsd;
  config.warmup = 0.1;
  config.decay = 0.25;
  const std::vector<double> share = shares(config, 200);
  for (std::size_t i = 20; i <= 150; ++i) EXPECT_DOUBLE_EQ(share[i], 1) << i;
  for (std::size_t i = 151; i < 200; ++i) EXPECT_LT(share[i], share[i - 1]) << i;
}

TEST(Schedule, ConstantStaysAtThePeak) {
  OptimConfig config;
  config.schedule = ScheduleShape::constant;
  const std::vector<double> share = shares(config, 50);
  for (std::size_t i = warmup_steps(config, 50); i < 50; ++i) EXPECT_DOUBLE_EQ(share[i], 1);
}

}  // namespace
}  // namespace quaver::test
