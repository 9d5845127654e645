// What alerts keep over a checkpoint, in which order they stand, where the rules' odd corners lie.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numerics/alert_ledger.h"
#include "numerics/alerts.h"
#include "numerics/running_level.h"
#include "numerics/specs.h"
#include "numerics/statistics.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(StateKeys, HaveAGroupANameAndAField) {
  EXPECT_EQ(state_key("group", "a/b", "field"), "alarms|group|a/b|field");
  StateName name;
  ASSERT_TRUE(parse_state_key("alarms|group|a|b|field", name));
  EXPECT_EQ(name.group, "group");
  EXPECT_EQ(name.name, "a|b") << "a name may hold bars";
  EXPECT_EQ(name.field, "field");
  ASSERT_TRUE(parse_state_key("alarms|run||field", name));
  EXPECT_EQ(name.name, "");
  for (const char* key : {"", "alarms|", "alarms|a", "alarms|a|b", "alarm|a|b|c", "other|a|b|c", "alarmsxa|b|c"}) {
    EXPECT_FALSE(parse_state_key(key, name)) << key;
  }
  EXPECT_EQ(as_count(1), 1U);
  EXPECT_EQ(as_count(0.99), 0U);
  EXPECT_EQ(as_count(2.9), 2U);
  EXPECT_EQ(as_count(-3), 0U);
  EXPECT_EQ(as_count(0x1p63), 0U);
  EXPECT_EQ(as_count(0x1p62), std::uint64_t{1} << 62U);
  EXPECT_EQ(as_count(std::nan("")), 0U);
}

Reading plain_reading(AlertRule rule, Verdict verdict) {
  return {.rule = rule,
          .verdict = verdict,
          .value = 3,
          .threshold = 2,
          .severity = Severity::critical,
          .act = Act::reset_history,
          .patience = {1, 4}};
}

TEST(LedgerState, AlertsStandInTheOrderInWhichTheyWereRaised) {
  AlertLedger ledger;
  ledger.begin_step(1);
  ledger.take("z", plain_reading(AlertRule::underflow, Verdict::bad));
  ledger.begin_step(2);
  ledger.take("a", plain_reading(AlertRule::saturation, Verdict::bad));
  ledger.begin_step(3);
  ledger.take("z", plain_reading(AlertRule::underflow, Verdict::bad));
  ASSERT_EQ(ledger.active().size(), 2U);
  EXPECT_EQ(ledger.active()[0].site, "z") << "raised first, though it held last";
  EXPECT_EQ(ledger.active()[0].last_step, 3U);
  EXPECT_EQ(ledger.take_raised().size(), 2U);
  EXPECT_THAT(ledger.take_raised(), IsEmpty()) << "taken once";
}

TEST(LedgerState, EveryFieldOfAnAlertSurvives) {
  AlertLedger ledger;
  for (std::uint64_t step = 5; step <= 7; ++step) {
    ledger.begin_step(step);
    ledger.take("a/x", plain_reading(AlertRule::saturation, Verdict::bad));
  }
  for (std::uint64_t step = 8; step <= 10; ++step) {
    ledger.begin_step(step);
    ledger.take("a/x", plain_reading(AlertRule::saturation, Verdict::healthy));
  }
  const auto state = to_numbers({.conditions = ledger.conditions(), .run = {}, .sites = {}});
  const std::string base = "alarms|saturation|a/x|";
  const std::map<std::string, double> expected{
      {base + "raised", 1},    {base + "bad", 0},   {base + "healthy", 3}, {base + "severity", 2},  {base + "step", 5},
      {base + "last_step", 7}, {base + "count", 3}, {base + "value", 3},   {base + "threshold", 2}, {base + "act", 3}};
  EXPECT_EQ(state, expected);

  AlertLedger restored;
  restored.begin_step(1);
  restored.take("forgotten", plain_reading(AlertRule::underflow, Verdict::bad));
  restored.restore(parse_alarm_state(state).conditions);
  EXPECT_THAT(restored.take_raised(), IsEmpty());
  ASSERT_EQ(restored.active().size(), 1U) << "what was before is forgotten";
  const Alert alert = restored.active()[0];
  EXPECT_EQ(alert.rule, AlertRule::saturation);
  EXPECT_EQ(alert.site, "a/x");
  EXPECT_EQ(alert.severity, Severity::critical);
  EXPECT_EQ(alert.act, Act::reset_history);
  EXPECT_EQ(alert.step, 5U);
  EXPECT_EQ(alert.last_step, 7U);
  EXPECT_EQ(alert.count, 3U);
  EXPECT_EQ(alert.value, 3);
  EXPECT_EQ(alert.threshold, 2);
  EXPECT_EQ(alert.text, "a/x: 3.00% of the elements saturate (limit 2%)");
  restored.begin_step(11);
  restored.take("a/x", plain_reading(AlertRule::saturation, Verdict::healthy));
  EXPECT_EQ(restored.cleared().size(), 1U) << "the fourth healthy reading, three of them before the checkpoint";
}

