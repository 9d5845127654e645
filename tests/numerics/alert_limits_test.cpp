// The limits of every rule, exactly: on which side of its threshold a figure is bad, where it counts as healthy again,
// how many readings raise an alert and how many clear it, and when it is critical. Without noise.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "numerics/alerts.h"

namespace quaver::test {
namespace {

// A book without casts and a run without noise: nothing is raised but what a test sets.
class Quiet : public testing::Test {
 protected:
  Quiet() {
    const QuantSpec e4m3{.format = Format::e4m3, .policy = ScalePolicy::delayed};
    const QuantSpec e5m2{.format = Format::e5m2, .policy = ScalePolicy::delayed};
    add("blocks.0.mlp.up", e4m3, e5m2);
    now.learning_rate = 1e-3;
  }

  void add(const std::string& layer, const QuantSpec& forward, const QuantSpec& backward) {
    for (const Role role : {Role::x, Role::w, Role::dy}) {
      const QuantSpec& spec = role == Role::dy ? backward : forward;
      book.add({.site = layer + "/" + std::string(name_of(role)),
                .layer = layer,
                .role = role,
                .recipe = {},
                .reason = {},
                .spec = {spec, spec}});
      sample.sites.emplace_back();
      sample.binades.emplace_back();
    }
  }

  float& figure(const std::string& site, Statistic statistic) {
    for (std::size_t i = 0; i < sample.sites.size(); ++i) {
      if (book.entries()[i]->site.name == site) return sample.sites[i][statistic];
    }
    throw std::runtime_error(site);
  }

  std::vector<Alert> look() {
    ++now.step;
    return alarms.watch(now, book, &sample);
  }

  // Looks until an alert is raised; 0: never within `most`.
  int looks_until_raised(int most = 40) {
    for (int i = 1; i <= most; ++i) {
      const std::vector<Alert> raised = look();
      if (raised.empty()) continue;
      last = raised.front();
      return i;
    }
    return 0;
  }
  int looks_until_cleared(int most = 40) {
    for (int i = 1; i <= most; ++i) {
      look();
      if (!alarms.cleared().empty()) return i;
    }
    return 0;
  }

  // A figure of a sample: just inside the limit nothing is raised; just beyond, after three; between limit and healthy
  // nothing clears; in health, after five.
  void expect_limits(const std::string& site, Statistic statistic, AlertRule rule, double inside, double beyond,
                     double borderline, double healthy, int raised_after = 3) {
    SCOPED_TRACE(info(rule).name);
    float& value = figure(site, statistic);
    value = static_cast<float>(inside);
    EXPECT_EQ(looks_until_raised(), 0) << "inside";
    value = static_cast<float>(beyond);
    ASSERT_EQ(looks_until_raised(), raised_after) << "beyond";
    EXPECT_EQ(last.rule, rule);
    EXPECT_EQ(last.site, site);
    value = static_cast<float>(borderline);
    EXPECT_EQ(looks_until_cleared(), 0) << "borderline";
    value = static_cast<float>(healthy);
    EXPECT_EQ(looks_until_cleared(), 5) << "healthy";
  }

  // The same for a figure of every step: after three and after twenty.
  void expect_step_limits(double& value, AlertRule rule, double inside, double beyond, double borderline,
                          double healthy) {
    SCOPED_TRACE(info(rule).name);
    value = inside;
    EXPECT_EQ(looks_until_raised(), 0) << "inside";
    value = beyond;
    ASSERT_EQ(looks_until_raised(), 3) << "beyond";
    EXPECT_EQ(last.rule, rule);
    value = borderline;
    EXPECT_EQ(looks_until_cleared(), 0) << "borderline";
    value = healthy;
    EXPECT_EQ(looks_until_cleared(), 20) << "healthy";
  }

