// The example configs are part of the documentation: each loads, makes sense, and asks for layers that exist.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

#include "config/check.h"
#include "config/load.h"
#include "models/factory.h"
#include "precision/plan.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> examples(const std::string& folder = "") {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(__FILE__).parent_path() / "../../examples" / folder)) {
    if (entry.path().extension() == ".toml") paths.push_back(entry.path().lexically_normal().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class Example : public ::testing::TestWithParam<std::string> {};

TEST_P(Example, IsAConfigToTrainFrom) {
  Config config = load_config({.files = {GetParam()}, .texts = {}, .flags = {}});
  EXPECT_NO_THROW(check(config, Purpose::training));
  config.model.vocab = 320;
  EXPECT_NO_THROW(make_plan(config.precision, make_model(resolved(config.model))->layers()))
      << "a pattern matches no layer";
}

// Its run has the file's name, so that the commands in its comment find it.
TEST_P(Example, SaysHowToRunIt) {
  const fs::path path = GetParam();
  const std::string text = test::contents(path);
  EXPECT_THAT(text, ::testing::StartsWith("# "));
  EXPECT_THAT(text, ::testing::HasSubstr("quaver train examples/" + path.filename().string()));
  const Config config = load_config({.files = {GetParam()}, .texts = {}, .flags = {}});
  EXPECT_EQ(config.run.name, path.stem().string());
}

INSTANTIATE_TEST_SUITE_P(Files, Example, ::testing::ValuesIn(examples()), [](const auto& test) {
  std::string name = fs::path(test.param).stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

Config recipes_file(const std::string& name) {
  for (const std::string& path : examples("recipes")) {
    if (fs::path(path).stem() == name) return load_config({.files = {path}, .texts = {}, .flags = {}});
  }
  ADD_FAILURE() << name;
  return {};
}

// Where a recipe of the literature is built in, the file says the same.
TEST(ExampleRecipes, AreThoseThatAreBuiltIn) {
  struct Same {
    const char* file;
    const char* own;
    const char* built_in;
    PrecisionConfig options = {};
  };
  const Same all[] = {{"deepseek-v3", "deepseek-v3", "fp8-block"},
                      {"nvidia-nvfp4", "nvidia-nvfp4", "nvfp4"},
                      {"mxfp8", "mxfp8-nvidia", "mxfp8"},
                      {"mxfp8", "mxfp8-ocp", "mxfp8", {.mx_floor = true}},
                      {"torchao-rowwise", "torchao-rowwise", "fp8-row", {.power_of_two_scales = true}},
                      {"transformer-engine-delayed", "transformer-engine-delayed", "fp8-delayed"}};
  for (const auto& [file, own, built_in, options] : all) {
    const Recipe read = make_recipe(own, recipes_file(file).precision), known = make_recipe(built_in, options);
    EXPECT_EQ(read.x, known.x) << own;
    EXPECT_EQ(read.w, known.w) << own;
    EXPECT_EQ(read.dy, known.dy) << own;
    EXPECT_EQ(read.wide_start, known.wide_start) << own;
    EXPECT_EQ(read.wide_tail, known.wide_tail) << own;
  }
}

TEST(ExampleRecipes, SayWhereTheyComeFromAndHowToUseThem) {
  EXPECT_GE(examples("recipes").size(), 6U);
  for (const std::string& path : examples("recipes")) {
    const std::string name = fs::path(path).filename().string(), text = test::contents(path);
    EXPECT_THAT(text, ::testing::HasSubstr("quaver train examples/own-text.toml examples/recipes/" + name)) << path;
    const Config config = recipes_file(fs::path(path).stem());
    EXPECT_TRUE(config.precision.recipes.contains(config.precision.recipe)) << path << " uses what it defines";
    for (const auto& [own, recipe] : config.precision.recipes) EXPECT_FALSE(recipe.summary.empty()) << own;
  }
}

TEST(Examples, AreThere) { EXPECT_GE(examples().size(), 6U); }

}  // namespace
}  // namespace quaver
