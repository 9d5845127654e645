// The ladder between a recipe and high precision: which recipes are on it, in which order; and models whose first layer
// reads images that one scale per tensor cannot hold, for one reason each.
#include "study/ladder.h"

#include <algorithm>
#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/load.h"
#include "config/recipe_table.h"
#include "data/synthetic_images.h"
#include "study/localize.h"
#include "study/support.h"

namespace quaver {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<LayerShape> two_layers() {
  return {{.name = "a", .in = 64, .out = 64, .block = 0}, {.name = "b", .in = 64, .out = 64, .block = 1}};
}

std::vector<std::string> names_on(const Ladder& ladder, const std::string& site) {
  std::vector<std::string> names;
  for (const Rung& rung : ladder.rungs) names.push_back(rung.plan.at(site).recipe);
  return names;
}

Ladder ladder_under(const PrecisionConfig& options, const std::set<std::size_t>& wide = {}) {
  return make_ladder(make_plan(options, two_layers()), two_layers(), options, wide);
}

std::vector<std::string> rungs_of(const std::string& recipe, const std::set<std::size_t>& wide = {}) {
  return names_on(ladder_under({.recipe = recipe, .wide_tail = 0}, wide), "a/x");
}

TEST(LadderOfRecipes, GoesToSmallerBlocksAndFromFourBitsToEight) {
  EXPECT_THAT(rungs_of("fp8-current"), ElementsAre("fp8-row", "fp8-block", "mxfp8"));
  EXPECT_THAT(rungs_of("fp8-delayed"), ElementsAre("fp8-row", "fp8-block", "mxfp8"));
  EXPECT_THAT(rungs_of("fp8-unit"), ElementsAre("fp8-current", "fp8-row", "fp8-block", "mxfp8"));
  EXPECT_THAT(rungs_of("fp8-block"), ElementsAre("mxfp8"));
  EXPECT_THAT(rungs_of("mxfp8"), IsEmpty());
  EXPECT_THAT(rungs_of("mxfp4"), ElementsAre("nvfp4", "fp8-current", "fp8-row", "fp8-block", "mxfp8"));
  EXPECT_THAT(rungs_of("nvfp4"), ElementsAre("fp8-current", "fp8-row", "fp8-block", "mxfp8"));
  EXPECT_THAT(rungs_of("bf16"), IsEmpty());
}

TEST(LadderOfRecipes, TriesE5m2FirstForTheLayersWhoseXIsWide) {
  const Ladder ladder = ladder_under({.recipe = "fp8-delayed"}, {1});
  EXPECT_THAT(names_on(ladder, "b/x"), ElementsAre("fp8-delayed-e5m2", "fp8-row", "fp8-block", "mxfp8"));
  EXPECT_THAT(names_on(ladder, "a/x"), ElementsAre("fp8-delayed", "fp8-row", "fp8-block", "mxfp8"));
  const Rung& range = ladder.rungs.front();
  EXPECT_THAT(range.layers, ElementsAre(1));
  for (const Side side : {Side::rows, Side::columns}) {
    const auto format = [&](const char* site) {
      const SiteSpec& spec = range.plan.at(site).spec;
      return (side == Side::rows ? spec.rows : spec.columns).format;
    };
    EXPECT_EQ(format("b/x"), Format::e5m2);
    EXPECT_EQ(format("b/w"), Format::e4m3);
    EXPECT_EQ(format("b/dy"), Format::e4m3) << "no tensor core multiplies E5M2 by E5M2";
  }
  EXPECT_EQ(range.plan.at("b/x").spec.rows.policy, ScalePolicy::delayed) << "all else as in the recipe";
  EXPECT_THAT(rungs_of("mxfp4", {0}),
              ElementsAre("nvfp4", "fp8-current", "fp8-current-e5m2", "fp8-row", "fp8-block", "mxfp8"));
}

TEST(LadderOfRecipes, HasNoRungThatMultipliesE5m2ByE5m2) {
  EXPECT_THAT(names_on(ladder_under({.recipe = "fp8-current", .gradient_format = GradientFormat::e5m2}, {0, 1}), "a/x"),
              ElementsAre("fp8-row", "fp8-block", "mxfp8"));
}

TEST(LadderOfRecipes, LeavesInHighPrecisionWhatTheRecipeDoesAndFormatsOfItsOwn) {
  PrecisionConfig options;
  options.recipes["mine"] = {.name = "mine", .x = {parse_quant_spec("int8 tensor current"), {.format = Format::bf16}}};
  options.recipes["mine"].w = {parse_quant_spec("int8 tensor current"), parse_quant_spec("int8 tensor current")};
  options.recipes["mine"].dy = {{.format = Format::bf16}, {.format = Format::bf16}};
  options.recipe = "mine";
  const Ladder ladder = ladder_under(options);
  EXPECT_THAT(names_on(ladder, "a/x"), ElementsAre("mine-row", "mine-block", "mine-mx"));
  EXPECT_EQ(describe(ladder.rungs[1].plan.at("a/x").spec.rows), "int8 1x128 current");
  EXPECT_EQ(describe(ladder.rungs[1].plan.at("a/w").spec.columns), "int8 128x128 current");
  EXPECT_EQ(describe(ladder.rungs[1].plan.at("a/x").spec.columns), "bf16");
  EXPECT_EQ(describe(ladder.rungs[1].plan.at("a/dy").spec.rows), "bf16");
}

TEST(LadderOfRecipes, MakesRecipesThatAConfigCanHave) {
  PrecisionConfig options{.recipe = "fp8-delayed"};
  const Recipe other{.name = "fp8-delayed-e5m2", .x = {}, .w = {}, .dy = {}};
  options.recipes["fp8-delayed-e5m2"] = other;
  const Ladder ladder = ladder_under(options, {0});
  EXPECT_EQ(names_on(ladder, "a/x").front(), "fp8-delayed-e5m2-2") << "the name was taken by other operands";
  for (const auto& [name, recipe] : ladder.recipes) {
    check(recipe, name);
    check_recipe_name(name, "test");
    const Config read = load_config({.files = {}, .texts = {{"plan.toml", recipe_toml(recipe)}}, .flags = {}});
    EXPECT_EQ(read.precision.recipes.at(name), recipe);
  }
  options.recipes["fp8-delayed-e5m2"] = ladder.recipes.begin()->second;
  EXPECT_EQ(names_on(ladder_under(options, {0}), "a/x").front(), "fp8-delayed-e5m2") << "of an earlier plan";
}

TEST(LadderOfRecipes, AsksTheHistogramWhetherRangeIsTheTrouble) {
  std::vector<float> values(4096);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.5F + static_cast<float>(i % 64) / 64;
  EXPECT_FALSE(has_wide_range(test::statistics_of(values)));
  values[7] = 0x1p22F;
  EXPECT_TRUE(has_wide_range(test::statistics_of(values)));
  values[7] = 0x1p38F;
  EXPECT_FALSE(has_wide_range(test::statistics_of(values))) << "too wide for E5M2 as well";
  EXPECT_FALSE(has_wide_range({})) << "nothing was seen";
}

// Images with pixels that the model ignores and a scale must hold all the same: of every image, or of one in each batch
// that has nothing else.
enum class Which : std::uint8_t { every_image, one_image };

constexpr std::array<Size, 2> ignored{0, 32};

struct Planting {
  Which which = Which::every_image;
  std::vector<Size> pixels = {};  // of those ignored
  float value = 0;
};

class PlantedImages final : public ImageSource {
 public:
  explicit PlantedImages(Planting planting) : planting_(std::move(planting)) {}

