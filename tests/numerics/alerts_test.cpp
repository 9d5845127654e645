// Every rule fires on a planted failure and names its site, stays silent on healthy noise, is raised once, counted
// and cleared.
#include "numerics/alerts.h"

#include <algorithm>
#include <set>

#include "numerics/planted.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

// The only alert of the plant's steps, after a healthy start; null (and a failure) where there is none or another.
void expect_only(PlantedRun& run, AlertRule rule, const std::string& site) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Alert& alert : run.all) seen.insert({std::string(info(alert.rule).name), alert.site});
  const std::set<std::pair<std::string, std::string>> wanted{{std::string(info(rule).name), site}};
  EXPECT_EQ(seen, wanted);
  ASSERT_FALSE(run.all.empty());
  const Alert& alert = run.all.front();
  EXPECT_EQ(run.all.size(), 1) << "raised once";
  EXPECT_FALSE(alert.text.empty());
  EXPECT_EQ(alert.text.rfind(site, 0), 0) << alert.text;
  EXPECT_EQ(alert.text.find('\n'), std::string::npos);
  EXPECT_FALSE(alert.meaning().empty());
  EXPECT_FALSE(remedy_of(alert.rule, nullptr).empty() && site.empty());
}

constexpr int healthy = 150;

PlantedRun after_healthy_steps() {
  PlantedRun run;
  run.steps(healthy);
  EXPECT_TRUE(run.all.empty()) << run.all.front().text;
  return run;
}

Plant saturating(const std::string& site, double percent) {
  return {.casts = [=](ScaleBook& book) {
    CastStatistics& seen = book.entry(site).site.seen;
    seen.saturated = static_cast<std::uint64_t>(percent / 100 * static_cast<double>(seen.count));
  }};
}

Plant underflowing(const std::string& site, double percent) {
  return {.casts = [=](ScaleBook& book) {
    CastStatistics& seen = book.entry(site).site.seen;
    seen.underflowed = static_cast<std::uint64_t>(percent / 100 * static_cast<double>(seen.count));
  }};
}

Plant value_of(const std::string& site, Statistic statistic, float value) {
  return {.sample = [=](PlantedRun& run) { run.site_sample(site)[statistic] = value; }};
}

TEST(Alerts, Underflow) {
  PlantedRun run = after_healthy_steps();
  run.steps(50, underflowing("blocks.0.mlp.up/dy", 23));
  expect_only(run, AlertRule::underflow, "blocks.0.mlp.up/dy");
  EXPECT_NEAR(run.all[0].value, 23, 1e-3);
  EXPECT_EQ(run.all[0].threshold, AlertConfig{}.underflow_dy);
  EXPECT_NE(run.all[0].text.find("e5m2"), std::string::npos);
}

TEST(Alerts, UnderflowOfE4M3GradientsSuggestsE5M2) {
  PlantedRun run;
  const QuantSpec e4m3{.format = Format::e4m3, .policy = ScalePolicy::delayed};
  run.add("blocks.9.mlp.up", e4m3, e4m3);
  run.steps(healthy);
  run.steps(50, underflowing("blocks.9.mlp.up/dy", 90));
  expect_only(run, AlertRule::underflow, "blocks.9.mlp.up/dy");
  EXPECT_EQ(run.all[0].act, Act::gradient_to_e5m2);
  EXPECT_EQ(run.all[0].severity, Severity::critical);
}

// A GELU leaves a part of its output near zero: that it becomes zero loses nothing while the rest is exact.
TEST(Alerts, UnderflowThatLosesNothingIsNotReported) {
  const auto plant = [](double percent, float sqnr) {
    Plant both = underflowing("blocks.0.mlp.up/x", percent);
    both.sample = [=](PlantedRun& run) { run.site_sample("blocks.0.mlp.up/x")[Statistic::sqnr_db] = sqnr; };
    return both;
  };
  PlantedRun run = after_healthy_steps();
  run.steps(50, plant(40, 28));
  EXPECT_TRUE(run.all.empty());
  run.steps(50, plant(40, 12));
  expect_only(run, AlertRule::underflow, "blocks.0.mlp.up/x");
  EXPECT_NE(run.all[0].text.find("12 dB"), std::string::npos) << run.all[0].text;
  PlantedRun nearly_all = after_healthy_steps();
  nearly_all.steps(50, plant(95, 28));
  expect_only(nearly_all, AlertRule::underflow, "blocks.0.mlp.up/x");
}

