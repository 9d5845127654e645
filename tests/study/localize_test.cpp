// Localization: gradients compared, effects judged, and a model with one planted sensitive layer, which must be found,
// stored otherwise, and train within the budget.
#include "study/localize.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "config/load.h"
#include "models/factory.h"
#include "quaver/error.h"
#include "study/support.h"
#include "train/support.h"

namespace quaver {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(GradientMatch, IsTheCosineAndTheRelativeError) {
  EXPECT_DOUBLE_EQ(match_of({3, 4}, {3, 4}).cosine, 1);
  EXPECT_DOUBLE_EQ(match_of({3, 4}, {3, 4}).error, 0);
  EXPECT_DOUBLE_EQ(match_of({3, 4}, {-4, 3}).cosine, 0);
  EXPECT_DOUBLE_EQ(match_of({3, 4}, {6, 8}).cosine, 1);
  EXPECT_DOUBLE_EQ(match_of({3, 4}, {6, 8}).error, 1);
  EXPECT_DOUBLE_EQ(match_of({3, 4}, {0, 0}).cosine, 0);
  EXPECT_DOUBLE_EQ(match_of({0, 0}, {0, 0}).cosine, 1);
  EXPECT_EQ(match_of({3, 4}, {NAN, 1}).cosine, 0);
  EXPECT_TRUE(std::isinf(match_of({3, 4}, {INFINITY, 1}).error));
}

TEST(Effect, ALossChangeWithinItsErrorIsNoHarmButMayBeOne) {
  const Effect unclear{.loss_change = 0.01, .loss_error = 0.02, .gradient_cosine = 1, .batches = 4};
  EXPECT_EQ(unclear.harm(2), 0);
  EXPECT_NEAR(unclear.harm_at_most(2), (0.01 + 2.353 * 0.02) / 2, 1e-12);
  const Effect clear{.loss_change = 0.1, .loss_error = 0.001, .gradient_cosine = 1, .batches = 4};
  EXPECT_NEAR(clear.harm(2), 0.05, 1e-4);
  const Effect better{.loss_change = -0.1, .loss_error = 0.001, .gradient_cosine = 0.9, .batches = 4};
  EXPECT_NEAR(better.harm(2), 0.01, 1e-12);
  EXPECT_NEAR(better.harm_at_most(2), 0.01, 1e-12);
}

TEST(Effect, WhatIsNotFiniteIsHarmWithoutBound) {
  const Effect broken{.loss_change = NAN, .batches = 2};
  EXPECT_TRUE(std::isinf(broken.harm(1)));
  EXPECT_TRUE(std::isinf(broken.harm_at_most(1)));
}

// The same function with outliers inside: some channels of a norm's output grow by 2^18, and the columns of the weight
// that reads them shrink by as much. One scale for the tensor cannot hold both.
constexpr int outlier_log2 = 18;
void plant_outliers(Trainer& trainer) {
  Parameters& parameters = trainer.model().parameters();
  Parameter& gain = parameters.find("blocks.1.norm2.weight");
  Parameter& shift = parameters.find("blocks.1.norm2.bias");
  Parameter& weight = parameters.find("blocks.1.mlp.up.weight");
  for (const Size channel : {3, 17}) {
    gain.weight.f32()[channel] = std::ldexp(gain.weight.f32()[channel], outlier_log2);
    shift.weight.f32()[channel] = std::ldexp(shift.weight.f32()[channel], outlier_log2);
    for (Size row = 0; row < weight.rows; ++row) {
      float& w = weight.weight.f32()[row * weight.cols + channel];
      w = std::ldexp(w, -outlier_log2);
    }
  }
  // A step of ordinary size in these would undo the balance.
  for (Parameter* parameter : {&gain, &shift, &weight}) parameter->learning_rate_factor = 0;
  parameters.quantize_all(trainer.engine(), {.seed = trainer.config().train.seed});
}

constexpr Size steps_before = 300;

Config planted_config(const std::string& recipe) {
  Config config = test::small_config(recipe, "");
  config.train.batch = 8;
  config.optim.learning_rate = 2e-3;
  config.train.accumulation = 1;
  config.train.steps = 420;
  config.optim.clip = ClipMode::group_norm;
  return config;
}

// A model that has learnt something in high precision, then has its outliers planted.
std::unique_ptr<Subject> planted(const std::string& recipe) {
  auto subject = open_subject(planted_config(recipe), test::ignore);
  while (subject->trainer().steps_done() < steps_before) subject->trainer().step();
  plant_outliers(subject->trainer());
  return subject;
}

// Validation loss when training goes on from there under a plan.
double trained(const PrecisionConfig& precision) {
  const auto subject = planted(precision.recipe);
  Trainer& trainer = subject->trainer();
  trainer.apply_plan(make_plan(precision, trainer.model().layers()), "test");
  while (!trainer.finished()) trainer.step();
  return trainer.evaluate(16).value();
}

TEST(PlantedModel, ComputesTheSameFunction) {
  auto subject = open_subject(planted_config("fp8-current"), test::ignore);
  const double before = subject->trainer().evaluate(2).value();
  plant_outliers(subject->trainer());
  EXPECT_NEAR(subject->trainer().evaluate(2).value(), before, 1e-6);
}

class Planted : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto subject = planted("fp8-current");
    found_ = new Localization(localize(*subject, {.batches = 4, .warmup_steps = 0, .budget = 0.0025}));
  }
  static void TearDownTestSuite() {
    delete found_;
    found_ = nullptr;
  }

  static const Localization& found() { return *found_; }

 private:
  static Localization* found_;
};
Localization* Planted::found_ = nullptr;

