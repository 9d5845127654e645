// What `calibrate` and `localize` say of results that are made up.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/calibrate.h"
#include "cli/localize.h"
#include "precision/recipe.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Elements spread over a number of binades below 1: the more, the more of them a format of few binades loses.
SiteRange range_of(const std::string& layer, Role role, int binades) {
  SiteRange range;
  range.site = layer + "/" + std::string(name_of(role));
  range.layer = layer;
  range.role = role;
  const Recipe recipe = make_recipe("fp8-static", {});
  range.spec = recipe.of(role);
  range.seen.full = true;
  for (int i = 1; i <= binades; ++i) range.seen.binades[static_cast<std::size_t>(-i - lowest_binade)] = 100;
  range.seen.count = static_cast<std::uint64_t>(100 * binades);
  range.seen.amax = 1;
  range.seen.min_nonzero = std::ldexp(1.0F, -binades);
  range.batch_amax = {0.5F, 1.0F};
  range.threshold = 1;
  range.scale = 448;
  return range;
}

Calibration made_up(double percentile) {
  Calibration calibration;
  calibration.recipe = "fp8-static";
  calibration.source = "tiny, seed 1";
  calibration.steps = {0, 5};
  calibration.losses = {3, 2};
  calibration.tokens = 2048;
  calibration.last_step = 5;
  calibration.percentile = percentile;
  calibration.margin = 1;
  calibration.sites = {range_of("a", Role::x, 4), range_of("a", Role::w, 4), range_of("b", Role::x, 30)};
  calibration.sites[1].scale = 0;  // kept in high precision
  return calibration;
}

TEST(RoleEffects, AreThoseOfTheWorstSiteAtEachPercentile) {
  Calibration calibration = made_up(99.95);
  calibration.margin = 0;
  const std::vector<RoleEffect> effects = role_effects(calibration);
  ASSERT_EQ(effects.size(), 5U) << "inputs only: weights have no scale, and there are no gradients";
  std::vector<double> percentiles;
  for (const RoleEffect& effect : effects) {
    EXPECT_EQ(effect.role, Role::x);
    percentiles.push_back(effect.percentile);
    const PercentileEffect a = effect_of(calibration.sites[0], effect.percentile, 0);
    const PercentileEffect b = effect_of(calibration.sites[2], effect.percentile, 0);
    EXPECT_EQ(effect.worst_sqnr_db, std::min(a.sqnr_db, b.sqnr_db));
    EXPECT_EQ(effect.median_sqnr_db, std::max(a.sqnr_db, b.sqnr_db)) << "of two the upper";
    EXPECT_EQ(effect.worst_site, a.sqnr_db < b.sqnr_db ? "a/x" : "b/x");
    EXPECT_EQ(effect.saturated_percent, std::max(a.saturated_percent, b.saturated_percent));
    EXPECT_EQ(effect.underflow_percent, std::max(a.underflow_percent, b.underflow_percent));
  }
  EXPECT_THAT(percentiles, ElementsAre(100, 99.99, 99.95, 99.9, 99));
  // The largest is on 448, so that what E4M3 takes to zero, below 2^-10, is below 2^-18.8: 11.2 of the 30 binades.
  EXPECT_NEAR(effects[0].underflow_percent, 100 * 11.2 / 30, 1.5);
  EXPECT_EQ(effects[0].saturated_percent, 0);
  EXPECT_NEAR(effects.back().saturated_percent, 1, 0.1);
  EXPECT_EQ(role_effects(made_up(99.9)).size(), 4U) << "it is one of those shown anyway";
}

TEST(RoleEffects, DoNotDependOnTheOrderOfTheSites) {
  const Calibration calibration = made_up(100);
  Calibration reversed = calibration;
  std::reverse(reversed.sites.begin(), reversed.sites.end());
  const std::vector<RoleEffect> effects = role_effects(calibration);
  const std::vector<RoleEffect> others = role_effects(reversed);
  ASSERT_EQ(effects.size(), others.size());
  for (std::size_t i = 0; i < effects.size(); ++i) {
    EXPECT_EQ(effects[i].saturated_percent, others[i].saturated_percent);
    EXPECT_EQ(effects[i].underflow_percent, others[i].underflow_percent);
    EXPECT_EQ(effects[i].worst_sqnr_db, others[i].worst_sqnr_db);
    EXPECT_EQ(effects[i].worst_site, others[i].worst_site);
  }
}

TEST(CalibrationTable, MarksTheChosenPercentile) {
  const std::string table = calibration_table(made_up(99.9));
  EXPECT_THAT(table, HasSubstr("tiny, seed 1 · 2 batches, 2.05k tokens · for fp8-static"));
  EXPECT_THAT(table, HasSubstr("with 1 binade of headroom"));
  EXPECT_THAT(table, HasSubstr("→ 99.9 "));
  EXPECT_THAT(table, Not(HasSubstr("→ 100")));
}

