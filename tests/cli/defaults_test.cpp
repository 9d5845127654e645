// What options are when nobody gives them, as --help tells, and what verbs refuse before they begin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// "--batches INT:from 2 to 100000=16", or with the default in brackets: that depends on CLI11's version.
void expect_defaults(const Words& verb, const std::vector<std::pair<std::string, std::string>>& defaults) {
  const TemporaryFolder folder;
  const std::string help = quaver(folder, verb + Words{"--help"}).out;
  for (const auto& [option, value] : defaults) {
    const std::regex shown(option + " ?[=\\[]+" + value + "[\\] \n]");
    EXPECT_TRUE(std::regex_search(help, shown)) << option << " " << value << "\n" << help;
  }
}

TEST(Defaults, AreAsDocumented) {
  expect_defaults({"calibrate"}, {{"--batches INT:from 2 to 100000", "16"},
                                  {"--percentile FLOAT:from 50 to 100", "100"},
                                  {"--margin INT:from 0 to 16", "1"}});
  expect_defaults({"localize"}, {{"--batches INT:from 2 to 100000", "4"},
                                 {"--budget TEXT", "0.25%"},
                                 {"--group TEXT:\\{block,layer,site\\}", "site"}});
  expect_defaults({"compare"}, {{"--recipes TEXT", "fp32,bf16,fp8-delayed"}});
  expect_defaults({"sample"}, {{"--tokens INT:from 1 to 1099511627776", "200"},
                               {"--temperature FLOAT:from 0 to 1000", "0.8"},
                               {"--top-k INT:from 0 to 2147483647", "0"},
                               {"--top-p FLOAT:from 0 to 1", "1"},
                               {"--seed UINT:from 0 to 9223372036854775807", "1"},
                               {"--count INT:from 1 to 1000000", "1"}});
  expect_defaults({"data"}, {{"--tokenizer TEXT", "bytes"},
                             {"--text-field TEXT", "text"},
                             {"--valid FLOAT:from 0 to 1", "0.01"},
                             {"--shard-tokens UINT:from 2 to 1099511627776", "100000000"}});
  expect_defaults({"bench", "step"}, {{"--tokens INT:from 1 to 1099511627776", "524288"},
                                      {"--steps INT:from 1 to 1099511627776", "5"},
                                      {"--warmup INT:from 0 to 1099511627776", "2"}});
  expect_defaults({"bench", "attention"}, {{"--repeats INT:from 1 to 1099511627776", "20"}});
  expect_defaults({"dash"}, {{"--port UINT", "8265"}, {"--host TEXT", "127.0.0.1"}});
}

// Exit status 1 and what standard error says, in full.
void expect_told(const TemporaryFolder& folder, const Words& words, const std::string& error) {
  const Outcome outcome = quaver(folder, words);
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.error, HasSubstr(error));
}

TEST(RefusedAtOnce, WithARemedy) {
  const TemporaryFolder folder;
  expect_told(folder, {"data"},
              "quaver: no text to prepare\n  → quaver data TEXT --out FOLDER, or quaver data --verify FOLDER\n");
  expect_told(folder, {"inspect"}, "quaver: nothing to inspect\n  → name a run, data set, shard or file\n");
  expect_told(folder, {"sample", "run", "--count", "x"}, "\n  → `quaver sample --help` lists what it takes\n");
  expect_told(folder, {"sample", "run", "--count", "0"}, "0 is not in the range from 1 to 1000000");
  expect_told(folder, {"train", "here", "there.toml"}, "here");
  expect_told(folder, {"eval", "run", "more"}, "'more' is not something this verb takes");
  expect_told(folder, {"train", "--take-back", "a/x"}, "a fresh run has no changes to take back");
  expect_told(folder, {"calibrate", "--out", "scales.html"}, "--out is the scale file, and scales.html is where");
  expect_told(folder, {"calibrate", "--step", "3", "--out", "s.json"},
              "--step names a checkpoint, and there is no run");
  expect_told(folder, {"localize", "--budget", "half", "--out", "l"}, "--budget half is not a percentage");
  expect_told(folder, {"bench", "step", "--preset", "tiny", "--batch", "2", "--train.context=30", "--tokens", "10"},
              "10 tokens per step are not a multiple of the 60 tokens of a micro-batch (2 sequences of 30 tokens)\n  → "
              "choose --tokens 60");
  folder.write("scales.html", "");
  expect_told(folder, {"calibrate", "--out", "scales.json"}, "scales.html is there already");
  folder.write("l/localization.json", "{}");
  expect_told(folder, {"localize", "--out", "l"}, "l already holds a localization");
}

