// Recipes that a config defines: read as they are printed, named like those that are built in, and kept with the run.
#include <filesystem>
#include <gmock/gmock.h>

#include "support/temporary_folder.h"

#include "config/dump.h"
#include "config/recipe_table.h"
#include "config/support.h"

namespace quaver {
namespace {

using test::load_flags;
using test::load_text;
using test::refusal;
using test::refused_flag;
using test::refused_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string mine =
    "[recipes.mine]\nx = 'e4m3 row current margin 1'\nw = 'e4m3 128x128/pow2 current'\n"
    "dy = { rowwise = 'e5m2 tensor current stochastic', columnwise = 'bf16' }\nwide_start = 0.125\nwide_tail = "
    "0.25\nsummary = 'a "
    "\"test\"'\n";

Recipe own_of(const Config& config, const std::string& name) { return make_recipe(name, config.precision); }

TEST(OwnRecipes, ThoseThatAreBuiltInReadBackFromWhatIsPrinted) {
  for (const RecipeInfo& info : recipes()) {
    Recipe printed = make_recipe(info.name, {});
    printed.name = "my-" + printed.name;
    const Config config = load_text(recipe_toml(printed));
    EXPECT_EQ(own_of(config, printed.name), printed) << recipe_toml(printed);
  }
}

TEST(OwnRecipes, HaveTheSidesThatTheTextSays) {
  const Recipe recipe = own_of(load_text(mine), "mine");
  EXPECT_EQ(describe(recipe.x.rows), "e4m3 row current margin 1");
  EXPECT_EQ(recipe.x.rows, recipe.x.columns);
  EXPECT_EQ(describe(recipe.w.columns), "e4m3 128x128/pow2 current");
  EXPECT_EQ(describe(recipe.dy.rows), "e5m2 tensor current stochastic");
  EXPECT_EQ(describe(recipe.dy.columns), "bf16");
  EXPECT_EQ(recipe.wide_start, 0.125);
  EXPECT_EQ(recipe.wide_tail, 0.25);
  EXPECT_EQ(recipe.summary, "a \"test\"");
}

TEST(OwnRecipes, AreKeptByTheDump) {
  const Config config = load_text(mine + "[precision]\nrecipe = 'mine'\n[precision.layers]\n'blocks.0.*' = 'mine'\n");
  EXPECT_EQ(config_difference(config, load_text(to_toml(config))), "");
  EXPECT_NE(fingerprint(config), fingerprint(load_text("precision.recipe = 'bf16'")));
  EXPECT_THAT(to_toml(load_flags({})), Not(HasSubstr("recipes"))) << "a config without any is what it was";
}

TEST(OwnRecipes, ADifferenceShowsThem) {
  EXPECT_THAT(
      config_difference(load_flags({}), load_text(mine)),
      StartsWith("recipes: {} → { \"mine\" = { summary = \"a \\\"test\\\"\", x = \"e4m3 row current margin 1\""));
}

TEST(OwnRecipes, CanBeNamedWhereverARecipeIs) {
  const Config config = load_text(
      mine + "[precision]\nrecipe = 'mine'\nswitch_to = 'mine'\n[precision.layers]\n\"blocks.*.mlp.down\" = 'mine'\n");
  EXPECT_EQ(config.precision.recipe, "mine");
  EXPECT_EQ(config.precision.switch_to, "mine");
  EXPECT_EQ(config.precision.layers.at("blocks.*.mlp.down"), "mine");
  EXPECT_EQ(load_text(mine, {"--precision.recipe=mine"}).precision.recipe, "mine");
  EXPECT_EQ(load_text("precision.recipe = 'mine'\n" + mine).precision.recipe, "mine") << "defined below";
}

TEST(OwnRecipes, AnUnknownNameIsRefusedWhereItStands) {
  EXPECT_THAT(refused_text(mine + "[precision]\nrecipe = 'mime'\n"),
              AllOf(StartsWith("run.toml:9:10: precision.recipe: "), HasSubstr("did you mean \"mine\"?")));
  EXPECT_THAT(
      refused_text("[precision.layers]\n'blocks.0.*' = 'bf16'\n'blocks.1.*' = 'fp8-roww'\n"),
      AllOf(StartsWith("run.toml:3:16: precision.layers.\"blocks.1.*\": "), HasSubstr("did you mean \"fp8-row\"?")));
  EXPECT_THAT(refused_flag("--precision.switch_to=mine"), AllOf(HasSubstr("switch_to=mine"), HasSubstr("one of")));
}

TEST(OwnRecipes, OfSeveralFilesAddUpAndTheLastWins) {
  const test::TemporaryFolder folder;
  const std::string one = "x = 'bf16'\nw = 'bf16'\ndy = 'bf16'\n";
  const auto first = folder.write("first.toml", "[recipes.a]\n" + one + "[recipes.b]\n" + one + "wide_tail = 0.5\n");
  const auto second = folder.write("second.toml", "precision.recipe = 'a'\n[recipes.b]\nx='f16'\nw='f16'\ndy='f16'\n");
  const Config config = load_config({.files = {first.string(), second.string()}, .texts = {}, .flags = {}});
  EXPECT_EQ(describe(own_of(config, "a").x.rows), "bf16");
  EXPECT_EQ(describe(own_of(config, "b").x.rows), "f16");
  EXPECT_EQ(own_of(config, "b").wide_tail, 0) << "the whole recipe is the second's";
}

TEST(OwnRecipes, CanBeDefinedByAFlag) {
  const std::string flag = "--recipes.mine={ x = \"int8 row current\", w = \"e3m4 row current\", dy = \"bf16\" }";
  const Config config = load_flags({flag, "precision.recipe=mine"});
  EXPECT_EQ(describe(own_of(config, "mine").w.rows), "e3m4 row current");
  EXPECT_EQ(load_text(mine, {"--recipes={}"}).precision.recipes.size(), 0U);
  EXPECT_THAT(refused_flag("--recipes.mine=bf16"), HasSubstr("--recipes.mine=bf16"));
  EXPECT_THAT(refused_flag("--recipes.mine={}"), HasSubstr("found no x"));
  EXPECT_THAT(refused_flag("--recipes.mine={}\ntrain.steps = 3"), HasSubstr("on one line"));
}

TEST(OwnRecipes, MistakesAreRefusedWithPlaceAndReason) {
  const auto refused = [](const std::string& lines) { return refused_text("[recipes.mine]\n" + lines); };
  const std::string two = "w = 'bf16'\ndy = 'bf16'\n";
  EXPECT_THAT(refused("widetail = 0.1\n"),
              AllOf(StartsWith("run.toml:2:1: recipes.mine: "), HasSubstr("did you mean \"wide_tail\"?")));
  EXPECT_THAT(refused(two), AllOf(StartsWith("run.toml:1:10: recipes.mine: "), HasSubstr("found no x")));
  EXPECT_THAT(refused(two + "x = 'e4m3 1x129 current'\n"),
              AllOf(StartsWith("run.toml:4:5: recipes.mine.x = "), HasSubstr("no block '1x129'"), HasSubstr("1x128")));
  EXPECT_THAT(refused(two + "x = 'e4m3 1x128 delayed'\n"),
              AllOf(HasSubstr("cannot be delayed"), HasSubstr("set the policy to current")));
  EXPECT_THAT(refused(two + "x = { rowwise = 'bf16' }\n"), HasSubstr("found no columnwise"));
  EXPECT_THAT(refused(two + "x = { rowwise = 'bf16', columwise = 'bf16' }\n"),
              HasSubstr("did you mean \"columnwise\"?"));
  EXPECT_THAT(refused(two + "x = 3\n"),
              HasSubstr("expected text, or a table of rowwise and columnwise, found integer 3"));
  EXPECT_THAT(refused(two + "x = 'bf16'\nwide_tail = 1.5\n"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(refused(two + "x = 'bf16'\nwide_tail = nan\n"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(refused(two + "x = 'bf16'\nwide_start = -1\n"), AllOf(HasSubstr("wide_start"), HasSubstr("from 0 to 1")));
  EXPECT_THAT(refused(two + "x = 'e4m3 row current hadamard'\n"), HasSubstr("only one of them is rotated"));
  EXPECT_THAT(refused(two + "x = { rowwise = 'e4m3 tensor delayed', columnwise = 'e5m2 tensor delayed' }\n"),
              HasSubstr("share one delayed scale"));
  EXPECT_THAT(refused_text("[recipes.nvfp4]\nx='bf16'\n" + two), HasSubstr("such as my-nvfp4"));
  EXPECT_THAT(refused_text("[recipes.'a b']\nx='bf16'\n" + two), HasSubstr("letters, digits"));
  EXPECT_THAT(refused_text("recipes.mine = 'bf16'"), HasSubstr("expected a table"));
}

TEST(OwnRecipes, TheTextSaysEverythingButWhatIsOverriddenByName) {
  const Config plain = load_text(mine);
  const Config changed = load_text(mine +
                                   "[precision]\nmargin = 3\npower_of_two_scales = true\nmx_floor = true\n"
                                   "wide_weight_gradient = true\n");
  EXPECT_EQ(own_of(plain, "mine"), own_of(changed, "mine"));
  const Config asked = load_text(mine + "[precision]\ngradient_format = 'e4m3'\nwide_tail = 0.5\nwide_start = 0\n");
  EXPECT_EQ(describe(own_of(asked, "mine").dy.rows), "e4m3 tensor current stochastic");
  EXPECT_EQ(own_of(asked, "mine").wide_tail, 0.5);
  EXPECT_EQ(own_of(asked, "mine").wide_start, 0);
}

}  // namespace
}  // namespace quaver