TEST(LedgerState, NumbersFromOutsideAreBounded) {
  const std::string base = "alarms|saturation|a/x|";
  AlertLedger ledger;
  ledger.restore(
      parse_alarm_state({{base + "raised", 1}, {base + "severity", 99}, {base + "act", 99}, {base + "count", -4}})
          .conditions);
  ASSERT_EQ(ledger.active().size(), 1U);
  EXPECT_EQ(ledger.active()[0].severity, Severity::critical);
  EXPECT_EQ(ledger.active()[0].act, Act::reset_history);
  EXPECT_EQ(ledger.active()[0].count, 0U);
  ledger.restore(parse_alarm_state({{base + "raised", 0}, {base + "bad", 1}}).conditions);
  EXPECT_THAT(ledger.active(), IsEmpty());
}

// One site with a delayed scale; steps without samples unless a test gives one.
class Corners : public testing::Test {
 protected:
  Corners() {
    add("blocks.0.up/x", Role::x, delayed_e4m3);
    now_.loss = 2;
  }
  ScaleEntry& add(const std::string& site, Role role, const QuantSpec& spec) {
    book_.add({.site = site,
               .layer = site.substr(0, site.rfind('/')),
               .role = role,
               .recipe = {},
               .reason = {},
               .spec = {spec, spec}});
    sample_.sites.emplace_back();
    sample_.binades.emplace_back();
    ScaleEntry& entry = book_.entry(site);
    entry.site.scale = 448;
    return entry;
  }
  ScaleEntry& entry() { return book_.entry("blocks.0.up/x"); }
  std::vector<Alert> step() {
    ++now_.step;
    return alarms_.watch(now_, book_);
  }
  std::vector<Alert> steps(int count) {
    std::vector<Alert> all;
    for (int i = 0; i < count; ++i) {
      for (Alert& alert : step()) all.push_back(std::move(alert));
    }
    return all;
  }
  std::vector<Alert> samples(int count) {
    std::vector<Alert> all;
    for (int i = 0; i < count; ++i) {
      ++now_.step;
      for (Alert& alert : alarms_.watch(now_, book_, &sample_)) all.push_back(std::move(alert));
    }
    return all;
  }
  void reload() {
    const auto state = to_numbers(alarms_.state());
    alarms_ = Alarms(config_);
    alarms_.restore(parse_alarm_state(state));
  }

  AlertConfig config_;
  ScaleBook book_;
  NumericsSample sample_;
  Alarms alarms_{config_};
  StepMetrics now_;
};

TEST_F(Corners, ASkippedStepBetweenHealthyOnesDefersTheClearing) {
  now_.skipped = true;
  EXPECT_EQ(steps(3).size(), 1U);
  now_.skipped = false;
  steps(19);
  now_.skipped = true;
  EXPECT_THAT(steps(1), IsEmpty());
  now_.skipped = false;
  steps(19);
  EXPECT_EQ(alarms_.active().size(), 1U);
  steps(1);
  EXPECT_EQ(alarms_.cleared().size(), 1U);
}