TEST_F(Planted, OperandRanksFirst) {
  const SiteSensitivity& worst = found().sites[found().ranking.front()];
  EXPECT_EQ(worst.site, "blocks.1.mlp.up/x");
  // Clearly: ten times the harm of anything elsewhere.
  double elsewhere = 0;
  for (const SiteSensitivity& site : found().sites) {
    if (site.tried && site.layer != worst.layer) elsewhere = std::max(elsewhere, site.harm);
  }
  EXPECT_GT(worst.harm, 10 * elsewhere);
}

TEST_F(Planted, LayerIsInAFormatOfLargerRangeAndTheOthersAreAsTried) {
  for (const SiteSensitivity& site : found().sites) {
    if (!site.tried) continue;
    const bool planted = site.layer == "blocks.1.mlp.up";
    EXPECT_EQ(site.placement, planted ? Placement::on_ladder : Placement::as_tried) << site.site;
    EXPECT_EQ(site.ladder_recipe, planted ? "fp8-current-e5m2" : "") << site.site;
  }
  EXPECT_GT(found().chosen.low_precision_share, 0.9);
  EXPECT_TRUE(found().chosen.holds);
  EXPECT_FALSE(found().trials.front().holds);  // everything in low precision
}

TEST_F(Planted, ChosenPlanIsTheBestOfThoseThatHold) {
  for (const PlanTrial& trial : found().trials) {
    EXPECT_EQ(trial.holds, trial.harm <= found().budget);
    if (trial.holds) {
      EXPECT_LE(trial.low_precision_share, found().chosen.low_precision_share);
    }
  }
}

TEST_F(Planted, PlanTrainsWithinItsBudget) {
  const PrecisionConfig precision = planted_config("fp8-current").precision;
  const double planned = trained(test::with_plan(precision, found()));
  const double bf16 = trained(planted_config("bf16").precision);
  EXPECT_LT(planned, bf16 * (1 + found().budget));
  // By what was measured: the losses of 120 steps with and without the plan differ by less than their noise. The harm
  // is 0.52 of the budget on one CPU (Intel) and below a half on another (AMD).
  EXPECT_GT(found().trials.front().harm, 2 * found().budget);
  EXPECT_LT(found().chosen.harm, 0.6 * found().budget);
}

