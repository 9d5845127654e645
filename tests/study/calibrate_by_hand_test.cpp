// Calibration by hand: percentiles of made-up histograms, the scale file and the drift of made-up ranges, and what a
// study on a small model counts.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "precision/recipe.h"
#include "study/calibrate.h"
#include "train/support.h"

namespace quaver {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 100 elements from 1.5 to 1.75 and 300 from 0.25 to 0.5, 50 zeros and 50 that are not finite.
CastStatistics made_up_range() {
  CastStatistics seen;
  seen.count = 500;
  seen.nonfinite = 50;
  seen.amax = 1.75F;
  seen.min_nonzero = 0.25F;
  seen.sum2 = 450;
  seen.binades[static_cast<std::size_t>(0 - lowest_binade)] = 100;
  seen.binades[static_cast<std::size_t>(-2 - lowest_binade)] = 300;
  seen.full = true;
  return seen;
}

TEST(ShareAbove, IsLogarithmicWithinABinadeAndExactBetween) {
  const CastStatistics seen = made_up_range();
  EXPECT_EQ(share_above(seen, 1.75), 0);
  EXPECT_EQ(share_above(seen, 2), 0);
  EXPECT_DOUBLE_EQ(share_above(seen, 1), 0.25);
  EXPECT_DOUBLE_EQ(share_above(seen, 0.75), 0.25) << "nothing lies between 0.5 and 1";
  EXPECT_DOUBLE_EQ(share_above(seen, 0.5), 0.25);
  EXPECT_DOUBLE_EQ(share_above(seen, 0.25), 1);
  EXPECT_EQ(share_above(seen, 0.1), 1);
  // Half-way from 100 elements at 1 to half an element at 1.75: √(100 · 0.5) of 400.
  EXPECT_NEAR(share_above(seen, 1.375), std::sqrt(50.0) / 400, 1e-12);
  // Half-way from 400 at 0.25 to 100 at 0.5: 200 of 400.
  EXPECT_NEAR(share_above(seen, 0.375), 0.5, 1e-12);
  EXPECT_EQ(share_above({}, 1), 0) << "of nothing";
}

TEST(MagnitudeAt, IsTheInverse) {
  const CastStatistics seen = made_up_range();
  EXPECT_EQ(magnitude_at(seen, 1), 1.75F);
  EXPECT_NEAR(magnitude_at(seen, 1 - std::sqrt(50.0) / 400), 1.375, 1e-6);
  EXPECT_NEAR(magnitude_at(seen, 0.5), 0.375, 1e-6);
  EXPECT_NEAR(magnitude_at(seen, 0.7501), 1, 1e-3);
  EXPECT_NEAR(magnitude_at(seen, 0), 0.25, 1e-6);
  EXPECT_EQ(magnitude_at({}, 0.5), 0) << "of nothing";
}

// The lowest elements begin where they were seen, not at a power of two.
TEST(ShareAbove, TheLowestBinadeBeginsAtTheSmallestValue) {
  CastStatistics seen = made_up_range();
  seen.min_nonzero = 0.3F;
  EXPECT_EQ(share_above(seen, 0.29), 1);
  EXPECT_NEAR(share_above(seen, 0.4), 0.5, 1e-6) << "half-way from 0.3 to 0.5";
  EXPECT_NEAR(magnitude_at(seen, 0), 0.3, 1e-6);
}

SiteRange made_up_site_range(const std::string& layer, Role role, const char* recipe) {
  SiteRange range;
  range.site = layer + "/" + std::string(name_of(role));
  range.layer = layer;
  range.role = role;
  range.spec = make_recipe(recipe, {}).of(role);
  range.seen = made_up_range();
  range.batch_amax = {1.5F, 1.75F};
  return range;
}

TEST(EffectOfAPercentile, LeavesOutWhatLiesAboveItOfAllFiniteElements) {
  const SiteRange range = made_up_site_range("up", Role::x, "fp8-static");
  const PercentileEffect half = effect_of(range, 50, 0);
  EXPECT_EQ(half.percentile, 50);
  EXPECT_NEAR(half.threshold, 0.375, 1e-6);
  EXPECT_NEAR(half.scale, 448 / 0.375, 1e-3);
  // Half of 400 elements that are not zero, of 450 that are finite.
  EXPECT_NEAR(half.saturated_percent, 100.0 * 200 / 450, 0.01);
  const PercentileEffect all = effect_of(range, 100, 0);
  EXPECT_EQ(all.threshold, 1.75F);
  EXPECT_EQ(all.scale, 256);
  EXPECT_EQ(all.saturated_percent, 0);
  EXPECT_EQ(effect_of(range, 100, 1).scale, 128) << "a binade of headroom";
  EXPECT_EQ(effect_of(range, 100, 2).scale, 64);
  SiteRange broken = range;
  broken.seen.nonfinite = 500;
  EXPECT_EQ(effect_of(broken, 50, 0).saturated_percent, 0) << "of nothing finite";
}

Calibration made_up_calibration() {
  Calibration calibration;
  calibration.recipe = "fp8-static";
  calibration.source = "runs/a at step 7";
  calibration.hash = "00ff";
  calibration.first_step = 7;
  calibration.last_step = 9;
  calibration.tokens = 512;
  calibration.steps = {7, 9};
  calibration.losses = {2.5, std::nan("")};
  calibration.percentile = 50;
  calibration.margin = 1;
  calibration.sites = {made_up_site_range("up", Role::x, "fp8-static"), made_up_site_range("up", Role::w, "bf16")};
  calibration.sites[0].threshold = 0.375F;
  calibration.sites[0].scale = 32;
  calibration.sites[1].threshold = 1.75F;
  return calibration;
}

TEST(ScaleFile, HasEveryFigureOfASite) {
  const Calibration calibration = made_up_calibration();
  const json file = json::parse(to_scale_file(calibration));
  EXPECT_EQ(file.at("calibration"), json::parse(R"({"recipe": "fp8-static", "source": "runs/a at step 7",
    "config_hash": "00ff", "checkpoint_step": 7, "last_step": 9, "batches": 2, "batch_steps": [7, 9],
    "losses": [2.5, null], "tokens": 512, "percentile": 50.0, "margin": 1, "quaver": ")" QUAVER_VERSION R"("})"));
  const json& site = file.at("sites").at("up/x");
  EXPECT_EQ(site.at("scale"), 32.0);
  EXPECT_EQ(site.at("history"), (json{1.5, 1.75}));
  ASSERT_EQ(site.at("changes").size(), 1U);
  EXPECT_EQ(site.at("changes").at(0).at("step"), 9);
  EXPECT_EQ(site.at("changes").at(0).at("scale_after"), 32.0);
  EXPECT_EQ(site.at("changes").at(0).at("reason"),
            "calibrated: percentile 50 of 0.375, 1 binade of headroom, 2 batches of runs/a at step 7");
  const json& made = site.at("calibration");
  EXPECT_EQ(made.at("amax"), 1.75);
  EXPECT_EQ(made.at("min_nonzero"), 0.25);
  EXPECT_NEAR(made.at("rms").get<double>(), calibration.sites[0].seen.rms(), 1e-12);
  EXPECT_EQ(made.at("nonfinite"), 50);
  EXPECT_EQ(made.at("threshold"), 0.375);
  EXPECT_EQ(made.at("percentile"), 50.0);
  EXPECT_EQ(made.at("margin"), 1);
  EXPECT_EQ(made.at("format"), "e4m3");
  EXPECT_EQ(made.at("batches"), 2);
  EXPECT_EQ(made.at("tokens"), 512);
  EXPECT_EQ(made.at("first_binade"), lowest_binade);
  EXPECT_EQ(made.at("binades").at(static_cast<std::size_t>(-2 - lowest_binade)), 300);
  const PercentileEffect effect = effect_of(calibration.sites[0], 50, 1);
  EXPECT_NEAR(made.at("saturated_percent").get<double>(), effect.saturated_percent, 1e-12);
  EXPECT_NEAR(made.at("underflow_percent").get<double>(), effect.underflow_percent, 1e-12);
  EXPECT_NEAR(made.at("sqnr_db").get<double>(), effect.sqnr_db, 1e-9);
  ASSERT_NE(effect.saturated_percent, effect.underflow_percent);
  const json& uncast = file.at("sites").at("up/w");
  EXPECT_EQ(uncast.at("scale"), 0.0);
  EXPECT_EQ(uncast.at("changes").size(), 0U);
  EXPECT_FALSE(uncast.at("calibration").contains("saturated_percent")) << "it needs no scale";
}

TEST(ScaleFile, SaysHowItsScalesWereMade) {
  Calibration calibration = made_up_calibration();
  const auto reason = [&] {
    return json::parse(to_scale_file(calibration)).at("sites").at("up/x").at("changes").at(0).at("reason");
  };
  calibration.percentile = 100;
  calibration.margin = 0;
  calibration.sites[0].threshold = 1.75F;
  EXPECT_EQ(reason(), "calibrated: amax of 1.75, 0 binades of headroom, 2 batches of runs/a at step 7");
}

// Ranges of an earlier file: one that has grown by 2 binades, one that shrank by 3, one that was never seen, one of a
// run's own book, and one that is gone.
TEST(DriftOfRanges, IsInBinadesLargestFirst) {
  Calibration now = made_up_calibration();
  for (const char* layer : {"down", "qkv", "out", "head"}) {
    now.sites.push_back(made_up_site_range(layer, Role::x, "fp8-static"));
  }
  const std::string before = R"({"sites": {
    "up/x": {"scale": 64, "calibration": {"amax": 0.4375}},
    "down/x": {"scale": 0, "calibration": {"amax": 14}},
    "qkv/x": {"scale": 16, "history": [0, 3.5, 0.5]},
    "out/x": {"scale": 16, "history": []},
    "gone/x": {"scale": 16, "history": [1]}}})";
  const Drift drift = drift_since(before, "old.json", now);
  ASSERT_EQ(drift.sites.size(), 3U);
  EXPECT_EQ(drift.sites[0].site, "down/x");
  EXPECT_DOUBLE_EQ(drift.sites[0].binades, -3);
  EXPECT_EQ(drift.sites[0].amax_before, 14);
  EXPECT_EQ(drift.sites[0].amax_now, 1.75F);
  EXPECT_TRUE(std::isnan(drift.sites[0].headroom_log2)) << "it had no scale";
  EXPECT_EQ(drift.sites[1].site, "up/x");
  EXPECT_DOUBLE_EQ(drift.sites[1].binades, 2);
  EXPECT_DOUBLE_EQ(drift.sites[1].headroom_log2, 2) << "448 / 1.75 = 256, of which the scale takes 64";
  EXPECT_EQ(drift.sites[2].site, "qkv/x");
  EXPECT_DOUBLE_EQ(drift.sites[2].binades, -1) << "the largest of the history";
  EXPECT_THAT(drift.only_now, ElementsAre("up/w", "head/x"));
  EXPECT_THAT(drift.only_before, ElementsAre("gone/x")) << "out/x is in both, and was never seen before";
}