TEST_F(Corners, SkippedStepsInARowSurviveACheckpoint) {
  now_.skipped = true;
  EXPECT_THAT(steps(2), IsEmpty());
  reload();
  const auto raised = steps(1);
  ASSERT_EQ(raised.size(), 1U);
  EXPECT_EQ(raised[0].rule, AlertRule::skipped_steps);
  EXPECT_EQ(raised[0].value, 3);
  EXPECT_EQ(raised[0].text, "3 steps in a row were skipped");
}

TEST_F(Corners, SkippedStepsDoNotMakeTheStartOfTheEmbedding) {
  now_.embedding_rms = 100;
  now_.skipped = true;
  steps(2);
  now_.embedding_rms = 1;
  now_.skipped = false;
  steps(5);
  now_.embedding_rms = 0.5;
  const auto raised = steps(10);
  for (const Alert& alert : raised) EXPECT_NE(alert.rule, AlertRule::embedding_collapse);
  now_.embedding_rms = 0.1;
  ASSERT_EQ(steps(3).size(), 1U);
  EXPECT_NEAR(alarms_.active().back().value, 0.1, 1e-9);
}

TEST_F(Corners, AnInfiniteLossScaleWasNeverAScale) {
  now_.loss_scale = std::numeric_limits<double>::infinity();
  EXPECT_THAT(steps(1), IsEmpty());
  now_.loss_scale = 1;
  EXPECT_THAT(steps(3), IsEmpty()) << "no scale has fallen";
  now_.loss_scale = 2;
  steps(1);
  now_.loss_scale = 1;
  EXPECT_EQ(steps(1).size(), 1U);
}

TEST_F(Corners, TheTextOfAGradientNormTellsItAndWhatWasUsual) {
  now_.gradient_norm = 2;
  EXPECT_THAT(steps(60), IsEmpty());
  now_.gradient_norm = 2000;
  const auto raised = steps(1);
  ASSERT_EQ(raised.size(), 1U);
  EXPECT_EQ(raised[0].rule, AlertRule::gradient_norm);
  EXPECT_NEAR(raised[0].value, std::log(1000) / 0.1, 1e-6);
  EXPECT_EQ(raised[0].text, "the gradient norm is +69.1 deviations from what it was (limit 6): 2000 against 2");
}

TEST_F(Corners, TheTextOfALossTellsItAndWhatWasUsual) {
  EXPECT_THAT(steps(60), IsEmpty());
  now_.loss = 3;
  const auto raised = steps(1);
  ASSERT_EQ(raised.size(), 1U);
  EXPECT_NEAR(raised[0].value, 100, 1e-6) << "one, in units of half a percent of two";
  EXPECT_EQ(raised[0].text, "the loss is 100.0 deviations above what it was (limit 6): 3.0000 against 2.0000");
}

// A history is of largest magnitudes: none is negative, infinite or no number, and neither is a scale.
TEST_F(Corners, ScalesAndHistoriesOfDelayedAndFixedScalesAreUsable) {
  EXPECT_THAT(steps(1), IsEmpty());
  const float none = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const float amax : {-1.0F, none, infinity}) {
    entry().history = {1, amax, 2};
    const auto raised = steps(1);
    ASSERT_EQ(raised.size(), 1U) << amax;
    EXPECT_EQ(raised[0].rule, AlertRule::broken_scale);
    EXPECT_EQ(raised[0].severity, Severity::critical);
    EXPECT_EQ(raised[0].act, Act::reset_history);
    entry().history = {1, 0, 2};
    steps(1);
    EXPECT_EQ(alarms_.cleared().size(), 1U);
  }
  const QuantSpec fixed{.format = Format::e4m3, .policy = ScalePolicy::fixed};
  ScaleEntry& other = add("blocks.1.up/x", Role::x, fixed);
  for (const float scale : {-1.0F, none, infinity, std::numeric_limits<float>::max()}) {
    other.site.scale = scale;
    const auto raised = steps(1);
    ASSERT_EQ(raised.size(), 1U) << scale;
    EXPECT_EQ(raised[0].site, "blocks.1.up/x");
    other.site.scale = 0;
    EXPECT_THAT(steps(1), IsEmpty());
  }
}

