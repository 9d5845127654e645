// `bench` on the CPU: the measurements it promises, and that they agree with each other.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

Words tiny_bench(const Words& more = {}) {
  return Words{"bench",
               "step",
               "--preset",
               "tiny",
               "--batch",
               "2",
               "--train.context=32",
               "--train.threads=1",
               "--model.layers=2",
               "--device",
               "cpu",
               "--steps",
               "1",
               "--warmup",
               "1",
               "--tokens",
               "128"} +
         more;
}

TEST(BenchVerb, TellsSpeedMemoryAndWhereTheTimeGoes) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_bench());
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  for (const char* text : {"tiny · ",     "fp8-delayed", "cpu",           "128 = 2 micro-steps × 2 sequences × 32",
                           "tokens/s",    "ms/step",     "TFLOP/s",       "in 8 bits or fewer",
                           "peak memory", "gradients",   "optimizer",     "activations",
                           "workspace",   "GEMM, fprop", "GEMM, dgrad",   "GEMM, wgrad",
                           "attention",   "norms",       "head and loss", "as trained"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  EXPECT_THAT(outcome.error, HasSubstr("warm-up 1/1"));
  EXPECT_THAT(outcome.error, HasSubstr("step 1/1"));
}

TEST(BenchVerb, WritesFiguresThatAddUp) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_bench({"--recipe", "bf16", "--json", "out.json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const json report = json::parse(contents(folder / "out.json"));
  EXPECT_EQ(report["recipe"], "bf16");
  EXPECT_EQ(report["accumulation"], 2);
  EXPECT_EQ(report["step_seconds"].size(), 1U);
  EXPECT_EQ(report["losses"].size(), 3U) << "warm-up, timed, watched";
  EXPECT_EQ(report["skipped"], 0);
  EXPECT_EQ(report["narrow_share"], 0);
  EXPECT_THAT(report["engine"].get<std::string>(), HasSubstr("cpu"));

  const double seconds = report["step_seconds"][0];
  EXPECT_NEAR(report["tokens_per_second"]["median"].get<double>(), 128 / seconds, 1e-6 * 128 / seconds);
  EXPECT_NEAR(report["ms_per_step"].get<double>(), 1e3 * seconds, 1e-3 * seconds);
  EXPECT_GT(report["tflops"].get<double>(), 0);

  const json& memory = report["memory_bytes"];
  double parts = 0;
  for (const char* part :
       {"weights", "quantized_weights", "gradients", "optimizer", "activations", "scratch", "workspace"}) {
    parts += memory[part].get<double>();
  }
  EXPECT_EQ(memory["peak"].get<double>(), parts);

  double kernels = 0;
  double shares = 0;
  for (const json& kernel : report["micro_step"]["kernels"]) {
    kernels += kernel["seconds"].get<double>();
    shares += kernel["share"].get<double>();
  }
  const double watched = report["micro_step"]["watched_seconds"];
  EXPECT_LE(kernels, watched);
  EXPECT_GT(kernels, 0.5 * watched);
  EXPECT_NEAR(shares, kernels / watched, 1e-9);
}

json report_of(const TemporaryFolder& folder) { return json::parse(contents(folder / "out.json")); }

// Shares of the codes that are zero; 0 < share < 1 for roles in low precision, null for others.
TEST(BenchVerb, CountsZeroCodesByRole) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_bench({"--recipe", "nvfp4", "--json", "out.json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("zero codes"));
  const json report = report_of(folder);
  for (const char* role : {"x", "w", "dy"}) {
    // E2M1 takes to zero what is below a 24th of its block's largest: of 16 normal numbers about one.
    const double share = report["zero_codes"][role];
    EXPECT_GT(share, 0.02) << role;
    EXPECT_LT(share, 0.3) << role;
    EXPECT_LE(report["underflow"][role].get<double>(), share) << role;
  }
  ASSERT_EQ(quaver(folder, tiny_bench({"--recipe", "bf16", "--json", "out.json"})).status, 0);
  EXPECT_TRUE(report_of(folder)["zero_codes"]["dy"].is_null());
}

TEST(BenchVerb, StaticScalesThatNobodyGaveAreCalibrated) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(
      folder, tiny_bench({"--recipe", "fp8-static", "--precision.layers.head=fp8-static", "--json", "out.json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("calibrated in this run: 4 batches over 3 steps"));
  const json report = report_of(folder);
  EXPECT_EQ(report["calibrated"]["batches"], 4);
  EXPECT_EQ(report["valid"], true);
  EXPECT_LT(report["zero_codes"]["dy"].get<double>(), 0.05);
  EXPECT_NEAR(report["learning"]["share_of_bf16_fall"].get<double>(), 1, 0.03);
}

// Recipes whose scales follow the data, and a unit-scaled model, whose bf16 is unit-scaled too: its loss starts at
// another point than that of a model with the standard parametrization.
TEST(BenchVerb, HealthyRecipesLearnAsBf16Does) {
  const TemporaryFolder folder;
  double standard_start = 0;
  for (const char* recipe : {"fp8-delayed", "fp8-row", "mxfp4", "fp8-unit"}) {
    const Outcome outcome = quaver(folder, tiny_bench({"--recipe", recipe, "--json", "out.json"}));
    ASSERT_EQ(outcome.status, 0) << recipe << outcome.error;
    const json report = report_of(folder);
    EXPECT_EQ(report["valid"], true) << recipe;
    EXPECT_TRUE(report["calibrated"].is_null()) << recipe;
    const json& learning = report["learning"];
    EXPECT_NEAR(learning["losses"][0].get<double>(), learning["bf16_losses"][0].get<double>(), 0.02) << recipe;
    EXPECT_GT(learning["bf16_fall"].get<double>(), 0.5) << recipe;
    if (standard_start == 0) standard_start = learning["bf16_losses"][0];
    if (recipe == std::string("fp8-unit")) {
      EXPECT_GT(std::abs(learning["bf16_losses"][0].get<double>() - standard_start), 0.03);
    }
  }
}

// Large initial logits, and a step with enough tokens that random ones teach the model to flatten them.
Words judged_by_timed_steps(const Words& more) {
  return Words{"bench",
               "step",
               "--preset=tiny",
               "--model.layers=2",
               "--model.width=64",
               "--batch=8",
               "--train.context=64",
               "--model.init_std=0.2",
               "--train.threads=1",
               "--device=cpu",
               "--warmup=1",
               "--steps=4",
               "--tokens=1024",
               "--optim.learning_rate=1e-2",
               "--json=out.json"} +
         more;
}

TEST(BenchVerb, TheTimedStepsThemselvesAreJudgedWhereTheyCanBe) {
  const TemporaryFolder folder;
  const Outcome good = quaver(folder, judged_by_timed_steps({"--recipe", "fp8-delayed"}));
  ASSERT_EQ(good.status, 0) << good.error;
  json report = report_of(folder);
  EXPECT_EQ(report["learning"]["steps"], "6 steps");
  EXPECT_EQ(report["learning"]["losses"], report["losses"]);
  EXPECT_GT(report["learning"]["bf16_fall"].get<double>(), 0.5);

  const Outcome lost =
      quaver(folder, judged_by_timed_steps({"--recipe=fp8-static", "--precision.static_gradient_scale=1e-6"}));
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.error, HasSubstr("in 6 steps the loss went from"));
  report = report_of(folder);
  EXPECT_EQ(report["valid"], false);
  EXPECT_GT(report["zero_codes"]["dy"].get<double>(), 0.999);
}

// All recipes of a model are compared with the same bf16, which need be trained once only.
TEST(BenchVerb, TakesBf16sLossesFromAnEarlierBenchmark) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, judged_by_timed_steps({"--recipe", "bf16"})).status, 0);
  const json bf16 = report_of(folder);
  folder.write("bf16.json", bf16.dump());
  const Words again{"--recipe=fp8-current", "--train.memory=small", "--reference=bf16.json"};
  const Outcome given = quaver(folder, judged_by_timed_steps(again));
  ASSERT_EQ(given.status, 0) << given.error;
  EXPECT_EQ(report_of(folder)["learning"]["bf16_losses"], bf16["losses"]);
  ASSERT_EQ(quaver(folder, judged_by_timed_steps({"--recipe=fp8-current"})).status, 0);
  EXPECT_EQ(report_of(folder)["learning"]["bf16_losses"], bf16["losses"]) << "trained for";

  for (const char* other : {"--model.layers=1", "--train.context=32", "--train.seed=2", "--optim.learning_rate=1e-3"}) {
    const Outcome refused = quaver(folder, judged_by_timed_steps(again + Words{other}));
    EXPECT_EQ(refused.status, 1) << other;
    EXPECT_THAT(refused.error, HasSubstr("another model, data or number of steps")) << other;
  }
  for (const char* text : {"", "[]", "{\"reference\": 3}", "{\"reference\": {\"config\": 1, \"losses\": \"x\"}}"}) {
    folder.write("bf16.json", text);
    EXPECT_THAT(quaver(folder, judged_by_timed_steps(again)).error, HasSubstr("holds no reference losses")) << text;
  }
}

// The head in BF16 learns even where every gradient in the blocks is zero: that must not pass for training.
TEST(BenchVerb, GradientsThatUnderflowAreAFailure) {
  for (const Words& head : {Words{}, Words{"--precision.layers.head=fp8-static"}}) {
    const TemporaryFolder folder;
    const Outcome outcome = quaver(
        folder,
        tiny_bench({"--recipe", "fp8-static", "--precision.static_gradient_scale=1e-6", "--json", "out.json"}) + head);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr("not those of training"));
    EXPECT_THAT(outcome.error, HasSubstr("in bf16"));
    EXPECT_THAT(outcome.error, HasSubstr("\n  → "));
    EXPECT_THAT(outcome.out, HasSubstr("NOT VALID"));
    const json report = report_of(folder);
    EXPECT_EQ(report["valid"], false);
    EXPECT_GT(report["zero_codes"]["dy"].get<double>(), 0.999);
    EXPECT_LT(report["zero_codes"]["x"].get<double>(), 0.5);
    const double share = report["learning"]["share_of_bf16_fall"];
    EXPECT_LT(share, head.empty() ? 0.5 : 0.01);
  }
}

