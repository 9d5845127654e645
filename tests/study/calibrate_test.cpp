// Calibration: percentiles from histograms against sorted values, scales against what training sees, the scale file as
// the scale book reads it, drift, and a run in fp8-static with the file.
#include "study/calibrate.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

#include "config/load.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "study/support.h"
#include "train/support.h"

namespace quaver {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Statistics of a cast to FP32: what was there, nothing lost.
template <class Distribution>
std::vector<float> draw(Distribution distribution, std::size_t count) {
  std::mt19937_64 random(5);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(distribution(random));
  return values;
}

float exact_magnitude_at(std::vector<float> values, double share) {
  for (float& value : values) value = std::abs(value);
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

TEST(Percentile, IsWithinAFifthOfABinadeForBellShapes) {
  for (const float deviation : {1.0F, 1.4F, 0.003F, 777.0F}) {
    const auto values = draw(std::normal_distribution<float>(0, deviation), 200000);
    const CastStatistics seen = test::statistics_of(values);
    for (const double share : {0.5, 0.9, 0.99, 0.999, 0.9999}) {
      const double error = std::log2(magnitude_at(seen, share) / exact_magnitude_at(values, share));
      EXPECT_LT(std::abs(error), 0.2) << deviation << " at " << share;
    }
  }
}

TEST(Percentile, IsWithinABinadeForHeavyTails) {
  const auto values = draw(std::cauchy_distribution<float>(0, 0.01F), 100000);
  const CastStatistics seen = test::statistics_of(values);
  for (const double share : {0.1, 0.9, 0.99, 0.999, 0.9999}) {
    EXPECT_LT(std::abs(std::log2(magnitude_at(seen, share) / exact_magnitude_at(values, share))), 1) << share;
  }
}

TEST(Percentile, OfAHundredIsTheLargestValue) {
  const auto values = draw(std::normal_distribution<float>(0, 3), 1000);
  const CastStatistics seen = test::statistics_of(values);
  EXPECT_EQ(magnitude_at(seen, 1), seen.amax);
  EXPECT_EQ(share_above(seen, seen.amax), 0);
  EXPECT_EQ(share_above(seen, 0), 1);
}

TEST(Percentile, IsTheInverseOfTheShareAbove) {
  const CastStatistics seen = test::statistics_of(draw(std::student_t_distribution<float>(3), 50000));
  double before = -1;
  for (double share = 0.02; share < 0.9999; share += 0.0073) {
    const double magnitude = magnitude_at(seen, share);
    EXPECT_GE(magnitude, before);
    EXPECT_NEAR(1 - share_above(seen, magnitude), share, 1e-4);
    before = magnitude;
  }
}

TEST(Percentile, CountsNoZeros) {
  std::vector<float> values(1000, 0.0F);
  values[3] = 2;
  values[4] = -8;
  const CastStatistics seen = test::statistics_of(values);
  EXPECT_GE(magnitude_at(seen, 0.5), 2);
  EXPECT_EQ(magnitude_at(test::statistics_of({0, 0, 0}), 0.99), 0);
  EXPECT_EQ(share_above(test::statistics_of({0, 0, 0}), 0), 0);
}

TEST(PercentileEffect, SaturatesWhatThePercentileLeavesOut) {
  SiteRange range;
  range.spec = make_recipe("fp8-static", {}).x;
  range.seen = test::statistics_of(draw(std::normal_distribution<float>(0, 1), 200000));
  EXPECT_EQ(effect_of(range, 100, 0).saturated_percent, 0);
  EXPECT_NEAR(effect_of(range, 99, 0).saturated_percent, 1, 0.1);
  EXPECT_NEAR(effect_of(range, 99.9, 0).saturated_percent, 0.1, 0.02);
  EXPECT_LT(effect_of(range, 99, 2).saturated_percent, 1e-3);  // headroom takes the tail in
  EXPECT_GT(effect_of(range, 100, 6).underflow_percent, effect_of(range, 100, 0).underflow_percent);
  EXPECT_FLOAT_EQ(effect_of(range, 100, 0).scale, 448 / range.seen.amax);
}

class Calibrated : public ::testing::Test {
 protected:
  Calibration calibrated(const std::string& recipe, CalibrateOptions options = {.batches = 3, .warmup_steps = 2}) {
    Config config = test::small_config(recipe, folder_.path() / "run");
    auto subject = open_subject(config, [](const std::string&) {});
    return calibrate(*subject, options);
  }

  test::TemporaryFolder folder_;
};

TEST_F(Calibrated, KnowsTheLargestMagnitudeOfEverySite) {
  const Calibration calibration = calibrated("fp8-static");
  EXPECT_EQ(calibration.steps, (std::vector<Size>{0, 1, 2}));
  EXPECT_EQ(calibration.sites.size(), 27U);  // two blocks of four layers and the head, three operands each
  for (const SiteRange& range : calibration.sites) {
    ASSERT_EQ(range.batch_amax.size(), 3U);
    EXPECT_EQ(range.seen.amax, *std::max_element(range.batch_amax.begin(), range.batch_amax.end()));
    EXPECT_GT(range.seen.amax, 0) << range.site;
    if (range.layer == "head") {
      EXPECT_FALSE(range.has_scale());  // in high precision in the recipe's plan
    } else {
      EXPECT_FLOAT_EQ(range.scale * range.seen.amax * 2, range.format().max) << range.site;  // one binade of headroom
    }
  }
}

// The batches are those a run would see: a probe must agree with what the run's own casts record.
TEST_F(Calibrated, AgreesWithTheStatisticsOfTraining) {
  const Calibration calibration = calibrated("fp8-static", {.batches = 1, .warmup_steps = 0});
  Config config = test::small_config("bf16", folder_.path() / "run");
  config.train.accumulation = 1;
  auto subject = open_subject(config, [](const std::string&) {});
  subject->trainer().step();
  for (const SiteRange& range : calibration.sites) {
    EXPECT_FLOAT_EQ(subject->trainer().book().entry(range.site).last_step.amax, range.seen.amax) << range.site;
  }
}

TEST_F(Calibrated, LeavesTheTrainerAsItWas) {
  Config config = test::small_config("fp8-static", folder_.path() / "run");
  auto looked_at = open_subject(config, [](const std::string&) {});
  auto left_alone = open_subject(config, [](const std::string&) {});
  calibrate(*looked_at, {.batches = 2, .warmup_steps = 0});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(looked_at->trainer().step().loss, left_alone->trainer().step().loss);
}

TEST(Ranges, AreNeededWhereThereWillBeAScale) {
  const auto ranges_of = [](Format format, std::uint64_t count, std::uint64_t nonfinite) {
    SiteRange range;
    range.site = "head/dy";
    range.spec.rows = {.format = format, .policy = format == Format::bf16 ? ScalePolicy::none : ScalePolicy::fixed};
    range.spec.columns = range.spec.rows;
    range.seen.count = count;
    range.seen.nonfinite = nonfinite;
    return std::vector<SiteRange>{range};
  };
  const auto remedy_for = [](const std::vector<SiteRange>& ranges) -> std::string {
    try {
      check_ranges(ranges);
    } catch (const Error& error) {
      return error.remedy();
    }
    return "";
  };
  EXPECT_EQ(remedy_for(ranges_of(Format::bf16, 0, 0)), "") << "not looked at, and not needed";
  EXPECT_EQ(remedy_for(ranges_of(Format::e5m2, 8, 7)), "");
  EXPECT_THAT(remedy_for(ranges_of(Format::e5m2, 0, 0)), HasSubstr("--device cpu"));
  EXPECT_THAT(remedy_for(ranges_of(Format::e5m2, 8, 8)), HasSubstr("diverged"));
  EXPECT_THAT(remedy_for(ranges_of(Format::bf16, 8, 8)), HasSubstr("diverged"));
}

TEST_F(Calibrated, ScaleFileCanBeImportedAndTakenBack) {
  const Calibration calibration = calibrated("fp8-static");
  const std::string text = to_scale_file(calibration);
  for (const auto import : {ScaleBook::Import::scales_only, ScaleBook::Import::everything}) {
    ScaleBook book;
    for (const SiteRange& range : calibration.sites) {
      book.add({range.site, range.layer, range.role, "fp8-static", "", range.spec});
    }
    EXPECT_TRUE(book.from_json(text, import, 0).empty());
    for (const SiteRange& range : calibration.sites) EXPECT_EQ(book.entry(range.site).site.scale, range.scale);
    ScaleEntry& entry = book.entry("blocks.0.mlp.up/x");
    EXPECT_EQ(entry.history.size(), 3U);
    if (import == ScaleBook::Import::scales_only) continue;
    EXPECT_THAT(entry.changes.back().reason, StartsWith("calibrated: amax of "));
    book.roll_back("blocks.0.mlp.up/x", 1);
    EXPECT_EQ(entry.site.scale, 0);
  }
}

TEST_F(Calibrated, ScaleFileSaysWhatItWasMadeFromAndNotWhen) {
  const std::string text = to_scale_file(calibrated("fp8-delayed"));
  EXPECT_EQ(text, to_scale_file(calibrated("fp8-delayed")));
  const json file = json::parse(text);
  EXPECT_EQ(file["calibration"]["recipe"], "fp8-delayed");
  EXPECT_EQ(file["calibration"]["config_hash"].get<std::string>().size(), 16U);
  EXPECT_EQ(file["calibration"]["checkpoint_step"], 0);
  const json& site = file["sites"]["blocks.1.attn.qkv/dy"]["calibration"];
  EXPECT_EQ(site["format"], "e5m2");
  EXPECT_EQ(site["batches"], 3);
  EXPECT_EQ(site["tokens"], 3 * 4 * 32);
}

TEST_F(Calibrated, RecipesWithoutScalesAreCalibratedForStaticOnes) {
  const Calibration calibration = calibrated("fp8-current", {.batches = 1, .warmup_steps = 0});
  EXPECT_EQ(calibration.recipe, "fp8-static");
  EXPECT_TRUE(calibration.sites.front().has_scale());
}

TEST_F(Calibrated, DriftIsTheQuotientOfRangesLargestFirst) {
  Calibration now = calibrated("fp8-static");
  const std::string before = to_scale_file(now);
  const Drift none = drift_since(before, "old.json", now);
  EXPECT_EQ(none.sites.size(), now.sites.size());
  for (const SiteDrift& site : none.sites) EXPECT_EQ(site.binades, 0);
  now.sites[4].seen.amax *= 8;
  now.sites[7].seen.amax /= 2;
  const Drift drift = drift_since(before, "old.json", now);
  EXPECT_EQ(drift.sites[0].site, now.sites[4].site);
  EXPECT_DOUBLE_EQ(drift.sites[0].binades, 3);
  EXPECT_NEAR(drift.sites[0].headroom_log2, -2, 1e-5);  // one binade had been left
  EXPECT_DOUBLE_EQ(drift.sites[1].binades, -1);
  now.sites.pop_back();
  EXPECT_EQ(drift_since(before, "old.json", now).only_before.size(), 1U);
}

TEST_F(Calibrated, DriftAgainstSomethingElseIsRefused) {
  const Calibration now = calibrated("fp8-static", {.batches = 1, .warmup_steps = 0});
  for (const char* text :
       {"", "[]", "{\"sites\": 3}", "{\"sites\": {\"a\": {}}}", "{\"sites\": {\"a\": {\"scale\": \"x\"}}}"}) {
    try {
      drift_since(text, "old.json", now);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("old.json is not a scale file"));
    }
  }
}

// What calibration is for: fixed scales that train as well as scales that follow every tensor.
TEST_F(Calibrated, StaticScalesTrainAsWellAsCurrentOnes) {
#ifdef QUAVER_SANITIZED
  GTEST_SKIP() << "it compares losses, and runs no code that shorter tests do not";
#endif
  const auto tiny = [&](const std::string& recipe, const std::string& scales) {
    Config config = load_config({.files = {},
                                 .texts = {},
                                 .flags = {"preset=tiny", "data.kind=synthetic", "train.steps=120", "train.batch=8",
                                           "model.context=64", "train.eval_every=0", "train.checkpoint_every=0",
                                           "precision.recipe=" + recipe, "precision.scales=" + scales}});
    config.run.dir = (folder_.path() / recipe).string();
    return config;
  };
  auto subject = open_subject(tiny("fp8-static", ""), [](const std::string&) {});
  const std::filesystem::path file = folder_.path() / "scales.json";
  write_file_atomically(file, to_scale_file(calibrate(*subject, {.batches = 8})));
  const double fixed = run_training(tiny("fp8-static", file.string()), {}).final_validation_loss.value();
  const double current = run_training(tiny("fp8-current", ""), {}).final_validation_loss.value();
  EXPECT_LT(std::abs(fixed - current) / current, 0.005);
}

}  // namespace
}  // namespace quaver