// The book has layers in the order in which they run.
TEST_F(Corners, NonfiniteValuesBeginAtTheFirstLayer) {
  ScaleBook book;
  const QuantSpec bf16{.format = Format::bf16};
  for (const char* site : {"blocks.0/x", "blocks.1/x", "head/x"}) {
    book.add({.site = site, .layer = {}, .role = Role::x, .recipe = {}, .reason = {}, .spec = {bf16, bf16}});
    book.entry(site).last_step.nonfinite = 5;
  }
  ++now_.step;
  const auto raised = alarms_.watch(now_, book);
  ASSERT_EQ(raised.size(), 1U);
  EXPECT_EQ(raised[0].site, "blocks.0/x");
  EXPECT_EQ(raised[0].text, "blocks.0/x: values are not finite: 5, and 2 more sites have some");
}

TEST_F(Corners, TheLimitOfARoleHoldsForFourBitsWhereItIsHigher) {
  config_.underflow_x = 90;
  alarms_ = Alarms(config_);
  add("blocks.1.up/x", Role::x, {.format = Format::e2m1, .policy = ScalePolicy::delayed});
  sample_.sites[1][Statistic::underflow_percent] = 89;
  EXPECT_THAT(samples(5), IsEmpty());
  sample_.sites[1][Statistic::underflow_percent] = 91;
  const auto raised = samples(3);
  ASSERT_EQ(raised.size(), 1U);
  EXPECT_EQ(raised[0].threshold, 90);
}

// E2M1 spans log2(6) binades of normal numbers: the scale is stale in their lower half, not four binades from the end.
TEST_F(Corners, AStaleScaleOfFourBitsLeavesHalfOfTheFormat) {
  add("blocks.1.up/x", Role::x, {.format = Format::e2m1, .policy = ScalePolicy::delayed});
  SiteSample& values = sample_.sites[1];
  values[Statistic::scale] = 1;
  values[Statistic::amax] = 3;
  EXPECT_THAT(samples(5), IsEmpty());
  values[Statistic::amax] = 2;
  const auto raised = samples(3);
  ASSERT_EQ(raised.size(), 1U);
  EXPECT_EQ(raised[0].rule, AlertRule::stale_scale);
  EXPECT_NEAR(raised[0].value, std::log2(3.0), 1e-6);
  EXPECT_NEAR(raised[0].threshold, std::log2(6.0) / 2, 1e-6);
  EXPECT_THAT(raised[0].text, HasSubstr("headroom is +1.6 binades (limit +1.3): largest value 2, scale 1"));
}

// Of the mean square the newest sample is three tenths; healthy again from one and a half times the limit on.
TEST_F(Corners, ASignalToNoiseFallsAndRecovers) {
  add("blocks.1.up/w", Role::w, {.format = Format::bf16});
  float& snr = sample_.sites[1][Statistic::gradient_snr];
  snr = 1;
  EXPECT_THAT(samples(6), IsEmpty());
  snr = 0;
  int needed = 0;
  while (alarms_.active().empty() && needed < 100) {
    samples(1);
    ++needed;
  }
  // The root falls by sqrt(0.7) a sample: below 1/20 with the 17th, and the third of those raises it.
  EXPECT_EQ(needed, 19);
  const auto state = to_numbers(alarms_.state());
  EXPECT_NEAR(state.at("alarms|site|blocks.1.up/w|snr_square"), std::pow(0.7, 19), 1e-9);
  reload();
  snr = 0.06F;  // between 1/20 and 1.5/20
  samples(60);
  EXPECT_EQ(alarms_.active().size(), 1U) << "better, but not well";
  snr = 0.09F;
  samples(60);
  EXPECT_THAT(alarms_.active(), IsEmpty());
}

TEST_F(Corners, ASampleHasExactlyTheBooksSites) {
  sample_.sites.emplace_back();
  EXPECT_THROW(samples(1), Error);
  sample_.sites.resize(0);
  EXPECT_THROW(samples(1), Error);
}

