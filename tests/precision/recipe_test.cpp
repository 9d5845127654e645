// Every recipe stores each role as documented, and its options change what they say and nothing else.
#include "precision/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "quaver/error.h"

namespace quaver::test {
namespace {

// The documented table: rows and columns of x, w and dy.
struct Documented {
  const char* name;
  std::array<const char*, 6> sites;
};

constexpr Documented table[] = {
    {"fp32", {"f32", "f32", "f32", "f32", "f32", "f32"}},
    {"tf32", {"tf32", "tf32", "tf32", "tf32", "tf32", "tf32"}},
    {"bf16", {"bf16", "bf16", "bf16", "bf16", "bf16", "bf16"}},
    {"fp16", {"f16", "f16", "f16", "f16", "f16", "f16"}},
    {"fp8-current",
     {"e4m3 tensor current", "e4m3 tensor current", "e4m3 tensor current", "e4m3 tensor current", "e5m2 tensor current",
      "e5m2 tensor current"}},
    {"fp8-delayed",
     {"e4m3 tensor delayed", "e4m3 tensor delayed", "e4m3 tensor delayed", "e4m3 tensor delayed", "e5m2 tensor delayed",
      "e5m2 tensor delayed"}},
    {"fp8-static",
     {"e4m3 tensor fixed", "e4m3 tensor fixed", "e4m3 tensor fixed", "e4m3 tensor fixed", "e5m2 tensor fixed",
      "e5m2 tensor fixed"}},
    {"fp8-row",
     {"e4m3 row current", "e4m3 row current", "e4m3 row current", "e4m3 row current", "e4m3 row current",
      "e4m3 row current"}},
    {"fp8-block",
     {"e4m3 1x128 current", "e4m3 1x128 current", "e4m3 128x128 current", "e4m3 128x128 current", "e4m3 1x128 current",
      "e4m3 1x128 current"}},
    {"fp8-unit",
     {"e4m3 tensor unscaled", "e4m3 tensor unscaled", "e4m3 tensor unscaled", "e4m3 tensor unscaled",
      "e5m2 tensor unscaled", "e5m2 tensor unscaled"}},
    {"mxfp8",
     {"e4m3 1x32/e8m0 current", "e4m3 1x32/e8m0 current", "e4m3 1x32/e8m0 current", "e4m3 1x32/e8m0 current",
      "e4m3 1x32/e8m0 current", "e4m3 1x32/e8m0 current"}},
    {"mxfp4",
     {"e2m1 1x32/e8m0 current", "e2m1 1x32/e8m0 current stochastic hadamard shrink 0.75", "e2m1 1x32/e8m0 current",
      "e2m1 1x32/e8m0 current stochastic hadamard shrink 0.75",
      "e2m1 1x32/e8m0 current stochastic hadamard shrink 0.75",
      "e2m1 1x32/e8m0 current stochastic hadamard shrink 0.75"}},
    {"nvfp4",
     {"e2m1 1x16/e4m3 current", "e2m1 1x16/e4m3 current hadamard", "e2m1 16x16/e4m3 current", "e2m1 16x16/e4m3 current",
      "e2m1 1x16/e4m3 current stochastic", "e2m1 1x16/e4m3 current stochastic hadamard"}},
};

std::array<QuantSpec, 6> specs_of(const Recipe& recipe) {
  return {recipe.x.rows, recipe.x.columns, recipe.w.rows, recipe.w.columns, recipe.dy.rows, recipe.dy.columns};
}

TEST(Recipes, AreThoseDocumented) {
  ASSERT_EQ(recipes().size(), std::size(table));
  for (std::size_t i = 0; i < std::size(table); ++i) {
    EXPECT_EQ(recipes()[i].name, table[i].name);
    EXPECT_FALSE(recipes()[i].summary.empty());
    const Recipe recipe = make_recipe(table[i].name, {});
    EXPECT_EQ(recipe.name, table[i].name);
    const auto specs = specs_of(recipe);
    for (std::size_t s = 0; s < specs.size(); ++s) EXPECT_EQ(describe(specs[s]), table[i].sites[s]) << table[i].name;
    EXPECT_EQ(recipe.wide_start, 0);
    EXPECT_DOUBLE_EQ(recipe.wide_tail, recipe.name == "nvfp4" ? 0.15 : 0.0);
  }
}

TEST(Recipes, AreValidWithEveryOption) {
  for (const RecipeInfo& info : recipes()) {
    for (int bits = 0; bits < 16; ++bits) {
      for (const GradientFormat format : {GradientFormat::recipe, GradientFormat::e4m3, GradientFormat::e5m2}) {
        PrecisionConfig options;
        options.margin = (bits & 1) != 0 ? 2 : 0;
        options.power_of_two_scales = (bits & 2) != 0;
        options.mx_floor = (bits & 4) != 0;
        options.wide_weight_gradient = (bits & 8) != 0;
        options.gradient_format = format;
        for (const QuantSpec& spec : specs_of(make_recipe(info.name, options))) {
          EXPECT_NO_THROW(check(spec, std::string(info.name))) << info.name << " " << bits;
        }
      }
    }
  }
}

// The two operands of a GEMM must be rotated alike, or its result is another one.
TEST(Recipes, RotateBothOperandsOfAGemmOrNeither) {
  for (const RecipeInfo& info : recipes()) {
    const Recipe recipe = make_recipe(info.name, {});
    EXPECT_EQ(recipe.x.rows.rotation, recipe.w.rows.rotation) << info.name;
    EXPECT_EQ(recipe.dy.rows.rotation, recipe.w.columns.rotation) << info.name;
    EXPECT_EQ(recipe.dy.columns.rotation, recipe.x.columns.rotation) << info.name;
  }
}

TEST(Recipes, AnUnknownNameIsAnErrorThatListsTheKnown) {
  try {
    make_recipe("fp8-delaid", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("fp8-delaid"));
    for (const RecipeInfo& info : recipes()) EXPECT_THAT(error.remedy(), testing::HasSubstr(std::string(info.name)));
  }
}

// The recipe with one option set.
template <class Value>
Recipe with(const char* name, Value PrecisionConfig::*option, Value value) {
  PrecisionConfig options;
  options.*option = value;
  return make_recipe(name, options);
}

TEST(Recipes, OptionsTakeEffect) {
  EXPECT_EQ(with("fp8-current", &PrecisionConfig::margin, 3).x.rows.margin, 3);
  EXPECT_EQ(with("fp8-static", &PrecisionConfig::margin, 3).x.rows.margin, 0) << "a fixed scale is what the user says";
  EXPECT_EQ(with("fp8-delayed", &PrecisionConfig::power_of_two_scales, true).dy.rows.scale,
            ScaleFormat::f32_power_of_two);
  EXPECT_EQ(with("mxfp8", &PrecisionConfig::mx_floor, true).w.columns.scale, ScaleFormat::e8m0_floor);
  const Recipe row = with("fp8-row", &PrecisionConfig::wide_weight_gradient, true);
  EXPECT_EQ(describe(row.x.columns), "bf16");
  EXPECT_EQ(describe(row.dy.columns), "bf16");
  EXPECT_EQ(describe(row.x.rows), "e4m3 row current");
  EXPECT_EQ(describe(row.w.columns), "e4m3 row current") << "dgrad stays in FP8";
}

TEST(Recipes, TheGradientFormatOfFp8RecipesCanBeChosen) {
  constexpr auto option = &PrecisionConfig::gradient_format;
  EXPECT_EQ(with("fp8-current", option, GradientFormat::e4m3).dy.rows.format, Format::e4m3);
  EXPECT_EQ(with("fp8-row", option, GradientFormat::e5m2).dy.columns.format, Format::e5m2);
  EXPECT_EQ(with("nvfp4", option, GradientFormat::e5m2).dy.rows.format, Format::e2m1);
  EXPECT_EQ(with("bf16", option, GradientFormat::e5m2).dy.rows.format, Format::bf16);
}

// What follows from formats follows for recipes of any name.
TEST(Recipes, PropertiesAreThoseOfTheirOperands) {
  for (const RecipeInfo& info : recipes()) {
    PrecisionConfig options{.recipe = "other"};
    options.recipes["other"] = make_recipe(info.name, {});
    const std::string name(info.name);
    const Recipe other = make_recipe("other", options);
    const bool high = name == "fp32" || name == "tf32" || name == "bf16" || name == "fp16";
    EXPECT_EQ(is_high_precision(other), high) << name;
    EXPECT_EQ(is_unscaled(other), name == "fp8-unit") << name;
    EXPECT_EQ(has_operand_in(other, Format::f16), name == "fp16") << name;
    EXPECT_EQ(high_precision_recipe_for(options), high ? "other" : "bf16") << name;
    EXPECT_NO_THROW(check(other, "recipe")) << name;
    EXPECT_EQ(other.x, options.recipes["other"].x);
  }
}

TEST(Recipes, AllInOneFormatIsEveryOperandAsItIs) {
  for (const Format format : {Format::f32, Format::tf32, Format::bf16, Format::f16}) {
    const Recipe recipe = all_in(format);
    for (const Format other : {Format::f32, Format::tf32, Format::bf16, Format::f16}) {
      EXPECT_EQ(is_all_in(recipe, other), other == format);
    }
    Recipe another = recipe;
    another.dy.columns.rounding = Rounding::stochastic;
    EXPECT_FALSE(is_all_in(another, format));
  }
  for (const RecipeInfo& info : recipes()) {
    EXPECT_EQ(is_all_in(make_recipe(info.name, {}), Format::f16), info.name == "fp16") << info.name;
  }
}

TEST(Recipes, HighPrecisionLayersUseTheRecipeItselfWhereItIsOne) {
  for (const char* name : {"fp32", "tf32", "bf16", "fp16"})
    EXPECT_EQ(high_precision_recipe_for({.recipe = name}), name);
  for (const char* name : {"fp8-current", "mxfp4", "nvfp4"})
    EXPECT_EQ(high_precision_recipe_for({.recipe = name}), "bf16");
}

}  // namespace
}  // namespace quaver::test