TEST(DriftTable, ShowsTenSitesAndCountsTheRest) {
  Drift drift;
  for (int i = 0; i < 12; ++i) drift.sites.push_back({"s" + std::to_string(i), 1, 4, 2, -0.5});
  drift.only_now = {"new"};
  drift.only_before = {"old", "older"};
  const std::string table = drift_table(drift);
  EXPECT_THAT(table, HasSubstr("\ns9 "));
  EXPECT_THAT(table, Not(HasSubstr("\ns10 ")));
  EXPECT_THAT(table, HasSubstr("… and 2 sites that moved less\n1 sites are new\n2 sites are gone\n"));
  EXPECT_THAT(table, HasSubstr("+2.00"));
  EXPECT_THAT(table, HasSubstr("-0.50"));
  drift.sites.resize(10);
  EXPECT_THAT(drift_table(drift), Not(HasSubstr("moved less")));
}

TEST(CalibrationJson, HasWhatTheTableHas) {
  Drift drift;
  drift.sites.push_back({"s", 1, 4, 2, std::nan("")});
  const auto json = nlohmann::json::parse(calibration_json(made_up(100), drift));
  EXPECT_EQ(json["batches"], 2);
  EXPECT_EQ(json["tokens"], 2048);
  EXPECT_EQ(json["percentile"], 100.0);
  EXPECT_EQ(json["margin"], 1);
  EXPECT_EQ(json["effects"].size(), 4U);
  EXPECT_EQ(json["effects"][0]["saturated_percent"], 0.0);
  EXPECT_EQ(json["drift"][0]["amax_before"], 1.0);
  EXPECT_EQ(json["drift"][0]["amax_now"], 4.0);
  EXPECT_EQ(json["drift"][0]["binades"], 2.0);
  EXPECT_TRUE(json["drift"][0]["headroom_log2"].is_null());
  EXPECT_FALSE(nlohmann::json::parse(calibration_json(made_up(100), std::nullopt)).contains("drift"));
}

Localization localized() {
  Localization localization;
  localization.recipe = "fp8-current";
  localization.source = "tiny, seed 1";
  localization.step = 7;
  localization.batches = 4;
  localization.tokens = 4096;
  localization.baseline_loss = 2.5;
  localization.baseline_error = 0.125;
  localization.budget = 0.0025;
  for (const Role role : {Role::x, Role::w, Role::dy}) {
    SiteSensitivity site;
    site.site = "a/" + std::string(name_of(role));
    site.layer = "a";
    site.role = role;
    site.group = site.site;
    site.recipe = "fp8-current";
    site.tried = true;
    site.placement = role == Role::w ? Placement::high_precision : Placement::as_tried;
    site.harm = role == Role::w ? 0.02 : 0.001;
    site.effect = {
        .loss_change = 0.0123, .loss_error = 0.004, .gradient_cosine = 0.75, .gradient_error = 0.5, .batches = 4};
    site.own = {0.5, 1};
    site.sqnr_db = 30.26;
    localization.sites.push_back(site);
  }
  localization.ranking = {1, 0, 2};
  PlanTrial all{.low_precision_sites = 3,
                .low_precision_share = 0.9,
                .effect = localization.sites[0].effect,
                .harm = 0.03,
                .holds = false};
  PlanTrial some{.low_precision_sites = 2,
                 .low_precision_share = 0.6,
                 .effect = localization.sites[0].effect,
                 .harm = 0.002,
                 .holds = true};
  localization.trials = {all, some};
  localization.chosen = some;
  localization.layers = {{"a/w", "bf16"}};
  return localization;
}

