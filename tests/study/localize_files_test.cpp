// A localization whose numbers are made up, as a piece of config and as JSON.
#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "study/localize.h"

namespace quaver {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

SiteSensitivity made_up_site(const std::string& layer, Role role, double harm) {
  SiteSensitivity site{
      .site = layer + "/" + std::string(name_of(role)), .layer = layer, .role = role, .recipe = "mxfp8"};
  site.tried = true;
  site.effect = {
      .loss_change = 0.01, .loss_error = 0.02, .gradient_cosine = 0.98, .gradient_error = 0.03, .batches = 4};
  site.own = {.cosine = 0.96, .error = 0.05};
  site.sqnr_db = 31.25;
  site.underflow_percent = 0.5;
  site.harm = harm;
  site.flops_share = 0.25;
  return site;
}

Localization made_up_map() {
  Localization map;
  map.recipe = "mxfp8";
  map.source = "runs/a\nb at step 300";
  map.hash = "00ff";
  map.step = 300;
  map.batches = 4;
  map.tokens = 512;
  map.budget = 0.0025;
  map.baseline_loss = 2.5;
  map.baseline_error = 0.125;
  map.sites = {made_up_site("head", Role::x, 0.001), made_up_site("head", Role::w, 0.03),
               made_up_site("up", Role::dy, std::numeric_limits<double>::infinity()),
               SiteSensitivity{.site = "up/x", .layer = "up", .role = Role::x, .recipe = "bf16"}};
  map.sites[1].placement = Placement::as_tried;
  map.sites[3].sqnr_db = map.sites[3].underflow_percent = std::nan("");
  map.ranking = {2, 1, 0};
  map.chosen = {
      .low_precision_sites = 2,
      .low_precision_share = 0.75,
      .effect = {.loss_change = -0.0015, .loss_error = 0.0005, .gradient_cosine = 0.999, .gradient_error = 0.1},
      .harm = 0.002,
      .holds = true};
  map.trials = {{.low_precision_sites = 3, .low_precision_share = 1, .effect = {}, .harm = 0.5, .holds = false},
                map.chosen};
  map.layers = {{"head", "bf16"}, {"up/dy", "bf16"}, {"down", "bf16"}};
  return map;
}

TEST(PlanFile, HasItsFiguresInComments) {
  const std::string text = to_plan_file(made_up_map(), {}, "/runs/a/localization.json");
  EXPECT_THAT(text, HasSubstr("# Proposed by quaver localize for runs/a b at step 300: 4 batches at step 300.\n"))
      << "on one line";
  EXPECT_THAT(text,
              HasSubstr("# 75.0 % of the matrix products' operations in low precision; measured whole, the loss is "
                        "-0.001500 ± 0.000500 of 2.5000\n"));
  EXPECT_THAT(text, HasSubstr("gradient cosine 0.999000: harm at most 0.2000 % of the loss, budget 0.2500 %.\n"));
  EXPECT_THAT(text, HasSubstr("\n[precision]\nrecipe = \"mxfp8\"\nlocalization = \"/runs/a/localization.json\"\n\n"
                              "[precision.layers]\n\"down\" = \"bf16\"\n"))
      << "nothing that the config leaves alone, and no remark where nothing was measured";
  EXPECT_THAT(text, HasSubstr("\"head\" = \"bf16\"  # w alone: harm 3.0000 %, gradient cosine 0.980000; SQNR of w 31.2 "
                              "dB\n"))
      << "the most harmful of the layer";
  EXPECT_THAT(text, HasSubstr("\"up/dy\" = \"bf16\"  # dy alone: harm unbounded, gradient cosine"));
}

TEST(PlanFile, NamesWhatWasTriedTogether) {
  Localization map = made_up_map();
  map.grouping = Grouping::layer;
  EXPECT_THAT(to_plan_file(map, {}, "m"),
              HasSubstr("# its layer alone: harm 3.0000 %, gradient cosine 0.980000; SQNR of w"));
  map.grouping = Grouping::block;
  EXPECT_THAT(to_plan_file(map, {}, "m"), HasSubstr("# its block alone: harm 3.0000 %"));
}

TEST(PlanFile, KeepsTheSettingsItWasMeasuredUnder) {
  PrecisionConfig precision;
  precision.recipe = "ignored";
  precision.localization = "ignored";
  precision.history = PrecisionConfig{}.history + 3;
  precision.scales = "scales.json";
  const std::string text = to_plan_file(made_up_map(), precision, "m");
  EXPECT_THAT(text, HasSubstr("\nhistory = " + std::to_string(precision.history) + "\n"));
  EXPECT_THAT(text, HasSubstr("\nscales = \"" + (std::filesystem::current_path() / "scales.json").string() + "\"\n"))
      << "wherever it is used";
  EXPECT_THAT(text, Not(HasSubstr("ignored")));
  EXPECT_THAT(text, Not(HasSubstr("margin")));
}

TEST(LocalizationJson, HasEveryFigureOnce) {
  const auto json = nlohmann::json::parse(to_json(made_up_map()));
  EXPECT_EQ(json.at("baseline_loss"), 2.5);
  EXPECT_EQ(json.at("baseline_error"), 0.125);
  EXPECT_EQ(json.at("recipe"), "mxfp8");
  EXPECT_EQ(json.at("source"), "runs/a\nb at step 300");
  EXPECT_EQ(json.at("config_hash"), "00ff");
  EXPECT_EQ(json.at("step"), 300);
  EXPECT_EQ(json.at("batches"), 4);
  EXPECT_EQ(json.at("tokens"), 512);
  EXPECT_EQ(json.at("group"), "site");
  EXPECT_EQ(json.at("budget"), 0.0025);
  EXPECT_EQ(json.at("ranking"), (nlohmann::json{"up/dy", "head/w", "head/x"}));
  EXPECT_EQ(json.at("layers"), (nlohmann::json{{"head", "bf16"}, {"up/dy", "bf16"}, {"down", "bf16"}}));
  EXPECT_EQ(json.at("chosen"), nlohmann::json::parse(R"({"narrow_sites": 2, "ladder_sites": 0, "narrow_share": 0.75,
    "loss_change": -0.0015, "loss_error": 0.0005, "gradient_cosine": 0.999, "gradient_error": 0.1,
    "harm_at_most": 0.002, "holds": true})"));
  ASSERT_EQ(json.at("trials").size(), 2U);
  EXPECT_EQ(json.at("trials").at(0).at("harm_at_most"), 0.5);
  EXPECT_EQ(json.at("trials").at(0).at("holds"), false);
  EXPECT_EQ(json.at("trials").at(1), json.at("chosen"));
  ASSERT_EQ(json.at("sites").size(), 4U);
  EXPECT_EQ(json.at("sites").at(1), nlohmann::json::parse(R"({"site": "head/w", "layer": "head", "role": "w",
    "recipe": "mxfp8", "tried": true, "loss_change": 0.01, "loss_error": 0.02, "gradient_cosine": 0.98,
    "gradient_error": 0.03, "own_gradient_cosine": 0.96, "own_gradient_error": 0.05, "sqnr_db": 31.25, "underflow_percent": 0.5, "harm": 0.03,
    "flops_share": 0.25, "ladder_recipe": null, "kept_wide": false})"));
  EXPECT_TRUE(json.at("sites").at(2).at("harm").is_null()) << "JSON has no infinity";
  EXPECT_EQ(json.at("sites").at(3), nlohmann::json::parse(R"({"site": "up/x", "layer": "up", "role": "x",
    "recipe": "bf16", "tried": false, "loss_change": null, "loss_error": null, "gradient_cosine": null,
    "gradient_error": null, "own_gradient_cosine": null, "own_gradient_error": null, "sqnr_db": null,
    "underflow_percent": null, "harm": null, "flops_share": 0.0, "ladder_recipe": null, "kept_wide": true})"))
      << "what was not tried has no figures";
}

}  // namespace
}  // namespace quaver