TEST(Alerts, Saturation) {
  PlantedRun run = after_healthy_steps();
  run.steps(50, saturating("blocks.1.mlp.down/x", 2));
  expect_only(run, AlertRule::saturation, "blocks.1.mlp.down/x");
  EXPECT_EQ(run.all[0].act, Act::reset_history);
}

// NVFP4 clips 4% of the elements by design: nearest rounding of block scales. And its small elements are zeros.
TEST(Alerts, FourBitBlocksAreNotAccused) {
  PlantedRun run;
  run.add("blocks.2.mlp.up", nvfp4_rows, nvfp4_rows);
  run.steps(healthy, {.casts = [](ScaleBook& book) {
              for (const char* site : {"blocks.2.mlp.up/x", "blocks.2.mlp.up/w", "blocks.2.mlp.up/dy"}) {
                book.entry(site).site.seen.saturated = 4'000;
                book.entry(site).site.seen.underflowed = 20'000;
              }
            }});
  EXPECT_TRUE(run.all.empty());
}

TEST(Alerts, HighPrecisionSitesNeverUnderflowOrSaturate) {
  PlantedRun run = after_healthy_steps();
  run.steps(50, underflowing("head/dy", 60));
  run.steps(50, saturating("head/x", 60));
  EXPECT_TRUE(run.all.empty());
}

TEST(Alerts, FrozenScaleThatTheTensorLeft) {
  AlertConfig config;
  config.stale_binades = 1e-9;  // which would be raised as well
  PlantedRun run(config);
  run.steps(healthy);
  const std::string site = "blocks.0.attn.qkv/dy";
  const float frozen = run.entry(site).site.scale;
  double factor = 1;
  run.steps(100, {.casts =
                      [&](ScaleBook& book) {
                        factor *= 0.95;
                        book.entry(site).site.seen.amax *= static_cast<float>(factor);
                        book.entry(site).site.seen.saturated = 0;
                      },
                  .scales = [&](ScaleBook& book) { book.entry(site).site.scale = frozen; }});
  expect_only(run, AlertRule::frozen_scale, site);
  EXPECT_EQ(run.all[0].act, Act::reset_history);
  EXPECT_GE(run.all[0].value, config.frozen_steps);
}

TEST(Alerts, HistoryFullOfZeros) {
  PlantedRun run = after_healthy_steps();
  run.steps(100, {.casts = [](ScaleBook& book) {
              book.entry("blocks.0.mlp.up/dy").site.seen.amax = 0;
              book.entry("blocks.0.mlp.up/dy").site.seen.underflowed = 0;
            }});
  expect_only(run, AlertRule::frozen_scale, "blocks.0.mlp.up/dy");
}

// Power-of-two scales rest while the largest value stays within a binade, and a tensor that does not change has a scale
// that does not.
TEST(Alerts, AScaleThatFitsMayRest) {
  PlantedRun run;
  QuantSpec rounded{.format = Format::e4m3, .scale = ScaleFormat::f32_power_of_two, .policy = ScalePolicy::delayed};
  run.add("blocks.3.mlp.up", rounded, rounded);
  run.steps(500, {.casts = [&](ScaleBook& book) {
              const auto wobble = static_cast<float>(std::clamp(1 + 0.2 * run.normal(), 0.3, 1.7));
              book.entry("blocks.3.mlp.up/dy").site.seen.amax = 1.01F + 0.3F * wobble;
              book.entry("blocks.3.mlp.up/x").site.seen.amax = 3.0F;
              book.entry("blocks.3.mlp.up/w").site.seen.amax = 0;
              if (run.step_number > 30) book.entry("blocks.3.mlp.up/w").site.seen.amax = 0.125F;
            }});
  EXPECT_TRUE(run.all.empty()) << run.all.front().text;
}

TEST(Alerts, StaleFixedScales) {
  for (const double drift : {1e3, 1e-5}) {
    PlantedRun run;
    const QuantSpec fixed{.format = Format::e4m3, .policy = ScalePolicy::fixed};
    run.add("blocks.4.mlp.up", fixed, fixed);
    for (const char* site : {"blocks.4.mlp.up/x", "blocks.4.mlp.up/w", "blocks.4.mlp.up/dy"}) {
      run.entry(site).site.scale = site[16] == 'd' ? 1e5F : 16.0F;
    }
    run.steps(healthy);
    EXPECT_TRUE(run.all.empty());
    run.steps(50, {.casts = [&](ScaleBook& book) {
                CastStatistics& seen = book.entry("blocks.4.mlp.up/x").site.seen;
                seen.amax = static_cast<float>(seen.amax * drift);
                seen.saturated = 0;
              }});
    expect_only(run, AlertRule::stale_scale, "blocks.4.mlp.up/x");
    EXPECT_EQ(run.all[0].value<0, drift> 1) << "headroom";
  }
}

