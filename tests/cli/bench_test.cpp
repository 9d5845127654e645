// `bench` and `bench diff` as a user types them, on a model of seconds.
#include "cli/bench.h"

#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "config/dump.h"
#include "config/load.h"

namespace quaver::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Words tiny_suite(const Words& more) {
  return Words{"bench",
               "--preset",
               "tiny",
               "--device",
               "cpu",
               "--train.batch=2",
               "--train.context=32",
               "--seconds=1",
               "--model.layers=1",
               "--train.threads=1",
               "--recipes=fp8-block"} +
         more;
}

// With a second for each GEMM and cast in fp8-block: no layer stays in it, and a step takes what was measured.
void expect_runs_to_follow(const TemporaryFolder& folder, nlohmann::json bench) {
  double step = 0;
  for (auto& m : bench.at("measurements")) {
    if (m.at("workload") == "step" && m.at("recipe") == "bf16") step = m.at("seconds");
    if (m.at("workload") == "layer" && m.at("recipe") == "fp8-block") m.at("seconds") = 1.0;
  }
  folder.write("slow.json", bench.dump());
  const Words model{"--preset",
                    "tiny",
                    "--device",
                    "cpu",
                    "--train.batch=2",
                    "--train.context=32",
                    "--model.layers=1",
                    "--train.threads=1",
                    "--data.kind=synthetic",
                    "--data.synthetic_vocab=256"};
  const Words ruled = model + Words{"--recipe", "fp8-block", "--precision.only_where_faster=slow.json"};
  const Outcome plan = quaver(folder, Words{"inspect", "plan"} + ruled);
  EXPECT_EQ(plan.status, 0) << plan.error;
  EXPECT_THAT(plan.out, HasSubstr("not faster: fp8-block is "));
  const Outcome train = quaver(folder, Words{"train"} + ruled + Words{"--steps", "1"});
  EXPECT_EQ(train.status, 0) << train.error;
  EXPECT_THAT(train.out + train.error, HasSubstr("4 of 5 layers stay in bf16: fp8-block is not faster there"));
  const Outcome time = quaver(folder, Words{"estimate", "--bench", "slow.json", "--json"} + model);
  ASSERT_EQ(time.status, 0) << time.error;
  EXPECT_NEAR(nlohmann::json::parse(time.out).at("time").at("seconds_per_step"), step, 1e-9);
}

TEST(BenchSuite, WritesTablesFilesAndAPage) {
  const TemporaryFolder folder;
  const Outcome run = quaver(folder, tiny_suite({"--json", "a.json", "--csv=a.csv", "--html", "a.html"}));
  ASSERT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(run.out, AllOf(HasSubstr("peak, measured here"), HasSubstr("blocks.*.mlp.up, 128 → 512"),
                             HasSubstr("whole steps"), HasSubstr("fp8-block"), HasSubstr("energy: ")));
  const auto made = nlohmann::json::parse(contents(folder / "a.json"));
  EXPECT_EQ(made.at("model"), "tiny");
  EXPECT_GT(made.at("measurements").size(), 50);
  for (const auto& step : made.at("steps")) {
    Size bytes = 0;
    for (const auto& part : step.at("memory")) bytes += part.at("bytes").get<Size>();
    EXPECT_EQ(bytes, step.at("peak_memory")) << step.at("recipe");
  }
  EXPECT_THAT(contents(folder / "a.csv"), HasSubstr("workload,subject,part,recipe"));
  const std::string page = contents(folder / "a.html");
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("norms, activations, casts"), std::string::npos);
  for (const char* drawn : {"Roofline", "GEMMs, 8 bits and fewer", " of the roofline</title>", "fp32 GEMM, "}) {
    EXPECT_NE(page.find(drawn), std::string::npos) << drawn;
  }
  const Outcome same = quaver(folder, {"bench", "diff", "a.json", "a.json"});
  EXPECT_EQ(same.status, 0);
  EXPECT_THAT(same.out, HasSubstr("no change beyond noise"));
  expect_runs_to_follow(folder, made);
}