  void fill(std::uint64_t index, std::int64_t batch, float* images, std::int32_t* labels) const override {
    source_.fill(index, batch, images, labels);
    for (std::int64_t row = 0; row < batch; ++row) {
      float* const image = images + row * pixels();
      for (const Size pixel : ignored) image[pixel] = 0;
      if (planting_.which == Which::one_image && row > 0) continue;
      if (planting_.which == Which::one_image) std::fill_n(image, pixels(), 0.0F);
      for (const Size pixel : planting_.pixels) image[pixel] = planting_.value;
    }
  }
  ImageShape shape() const override { return source_.shape(); }
  int classes() const override { return source_.classes(); }
  std::uint64_t images() const override { return 0; }
  std::uint64_t content_hash() const override { return 1; }

 private:
  Planting planting_;
  SyntheticImages source_{{.classes = 4, .pixels = 64, .strength = 2}};
};

const char* const planted_layer = "blocks.0.linear";
constexpr double planted_budget = 0.03;  // above the noise of the loss, far below what the pixels do

Config images_config(const std::string& recipe) {
  Config config;
  config.model.family = Family::mlp;
  config.model.layers = 3;
  config.model.width = 64;
  config.data.kind = DataKind::synthetic_images;
  config.data.synthetic_classes = 4;
  config.data.synthetic_pixels = 64;
  config.train.steps = 260;
  config.train.batch = 64;
  config.train.accumulation = 1;
  config.train.threads = 1;
  config.optim.clip = ClipMode::none;
  config.optim.learning_rate = 5e-3;
  config.optim.learning_rate_of = {{"blocks.0.linear.weight", 0}};
  config.precision.recipe = recipe;
  config.run.store = "none";
  return config;
}

// A classifier that has learnt. Its first layer is frozen: an update would give the ignored pixels weight.
std::unique_ptr<Subject> classifier(const Planting& planting, const std::string& recipe = "fp8-current") {
  TrainingData data;
  data.train_images = std::make_unique<PlantedImages>(planting);
  auto subject = open_subject(images_config(recipe), std::move(data), test::ignore);
  Trainer& trainer = subject->trainer();
  Parameter& weight = trainer.model().parameters().find("blocks.0.linear.weight");
  for (Size row = 0; row < weight.rows; ++row) {
    for (const Size pixel : ignored) weight.weight.f32()[row * weight.cols + pixel] = 0;
  }
  trainer.model().parameters().quantize_all(trainer.engine(), {.seed = trainer.config().train.seed});
  while (trainer.steps_done() < 200) trainer.step();
  return subject;
}

Localization plan_search(Subject& subject) {
  return localize(subject, {.batches = 4, .warmup_steps = 0, .budget = planted_budget});
}

std::vector<std::string> recipes_tried(const Localization& found) {
  std::vector<std::string> tried;
  for (const LadderTrial& trial : found.ladder) {
    if (trial.group == planted_layer) tried.push_back(trial.recipe);
  }
  return tried;
}

const LadderTrial* taken_by(const Localization& found, const std::string& layer) {
  for (const LadderTrial& trial : found.ladder) {
    if (trial.taken && trial.group == layer) return &trial;
  }
  return nullptr;
}

void expect_on_ladder(const Localization& found, const std::string& recipe) {
  for (const SiteSensitivity& site : found.sites) {
    if (site.layer != planted_layer) continue;
    EXPECT_EQ(site.placement, Placement::on_ladder) << site.site;
    EXPECT_EQ(site.ladder_recipe, recipe) << site.site;
  }
  EXPECT_EQ(found.layers.at(planted_layer), recipe);
  EXPECT_TRUE(found.chosen.holds);
  EXPECT_GE(found.chosen.ladder_sites, 3);
  EXPECT_FALSE(found.trials.front().holds) << "the recipe alone";
}

// What a run reads from the plan file has the recipes of the plan, and trains.
void expect_trains(Subject& subject, const Localization& found, const std::string& format) {
  const std::string text = to_plan_file(found, subject.config.precision, "/nowhere/localization.json");
  const Config read = load_config({.files = {}, .texts = {{"precision.toml", text}}, .flags = {}});
  Trainer& trainer = subject.trainer();
  const Plan plan = make_plan(read.precision, trainer.model().layers());
  EXPECT_EQ(describe(plan.at("blocks.0.linear/x").spec.rows), format);
  const double before = Baseline(subject, 0, 4).loss();
  trainer.apply_plan(plan, "test");
  double loss = 0;
  while (!trainer.finished()) loss = trainer.step().loss;
  EXPECT_LT(loss, 1.2 * before);
}

TEST(PlantedPixel, GetsTheFormatOfLargerRangeAndNotHighPrecision) {
  const auto subject = classifier({Which::every_image, {0}, 0x1p22F});
  const Localization found = plan_search(*subject);
  expect_on_ladder(found, "fp8-current-e5m2");
  EXPECT_THAT(found.recipes, ElementsAre(testing::Key("fp8-current-e5m2")));
  const LadderTrial* const taken = taken_by(found, planted_layer);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->site, "blocks.0.linear/x");
  EXPECT_GT(taken->before.underflow_percent, 90);
  EXPECT_LT(taken->after.underflow_percent, 1);
  EXPECT_GT(taken->harm_before, 10 * planted_budget);
  EXPECT_LT(taken->harm_after, planted_budget);
  const std::string plan = to_plan_file(found, subject->config.precision, "m");
  EXPECT_THAT(plan, HasSubstr("\"blocks.0.linear\" = \"fp8-current-e5m2\"  # x: underflow 9"));
  EXPECT_THAT(plan, HasSubstr("[recipes.fp8-current-e5m2]\n"));
  expect_trains(*subject, found, "e5m2 tensor current");
}

