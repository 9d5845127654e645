// Plans: defaults, overrides by pattern and role, errors that name what matched nothing, and the forms a plan is told
// in.
#include "precision/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <toml++/toml.h>

#include "precision/layers.h"
#include "quaver/error.h"
#include "tensor/site.h"

namespace quaver::test {
namespace {

PrecisionConfig with(const std::string& recipe, std::map<std::string, std::string> layers = {}) {
  PrecisionConfig config;
  config.recipe = recipe;
  config.layers = std::move(layers);
  return config;
}

TEST(Plan, HasOneRowForEveryRoleOfEveryLayer) {
  const auto layers = some_layers(3);
  for (const RecipeInfo& info : recipes()) {
    const Plan plan = make_plan(with(std::string(info.name)), layers);
    ASSERT_EQ(plan.rows.size(), 3 * layers.size());
    for (const PlanRow& row : plan.rows) {
      EXPECT_EQ(row.site, row.layer + "/" + std::string(name_of(row.role)));
      EXPECT_NO_THROW(check(row.spec.rows, row.site));
      EXPECT_NO_THROW(check(row.spec.columns, row.site));
      EXPECT_EQ(row.spec, make_recipe(row.recipe, {}).of(row.role)) << row.site;
      EXPECT_FALSE(row.reason.empty());
    }
  }
}

TEST(Plan, KeepsTheHeadInHighPrecisionUnlessAPatternSaysOtherwise) {
  for (const RecipeInfo& info : recipes()) {
    const std::string recipe(info.name);
    const Plan plan = make_plan(with(recipe), some_layers(2));
    for (const char* site : {"head/x", "head/w", "head/dy"}) {
      EXPECT_EQ(plan.at(site).recipe, high_precision_recipe_for({.recipe = recipe})) << recipe;
      EXPECT_TRUE(is_high_precision(plan.at(site).spec.rows)) << recipe;
    }
    EXPECT_EQ(plan.at("blocks.0.mlp.up/x").recipe, recipe);
  }
  const Plan plan = make_plan(with("fp8-current", {{"head", "fp8-current"}}), some_layers(2));
  EXPECT_EQ(describe(plan.at("head/dy").spec.rows), "e5m2 tensor current");
}

// Speeds are known by pattern and recipe: another recipe's are not this one's.
TEST(Plan, KeepsSlowLayersInBf16WhereAsked) {
  PrecisionConfig config = with("fp8-block");
  config.only_where_faster = "bench.json";
  config.layer_speeds = {{"blocks.*.attn.* in fp8-block", 1.25},
                         {"blocks.*.mlp.up in fp8-block", 1},
                         {"blocks.*.mlp.down in fp8-block", 1.001},
                         {"blocks.*.mlp.down in fp8-row", 0.5}};
  const Plan plan = make_plan(config, some_layers(2));
  EXPECT_EQ(plan.at("blocks.1.attn.qkv/w").recipe, "fp8-block");
  EXPECT_EQ(plan.at("blocks.1.mlp.down/x").recipe, "fp8-block");
  EXPECT_EQ(plan.at("blocks.1.mlp.up/dy").recipe, "bf16") << "as fast is not faster";
  EXPECT_EQ(plan.at("blocks.1.mlp.up/dy").reason, "not faster: fp8-block is 1× as fast as bf16 here");
  config.layer_speeds.erase("blocks.*.mlp.up in fp8-block");
  EXPECT_THROW(make_plan(config, some_layers(2)), Error) << "not known";
  config.layers = {{"*.mlp.up", "fp8-block"}};
  EXPECT_EQ(make_plan(config, some_layers(2)).at("blocks.0.mlp.up/x").recipe, "fp8-block") << "a pattern wins";
  EXPECT_EQ(layers_in_recipe(config, some_layers(2)).size(), 6);
  config.only_where_faster.clear();
  config.layers.clear();
  EXPECT_EQ(make_plan(config, some_layers(2)).at("blocks.0.mlp.up/x").recipe, "fp8-block") << "the rule is off";
  EXPECT_TRUE(layers_in_recipe(with("bf16"), some_layers(2)).empty());
  EXPECT_EQ(layers_in_recipe(with("nvfp4"), some_layers(20)).size(), 4 * 17) << "without the last blocks and the head";
}

Size bf16_blocks(const Plan& plan, Size blocks) {
  Size count = 0;
  for (Size b = 0; b < blocks; ++b) {
    count += plan.at("blocks." + std::to_string(b) + ".mlp.up/w").recipe == "bf16" ? 1 : 0;
  }
  return count;
}

TEST(Plan, KeepsTheLastBlocksOfNvfp4InBf16) {
  for (const auto& [blocks, in_bf16] : {std::pair<Size, Size>{1, 1}, {4, 1}, {6, 1}, {7, 2}, {20, 3}, {21, 4}}) {
    const Plan plan = make_plan(with("nvfp4"), some_layers(blocks));
    EXPECT_EQ(bf16_blocks(plan, blocks), in_bf16) << blocks;
    EXPECT_EQ(plan.at("blocks." + std::to_string(blocks - 1) + ".attn.out/dy").recipe, "bf16")
        << "the last, not the first";
  }
}

TEST(Plan, WideTailIsAnOptionOfEveryRecipe) {
  PrecisionConfig config = with("nvfp4");
  config.wide_tail = 0;
  EXPECT_EQ(bf16_blocks(make_plan(config, some_layers(8)), 8), 0);
  config.wide_tail = 0.5;
  EXPECT_EQ(bf16_blocks(make_plan(config, some_layers(8)), 8), 4);
  config.recipe = "fp8-delayed";
  config.wide_tail = 0.25;
  EXPECT_EQ(bf16_blocks(make_plan(config, some_layers(8)), 8), 2);
  config.wide_tail = 1;
  EXPECT_EQ(bf16_blocks(make_plan(config, some_layers(8)), 8), 8);
}

// Of eight blocks: which are in bf16, as "11000001".
std::string blocks_in_bf16(const PrecisionConfig& config, Size blocks = 8) {
  const Plan plan = make_plan(config, some_layers(blocks));
  std::string found;
  for (Size b = 0; b < blocks; ++b) {
    const PlanRow& row = plan.at("blocks." + std::to_string(b) + ".attn.qkv/x");
    found += row.recipe == "bf16" ? '1' : '0';
    if (row.recipe != "bf16") continue;
    const bool at_start = b < 4 && config.wide_start > 0;
    EXPECT_EQ(row.reason, at_start ? "in the first blocks" : "in the last blocks") << b;
  }
  EXPECT_EQ(plan.at("head/x").reason, "kept in high precision by default");
  return found;
}

TEST(Plan, WideStartKeepsTheFirstBlocksInBf16) {
  PrecisionConfig config = with("nvfp4");
  EXPECT_EQ(blocks_in_bf16(config), "00000011") << "no recipe that is built in has a start";
  config.wide_start = 0.1;
  EXPECT_EQ(blocks_in_bf16(config), "10000011") << "rounded up, beside the recipe's tail";
  config.wide_start = 0.25;
  config.wide_tail = 0;
  EXPECT_EQ(blocks_in_bf16(config), "11000000") << "an eighth twice is not rounded up to three";
  config.recipe = "fp8-delayed";
  config.wide_tail = 0.125;
  EXPECT_EQ(blocks_in_bf16(config), "11000001");
  config.wide_start = config.wide_tail = 1;
  EXPECT_EQ(bf16_blocks(make_plan(config, some_layers(8)), 8), 8) << "the two may overlap";
}

TEST(Plan, WideStartYieldsToPatterns) {
  PrecisionConfig config = with("nvfp4", {{"blocks.0.mlp.up", "mxfp8"}});
  config.wide_start = 0.25;
  const Plan plan = make_plan(config, some_layers(4));
  EXPECT_EQ(plan.at("blocks.0.mlp.up/x").recipe, "mxfp8");
  EXPECT_EQ(plan.at("blocks.0.mlp.down/x").recipe, "bf16");
  EXPECT_EQ(plan.at("blocks.1.mlp.up/x").recipe, "nvfp4");
  EXPECT_EQ(layers_in_recipe(config, some_layers(4)).size(), 4 * 2) << "neither the first block nor the last";
}

TEST(Plan, PatternsChooseLayers) {
  const auto layers = some_layers(3);
  const Plan plan = make_plan(with("fp8-current", {{"blocks.*.mlp.down", "bf16"}}), layers);
  for (const PlanRow& row : plan.rows) {
    const bool chosen = row.layer.find("mlp.down") != std::string::npos;
    const bool head = row.layer == "head";
    EXPECT_EQ(row.recipe, chosen || head ? "bf16" : "fp8-current") << row.site;
    EXPECT_EQ(row.reason.find("blocks.*.mlp.down") != std::string::npos, chosen) << row.reason;
  }
}

TEST(Plan, PatternsChooseRoles) {
  const Plan plan = make_plan(with("fp8-current", {{"blocks.0.*/dy", "bf16"}}), some_layers(2));
  for (const PlanRow& row : plan.rows) {
    const bool chosen = row.layer.starts_with("blocks.0.") && row.role == Role::dy;
    EXPECT_EQ(row.recipe, chosen || row.layer == "head" ? "bf16" : "fp8-current") << row.site;
  }
}

TEST(Plan, PatternsOverrideTheWideTail) {
  const Plan plan = make_plan(with("nvfp4", {{"blocks.3.mlp.up", "mxfp8"}}), some_layers(4));
  EXPECT_EQ(plan.at("blocks.3.mlp.up/x").recipe, "mxfp8");
  EXPECT_EQ(plan.at("blocks.3.mlp.down/x").recipe, "bf16");
}

TEST(Plan, APatternThatMatchesNothingIsAnErrorThatNamesIt) {
  for (const char* pattern : {"block.*", "blocks.9.*", "blocks.0.mlp.up/z", "blocks.0.mlp", ""}) {
    try {
      make_plan(with("fp8-current", {{pattern, "bf16"}}), some_layers(2));
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("\"" + std::string(pattern) + "\""));
      EXPECT_THAT(error.remedy(), testing::HasSubstr("blocks.0.attn.qkv"));
    }
  }
}

TEST(Plan, UnknownRecipesAreErrors) {
  EXPECT_THROW(make_plan(with("fp9"), some_layers(1)), Error);
  EXPECT_THROW(make_plan(with("bf16", {{"head", "fp9"}}), some_layers(1)), Error);
}

// Where roles of one layer differ in recipe, both operands of each GEMM must still be rotated alike: rotating one
// of them alone gives the result of other numbers. A plan may refuse, but not go wrong silently.
TEST(Plan, MixedRolesNeverRotateOneOperandAlone) {
  for (const RecipeInfo& base : recipes()) {
    for (const RecipeInfo& other : recipes()) {
      for (const char* role : {"/x", "/w", "/dy"}) {
        Plan plan;
        try {
          PrecisionConfig config =
              with(std::string(base.name), {{std::string("blocks.0.mlp.up") + role, std::string(other.name)}});
          config.wide_tail = 0;
          plan = make_plan(config, some_layers(1));
        } catch (const Error&) {
          continue;
        }
        const SiteSpec& x = plan.at("blocks.0.mlp.up/x").spec;
        const SiteSpec& w = plan.at("blocks.0.mlp.up/w").spec;
        const SiteSpec& dy = plan.at("blocks.0.mlp.up/dy").spec;
        EXPECT_EQ(x.rows.rotation, w.rows.rotation) << base.name << role << " = " << other.name;
        EXPECT_EQ(dy.rows.rotation, w.columns.rotation) << base.name << role << " = " << other.name;
        EXPECT_EQ(dy.columns.rotation, x.columns.rotation) << base.name << role << " = " << other.name;
      }
    }
  }
}

TEST(Plan, AskingForAnUnknownSiteIsAnError) {
  const Plan plan = make_plan(with("bf16"), some_layers(1));
  EXPECT_THROW(plan.at("blocks.7.mlp.up/x"), Error);
}

TEST(Matches, StarIsAnythingAndQuestionMarkIsOne) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*", "anything"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("?", ""));
  EXPECT_TRUE(matches("blocks.?.mlp", "blocks.3.mlp"));
  EXPECT_FALSE(matches("blocks.?.mlp", "blocks.13.mlp"));
  EXPECT_TRUE(matches("blocks.*.mlp", "blocks.13.mlp"));
  EXPECT_FALSE(matches("blocks.*.mlp", "blocks.13.mlp.up")) << "the whole name must match";
  EXPECT_TRUE(matches("*.mlp.*", "blocks.13.mlp.up"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matches("a*b*c", "aXbYbZ"));
  EXPECT_TRUE(matches("**", "x"));
  EXPECT_FALSE(matches("a", "*")) << "stars in names are plain";
}

// Against the definition, on every short pattern and name over a small alphabet.
TEST(Matches, AgreesWithTheRecursiveDefinition) {
  const std::function<bool(std::string_view, std::string_view)> defined = [&](std::string_view p, std::string_view n) {
    if (p.empty()) return n.empty();
    if (p[0] == '*') return defined(p.substr(1), n) || (!n.empty() && defined(p, n.substr(1)));
    return !n.empty() && (p[0] == '?' || p[0] == n[0]) && defined(p.substr(1), n.substr(1));
  };
  const auto words = [](std::string_view alphabet, std::size_t longest) {
    std::vector<std::string> all{""};
    for (std::size_t first = 0, length = 0; length < longest; ++length) {
      const std::size_t last = all.size();
      for (; first < last; ++first) {
        for (const char c : alphabet) all.push_back(all[first] + c);
      }
    }
    return all;
  };
  for (const std::string& pattern : words("ab*?", 4)) {
    for (const std::string& name : words("ab", 4)) {
      ASSERT_EQ(matches(pattern, name), defined(pattern, name)) << pattern << " " << name;
    }
  }
}

TEST(PlanToml, ParsesBackSiteBySite) {
  for (const RecipeInfo& info : recipes()) {
    const Plan plan = make_plan(with(std::string(info.name), {{"blocks.?.mlp.*/dy", "fp8-block"}}), some_layers(3));
    const toml::table parsed = toml::parse(to_toml(plan));
    EXPECT_EQ(parsed.size(), plan.rows.size());
    for (const PlanRow& row : plan.rows) {
      const toml::table* site = parsed[row.site].as_table();
      ASSERT_NE(site, nullptr) << row.site;
      EXPECT_EQ((*site)["recipe"].value_or(std::string()), row.recipe);
      EXPECT_EQ((*site)["reason"].value_or(std::string()), row.reason);
      EXPECT_EQ((*site)["rows"].value_or(std::string()), describe(row.spec.rows));
      EXPECT_EQ((*site)["columns"].value_or(std::string()), describe(row.spec.columns));
    }
  }
}

TEST(PlanSummary, CountsEveryLayerOnceForEachRecipeItUses) {
  const std::string text = summary(make_plan(with("fp8-current", {{"blocks.0.mlp.up", "bf16"}}), some_layers(2)));
  EXPECT_THAT(text, testing::HasSubstr("fp8-current (recipe): 7 layers"));
  EXPECT_THAT(text, testing::HasSubstr("1 layer (head)"));
  EXPECT_THAT(text, testing::HasSubstr("1 layer (blocks.0.mlp.up)"));
}

TEST(Flops, SharesSumToOne) {
  const auto layers = some_layers(3);
  for (const RecipeInfo& info : recipes()) {
    const auto shares = flops_by_format(make_plan(with(std::string(info.name)), layers), layers);
    double sum = 0;
    for (const auto& [format, share] : shares) sum += share;
    EXPECT_NEAR(sum, 1, 1e-12) << info.name;
  }
}

TEST(Flops, AGemmCountsAsItsHigherPrecisionOperand) {
  const std::vector<LayerShape> layers{{"a", 10, 20, 0}, {"b", 10, 60, 1}};
  auto shares = flops_by_format(make_plan(with("fp8-current", {{"a", "bf16"}}), layers), layers);
  EXPECT_NEAR(shares["bf16"], 0.25, 1e-12);
  EXPECT_NEAR(low_precision_share(shares), 0.75, 1e-12);
  shares = flops_by_format(make_plan(with("fp8-current", {{"*/x", "bf16"}}), layers), layers);
  EXPECT_NEAR(shares["bf16"], 2.0 / 3, 1e-12) << "fprop and wgrad read x";
  shares = flops_by_format(make_plan(with("fp32"), layers), layers);
  EXPECT_EQ(low_precision_share(shares), 0);
  PrecisionConfig fp4 = with("nvfp4");
  fp4.wide_tail = 0;
  EXPECT_NEAR(low_precision_share(flops_by_format(make_plan(fp4, layers), layers)), 1, 1e-12);
}

}  // namespace
}  // namespace quaver::test