TEST(BenchSuite, CountsImagesWhereTheModelClassifiesThem) {
  const TemporaryFolder folder;
  const Outcome run = quaver(folder, {"bench", "--preset=mlp-tiny", "--device=cpu", "--seconds=1", "--model.layers=1",
                                      "--train.threads=1", "--recipes=fp8-unit,fp8-unit", "--json=a.json",
                                      "--html=a.html", "--recipes.own={ x = \"bf16\", w = \"bf16\", dy = \"bf16\" }"});
  ASSERT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(run.out, AllOf(HasSubstr("mlp-tiny · 32 images"), HasSubstr("images/s"), HasSubstr("one block"),
                             Not(HasSubstr("tokens"))));
  const auto made = nlohmann::json::parse(contents(folder / "a.json"));
  EXPECT_EQ(made.at("unit"), "images");
  const auto is_step = [](const auto& m) { return m.at("workload") == "step" && m.at("recipe") == "fp8-unit"; };
  EXPECT_EQ(std::ranges::count_if(made.at("measurements"), is_step), 1) << "named twice";
  EXPECT_THAT(made.at("settings").get<std::string>(), HasSubstr("[recipes.own]")) << "for runs to compare with theirs";
  EXPECT_EQ(contents(folder / "a.html").find("tokens"), std::string::npos);
}

TEST(BenchSuite, RefusesWhatItCannotMeasureOrRead) {
  const TemporaryFolder folder;
  const Outcome recipe = quaver(folder, {"bench", "--device", "cpu", "--recipes", "fp8-blok"});
  EXPECT_NE(recipe.status, 0);
  EXPECT_THAT(recipe.error, HasSubstr("fp8-block"));
  folder.write("a.json", "{}");
  EXPECT_NE(quaver(folder, {"bench", "diff", "a.json", "a.json"}).status, 0);
  EXPECT_NE(quaver(folder, {"bench", "diff", "a.json", "none.json"}).status, 0);
}

TEST(BenchSuite, NoisyStepsAreToldWithTheVerdict) {
  Bench bench;
  bench.steps = {{.recipe = "bf16", .speedup = 1, .noise = 0.02, .loss_share = 1}};
  EXPECT_THAT(bench_tables(bench), Not(HasSubstr("Beware")));
  bench.steps[0].noise = 0.4;
  EXPECT_THAT(bench_tables(bench), HasSubstr("±40 %"));
}

TEST(BenchSuite, OwnRecipesAreKnownByTheirFormatsNotTheirNames) {
  const auto told_of = [](const std::string& name, const std::string& operand) {
    const std::string flag = fmt::format("recipes.{}={{ x = \"{}\", w = \"bf16\", dy = \"bf16\" }}", name, operand);
    Bench bench;
    bench.model = "tiny";
    bench.settings = to_toml(load_config({.files = {}, .texts = {}, .flags = {flag}}));
    bench.steps = {{.recipe = "bf16", .speedup = 1, .loss_share = 1}, {.recipe = name, .speedup = 2, .loss_share = 1}};
    for (const StepVerdict& step : bench.steps) {
      bench.measurements.push_back({.workload = Workload::step, .subject = "tiny", .recipe = step.recipe});
    }
    return bench_tables(bench);
  };
  EXPECT_THAT(told_of("mine", "int8 row current"), HasSubstr("mine is the fastest recipe that learns as bf16 does"));
  EXPECT_THAT(told_of("fp8-not", "f16"), HasSubstr("No recipe of 8 bits or fewer is the fastest here: fp8-not is."));
}

TEST(BenchSuite, ADifferenceIsToldByLayerAndRecipe) {
  Measurement before{.workload = Workload::step, .subject = "tiny", .part = "step", .recipe = "bf16"};
  before.time = {.median = 0.2, .p95 = 0.2, .noise = 0.01, .rounds = 5};
  Measurement after = before;
  after.time.median = 0.3;
  const std::string text = bench_difference_text({.changes = {{before, after}}, .compared = 7, .missing = 1});
  EXPECT_THAT(text,
              AllOf(HasSubstr("tiny"), HasSubstr("200.0"), HasSubstr("1.50"), HasSubstr("7 measurements compared"),
                    HasSubstr("1 are in one of the two alone"), Not(HasSubstr("no change"))));
  EXPECT_THAT(bench_difference_text({.machine = {{"copies", 0.53}}}),
              AllOf(HasSubstr("the machine: 0.53 times as fast at copies"), HasSubstr("no change beyond noise")));
}

TEST(BenchSuite, WhatIsNotMeasuredIsNotAvailable) {
  Bench bench;
  bench.model = "tiny";
  bench.steps = {{.recipe = "bf16", .speedup = 1, .loss_share = 1}};
  bench.measurements = {
      {.workload = Workload::step, .subject = "tiny", .part = "step", .recipe = "bf16", .time = {.median = 0.1}}};
  const std::string tables = bench_tables(bench);
  EXPECT_THAT(tables, HasSubstr("J/step"));
  EXPECT_THAT(tables, HasSubstr("all recipes  not available")) << "memory by purpose";
}

}  // namespace
}  // namespace quaver::test