TEST(PlantedImage, GetsFinerScalesAndNotHighPrecision) {
  const auto subject = classifier({Which::one_image, {0}, 0x1p40F});
  const Localization found = plan_search(*subject);
  EXPECT_THAT(recipes_tried(found), ElementsAre("fp8-row")) << "E5M2 would not hold it either";
  expect_on_ladder(found, "fp8-row");
  EXPECT_THAT(found.recipes, IsEmpty()) << "it is built in";
  expect_trains(*subject, found, "e4m3 row current");
}

TEST(PlantedPixels, StayInHighPrecisionWhereNothingElseHolds) {
  const auto subject = classifier({Which::every_image, {0, 32}, 0x1p40F});
  const Localization found = plan_search(*subject);
  EXPECT_THAT(recipes_tried(found), ElementsAre("fp8-row", "fp8-block", "mxfp8"));
  EXPECT_EQ(taken_by(found, planted_layer), nullptr);
  for (const LadderTrial& trial : found.ladder) {
    EXPECT_EQ(trial.site, "blocks.0.linear/x") << "the culprit";
    EXPECT_GT(trial.harm_after, planted_budget) << trial.recipe;
  }
  for (const SiteSensitivity& site : found.sites) {
    if (site.site != "blocks.0.linear/x") continue;
    EXPECT_EQ(site.placement, Placement::high_precision);
  }
  EXPECT_TRUE(found.chosen.holds);
  EXPECT_THAT(to_plan_file(found, subject->config.precision, "m"),
              HasSubstr("; beyond the budget too: fp8-row, fp8-block, mxfp8\n"));
  expect_trains(*subject, found, "bf16");
}