Config counted_config(const std::string& recipe) {
  Config config = test::small_config(recipe, "");
  config.model.context = 8;
  config.train.batch = 2;
  config.train.steps = 3;
  return config;
}

TEST(CalibrationByHand, CountsItsTokensStepsAndBatches) {
  const auto subject = open_subject(counted_config("fp8-delayed"), [](const std::string&) {});
  std::vector<std::pair<Size, Size>> told;
  CalibrateOptions options{.batches = 3, .warmup_steps = 20, .percentile = 99.9, .margin = 2};
  options.progress.told = [&](Size done, Size total) { told.emplace_back(done, total); };
  const Calibration made = calibrate(*subject, options);
  EXPECT_EQ(made.recipe, "fp8-delayed");
  EXPECT_EQ(made.source, subject->source);
  EXPECT_EQ(made.first_step, 0);
  EXPECT_EQ(made.last_step, 3) << "no further than the run would go";
  EXPECT_EQ(made.tokens, 3 * 2 * 8);
  EXPECT_EQ(made.losses.size(), 3U);
  EXPECT_EQ(made.percentile, 99.9);
  EXPECT_EQ(made.margin, 2);
  ASSERT_EQ(told.size(), 6U) << "three steps and three batches";
  for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], std::pair(static_cast<Size>(i + 1), Size{6}));
  for (const SiteRange& range : made.sites) {
    ASSERT_EQ(range.batch_amax.size(), 3U);
    EXPECT_EQ(range.seen.amax, *std::max_element(range.batch_amax.begin(), range.batch_amax.end())) << range.site;
    EXPECT_EQ(range.threshold, magnitude_at(range.seen, 0.999));
    const bool delayed = range.spec.rows.policy == ScalePolicy::delayed;
    EXPECT_EQ(range.has_scale(), delayed) << range.site;
    if (delayed) {
      EXPECT_EQ(range.scale, effect_of(range, 99.9, 2).scale) << range.site;
    }
    if (range.role == Role::x) {
      EXPECT_NE(range.batch_amax[0], range.batch_amax[1]) << range.site << ": other batches";
    }
  }
  const Calibration again = calibrate(*subject, {.batches = 1, .warmup_steps = 20});
  EXPECT_EQ(again.first_step, 3);
  EXPECT_EQ(again.last_step, 3);
  EXPECT_THAT(again.steps, ElementsAre(3));
}