TEST(LocalizationTable, HasSharesAsPercent) {
  const std::string table = localization_table(localized());
  EXPECT_THAT(table, HasSubstr("loss in high precision 2.5000 ± 0.1250; each operand alone, most harmful first:"));
  EXPECT_LT(table.find("a/w "), table.find("a/x ")) << "most harmful first";
  for (const char* part :
       {" 2.0000 ", " 0.1000 ", "+1.23e-02", "4.0e-03", "0.750000", "0.500000", "30.3", "3 sites in low precision",
        "90.0", "exceeded", "2 sites in low precision", "60.0", "holds",
        "The plan has 60.0 % of the matrix products' operations in low precision (90.0 % with all of "
        "fp8-current), 1 of 3 operands kept in high precision; measured whole its harm is at most 0.2000 % of "
        "the loss, budget 0.2500 %"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
}

TEST(LocalizationFiles, HaveTheSameFigures) {
  const std::string plan = to_plan_file(localized(), {}, "/x/localization.json");
  EXPECT_THAT(plan,
              HasSubstr("# Proposed by quaver localize for tiny, seed 1: 4 batches at step 7.\n"
                        "# 60.0 % of the matrix products' operations in low precision; measured whole, the loss is "
                        "+0.012300 ± 0.004000 of 2.5000\n"
                        "# nats, gradient cosine 0.750000: harm at most 0.2000 % of the loss, budget 0.2500 %."));
  EXPECT_THAT(plan,
              HasSubstr("\"a/w\" = \"bf16\"  # w alone: harm 2.0000 %, gradient cosine 0.750000; SQNR of w 30.3 dB"));
  const auto json = nlohmann::json::parse(to_json(localized()));
  EXPECT_EQ(json["baseline_loss"], 2.5);
  EXPECT_EQ(json["baseline_error"], 0.125);
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["tokens"], 4096);
  EXPECT_EQ(json["budget"], 0.0025);
  EXPECT_EQ(json["ranking"], (std::vector<std::string>{"a/w", "a/x", "a/dy"}));
  EXPECT_EQ(json["chosen"]["harm_at_most"], 0.002);
  EXPECT_EQ(json["chosen"]["narrow_share"], 0.6);
  EXPECT_EQ(json["trials"][0]["holds"], false);
  EXPECT_EQ(json["sites"][1]["harm"], 0.02);
  EXPECT_EQ(json["sites"][1]["own_gradient_cosine"], 0.5);
  EXPECT_EQ(json["sites"][1]["kept_wide"], true);
}

// The layer's operands on the ladder, of which one made the difference; another rung before did not hold.
Localization on_a_ladder() {
  Localization found = localized();
  for (SiteSensitivity& site : found.sites) {
    site.placement = Placement::on_ladder;
    site.ladder_recipe = "fp8-current-e5m2";
  }
  const LadderTrial wide{.group = "a",
                         .recipe = "fp8-current-e5m2",
                         .site = "a/x",
                         .before = {.underflow_percent = 83.34, .sqnr_db = 31.5},
                         .after = {.underflow_percent = 0.25, .sqnr_db = 25.75},
                         .harm_before = 0.02,
                         .harm_after = 0.0005,
                         .taken = true};
  LadderTrial finer = wide;
  finer.group = "b";
  finer.recipe = "fp8-row";
  finer.taken = false;
  found.ladder = {wide, finer};
  found.trials[1].ladder_sites = 2;
  found.layers = {{"a", "fp8-current-e5m2"}, {"b", "bf16"}};
  found.recipes["fp8-current-e5m2"] = {.name = "fp8-current-e5m2"};
  return found;
}

TEST(LocalizationOnALadder, SaysWhatMadeTheDifference) {
  const std::string table = localization_table(on_a_ladder());
  for (const char* part :
       {"down the ladder", "83.3 → 0.2 ", "31.5 → 25.8", "2.0000 → 0.0500", "2 sites in low precision, 2 on the ladder",
        "3 of 3 operands in fp8-current-e5m2, 0 of 3 operands kept in high precision"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  const std::string plan = to_plan_file(on_a_ladder(), {}, "m");
  EXPECT_THAT(plan, HasSubstr("\"a\" = \"fp8-current-e5m2\"  # x: underflow 83.3 % → 0.2 %, SQNR 31.5 → 25.8 dB, harm "
                              "2.0000 % → 0.0500 %\n"));
  EXPECT_THAT(plan, HasSubstr("\n[recipes.fp8-current-e5m2]\n"));
  const auto json = nlohmann::json::parse(to_json(on_a_ladder()));
  EXPECT_EQ(json["ladder"][0], nlohmann::json::parse(R"({"group": "a", "recipe": "fp8-current-e5m2", "site": "a/x",
    "underflow_percent_before": 83.34, "underflow_percent_after": 0.25, "sqnr_db_before": 31.5, "sqnr_db_after": 25.75,
    "harm_before": 0.02, "harm_after": 0.0005, "taken": true})"));
  EXPECT_EQ(json["ladder"][1]["taken"], false);
  EXPECT_EQ(json["sites"][0]["ladder_recipe"], "fp8-current-e5m2");
  EXPECT_EQ(json["trials"][1]["ladder_sites"], 2);
  EXPECT_THAT(localization_report(on_a_ladder(), plan), HasSubstr("Down the ladder"));
}

TEST(Budget, IsInPercent) {
  EXPECT_DOUBLE_EQ(parse_budget("0.25%"), 0.0025);
  EXPECT_DOUBLE_EQ(parse_budget("0.25"), 0.0025);
  EXPECT_DOUBLE_EQ(parse_budget("0"), 0);
  EXPECT_DOUBLE_EQ(parse_budget("100 %"), 1);
  for (const char* text : {"", "%", "-1", "x", "nan", "inf", "1%%", "100.1"})
    EXPECT_THROW(parse_budget(text), Error) << text;
}

}  // namespace
}  // namespace quaver