TEST(Alerts, BrokenScale) {
  for (const float broken : {-1.0F, INFINITY, NAN, std::numeric_limits<float>::max()}) {
    PlantedRun run = after_healthy_steps();
    run.step({.scales = [&](ScaleBook& book) { book.entry("blocks.0.mlp.up/w").site.scale = broken; }});
    expect_only(run, AlertRule::broken_scale, "blocks.0.mlp.up/w");
    EXPECT_EQ(run.all[0].severity, Severity::critical);
  }
  PlantedRun run = after_healthy_steps();
  run.step({.scales = [](ScaleBook& book) { book.entry("blocks.0.mlp.up/w").history[3] = NAN; }});
  expect_only(run, AlertRule::broken_scale, "blocks.0.mlp.up/w");
}

TEST(Alerts, LossSpikeAtOnceWhenLargeElseWhenItLasts) {
  PlantedRun large = after_healthy_steps();
  large.step({.step = [](StepMetrics& now) { now.loss += 3, now.skipped = false; }});
  expect_only(large, AlertRule::loss_spike, "");

  AlertConfig config;
  PlantedRun small(config);
  small.steps(1500);  // the loss is level now
  const auto some = [](StepMetrics& now) { now.loss += 0.45, now.skipped = false; };
  small.step({.step = some});
  EXPECT_TRUE(small.all.empty()) << "one small spike is noise";
  small.steps(30);
  small.steps(3, {.step = some});
  expect_only(small, AlertRule::loss_spike, "");
}

TEST(Alerts, GradientNormFarUpOrDown) {
  for (const double factor : {1e4, 1e-4}) {
    PlantedRun run = after_healthy_steps();
    run.steps(3, {.step = [&](StepMetrics& now) { now.gradient_norm *= factor, now.skipped = false; }});
    expect_only(run, AlertRule::gradient_norm, "");
    EXPECT_EQ(run.all[0].value > 0, factor > 1);
  }
}

TEST(Alerts, AttentionLogits) {
  PlantedRun run = after_healthy_steps();
  run.steps(10, {.step = [](StepMetrics& now) { now.max_logit = 140; }});
  expect_only(run, AlertRule::attention_logits, "");
}

TEST(Alerts, LossScaleAtItsFloor) {
  PlantedRun run = after_healthy_steps();
  run.step({.step = [](StepMetrics& now) { now.loss_scale = 1; }});
  expect_only(run, AlertRule::loss_scale_floor, "");
  PlantedRun unscaled;
  unscaled.steps(300, {.step = [](StepMetrics& now) { now.loss_scale = 1; }});
  EXPECT_TRUE(unscaled.all.empty()) << "without loss scaling it is always 1";
}

TEST(Alerts, SkippedSteps) {
  PlantedRun run = after_healthy_steps();
  run.steps(5, {.step = [](StepMetrics& now) { now.skipped = true; }});
  expect_only(run, AlertRule::skipped_steps, "");
}

TEST(Alerts, NonfiniteNamesWhereItBegan) {
  const auto poison = [](std::initializer_list<const char*> sites) {
    return [=](ScaleBook& book) {
      for (const char* site : sites) book.entry(site).site.seen.nonfinite = 7;
    };
  };
  const auto unscaled = [](StepMetrics& now) { now.skipped = true, now.loss_scale = 1; };
  PlantedRun forward;
  forward.steps(100, {.step = [](StepMetrics& now) { now.loss_scale = 1; }});
  forward.step({.step = unscaled,
                .casts = poison({"blocks.0.mlp.up/x", "blocks.0.mlp.up/dy", "blocks.1.mlp.down/x", "head/dy"})});
  expect_only(forward, AlertRule::nonfinite, "blocks.0.mlp.up/x");
  EXPECT_NE(forward.all[0].text.find("3 more sites"), std::string::npos);

  PlantedRun backward;
  backward.steps(100, {.step = [](StepMetrics& now) { now.loss_scale = 1; }});
  backward.step({.step = unscaled, .casts = poison({"blocks.0.attn.qkv/dy", "blocks.1.mlp.down/dy"})});
  expect_only(backward, AlertRule::nonfinite, "blocks.1.mlp.down/dy");
}