TEST(StudySubject, IsInHighPrecisionWithoutWhatTheConfigAddsToIt) {
  Config config = counted_config("fp8-unit");
  config.preset = "small";
  config.train.seed = 12;
  config.train.statistics_every = 0;
  config.precision.layers = {{"head", "fp8-row"}};
  config.precision.scales = "/nowhere/scales.json";
  config.precision.switch_to = "bf16";
  const auto subject = open_subject(config, [](const std::string&) {});
  const Config& run = subject->trainer().config();
  EXPECT_EQ(run.precision.recipe, "bf16");
  EXPECT_TRUE(run.precision.layers.empty());
  EXPECT_EQ(run.precision.scales, "");
  EXPECT_EQ(run.precision.switch_to, "");
  EXPECT_EQ(run.model.parametrization, Parametrization::umup) << "that of its own recipe";
  EXPECT_EQ(run.train.statistics_every, 3) << "memory for full statistics is planned";
  EXPECT_EQ(subject->source, "small, seed 12");
  EXPECT_EQ(subject->config.precision.recipe, "fp8-unit");
  EXPECT_EQ(subject->tokens_per_batch(), 2 * 8);
  EXPECT_EQ(next_batch(subject->trainer(), 5), 5);
  subject->trainer().step();
  EXPECT_EQ(next_batch(subject->trainer(), 5), 2 + 5) << "two micro-batches a step";
}

