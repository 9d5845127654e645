// The limits of the rules on sites, exactly: on which side of its threshold a statistic is bad, where it counts as
// healthy again, how many readings raise an alert and how many clear it, and when it is critical. Without noise.
#include <cmath>

#include "numerics/quiet_run.h"

namespace quaver::test {
namespace {

using SiteLimits = QuietRun;

TEST_F(SiteLimits, Underflow) {
  for (const std::string& site : {x, w, dy}) {
    expect_limits(site, Statistic::underflow_percent, AlertRule::underflow, {10, 10.1, 7.1, 6.9});
    EXPECT_EQ(last.act, Act::widen_to_bf16);
    EXPECT_EQ(last.severity, Severity::warning);
    EXPECT_EQ(last.threshold, 10);
  }
}

TEST_F(SiteLimits, UnderflowOfNearlyAllIsCritical) {
  value_of(x, Statistic::underflow_percent) = 80;
  samples_until_raised();
  EXPECT_EQ(last.severity, Severity::warning);
  value_of(w, Statistic::underflow_percent) = 80.1F;
  samples_until_raised();
  EXPECT_EQ(last.site, w);
  EXPECT_EQ(last.severity, Severity::critical);
}

TEST_F(SiteLimits, UnderflowHasALimitForEachRole) {
  AlertConfig config;
  config.underflow_x = 20;
  config.underflow_w = 30;
  config.underflow_dy = 40;
  for (const auto& [site, limit] : {std::pair(x, 20), std::pair(w, 30), std::pair(dy, 40)}) {
    alarms = Alarms(config);
    value_of(site, Statistic::underflow_percent) = static_cast<float>(limit) + 1;
    EXPECT_EQ(samples_until_raised(), 3);
    EXPECT_EQ(last.threshold, limit) << site;
    value_of(site, Statistic::underflow_percent) = static_cast<float>(limit) - 1;
    alarms = Alarms(config);
    EXPECT_EQ(samples_until_raised(), 0) << site;
  }
}

TEST_F(SiteLimits, UnderflowIsHarmlessFromTwentyDecibelsOn) {
  value_of(x, Statistic::underflow_percent) = 79;
  value_of(x, Statistic::sqnr_db) = 20;
  EXPECT_EQ(samples_until_raised(), 0);
  value_of(x, Statistic::underflow_percent) = 80;
  EXPECT_EQ(samples_until_raised(), 3) << "nearly all";
  value_of(w, Statistic::underflow_percent) = 50;
  value_of(w, Statistic::sqnr_db) = 19.9F;
  EXPECT_EQ(samples_until_raised(), 3);
  EXPECT_EQ(last.text, "blocks.0.mlp.up/w: 50.0% of the elements become zero in e4m3 at 20 dB (limit 10%)");
}

TEST_F(SiteLimits, FourBitsMayTakeMoreToZero) {
  add("four", nvfp4_rows, nvfp4_rows);
  value_of("four/x", Statistic::sqnr_db) = 30;  // no excuse in four bits
  expect_limits("four/x", Statistic::underflow_percent, AlertRule::underflow, {60, 60.1, 42.1, 41.9});
}

// Counts of every step, sampled or not.
TEST_F(SiteLimits, Saturation) {
  ScaleEntry& entry = book.entry(x);
  entry.last_step.count = 10'000;
  entry.last_step.saturated = 100;
  EXPECT_EQ(samples_until_raised(), 0) << "inside";
  entry.last_step.saturated = 101;
  ASSERT_EQ(samples_until_raised(), 3) << "beyond";
  EXPECT_EQ(last.rule, AlertRule::saturation);
  EXPECT_EQ(last.site, x);
  EXPECT_EQ(last.act, Act::reset_history);
  EXPECT_EQ(last.severity, Severity::warning);
  entry.last_step.saturated = 50;
  EXPECT_EQ(samples_until_cleared(), 0) << "borderline";
  entry.last_step.saturated = 49;
  EXPECT_EQ(samples_until_cleared(), 20) << "healthy";
  entry.last_step.saturated = 2'001;
  samples_until_raised();
  EXPECT_EQ(last.severity, Severity::critical);
}

TEST_F(SiteLimits, SaturationNeedsNoSample) {
  book.entry(x).last_step.count = 100;
  book.entry(x).last_step.saturated = 88;
  for (int i = 0; i < 2; ++i) {
    ++now.step;
    EXPECT_TRUE(alarms.watch(now, book).empty());
  }
  ++now.step;
  ASSERT_EQ(alarms.watch(now, book).size(), 1U);
}

TEST_F(SiteLimits, SaturationUnderOtherScales) {
  const QuantSpec fixed{.format = Format::e4m3, .policy = ScalePolicy::fixed};
  const QuantSpec current{.format = Format::e4m3, .policy = ScalePolicy::current};
  add("other", fixed, current);
  for (const char* site : {"other/dy", "other/x"}) book.entry(site).last_step.count = 1'000;
  book.entry("other/dy").last_step.saturated = 500;
  EXPECT_EQ(samples_until_raised(), 0) << "what a current scale clips is its rounding";
  book.entry("other/x").last_step.saturated = 199;
  EXPECT_EQ(samples_until_raised(), 3);
  EXPECT_EQ(last.act, Act::widen_to_bf16);
  EXPECT_EQ(last.severity, Severity::warning);
}

// Against the sample before, once five are known; raised at once.
TEST_F(SiteLimits, WeightJump) {
  float& amax = value_of(w, Statistic::amax);
  amax = 0.1F;
  for (int i = 0; i < 4; ++i) watch();
  amax = 100;
  EXPECT_EQ(samples_until_raised(1), 0) << "one of the first";
  amax = 1599;
  EXPECT_EQ(samples_until_raised(1), 0);
  amax = 1600 * 16.0F;
  ASSERT_EQ(samples_until_raised(1), 1);
  EXPECT_EQ(last.rule, AlertRule::weight_jump);
  EXPECT_EQ(last.site, w);
  EXPECT_EQ(samples_until_cleared(), 5);
}

TEST_F(SiteLimits, NoiseBeyondWhatTheFormatNeedMake) {
  expect_limits(x, Statistic::sqnr_deficit_db, AlertRule::sqnr_deficit, {12, 12.1, 6.1, 5.9});
  EXPECT_EQ(last.act, Act::reset_history);
  EXPECT_EQ(last.severity, Severity::warning);
  value_of(x, Statistic::sqnr_deficit_db) = 24.1F;
  samples_until_raised();
  EXPECT_EQ(last.severity, Severity::critical);
}

// E4M3 ends at 448 and its normal numbers begin at 2^-6: 14.8 binades, of which four at the low end are too few.
TEST_F(SiteLimits, StaleScale) {
  value_of(x, Statistic::scale) = 1;
  expect_limits(x, Statistic::amax, AlertRule::stale_scale, {448 * 4, 448 * 4.1, 448 * 2.1, 448 * 1.9});
  EXPECT_EQ(last.threshold, -2);
  EXPECT_NEAR(last.value, -std::log2(4.1), 1e-5);
  EXPECT_EQ(last.act, Act::reset_history);
  const double low = std::exp2(-6 + 4);
  expect_limits(x, Statistic::amax, AlertRule::stale_scale, {low * 1.01, low * 0.99, low * 1.99, low * 2.01});
  EXPECT_NEAR(last.threshold, std::log2(448 * 64.0) - 4, 1e-5);
}

TEST_F(SiteLimits, NormGrowthAgainstTheGeometricMeanOfTheFirstFive) {
  for (const float start : {1.0F, 4.0F, 1.0F, 4.0F, 2.0F}) {  // 2
    value_of(x, Statistic::rms) = start;
    watch();
  }
  expect_limits(x, Statistic::rms, AlertRule::norm_growth, {63.9, 64.1, 44.9, 44.7});
  EXPECT_NEAR(last.value, 32.05, 1e-4);
  EXPECT_EQ(last.act, Act::widen_to_bf16);
  value_of(w, Statistic::rms) = 1;
  for (int i = 0; i < 5; ++i) watch();
  value_of(w, Statistic::rms) = 1000;
  EXPECT_EQ(samples_until_raised(), 0) << "activations only";
}

TEST_F(SiteLimits, CollapseOfTheHead) {
  const QuantSpec bf16{.format = Format::bf16};
  add("head", bf16, bf16);
  value_of("head/w", Statistic::rms) = 1;
  for (int i = 0; i < 5; ++i) watch();
  expect_limits("head/w", Statistic::rms, AlertRule::embedding_collapse, {0.201, 0.199, 0.249, 0.251});
  EXPECT_EQ(last.act, Act::none);
}

TEST_F(SiteLimits, UnmovedWeights) {
  expect_limits(w, Statistic::unmoved_percent, AlertRule::unmoved_weights, {99.5, 99.6, 97.52, 97.5});
}

// A fifth of the way from the limit to 1 is healthy again; two samples are enough to raise it.
TEST_F(SiteLimits, ShadowCosine) {
  expect_limits(w, Statistic::shadow_cosine, AlertRule::shadow_cosine, {0.901, 0.899, 0.919, 0.921, 2});
  EXPECT_EQ(last.severity, Severity::warning);
  EXPECT_EQ(last.act, Act::widen_to_bf16);
  value_of(w, Statistic::shadow_cosine) = 0.449F;
  samples_until_raised();
  EXPECT_EQ(last.severity, Severity::critical);
  const QuantSpec bf16{.format = Format::bf16};
  add("mixed", nvfp4_rows, bf16);
  value_of("mixed/w", Statistic::shadow_cosine) = 0.701F;
  EXPECT_EQ(samples_until_raised(), 0) << "of the lowest-precision operand of the layer";
  value_of("mixed/w", Statistic::shadow_cosine) = 0.699F;
  EXPECT_EQ(samples_until_raised(), 2);
  EXPECT_EQ(last.threshold, 0.7);
  add("bf16", bf16, bf16);
  value_of("bf16/w", Statistic::shadow_cosine) = 0.5F;
  EXPECT_EQ(samples_until_raised(), 2);
  EXPECT_EQ(last.act, Act::none) << "nothing has higher precision";
}

// The square is a running mean that takes three tenths of each sample: from 1 it takes 17 samples of zero to fall below
// (1/20)², since 0.7^16 = 0.0033 and 0.7^17 = 0.0023; and two more make three in a row.
TEST_F(SiteLimits, GradientSnr) {
  value_of(w, Statistic::gradient_snr) = 1;
  for (int i = 0; i < 5; ++i) watch();
  value_of(w, Statistic::gradient_snr) = 0;
  EXPECT_EQ(samples_until_raised(), 19);
  EXPECT_EQ(last.rule, AlertRule::gradient_snr);
  EXPECT_EQ(last.threshold, 0.05);
  EXPECT_NEAR(last.value, std::sqrt(std::pow(0.7, 19)), 1e-9);
}

// A scale of 1 where the largest value asks for 4: off by the factor, once it has rested for 64 steps.
TEST_F(SiteLimits, FrozenScale) {
  ScaleEntry& entry = book.entry(x);
  entry.site.scale = 1;
  entry.last_step.count = 1;
  entry.last_step.amax = 113;
  EXPECT_EQ(samples_until_raised(200), 0) << "off by less than four";
  entry.site.scale = 2;
  entry.last_step.amax = 56;  // of 448: four times as much would fit
  EXPECT_EQ(samples_until_raised(200), 65);
  EXPECT_EQ(last.rule, AlertRule::frozen_scale);
  EXPECT_EQ(last.value, 64);
  EXPECT_EQ(last.act, Act::reset_history);
}

TEST_F(SiteLimits, AFrozenScaleMayRestForTheLengthOfItsHistory) {
  ScaleEntry& entry = book.entry(x);
  entry.history.assign(99, 1.0F);
  entry.site.scale = 1;
  entry.last_step.count = 1;
  entry.last_step.amax = 1;
  EXPECT_EQ(samples_until_raised(200), 101);
  EXPECT_EQ(last.threshold, 100);
}

TEST_F(SiteLimits, ATensorOfZeros) {
  ScaleEntry& entry = book.entry(dy);
  entry.site.scale = 1;
  entry.last_step.count = 1;
  entry.last_step.amax = 0;
  EXPECT_EQ(samples_until_raised(200), 64);
  EXPECT_EQ(last.rule, AlertRule::frozen_scale);
  EXPECT_EQ(last.act, Act::none);
}

TEST_F(SiteLimits, ATensorThatIsZeroNowAndThenIsNotOneOfZeros) {
  ScaleEntry& entry = book.entry(dy);
  entry.last_step.count = 1;
  for (int step = 1; step <= 300; ++step) {
    entry.site.scale = static_cast<float>(step);  // so that it is not frozen
    entry.last_step.amax = step % 60 == 0 ? 1 : 0;
    EXPECT_TRUE(watch().empty()) << step;
  }
}

// One scale of a tensor at a time: a site that gets block scales, or moves to high precision, has none that could be
// stale.
TEST_F(SiteLimits, AStaleScaleIsForgottenWithTheScale) {
  value_of(x, Statistic::scale) = 1;
  value_of(x, Statistic::amax) = 10000;
  ASSERT_EQ(samples_until_raised(), 3);
  const QuantSpec rows{.format = Format::e4m3, .block = block::row, .policy = ScalePolicy::current};
  book.set_spec(x, {rows, rows}, now.step, "test");
  EXPECT_EQ(samples_until_cleared(), 1);
}

// The largest value of the latest sixteen steps and of the sixteen before counts: an old peak does not excuse a scale
// for ever.
TEST_F(SiteLimits, AFrozenScaleIsHeldAgainstRecentPeaks) {
  ScaleEntry& entry = book.entry(x);
  entry.site.scale = 1;
  entry.last_step.count = 1;
  entry.last_step.amax = 448;
  for (int i = 0; i < 70; ++i) watch();
  EXPECT_TRUE(alarms.active().empty());
  entry.last_step.amax = 1;
  // 70 steps are four rounds of sixteen and six of a fifth: its peak is past after the ten that are left and a round.
  EXPECT_EQ(samples_until_raised(), 27);
  EXPECT_EQ(last.rule, AlertRule::frozen_scale);
}

}  // namespace
}  // namespace quaver::test
