// `bench` on the processors: the figures it promises, and that they agree with each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Words tiny_bench(const Words& more = {}) {
  return Words{"bench",    "step", "--preset", "tiny", "--batch",  "2", "--train.context=32", "--train.threads=1",
               "--device", "cpu",  "--steps",  "1",    "--warmup", "1", "--tokens",           "128"} +
         more;
}

TEST(BenchVerb, TellsSpeedMemoryAndWhereTheTimeGoes) {
  const Folder folder;
  const Outcome outcome = quaver(folder, tiny_bench());
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  for (const char* text : {"tiny · ",
                           "fp8-delayed",
                           "cpu",
                           "128 = 2 micro-steps × 2 sequences × 32",
                           "tokens/s",
                           "ms a step",
                           "TFLOP/s",
                           "in 8 bits or fewer",
                           "peak memory",
                           "gradients",
                           "optimiser",
                           "activations",
                           "workspace",
                           "products, forward",
                           "products, input gradient",
                           "products, weight gradient",
                           "attention",
                           "norms",
                           "head and loss",
                           "as trained"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  EXPECT_THAT(outcome.error, HasSubstr("warm-up 1/1"));
  EXPECT_THAT(outcome.error, HasSubstr("step 1/1"));
}

TEST(BenchVerb, WritesFiguresThatAddUp) {
  const Folder folder;
  const Outcome outcome = quaver(folder, tiny_bench({"--recipe", "bf16", "--json", "out.json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const json figures = json::parse(contents_of(folder / "out.json"));
  EXPECT_EQ(figures["recipe"], "bf16");
  EXPECT_EQ(figures["accumulation"], 2);
  EXPECT_EQ(figures["step_seconds"].size(), 1U);
  EXPECT_EQ(figures["losses"].size(), 3U) << "warm-up, timed, watched";
  EXPECT_EQ(figures["skipped"], 0);
  EXPECT_EQ(figures["narrow_share"], 0);
  EXPECT_THAT(figures["engine"].get<std::string>(), HasSubstr("cpu"));

  const double seconds = figures["step_seconds"][0];
  EXPECT_NEAR(figures["tokens_per_second"]["median"].get<double>(), 128 / seconds, 1e-6 * 128 / seconds);
  EXPECT_NEAR(figures["ms_per_step"].get<double>(), 1e3 * seconds, 1e-3 * seconds);
  EXPECT_GT(figures["tflops"].get<double>(), 0);

  const json& memory = figures["memory_bytes"];
  double parts = 0;
  for (const char* part :
       {"weights", "quantized_weights", "gradients", "optimizer", "activations", "scratch", "workspace"}) {
    parts += memory[part].get<double>();
  }
  EXPECT_EQ(memory["peak"].get<double>(), parts);

  double kernels = 0;
  double shares = 0;
  for (const json& kernel : figures["micro_step"]["kernels"]) {
    kernels += kernel["seconds"].get<double>();
    shares += kernel["share"].get<double>();
  }
  const double watched = figures["micro_step"]["watched_seconds"];
  EXPECT_LE(kernels, watched);
  EXPECT_GT(kernels, 0.5 * watched);
  EXPECT_NEAR(shares, kernels / watched, 1e-9);
}

TEST(BenchVerb, AConfigFileIsMeasuredAsItIs) {
  const Folder folder;
  folder.write("run.toml",
               "preset = \"tiny\"\n[model]\nlayers = 1\n[train]\nbatch = 1\ncontext = 16\n"
               "[precision]\nrecipe = \"mxfp8\"\n");
  const Outcome outcome = quaver(folder, {"bench", "step", "run.toml", "--tokens", "16", "--steps", "1", "--warmup",
                                          "0", "--device", "cpu", "--json", "out.json"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const json figures = json::parse(contents_of(folder / "out.json"));
  EXPECT_EQ(figures["recipe"], "mxfp8");
  EXPECT_EQ(figures["batch"], 1);
}

TEST(BenchVerb, SaysWhichTokensAStepWouldDo) {
  const Folder folder;
  const Outcome outcome = quaver(folder, tiny_bench({"--train.context=30"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("128 tokens a step are no multiple of the 60 of a micro-batch"));
  EXPECT_THAT(outcome.error, HasSubstr("--tokens 120"));
}

TEST(BenchVerb, KnowsNoOptionsOfARun) {
  const Folder folder;
  for (const char* option : {"--name", "--dir", "--data"}) {
    const Outcome outcome = quaver(folder, tiny_bench({std::string(option) + "=x"}));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr(option + 2));
  }
}

TEST(BenchVerb, AttentionByItself) {
  const Folder folder;
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