// Shortcuts and settings are the same, and the last one wins.
TEST(Shortcuts, StandForSettings) {
  const TemporaryFolder folder;
  const auto plan = [&](const Words& more) {
    const Outcome outcome = quaver(folder, Words{"inspect", "plan", "--model.layers=1"} + more);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return outcome.out;
  };
  const std::string bf16 = plan({"--recipe", "bf16"});
  const std::string fp8 = plan({"--recipe", "fp8-current"});
  EXPECT_NE(bf16, fp8);
  EXPECT_EQ(plan({"--precision.recipe", "bf16"}), bf16);
  EXPECT_EQ(plan({"--precision.recipe=bf16"}), bf16);
  EXPECT_EQ(plan({"--recipe=fp8-current", "--precision.recipe=bf16"}), bf16);
  EXPECT_EQ(plan({"--precision.recipe=bf16", "--recipe", "fp8-current"}), fp8);
  const std::string file = folder.write("c.toml", "precision.recipe = \"bf16\"\n").string();
  EXPECT_EQ(plan({file}), bf16);
  EXPECT_EQ(plan({file, "--recipe", "fp8-current"}), fp8) << "whatever a file says";
  EXPECT_EQ(plan({"--recipe", "fp8-current", file}), fp8);
  // A value may begin with a dash: it is refused as a value, not taken for an option.
  const Outcome negative = quaver(folder, {"inspect", "plan", "--model.layers", "-1"});
  EXPECT_EQ(negative.status, 1);
  EXPECT_THAT(negative.error, HasSubstr("model.layers"));
}

TEST(EstimateOptions, ChangeWhatIsPlannedFor) {
  const TemporaryFolder folder;
  const auto estimate = [&](const Words& more) {
    const Outcome outcome = quaver(folder, Words{"estimate", "--preset", "tiny", "--no-time", "--json"} + more);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return nlohmann::json::parse(outcome.out);
  };
  const auto h100 = estimate({"--gpu", "h100"});
  EXPECT_EQ(h100["device"], "h100, not here");
  EXPECT_GT(h100["memory_bytes"]["available"], std::int64_t{60} << 30);
  const auto limited = estimate({"--gpu", "h100", "--gpu-memory", "1GiB"});
  EXPECT_EQ(limited["device"], "h100, not here");
  EXPECT_EQ(limited["memory_bytes"]["available"], 1 << 30);
}

TEST(ComparedRecipes, MayNameAParametrization) {
  const TemporaryFolder folder;
  Words words = tiny_training({"--out=all", "--recipes=fp32@umup,bf16", "--seed=5", "--json"});
  words.front() = "compare";
  const Outcome outcome = quaver(folder, words);
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(nlohmann::json::parse(outcome.out).size(), 2U) << "nothing but the figures";
  EXPECT_THAT(contents(folder / "all/fp32-umup/config.toml"), HasSubstr("umup"));
  EXPECT_THAT(contents(folder / "all/fp32-umup/config.toml"), HasSubstr("seed = 5"));
  EXPECT_TRUE(fs::exists(folder / "all/bf16/config.toml")) << "of one seed the folder's name has none";
  EXPECT_TRUE(fs::exists(folder / "all/comparison.json"));
}

}  // namespace
}  // namespace quaver::test