// Adam makes steps of the same size from what is left of the gradients, so that the loss still falls.
TEST(BenchVerb, ALossThatFallsDoesNotExcuseZeros) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(
      folder, tiny_bench({"--recipe", "fp8-static", "--precision.static_gradient_scale=1", "--json", "out.json"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("of the codes of dy are zero"));
  const json report = report_of(folder);
  EXPECT_EQ(report["valid"], false);
  EXPECT_GT(report["zero_codes"]["dy"].get<double>(), 0.1);
  EXPECT_GT(report["learning"]["share_of_bf16_fall"].get<double>(), 0.8);
}

// A scale file, too, is measured as it is: here one whose gradients are 2^-40 of what was calibrated.
TEST(BenchVerb, AScaleFileThatLosesGradientsIsAFailure) {
  const TemporaryFolder folder;
  const Words model{"--model.layers=2",   "--preset",  "tiny", "--batch",           "2",
                    "--train.context=32", "--device",  "cpu",  "--train.threads=1", "--model.vocab=256",
                    "--recipe",           "fp8-static"};
  const Outcome calibrated = quaver(
      folder, Words{"calibrate"} + model +
                  Words{"--data.kind=synthetic", "--batches", "2", "--warmup-steps", "1", "--out", "scales.json"});
  ASSERT_EQ(calibrated.status, 0) << calibrated.error;
  json scales = json::parse(contents(folder / "scales.json"));
  for (auto& [site, entry] : scales["sites"].items()) {
    if (site.ends_with("/dy")) entry["scale"] = std::ldexp(entry["scale"].get<double>(), -40);
  }
  folder.write("lost.json", scales.dump());
  const Words bench = Words{"bench", "step", "--steps", "1", "--warmup", "0", "--tokens", "64"} + model;
  const Outcome good = quaver(folder, bench + Words{"--precision.scales=scales.json"});
  EXPECT_EQ(good.status, 0) << good.error;
  EXPECT_THAT(good.out, Not(HasSubstr("calibrated in this run")));
  const Outcome lost = quaver(folder, bench + Words{"--precision.scales=lost.json"});
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.error, HasSubstr("not those of training"));
}