TEST_F(Planted, ConfigReadsThePlanAndGivesTheSameSites) {
  const Config config = planted_config("fp8-current");
  const std::string text = to_plan_file(found(), config.precision, "/tmp/somewhere/localization.json");
  const Config read = load_config({.files = {}, .texts = {{"precision.toml", text}}, .flags = {}});
  EXPECT_EQ(read.precision.recipe, "fp8-current");
  EXPECT_EQ(read.precision.layers, found().layers);
  ModelConfig model = config.model;
  model.vocab = 64;
  const Plan plan = make_plan(read.precision, make_model(resolved(model))->layers());
  for (const SiteSensitivity& site : found().sites) {
    const bool is_high = !is_low_precision(plan.at(site.site).spec.rows.format);
    EXPECT_EQ(site.placement == Placement::high_precision, is_high) << site.site;
  }
}

TEST_F(Planted, DocumentHasEverySite) {
  const json document = json::parse(to_json(found()));
  ASSERT_EQ(document["sites"].size(), found().sites.size());
  EXPECT_DOUBLE_EQ(document["baseline_loss"], found().baseline_loss);
  double share = 0;
  for (const json& site : document["sites"]) {
    for (const char* key :
         {"site", "layer", "role", "recipe", "loss_change", "gradient_cosine", "sqnr_db", "flops_share", "kept_wide"}) {
      EXPECT_TRUE(site.contains(key)) << key;
    }
    share += site["flops_share"].get<double>();
  }
  EXPECT_NEAR(share, 2, 1e-9);  // every product reads two operands
}

TEST(Localize, OutputGradientsDoNotChangeTheLoss) {
  auto subject = open_subject(planted_config("fp8-current"), test::ignore);
  const Localization found = localize(*subject, {.batches = 2, .warmup_steps = 0});
  for (const SiteSensitivity& site : found.sites) {
    if (site.role != Role::dy || !site.tried) continue;
    EXPECT_EQ(site.effect.loss_change, 0) << site.site;
    EXPECT_LT(site.effect.gradient_cosine, 1) << site.site;
  }
}

TEST(Localize, GroupsAreTriedTogether) {
  for (const Grouping grouping : {Grouping::layer, Grouping::block}) {
    auto subject = open_subject(planted_config("mxfp4"), test::ignore);
    const Localization found = localize(*subject, {.batches = 2, .warmup_steps = 0, .budget = 1, .grouping = grouping});
    EXPECT_EQ(found.sites[0].effect.gradient_cosine, found.sites[1].effect.gradient_cosine);
    const bool next_layer_alike = found.sites[0].effect.gradient_cosine == found.sites[3].effect.gradient_cosine;
    EXPECT_EQ(next_layer_alike, grouping == Grouping::block);
    EXPECT_EQ(found.trials.size(), 1U);  // the budget takes everything
    EXPECT_TRUE(found.layers.empty());
  }
}

TEST(Localize, NoBudgetKeepsEverythingInHighPrecision) {
  auto subject = open_subject(planted_config("fp8-current"), test::ignore);
  const Localization found =
      localize(*subject, {.batches = 2, .warmup_steps = 0, .budget = 0, .grouping = Grouping::layer});
  for (const SiteSensitivity& site : found.sites) EXPECT_EQ(site.placement, Placement::high_precision);
  EXPECT_EQ(found.chosen.low_precision_share, 0);
}

TEST(Localize, PatternsOfTheConfigArePartOfThePlan) {
  Config config = planted_config("fp8-current");
  config.precision.layers = {{"*.down/w", "mxfp8"}, {"blocks.0.attn.*", "bf16"}};
  auto subject = open_subject(config, test::ignore);
  const Localization found = localize(*subject, {.batches = 2, .warmup_steps = 0, .budget = 1});
  EXPECT_EQ(found.layers.at("blocks.0.mlp.down/w"), "mxfp8");
  EXPECT_EQ(found.layers.at("blocks.0.attn.qkv"), "bf16");
  const Plan before = subject->plan;
  const Plan after = make_plan(test::with_plan(config.precision, found), subject->trainer().model().layers());
  for (const PlanRow& row : before.rows) EXPECT_EQ(after.at(row.site).spec, row.spec) << row.site;
}

TEST(Localize, HighPrecisionRecipesAreRefused) {
  auto subject = open_subject(planted_config("bf16"), test::ignore);
  EXPECT_THROW(localize(*subject, {.batches = 2, .warmup_steps = 0}), Error);
}

}  // namespace
}  // namespace quaver