TEST(StudySubject, TokensAreThoseOfTheTrainingContext) {
  Config config = counted_config("fp8-current");
  config.model.context = 16;
  config.train.context = 8;
  EXPECT_EQ(open_subject(config, [](const std::string&) {})->tokens_per_batch(), 2 * 8);
}

TEST(StudyProgressTold, EndsWhereItIsAskedToStop) {
  std::atomic<bool> stop{false};
  Size told = 0;
  const StudyProgress progress{[&](Size done, Size) { told = done; }, &stop};
  progress.at(3, 9);
  EXPECT_EQ(told, 3);
  stop = true;
  EXPECT_THROW(progress.at(4, 9), StudyInterrupted);
  EXPECT_EQ(told, 3);
  EXPECT_NO_THROW(StudyProgress{}.at(1, 2)) << "nobody listens";
}

// A weight's own largest value fits the format exactly.
TEST(WeightStatistics, AreOfTheWeightWithItsOwnScale) {
  const auto subject = open_subject(counted_config("fp8-current"), [](const std::string&) {});
  const std::string site = "blocks.0.mlp.up/w";
  const CastStatistics seen =
      weight_statistics(subject->trainer(), site, make_recipe("fp8-current", {}).of(Role::w).rows);
  EXPECT_EQ(seen.count, 32U * 128U);
  EXPECT_EQ(seen.saturated, 0U);
  EXPECT_EQ(seen.nonfinite, 0U);
  const Parameter& weight = subject->trainer().model().parameters().find("blocks.0.mlp.up.weight");
  float largest = 0;
  for (Size i = 0; i < weight.count(); ++i) largest = std::max(largest, std::abs(weight.weight.f32()[i]));
  EXPECT_EQ(seen.amax, largest);
  EXPECT_GT(seen.sqnr_db(), 29) << "E4M3 with the scale that suits";
  EXPECT_LT(seen.underflow_percent(), 2);
}

TEST(HighPrecisionPlan, IsTheHighPrecisionRecipeOfTheConfigs) {
  const auto subject = open_subject(counted_config("fp8-current"), [](const std::string&) {});
  const Plan bf16 = high_precision_plan(subject->plan, subject->config.precision);
  ASSERT_EQ(bf16.rows.size(), subject->plan.rows.size());
  for (const PlanRow& row : bf16.rows) {
    EXPECT_EQ(row.recipe, high_precision_recipe_for({.recipe = "fp8-current"}));
    EXPECT_EQ(row.reason, "high precision");
  }
  PrecisionConfig exact;
  exact.recipe = "tf32";
  EXPECT_EQ(high_precision_plan(subject->plan, exact).rows[0].recipe, high_precision_recipe_for({.recipe = "tf32"}));
}

}  // namespace
}  // namespace quaver