TEST(BenchVerb, ALearningRateThatTeachesNothingCannotBeJudged) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_bench({"--optim.learning_rate=1e-9", "--json", "out.json"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("cannot be judged"));
  EXPECT_THAT(outcome.error, HasSubstr("optim.learning_rate"));
  EXPECT_EQ(report_of(folder)["valid"], false);
}

TEST(BenchVerb, AConfigFileIsMeasuredAsItIs) {
  const TemporaryFolder folder;
  folder.write("run.toml",
               "preset = \"tiny\"\n[model]\nlayers = 1\n[train]\nbatch = 1\ncontext = 16\n"
               "[precision]\nrecipe = \"mxfp8\"\n");
  const Outcome outcome = quaver(folder, {"bench", "step", "run.toml", "--tokens", "16", "--steps", "1", "--warmup",
                                          "0", "--device", "cpu", "--json", "out.json"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const json report = json::parse(contents(folder / "out.json"));
  EXPECT_EQ(report["recipe"], "mxfp8");
  EXPECT_EQ(report["batch"], 1);
}

TEST(BenchVerb, SaysWhichTokensAStepWouldDo) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_bench({"--train.context=30"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("128 tokens per step are not a multiple of the 60 tokens of a micro-batch"));
  EXPECT_THAT(outcome.error, HasSubstr("--tokens 120"));
}

TEST(BenchVerb, KnowsNoOptionsOfARun) {
  const TemporaryFolder folder;
  for (const char* option : {"--name", "--dir", "--data"}) {
    const Outcome outcome = quaver(folder, tiny_bench({std::string(option) + "=x"}));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr(option + 2));
  }
}

TEST(BenchVerb, AttentionByItself) {
  const TemporaryFolder folder;
  const Outcome outcome =
      quaver(folder, {"bench", "attention", "--preset", "tiny", "--batch", "2", "--train.context=32",
                      "--train.threads=1", "--device", "cpu", "--repeats", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("2 × 32 positions"));
  const auto figure_of = [&](const std::string& name) {
    const std::size_t at = outcome.out.find("\n" + name);
    return at == std::string::npos ? -1.0 : std::stod(outcome.out.substr(at + 1 + name.size()));
  };
  EXPECT_GT(figure_of("forward"), 0) << outcome.out;
  EXPECT_GT(figure_of("backward"), 0) << outcome.out;
}

}  // namespace
}  // namespace quaver::test