TEST(Alerts, OneOverflowUnderALossScaleIsNoAccident) {
  PlantedRun run = after_healthy_steps();
  const Plant overflow{.step = [](StepMetrics& now) { now.skipped = true; },
                       .casts = [](ScaleBook& book) { book.entry("head/dy").site.seen.nonfinite = 7; }};
  run.step(overflow);
  EXPECT_TRUE(run.all.empty());
  run.steps(20);
  EXPECT_TRUE(run.all.empty());
  run.steps(3, overflow);
  EXPECT_TRUE(std::any_of(run.all.begin(), run.all.end(), [](const Alert& alert) {
    return alert.rule == AlertRule::nonfinite && alert.site == "head/dy";
  }));
}

TEST(Alerts, LossThatIsNotFinite) {
  PlantedRun run = after_healthy_steps();
  run.step({.step = [](StepMetrics& now) { now.loss = NAN, now.skipped = true; }});
  expect_only(run, AlertRule::nonfinite, "");
}

TEST(Alerts, UnmovedWeights) {
  PlantedRun run = after_healthy_steps();
  const Plant stuck = value_of("blocks.0.mlp.up/w", Statistic::unmoved_percent, 99.9F);
  Plant unscheduled = stuck;
  unscheduled.step = [](StepMetrics& now) { now.learning_rate = 0; };
  run.steps(50, unscheduled);
  EXPECT_TRUE(run.all.empty()) << "nothing moves at a learning rate of 0";
  run.steps(50, stuck);
  expect_only(run, AlertRule::unmoved_weights, "blocks.0.mlp.up/w");
}

TEST(Alerts, EmbeddingCollapse) {
  PlantedRun head = after_healthy_steps();
  head.steps(50, value_of("head/w", Statistic::rms, 0.001F));
  expect_only(head, AlertRule::embedding_collapse, "head/w");

  PlantedRun table = after_healthy_steps();
  table.steps(50, {.step = [](StepMetrics& now) { now.embedding_rms *= 0.1; }});
  expect_only(table, AlertRule::embedding_collapse, "embed");

  PlantedRun other = after_healthy_steps();
  other.steps(50, value_of("blocks.0.mlp.up/w", Statistic::rms, 0.001F));
  EXPECT_TRUE(other.all.empty()) << "other weights may shrink";
}

TEST(Alerts, EmbeddingCollapseIsSeenInTheLargestValueToo) {
  PlantedRun run;
  const Plant no_rms = value_of("head/w", Statistic::rms, NAN);
  run.steps(healthy, no_rms);
  run.steps(50, {.sample = [](PlantedRun& planted) {
              planted.site_sample("head/w")[Statistic::rms] = NAN;
              planted.site_sample("head/w")[Statistic::amax] *= 0.01F;
            }});
  expect_only(run, AlertRule::embedding_collapse, "head/w");
}

TEST(Alerts, NormGrowth) {
  PlantedRun run = after_healthy_steps();
  run.steps(50, value_of("blocks.1.mlp.down/x", Statistic::rms, 100));
  expect_only(run, AlertRule::norm_growth, "blocks.1.mlp.down/x");
  EXPECT_EQ(run.all[0].act, Act::widen_to_bf16);
}

TEST(Alerts, ShadowCosineByTheLayersBits) {
  PlantedRun run;
  run.add("blocks.5.mlp.up", nvfp4_rows, nvfp4_rows);
  run.steps(healthy);
  run.steps(50, value_of("blocks.5.mlp.up/w", Statistic::shadow_cosine, 0.85F));
  EXPECT_TRUE(run.all.empty()) << "four bits may be that far off";
  run.steps(50, value_of("blocks.0.mlp.up/w", Statistic::shadow_cosine, 0.85F));
  expect_only(run, AlertRule::shadow_cosine, "blocks.0.mlp.up/w");
}

TEST(Alerts, GradientSnr) {
  PlantedRun run = after_healthy_steps();
  run.steps(150, value_of("blocks.0.mlp.up/w", Statistic::gradient_snr, 0.003F));
  expect_only(run, AlertRule::gradient_snr, "blocks.0.mlp.up/w");
}