// What a rule remembers of a site and of the run is in the state under its own name.
TEST_F(Corners, TheStateHoldsEveryMemory) {
  entry().last_step.count = 100;
  entry().last_step.amax = 2;
  entry().site.scale = 224;
  SiteSample& values = sample_.sites[0];
  values[Statistic::rms] = 0.5F;
  now_.gradient_norm = 3;
  now_.embedding_rms = 0.25;
  now_.loss_scale = 64;
  samples(18);
  entry().last_step.amax = 0;
  samples(4);
  const auto state = to_numbers(alarms_.state());
  const auto of_site = [&](const char* field) { return state.at(state_key("site", "blocks.0.up/x", field)); };
  EXPECT_EQ(of_site("rms_count"), 5);
  EXPECT_NEAR(of_site("rms_log"), 5 * std::log(0.5), 1e-9);
  EXPECT_EQ(of_site("scale"), 224);
  EXPECT_EQ(of_site("unchanged"), 21);
  EXPECT_EQ(of_site("zeros"), 4);
  EXPECT_EQ(of_site("peak"), 2);
  EXPECT_EQ(of_site("peak_before"), 2);
  EXPECT_EQ(of_site("filled"), 6) << "16 steps make a window";
  const auto of_run = [&](const char* field) { return state.at(state_key("run", "", field)); };
  EXPECT_EQ(of_run("loss_count"), 22);
  EXPECT_NEAR(of_run("loss_mean"), 2, 1e-9);
  EXPECT_EQ(of_run("gradient_count"), 22);
  EXPECT_NEAR(of_run("gradient_mean"), std::log(3.0), 1e-9);
  EXPECT_EQ(of_run("embedding_count"), 5);
  EXPECT_NEAR(of_run("embedding_log"), 5 * std::log(0.25), 1e-9);
  EXPECT_EQ(of_run("highest_loss_scale"), 64);
  reload();
  EXPECT_EQ(to_numbers(alarms_.state()), state);
}

TEST(RunningLevelExact, TheFirstReadingsAreWeighedAlike) {
  RunningLevel level;
  level.add(4, 0.1);
  EXPECT_EQ(level.mean, 4);
  EXPECT_EQ(level.variance, 0);
  EXPECT_EQ(level.lag, 0);
  level.add(6, 0.1);
  EXPECT_EQ(level.mean, 5) << "half of the way";
  EXPECT_EQ(level.variance, 2) << "half of the square of two";
  EXPECT_EQ(level.lag, 1);
  EXPECT_EQ(level.expected(), 6);
  EXPECT_EQ(level.count, 2);
  EXPECT_NEAR(level.distance(6 + 3 * std::sqrt(2.0), 0.1), 3, 1e-12);
  EXPECT_NEAR(level.distance(7, 10), 0.1, 1e-12) << "the least deviation";
}

TEST(RunningLevelExact, FarReadingsAreHeldBackFromTheEleventhOn) {
  const auto mean_after = [](int readings, double far) {
    RunningLevel level;
    for (int i = 0; i < readings; ++i) level.add(1, 0.1);
    level.add(far, 0.1);
    return level.mean;
  };
  EXPECT_NEAR(mean_after(9, 101), 1 + 100.0 / 10, 1e-9);
  EXPECT_NEAR(mean_after(10, 101), 1 + 0.3 / 11, 1e-9) << "three least deviations at most";
  EXPECT_NEAR(mean_after(10, -99), 1 - 0.3 / 11, 1e-9);
  EXPECT_NEAR(mean_after(100, 101), 1 + 0.3 * 0.02, 1e-9) << "a fiftieth in the long run";
}

