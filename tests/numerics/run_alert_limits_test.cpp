// The limits of the rules on the metrics of every step, exactly, as those of sites in alert_limits_test.cpp.
#include <algorithm>
#include <cmath>

#include "numerics/quiet_run.h"

namespace quaver::test {
namespace {

using RunLimits = QuietRun;

TEST_F(RunLimits, CollapseOfTheTokenTable) {
  now.embedding_rms = 2;
  for (int i = 0; i < 5; ++i) watch();
  expect_step_limits(now.embedding_rms, AlertRule::embedding_collapse, {0.401, 0.399, 0.499, 0.501});
  EXPECT_EQ(last.site, "embed");
}

TEST_F(RunLimits, AttentionLogits) {
  expect_step_limits(now.max_logit, AlertRule::attention_logits, {100, 100.1, 80, 79.9});
  EXPECT_EQ(last.severity, Severity::warning);
  now.max_logit = 1000;
  samples_until_raised();
  EXPECT_EQ(last.severity, Severity::warning);
  now.max_logit = 20;
  for (int i = 0; i < 20; ++i) watch();
  now.max_logit = 1000.1;
  samples_until_raised();
  EXPECT_EQ(last.severity, Severity::critical);
}

TEST_F(RunLimits, SkippedStepsAreRaisedAtTheThirdAndCriticalAtTheFifteenth) {
  now.loss = 3;
  now.skipped = true;
  EXPECT_EQ(samples_until_raised(), 3);
  EXPECT_EQ(last.rule, AlertRule::skipped_steps);
  EXPECT_EQ(last.value, 3);
  for (int i = 4; i <= 14; ++i) watch();
  EXPECT_EQ(alarms.active().at(0).severity, Severity::warning);
  EXPECT_EQ(alarms.active().at(0).value, 14);
  watch();
  EXPECT_EQ(alarms.active().at(0).severity, Severity::critical);
  now.skipped = false;
  EXPECT_EQ(samples_until_cleared(), 20);
}

TEST_F(RunLimits, LossScaleAtItsFloor) {
  now.loss_scale = 1;
  EXPECT_EQ(samples_until_raised(), 0) << "it has never been higher";
  now.loss_scale = 2;
  EXPECT_EQ(samples_until_raised(), 0);
  now.loss_scale = 1;
  EXPECT_EQ(samples_until_raised(), 1);
  EXPECT_EQ(last.rule, AlertRule::loss_scale_floor);
  EXPECT_EQ(last.severity, Severity::critical);
  now.loss_scale = 2;
  EXPECT_EQ(samples_until_cleared(), 20);
}

// A level loss has a deviation of half a percent of it: six of those are a spike, twelve one at once.
TEST_F(RunLimits, LossSpike) {
  const auto after = [&](int steps, double loss) {
    alarms = Alarms(AlertConfig{});
    now.loss = 2;
    for (int i = 0; i < steps; ++i) watch();
    now.loss = loss;
    return samples_until_raised(1);
  };
  EXPECT_EQ(after(50, 2.119), 0);
  EXPECT_EQ(after(50, 2.121), 1);
  EXPECT_EQ(last.rule, AlertRule::loss_spike);
  EXPECT_NEAR(last.value, 12.1, 1e-6);
  EXPECT_EQ(last.threshold, 6);
  // Not settled: against the lowest so far, whose deviation counts as a twenty-fifth.
  EXPECT_EQ(after(49, 2.95), 0);
  EXPECT_EQ(after(49, 2.97), 1);
  EXPECT_EQ(after(5, 2.97), 1);
  EXPECT_EQ(after(4, 9), 0) << "too few readings";
  EXPECT_EQ(after(20, 2.5), 0);
  EXPECT_EQ(samples_until_raised(1), 0);
  EXPECT_EQ(samples_until_raised(1), 1) << "a rise by a quarter, in the third step";
  EXPECT_NEAR(last.value, 0.5 / 0.08, 1e-6);
  EXPECT_EQ(after(50, 1), 0) << "a fall is no spike";
  // Below twelve it takes three in a row.
  EXPECT_EQ(after(50, 2.119), 0);
  EXPECT_EQ(samples_until_raised(1), 0);
  EXPECT_EQ(samples_until_raised(1), 1);
  EXPECT_EQ(after(50, 2.059), 0);
  EXPECT_EQ(samples_until_raised(), 0) << "within six";
}

// The same on the logarithm, whose deviation is a tenth at least, and in both directions.
TEST_F(RunLimits, GradientNorm) {
  const auto after = [&](int steps, double factor) {
    alarms = Alarms(AlertConfig{});
    now.gradient_norm = 0.5;
    for (int i = 0; i < steps; ++i) watch();
    now.gradient_norm = 0.5 * factor;
    return samples_until_raised(1);
  };
  for (const double sign : {1.0, -1.0}) {
    EXPECT_EQ(after(50, std::exp(sign * 1.19)), 0);
    EXPECT_EQ(after(50, std::exp(sign * 1.21)), 1);
    EXPECT_EQ(last.rule, AlertRule::gradient_norm);
    EXPECT_NEAR(last.value, sign * 12.1, 1e-6);
    EXPECT_EQ(after(49, std::exp(sign * 5)), sign > 0 ? 1 : 0) << "not settled: upwards alone";
    EXPECT_EQ(after(49, std::exp(sign * 4.1)), 0);
  }
}

TEST_F(RunLimits, SamplesOfSkippedStepsAreNotJudged) {
  value_of(x, Statistic::underflow_percent) = 100;
  now.skipped = true;
  watch();
  watch();
  now.skipped = false;
  EXPECT_TRUE(watch().empty());  // the first of three
  EXPECT_TRUE(watch().empty());
  EXPECT_FALSE(watch().empty());
}

TEST_F(RunLimits, NonfiniteValuesAreRaisedAtOnceAndClearedAfterTwentySteps) {
  ScaleEntry& entry = book.entry(x);
  entry.last_step.nonfinite = 1;
  EXPECT_EQ(samples_until_raised(), 1);
  EXPECT_EQ(last.rule, AlertRule::nonfinite);
  EXPECT_EQ(last.site, x);
  entry.last_step.nonfinite = 0;
  EXPECT_EQ(samples_until_cleared(), 20);
}

TEST_F(RunLimits, GradientsThatOverflowUnderALossScaleHaveThreeSteps) {
  const auto accused = [&] {
    const std::vector<Alert> active = alarms.active();
    return std::any_of(active.begin(), active.end(),
                       [](const Alert& alert) { return alert.rule == AlertRule::nonfinite; });
  };
  book.entry(dy).last_step.nonfinite = 1;
  now.skipped = true;
  now.loss_scale = 2;
  now.loss = 3;
  for (int i = 0; i < 2; ++i) watch();
  EXPECT_FALSE(accused());
  watch();
  EXPECT_TRUE(accused());
  for (const bool scaled : {false, true}) {  // without a scale, or without a skipped step, it is no search for one
    alarms = Alarms(AlertConfig{});
    now.loss_scale = scaled ? 2 : 1;
    now.skipped = !scaled;
    watch();
    EXPECT_TRUE(accused());
  }
}

TEST_F(RunLimits, ThresholdsMustHaveAMeaning) {
  const auto refused = [](auto set) {
    AlertConfig config;
    set(config);
    try {
      const Alarms checked(config);
      return false;
    } catch (const std::exception&) {
      return true;
    }
  };
  EXPECT_FALSE(refused([](AlertConfig& c) { c.clear_steps = c.clear_samples = c.steps = c.samples = 1; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.clear_samples = 0; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.steps = 0; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.clear_steps = 0; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.frozen_steps = 0; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.frozen_factor = 0.99; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.stale_above = 0.99; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.settling_steps = 0; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.skipped_steps = 0; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.baseline_samples = 0; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.growth = 0.5; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.snr_fall = 0.5; }));
  EXPECT_FALSE(refused([](AlertConfig& c) { c.growth = c.snr_fall = c.stale_above = c.frozen_factor = 1; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.underflow_x = 0; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.collapse = 0; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.max_logit = -1; }));
  EXPECT_FALSE(refused([](AlertConfig& c) { c.shadow_cosine = 1, c.shadow_cosine_4bit = -1; }));
  EXPECT_TRUE(refused([](AlertConfig& c) { c.shadow_cosine_4bit = -1.01; }));
}

// A run without attention has no largest logit, and a gradient of zero no logarithm: neither is a reading.
TEST_F(RunLimits, WhatIsNoReadingIsNotRead) {
  now.max_logit = 500;
  ASSERT_EQ(samples_until_raised(), 3);
  now.max_logit = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(samples_until_cleared(), 0);
  now.max_logit = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(samples_until_cleared(), 0);
  now.max_logit = 1;
  EXPECT_EQ(samples_until_cleared(), 20);
  now.gradient_norm = 0.5;
  for (int i = 0; i < 60; ++i) watch();
  for (const double none : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    now.gradient_norm = none;
    EXPECT_EQ(samples_until_raised(), 0) << none;
  }
}

}  // namespace
}  // namespace quaver::test