// 20 runs of 5000 steps, sampled every fifth. Noise includes a heavy-tailed gradient norm, wandering tensors and
// overflows of the loss scale.
TEST(Alerts, HealthyNoiseRaisesHardlyAnything) {
  std::map<std::string, int> false_alarms;
  int raised = 0;
  constexpr int runs = 20, length = 5000;
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    PlantedRun run({}, seed);
    run.steps(length);
    for (const Alert& alert : run.all) ++false_alarms[std::string(info(alert.rule).name)];
    raised += static_cast<int>(run.all.size());
  }
  for (const auto& [rule, count] : false_alarms) RecordProperty(rule, count);
  RecordProperty("steps", runs * length);
  RecordProperty("false_alarms", raised);
  EXPECT_LE(raised, 1) << "in " << runs * length << " steps";
}

// A single bad sample is noise.
TEST(Alerts, OneBadSampleIsNotEnough) {
  PlantedRun run = after_healthy_steps();
  for (int i = 0; i < 20; ++i) {
    run.steps(5, underflowing("blocks.0.mlp.up/dy", 50));
    run.steps(5);
  }
  EXPECT_TRUE(run.all.empty());
}

TEST(Alerts, RaisedOnceCountedAndCleared) {
  PlantedRun run = after_healthy_steps();
  const AlertConfig config;
  const Plant bad = underflowing("blocks.0.mlp.up/dy", 50);
  run.steps(5 * config.samples, bad);
  ASSERT_EQ(run.alarms.active().size(), 1);
  EXPECT_EQ(run.alarms.active()[0].count, 1);
  const std::uint64_t first = run.alarms.active()[0].step;
  run.steps(50, bad);
  ASSERT_EQ(run.alarms.active().size(), 1);
  EXPECT_NEAR(static_cast<double>(run.alarms.active()[0].count), 11, 1);  // a skipped step is no sample
  EXPECT_EQ(run.alarms.active()[0].step, first);
  EXPECT_GE(run.alarms.active()[0].last_step, first + 40);
  EXPECT_EQ(run.all.size(), 1) << "raised once";
  // Between the limit and what counts as healthy nothing happens.
  run.steps(100, underflowing("blocks.0.mlp.up/dy", 9));
  EXPECT_EQ(run.alarms.active().size(), 1);
  std::size_t cleared = 0;
  for (int i = 0; i < 5 * (config.clear_samples + 1); ++i) {
    run.step(underflowing("blocks.0.mlp.up/dy", 1));
    cleared += run.alarms.cleared().size();
  }
  EXPECT_EQ(cleared, 1);
  EXPECT_TRUE(run.alarms.active().empty());
  run.steps(5 * (config.samples + 1), bad);
  EXPECT_EQ(run.all.size(), 2) << "a new one";
}

TEST(Alerts, AWidenedSiteIsNoLongerAccused) {
  PlantedRun run = after_healthy_steps();
  run.steps(20, underflowing("blocks.0.mlp.up/dy", 50));
  ASSERT_EQ(run.alarms.active().size(), 1);
  const QuantSpec bf16{.format = Format::bf16};
  run.book.set_spec("blocks.0.mlp.up/dy", {bf16, bf16}, run.step_number, "widened");
  run.steps(5, underflowing("blocks.0.mlp.up/dy", 50));
  EXPECT_TRUE(run.alarms.active().empty());
}

TEST(Alerts, DisabledSaysNothing) {
  AlertConfig config;
  config.enabled = false;
  PlantedRun run(config);
  run.steps(100, underflowing("blocks.0.mlp.up/dy", 90));
  EXPECT_TRUE(run.all.empty());
}

TEST(Alerts, RefusesThresholdsWithoutMeaning) {
  AlertConfig config;
  config.samples = 0;
  EXPECT_THROW(Alarms{config}, Error);
  config = {};
  config.saturated = NAN;
  EXPECT_THROW(Alarms{config}, Error);
  config = {};
  config.shadow_cosine = 2;
  EXPECT_THROW(Alarms{config}, Error);
}

TEST(Alerts, RefusesASampleOfAnotherBook) {
  PlantedRun run;
  run.steps(1);
  run.sample.sites.pop_back();
  EXPECT_THROW(run.alarms.watch({}, run.book, &run.sample), Error);
}

TEST(Alerts, TablesAreInOrder) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < alert_rule_count; ++i) {
    EXPECT_EQ(static_cast<std::size_t>(all_alert_rules()[i].rule), i);
    names.insert(all_alert_rules()[i].name);
  }
  EXPECT_EQ(names.size(), alert_rule_count);
}

}  // namespace
}  // namespace quaver::test