  const std::string x = "blocks.0.mlp.up/x", w = "blocks.0.mlp.up/w", dy = "blocks.0.mlp.up/dy";
  ScaleBook book;
  Alarms alarms{AlertConfig{}};
  NumericsSample sample;
  StepMetrics now;
  Alert last;
};

TEST_F(Quiet, Underflow) {
  for (const std::string& site : {x, w, dy}) {
    expect_limits(site, Statistic::underflow_percent, AlertRule::underflow, 10, 10.1, 7.1, 6.9);
    EXPECT_EQ(last.act, Act::widen_to_bf16);
    EXPECT_EQ(last.severity, Severity::warning);
    EXPECT_EQ(last.threshold, 10);
  }
}

TEST_F(Quiet, UnderflowOfNearlyAllIsCritical) {
  figure(x, Statistic::underflow_percent) = 80;
  looks_until_raised();
  EXPECT_EQ(last.severity, Severity::warning);
  figure(w, Statistic::underflow_percent) = 80.1F;
  looks_until_raised();
  EXPECT_EQ(last.site, w);
  EXPECT_EQ(last.severity, Severity::critical);
}

TEST_F(Quiet, UnderflowHasALimitForEachRole) {
  AlertConfig config;
  config.underflow_x = 20;
  config.underflow_w = 30;
  config.underflow_dy = 40;
  for (const auto& [site, limit] : {std::pair(x, 20), std::pair(w, 30), std::pair(dy, 40)}) {
    alarms = Alarms(config);
    figure(site, Statistic::underflow_percent) = static_cast<float>(limit) + 1;
    EXPECT_EQ(looks_until_raised(), 3);
    EXPECT_EQ(last.threshold, limit) << site;
    figure(site, Statistic::underflow_percent) = static_cast<float>(limit) - 1;
    alarms = Alarms(config);
    EXPECT_EQ(looks_until_raised(), 0) << site;
  }
}

TEST_F(Quiet, UnderflowIsHarmlessFromTwentyDecibelsOn) {
  figure(x, Statistic::underflow_percent) = 79;
  figure(x, Statistic::sqnr_db) = 20;
  EXPECT_EQ(looks_until_raised(), 0);
  figure(x, Statistic::underflow_percent) = 80;
  EXPECT_EQ(looks_until_raised(), 3) << "nearly all";
  figure(w, Statistic::underflow_percent) = 50;
  figure(w, Statistic::sqnr_db) = 19.9F;
  EXPECT_EQ(looks_until_raised(), 3);
  EXPECT_EQ(last.text, "blocks.0.mlp.up/w: 50.0% of the elements become zero in e4m3 at 20 dB (limit 10%)");
}

TEST_F(Quiet, FourBitsMayTakeMoreToZero) {
  const QuantSpec e2m1{
      .format = Format::e2m1, .block = block::b1x16, .scale = ScaleFormat::e4m3, .policy = ScalePolicy::current};
  add("four", e2m1, e2m1);
  figure("four/x", Statistic::sqnr_db) = 30;  // no excuse in four bits
  expect_limits("four/x", Statistic::underflow_percent, AlertRule::underflow, 60, 60.1, 42.1, 41.9);
}

// Counts of every step, sampled or not.
TEST_F(Quiet, Saturation) {
  ScaleEntry& entry = book.entry(x);
  entry.last_step.count = 10'000;
  entry.last_step.saturated = 100;
  EXPECT_EQ(looks_until_raised(), 0) << "inside";
  entry.last_step.saturated = 101;
  ASSERT_EQ(looks_until_raised(), 3) << "beyond";
  EXPECT_EQ(last.rule, AlertRule::saturation);
  EXPECT_EQ(last.site, x);
  EXPECT_EQ(last.act, Act::reset_history);
  EXPECT_EQ(last.severity, Severity::warning);
  entry.last_step.saturated = 50;
  EXPECT_EQ(looks_until_cleared(), 0) << "borderline";
  entry.last_step.saturated = 49;
  EXPECT_EQ(looks_until_cleared(), 20) << "healthy";
  entry.last_step.saturated = 2'001;
  looks_until_raised();
  EXPECT_EQ(last.severity, Severity::critical);
}

TEST_F(Quiet, SaturationNeedsNoSample) {
  book.entry(x).last_step.count = 100;
  book.entry(x).last_step.saturated = 88;
  for (int i = 0; i < 2; ++i) {
    ++now.step;
    EXPECT_TRUE(alarms.watch(now, book).empty());
  }
  ++now.step;
  ASSERT_EQ(alarms.watch(now, book).size(), 1U);
}

TEST_F(Quiet, SaturationUnderOtherScales) {
  const QuantSpec fixed{.format = Format::e4m3, .policy = ScalePolicy::fixed};
  const QuantSpec current{.format = Format::e4m3, .policy = ScalePolicy::current};
  add("other", fixed, current);
  for (const char* site : {"other/dy", "other/x"}) book.entry(site).last_step.count = 1'000;
  book.entry("other/dy").last_step.saturated = 500;
  EXPECT_EQ(looks_until_raised(), 0) << "what a current scale clips is its rounding";
  book.entry("other/x").last_step.saturated = 199;
  EXPECT_EQ(looks_until_raised(), 3);
  EXPECT_EQ(last.act, Act::widen_to_bf16);
  EXPECT_EQ(last.severity, Severity::warning);
}

// Against the sample before, once five are known; raised at once.
TEST_F(Quiet, WeightJump) {
  float& amax = figure(w, Statistic::amax);
  amax = 0.1F;
  for (int i = 0; i < 4; ++i) look();
  amax = 100;
  EXPECT_EQ(looks_until_raised(1), 0) << "one of the first";
  amax = 1599;
  EXPECT_EQ(looks_until_raised(1), 0);
  amax = 1600 * 16.0F;
  ASSERT_EQ(looks_until_raised(1), 1);
  EXPECT_EQ(last.rule, AlertRule::weight_jump);
  EXPECT_EQ(last.site, w);
  EXPECT_EQ(looks_until_cleared(), 5);
}

TEST_F(Quiet, NoiseBeyondWhatTheFormatNeedMake) {
  expect_limits(x, Statistic::sqnr_deficit_db, AlertRule::sqnr_deficit, 12, 12.1, 6.1, 5.9);
  EXPECT_EQ(last.act, Act::reset_history);
  EXPECT_EQ(last.severity, Severity::warning);
  figure(x, Statistic::sqnr_deficit_db) = 24.1F;
  looks_until_raised();
  EXPECT_EQ(last.severity, Severity::critical);
}

// E4M3 ends at 448 and its normal numbers begin at 2^-6: 14.8 binades, of which four at the low end are too few.
TEST_F(Quiet, StaleScale) {
  figure(x, Statistic::scale) = 1;
  expect_limits(x, Statistic::amax, AlertRule::stale_scale, 448 * 4, 448 * 4.1, 448 * 2.1, 448 * 1.9);
  EXPECT_EQ(last.threshold, -2);
  EXPECT_NEAR(last.value, -std::log2(4.1), 1e-5);
  EXPECT_EQ(last.act, Act::reset_history);
  const double low = std::exp2(-6 + 4);
  expect_limits(x, Statistic::amax, AlertRule::stale_scale, low * 1.01, low * 0.99, low * 1.99, low * 2.01);
  EXPECT_NEAR(last.threshold, std::log2(448 * 64.0) - 4, 1e-5);
}

TEST_F(Quiet, NormGrowthAgainstTheGeometricMeanOfTheFirstFive) {
  for (const float start : {1.0F, 4.0F, 1.0F, 4.0F, 2.0F}) {  // 2
    figure(x, Statistic::rms) = start;
    look();
  }
  expect_limits(x, Statistic::rms, AlertRule::norm_growth, 63.9, 64.1, 44.9, 44.7);
  EXPECT_NEAR(last.value, 32.05, 1e-4);
  EXPECT_EQ(last.act, Act::widen_to_bf16);
  figure(w, Statistic::rms) = 1;
  for (int i = 0; i < 5; ++i) look();
  figure(w, Statistic::rms) = 1000;
  EXPECT_EQ(looks_until_raised(), 0) << "activations only";
}

TEST_F(Quiet, CollapseOfTheHead) {
  const QuantSpec bf16{.format = Format::bf16};
  add("head", bf16, bf16);
  figure("head/w", Statistic::rms) = 1;
  for (int i = 0; i < 5; ++i) look();
  expect_limits("head/w", Statistic::rms, AlertRule::embedding_collapse, 0.201, 0.199, 0.249, 0.251);
  EXPECT_EQ(last.act, Act::none);
}

TEST_F(Quiet, CollapseOfTheTokenTable) {
  now.embedding_rms = 2;
  for (int i = 0; i < 5; ++i) look();
  expect_step_limits(now.embedding_rms, AlertRule::embedding_collapse, 0.401, 0.399, 0.499, 0.501);
  EXPECT_EQ(last.site, "embed");
}

TEST_F(Quiet, UnmovedWeights) {
  expect_limits(w, Statistic::unmoved_percent, AlertRule::unmoved_weights, 99.5, 99.6, 97.52, 97.5);
}

// A fifth of the way from the limit to 1 is healthy again; two samples are enough to raise it.
TEST_F(Quiet, ShadowCosine) {
  expect_limits(w, Statistic::shadow_cosine, AlertRule::shadow_cosine, 0.901, 0.899, 0.919, 0.921, 2);
  EXPECT_EQ(last.severity, Severity::warning);
  EXPECT_EQ(last.act, Act::widen_to_bf16);
  figure(w, Statistic::shadow_cosine) = 0.449F;
  looks_until_raised();
  EXPECT_EQ(last.severity, Severity::critical);
  const QuantSpec e2m1{
      .format = Format::e2m1, .block = block::b1x16, .scale = ScaleFormat::e4m3, .policy = ScalePolicy::current};
  const QuantSpec bf16{.format = Format::bf16};
  add("mixed", e2m1, bf16);
  figure("mixed/w", Statistic::shadow_cosine) = 0.701F;
  EXPECT_EQ(looks_until_raised(), 0) << "of the narrowest operand of the layer";
  figure("mixed/w", Statistic::shadow_cosine) = 0.699F;
  EXPECT_EQ(looks_until_raised(), 2);
  EXPECT_EQ(last.threshold, 0.7);
  add("wide", bf16, bf16);
  figure("wide/w", Statistic::shadow_cosine) = 0.5F;
  EXPECT_EQ(looks_until_raised(), 2);
  EXPECT_EQ(last.act, Act::none) << "nothing is wider";
}

// The square is a running mean that takes three tenths of each sample: from 1 it takes 17 samples of zero to fall below
// (1/20)², since 0.7^16 = 0.0033 and 0.7^17 = 0.0023; and two more make three in a row.
TEST_F(Quiet, GradientSnr) {
  figure(w, Statistic::gradient_snr) = 1;
  for (int i = 0; i < 5; ++i) look();
  figure(w, Statistic::gradient_snr) = 0;
  EXPECT_EQ(looks_until_raised(), 19);
  EXPECT_EQ(last.rule, AlertRule::gradient_snr);
  EXPECT_EQ(last.threshold, 0.05);
  EXPECT_NEAR(last.value, std::sqrt(std::pow(0.7, 19)), 1e-9);
}

TEST_F(Quiet, AttentionLogits) {
  expect_step_limits(now.max_logit, AlertRule::attention_logits, 100, 100.1, 80, 79.9);
  EXPECT_EQ(last.severity, Severity::warning);
  now.max_logit = 1000;
  looks_until_raised();
  EXPECT_EQ(last.severity, Severity::warning);
  now.max_logit = 20;
  for (int i = 0; i < 20; ++i) look();
  now.max_logit = 1000.1;
  looks_until_raised();
  EXPECT_EQ(last.severity, Severity::critical);
}

TEST_F(Quiet, SkippedStepsAreRaisedAtTheThirdAndCriticalAtTheFifteenth) {
  now.loss = 3;
  now.skipped = true;
  EXPECT_EQ(looks_until_raised(), 3);
  EXPECT_EQ(last.rule, AlertRule::skipped_steps);
  EXPECT_EQ(last.value, 3);
  for (int i = 4; i <= 14; ++i) look();
  EXPECT_EQ(alarms.active().at(0).severity, Severity::warning);
  EXPECT_EQ(alarms.active().at(0).value, 14);
  look();
  EXPECT_EQ(alarms.active().at(0).severity, Severity::critical);
  now.skipped = false;
  EXPECT_EQ(looks_until_cleared(), 20);
}

TEST_F(Quiet, LossScaleAtItsFloor) {
  now.loss_scale = 1;
  EXPECT_EQ(looks_until_raised(), 0) << "it has never been higher";
  now.loss_scale = 2;
  EXPECT_EQ(looks_until_raised(), 0);
  now.loss_scale = 1;
  EXPECT_EQ(looks_until_raised(), 1);
  EXPECT_EQ(last.rule, AlertRule::loss_scale_floor);
  EXPECT_EQ(last.severity, Severity::critical);
  now.loss_scale = 2;
  EXPECT_EQ(looks_until_cleared(), 20);
}

// A level loss has a deviation of half a percent of it: six of those are a spike, twelve one at once.
TEST_F(Quiet, LossSpike) {
  const auto after = [&](int steps, double loss) {
    alarms = Alarms(AlertConfig{});
    now.loss = 2;
    for (int i = 0; i < steps; ++i) look();
    now.loss = loss;
    return looks_until_raised(1);
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
  EXPECT_EQ(looks_until_raised(1), 0);
  EXPECT_EQ(looks_until_raised(1), 1) << "a rise by a quarter, in the third step";
  EXPECT_NEAR(last.value, 0.5 / 0.08, 1e-6);
  EXPECT_EQ(after(50, 1), 0) << "a fall is no spike";
  // Below twelve it takes three in a row.
  EXPECT_EQ(after(50, 2.119), 0);
  EXPECT_EQ(looks_until_raised(1), 0);
  EXPECT_EQ(looks_until_raised(1), 1);
  EXPECT_EQ(after(50, 2.059), 0);
  EXPECT_EQ(looks_until_raised(), 0) << "within six";
}

// The same on the logarithm, whose deviation is a tenth at least, and in both directions.
TEST_F(Quiet, GradientNorm) {
  const auto after = [&](int steps, double factor) {
    alarms = Alarms(AlertConfig{});
    now.gradient_norm = 0.5;
    for (int i = 0; i < steps; ++i) look();
    now.gradient_norm = 0.5 * factor;
    return looks_until_raised(1);
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

// A scale of 1 where the largest value asks for 4: off by the factor, once it has rested for 64 steps.
TEST_F(Quiet, FrozenScale) {
  ScaleEntry& entry = book.entry(x);
  entry.site.scale = 1;
  entry.last_step.count = 1;
  entry.last_step.amax = 113;
  EXPECT_EQ(looks_until_raised(200), 0) << "off by less than four";
  entry.site.scale = 2;
  entry.last_step.amax = 56;  // of 448: four times as much would fit
  EXPECT_EQ(looks_until_raised(200), 65);
  EXPECT_EQ(last.rule, AlertRule::frozen_scale);
  EXPECT_EQ(last.value, 64);
  EXPECT_EQ(last.act, Act::reset_history);
}

TEST_F(Quiet, AFrozenScaleMayRestForTheLengthOfItsHistory) {
  ScaleEntry& entry = book.entry(x);
  entry.history.assign(99, 1.0F);
  entry.site.scale = 1;
  entry.last_step.count = 1;
  entry.last_step.amax = 1;
  EXPECT_EQ(looks_until_raised(200), 101);
  EXPECT_EQ(last.threshold, 100);
}

TEST_F(Quiet, ATensorOfZeros) {
  ScaleEntry& entry = book.entry(dy);
  entry.site.scale = 1;
  entry.last_step.count = 1;
  entry.last_step.amax = 0;
  EXPECT_EQ(looks_until_raised(200), 64);
  EXPECT_EQ(last.rule, AlertRule::frozen_scale);
  EXPECT_EQ(last.act, Act::none);
}

TEST_F(Quiet, ATensorThatIsZeroNowAndThenIsNotOneOfZeros) {
  ScaleEntry& entry = book.entry(dy);
  entry.last_step.count = 1;
  for (int step = 1; step <= 300; ++step) {
    entry.site.scale = static_cast<float>(step);  // so that it is not frozen
    entry.last_step.amax = step % 60 == 0 ? 1 : 0;
    EXPECT_TRUE(look().empty()) << step;
  }
}

TEST_F(Quiet, SamplesOfSkippedStepsAreNotJudged) {
  figure(x, Statistic::underflow_percent) = 100;
  now.skipped = true;
  look();
  look();
  now.skipped = false;
  EXPECT_TRUE(look().empty());  // the first of three
  EXPECT_TRUE(look().empty());
  EXPECT_FALSE(look().empty());
}

TEST_F(Quiet, NonfiniteValuesAreRaisedAtOnceAndClearedAfterTwentySteps) {
  ScaleEntry& entry = book.entry(x);
  entry.last_step.nonfinite = 1;
  EXPECT_EQ(looks_until_raised(), 1);
  EXPECT_EQ(last.rule, AlertRule::nonfinite);
  EXPECT_EQ(last.site, x);
  entry.last_step.nonfinite = 0;
  EXPECT_EQ(looks_until_cleared(), 20);
}

TEST_F(Quiet, GradientsThatOverflowUnderALossScaleHaveThreeSteps) {
  const auto accused = [&] {
    const std::vector<Alert> active = alarms.active();
    return std::any_of(active.begin(), active.end(),
                       [](const Alert& alert) { return alert.rule == AlertRule::nonfinite; });
  };
  book.entry(dy).last_step.nonfinite = 1;
  now.skipped = true;
  now.loss_scale = 2;
  now.loss = 3;
  for (int i = 0; i < 2; ++i) look();
  EXPECT_FALSE(accused());
  look();
  EXPECT_TRUE(accused());
  for (const bool scaled : {false, true}) {  // without a scale, or without a skipped step, it is no search for one
    alarms = Alarms(AlertConfig{});
    now.loss_scale = scaled ? 2 : 1;
    now.skipped = !scaled;
    look();
    EXPECT_TRUE(accused());
  }
}

TEST_F(Quiet, ThresholdsMustHaveAMeaning) {
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
TEST_F(Quiet, WhatIsNoReadingIsNotRead) {
  now.max_logit = 500;
  ASSERT_EQ(looks_until_raised(), 3);
  now.max_logit = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(looks_until_cleared(), 0);
  now.max_logit = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(looks_until_cleared(), 0);
  now.max_logit = 1;
  EXPECT_EQ(looks_until_cleared(), 20);
  now.gradient_norm = 0.5;
  for (int i = 0; i < 60; ++i) look();
  for (const double none : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    now.gradient_norm = none;
    EXPECT_EQ(looks_until_raised(), 0) << none;
  }
}

// One scale of a tensor at a time: a site that gets block scales, or becomes wide, has none that could be stale.
TEST_F(Quiet, AStaleScaleIsForgottenWithTheScale) {
  figure(x, Statistic::scale) = 1;
  figure(x, Statistic::amax) = 10000;
  ASSERT_EQ(looks_until_raised(), 3);
  const QuantSpec rows{.format = Format::e4m3, .block = block::row, .policy = ScalePolicy::current};
  book.set_spec(x, {rows, rows}, now.step, "test");
  EXPECT_EQ(looks_until_cleared(), 1);
}

// The largest value of the latest sixteen steps and of the sixteen before counts: an old peak does not excuse a scale
// for ever.
TEST_F(Quiet, AFrozenScaleIsHeldAgainstRecentPeaks) {
  ScaleEntry& entry = book.entry(x);
  entry.site.scale = 1;
  entry.last_step.count = 1;
  entry.last_step.amax = 448;
  for (int i = 0; i < 70; ++i) look();
  EXPECT_TRUE(alarms.active().empty());
  entry.last_step.amax = 1;
  // 70 steps are four rounds of sixteen and six of a fifth: its peak is past after the ten that are left and a round.
  EXPECT_EQ(looks_until_raised(), 27);
  EXPECT_EQ(last.rule, AlertRule::frozen_scale);
}

}  // namespace
}  // namespace quaver::test