TEST(AlertDefaults, AreTheDocumentedOnes) {
  const AlertConfig config;
  EXPECT_TRUE(config.enabled);
  EXPECT_EQ(config.samples, 3);
  EXPECT_EQ(config.clear_samples, 5);
  EXPECT_EQ(config.steps, 3);
  EXPECT_EQ(config.clear_steps, 20);
  EXPECT_EQ(config.underflow_x, 10);
  EXPECT_EQ(config.underflow_w, 10);
  EXPECT_EQ(config.underflow_dy, 10);
  EXPECT_EQ(config.underflow_4bit, 60);
  EXPECT_EQ(config.harmless_sqnr, 20);
  EXPECT_EQ(config.saturated, 1);
  EXPECT_EQ(config.frozen_steps, 64);
  EXPECT_EQ(config.frozen_factor, 4);
  EXPECT_EQ(config.stale_above, 4);
  EXPECT_EQ(config.stale_binades, 4);
  EXPECT_EQ(config.settling_steps, 50);
  EXPECT_EQ(config.loss_deviations, 6);
  EXPECT_EQ(config.gradient_deviations, 6);
  EXPECT_EQ(config.max_logit, 100);
  EXPECT_EQ(config.skipped_steps, 3);
  EXPECT_EQ(config.unmoved, 99.5);
  EXPECT_EQ(config.baseline_samples, 5);
  EXPECT_EQ(config.collapse, 0.2);
  EXPECT_EQ(config.growth, 32);
  EXPECT_EQ(config.shadow_cosine, 0.9);
  EXPECT_EQ(config.shadow_cosine_4bit, 0.7);
  EXPECT_EQ(config.snr_fall, 20);
}

TEST(AlertNames, OfSeveritiesAndActs) {
  EXPECT_EQ(name_of(Severity::info), "info");
  EXPECT_EQ(name_of(Severity::warning), "warning");
  EXPECT_EQ(name_of(Severity::critical), "critical");
  EXPECT_EQ(name_of(Act::none), "none");
  EXPECT_EQ(name_of(Act::widen_to_bf16), "widen_to_bf16");
  EXPECT_EQ(name_of(Act::gradient_to_e5m2), "gradient_to_e5m2");
  EXPECT_EQ(name_of(Act::reset_history), "reset_history");
}

// Counts and amax are those of the step, the rest those of the micro-step with full statistics.
TEST(SampleExact, EachStatisticComesFromItsOwnField) {
  ScaleBook book;
  book.add(
      {.site = "a/x", .layer = {}, .role = Role::x, .recipe = {}, .reason = {}, .spec = {delayed_e4m3, delayed_e4m3}});
  ScaleEntry& entry = book.entry("a/x");
  entry.site.scale = 2;
  entry.last_step.count = 200;
  entry.last_step.amax = 8;
  entry.last_step.underflowed = 50;
  entry.last_step.saturated = 10;
  entry.last_step.nonfinite = 4;
  entry.last_step.binades[3] = 7;
  CastStatistics& look = entry.sampled;
  look.full = true;
  look.count = 4;
  look.amax = 4;
  look.min_nonzero = 0.5F;
  look.sum = 4;     // mean 1
  look.sum2 = 20;   // mean square 5, variance 4
  look.sum4 = 300;  // mean 75: kurtosis 3
  look.error2 = 0.2;
  look.binades[5] = 9;
  entry.sampled_scale = 16;
  const NumericsSample sample = sample_of(book, 12);
  EXPECT_EQ(sample.step, 12U);
  ASSERT_EQ(sample.sites.size(), 1U);
  const SiteSample& values = sample.sites[0];
  EXPECT_EQ(values[Statistic::scale], 16);
  EXPECT_EQ(values[Statistic::amax], 8);
  EXPECT_EQ(values[Statistic::min_nonzero], 0.5F);
  EXPECT_EQ(values[Statistic::mean], 1);
  EXPECT_EQ(values[Statistic::std], 2);
  EXPECT_FLOAT_EQ(values[Statistic::rms], std::sqrt(5.0F));
  EXPECT_EQ(values[Statistic::kurtosis], 3);
  EXPECT_EQ(values[Statistic::underflow_percent], 25);
  EXPECT_EQ(values[Statistic::saturated_percent], 5);
  EXPECT_EQ(values[Statistic::nonfinite], 4);
  EXPECT_FLOAT_EQ(values[Statistic::sqnr_db], 20);
  EXPECT_FLOAT_EQ(values[Statistic::headroom_log2], std::log2(448.0F / 8 / 16));
  EXPECT_EQ(sample.binades[0][5], 9U);
  EXPECT_EQ(sample.binades[0][3], 0U);
}

}  // namespace
}  // namespace quaver::test
