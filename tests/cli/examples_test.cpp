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

std::vector<std::string> examples() {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(__FILE__).parent_path() / "../../examples")) {
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

TEST(Examples, AreThere) { EXPECT_GE(examples().size(), 6U); }

}  // namespace
}  // namespace quaver