TEST(Ladder, IsNotTriedWhereTheBudgetTakesTheRecipe) {
  const auto subject = classifier({});
  const Localization found = localize(*subject, {.batches = 2, .warmup_steps = 0, .budget = 1});
  EXPECT_EQ(found.trials.size(), 1U);
  EXPECT_THAT(found.ladder, IsEmpty());
  EXPECT_THAT(found.layers, IsEmpty());
}

// Each round adds to the total what it may measure, and no more is measured.
TEST(Ladder, AddsToTheProgressWhatItMeasures) {
  const auto subject = classifier({Which::every_image, {0, 32}, 0x1p40F});
  std::vector<std::pair<Size, Size>> told;
  LocalizeOptions options{.batches = 2, .warmup_steps = 0, .budget = 0, .grouping = Grouping::layer};
  options.progress.told = [&](Size done, Size total) { told.emplace_back(done, total); };
  const Localization found = localize(*subject, options);
  EXPECT_EQ(found.ladder.size(), 3U * 3) << "three layers on three rungs";
  const Size round = 2 * (2 + 3 + 3);  // high precision twice, three layers, ⌈log2 4⌉ + 1 plans
  for (const auto& [done, total] : told) EXPECT_LE(done, total);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.front().second, round);
  EXPECT_EQ(told.back(), std::pair(4 * round, 4 * round));
}

}  // namespace
}  // namespace quaver
