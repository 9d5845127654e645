// The verbs beside train: data, eval, sample, compare, inspect, and what their --help mentions.
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>

#include "support/variable.h"

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Help, EveryVerbMentionsItsOptions) {
  const TemporaryFolder folder;
  const Words config{"--preset", "--recipe", "--data", "--steps", "--batch", "--seed", "--device", "--name", "--dir"};
  const std::vector<std::pair<Words, Words>> verbs{
      {{},
       {"\n  train ", "\n  compare ", "\n  eval ", "\n  sample ", "\n  data ", "\n  inspect ", "\n  bench ",
        "\n  calibrate ", "\n  localize ", "\n  estimate ", "\n  doctor ", "\n  dash ", "\n  export ", "\n  convert ",
        "--version"}},
      {{"train"}, config + Words{"--resume", "--json", "--section.key=value"}},
      {{"compare"}, config + Words{"--recipes", "--seeds", "--base", "--out", "--json"}},
      {{"eval"}, {"--step", "--text", "--documents", "--batches", "--json"}},
      {{"sample"},
       {"--step", "--prompt", "--tokens", "--temperature", "--top-k", "--seed", "--count", "--prompts", "--top-p",
        "--stop"}},
      {{"data"},
       {"--out", "--tokenizer", "--include", "--exclude", "--text-field", "--valid", "--shard-tokens", "--llmc",
        "--keep-duplicates", "--keep-invalid", "--overwrite", "--json"}},
      {{"inspect"}, {"config", "recipes", "presets", "plan", "--against"}},
      {{"inspect", "plan"}, config},
      {{"bench"}, {"step", "attention", "diff", "--recipes", "--json", "--html"}},
      {{"bench", "attention"}, {"--preset", "--batch", "--device", "--repeats"}},
      {{"bench", "step"}, {"--preset", "--recipe", "--batch", "--device", "--tokens", "--steps", "--warmup", "--json"}},
      {{"calibrate"},
       config + Words{"--run", "--step", "--batches", "--warmup-steps", "--percentile", "--margin", "--against",
                      "--out", "--json"}},
      {{"localize"},
       config + Words{"--run", "--step", "--batches", "--warmup-steps", "--budget", "--group", "--out", "--json"}},
      {{"estimate"},
       config + Words{"--gpu", "--gpu-memory", "--no-time", "--tokens-per-second", "--gpus", "--nodes", "--link",
                      "--gradients", "--overlap", "--json"}},
      {{"doctor"}, {"--json"}},
      {{"dash"}, {"--port", "--host", "--token", "--open"}},
      {{"export"}, {"--run", "--format", "--statistics", "--out", "--quantize", "jsonl", "csv", "tensorboard"}},
      {{"convert"}, {"--to", "--keep", "--least-sqnr", "--force", "--calibration", "--json", "--html", "nvfp4"}}};
  for (const auto& [verb, options] : verbs) {
    const Outcome outcome = quaver(folder, verb + Words{"--help"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    for (const std::string& option : options) EXPECT_THAT(outcome.out, HasSubstr(option));
  }
}

// libgomp tells what it goes by, each time a program begins.
TEST(Program, WaitsBrieflyUnlessTold) {
  const TemporaryFolder folder;
  const Variable verbose("OMP_DISPLAY_ENV", "verbose");
  const Variable no_policy("OMP_WAIT_POLICY", std::nullopt);
  EXPECT_THAT(quaver(folder, {"--version"}).error, HasSubstr("GOMP_SPINCOUNT = '3000'"));
  const Variable told("GOMP_SPINCOUNT", "77");
  const Outcome left_alone = quaver(folder, {"--version"});
  EXPECT_EQ(left_alone.status, 0);
  EXPECT_THAT(left_alone.error, HasSubstr("GOMP_SPINCOUNT = '77'"));
  EXPECT_THAT(left_alone.error, Not(HasSubstr("'3000'")));
}

TEST(DataVerb, ReadsFoldersAndJsonLines) {
  const TemporaryFolder folder;
  write_text(folder);
  folder.write("more.jsonl", "{\"body\": \"a first document\"}\n{\"body\": \"a second document\", \"id\": 2}\n");
  const Outcome outcome =
      quaver(folder, {"data", "text", "--out", "a", "--include", "*.txt", "--exclude", "0.txt", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(json::parse(outcome.out)["files"], 5);

  const Outcome lines = quaver(folder, {"data", "more.jsonl", "--text-field", "body", "--out", "b", "--json"});
  ASSERT_EQ(lines.status, 0) << lines.error;
  EXPECT_TRUE(fs::exists(folder / "b/dataset.json"));
  const Outcome wrong = quaver(folder, {"data", "more.jsonl", "--out", "c"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.error, HasSubstr("more.jsonl:1: no field \"text\"; it has body"));
}

TEST(DataVerb, ReplacesADataSetOnlyWhenTold) {
  const TemporaryFolder folder;
  prepare_text(folder);
  const std::string before = contents(folder / "data/train-00000.qv");
  EXPECT_EQ(quaver(folder, {"data", "text/0.txt", "--out", "data"}).status, 1);
  EXPECT_EQ(contents(folder / "data/train-00000.qv"), before);
  EXPECT_EQ(quaver(folder, {"data", "text/0.txt", "text/1.txt", "--out", "data", "--overwrite"}).status, 0);
  EXPECT_NE(contents(folder / "data/train-00000.qv"), before);
}

// A tokenizer trained by the verb, a run on its shards, and text that the run continues.
TEST(SampleVerb, ContinuesAPromptAndRepeatsItself) {
  const TemporaryFolder folder;
  write_text(folder);
  ASSERT_EQ(quaver(folder, {"data", "text", "--out", "data", "--tokenizer", "bpe:300", "--valid", "0.34"}).status, 0);
  ASSERT_EQ(quaver(folder, tiny_training_on("data", {"--dir=run", "--train.steps=20"})).status, 0);
  const Words words{"sample", "run", "--prompt", "File 3", "--tokens", "12", "--seed", "4"};
  const Outcome first = quaver(folder, words);
  ASSERT_EQ(first.status, 0) << first.error;
  EXPECT_THAT(first.out, ::testing::StartsWith("File 3"));
  EXPECT_EQ(quaver(folder, words).out, first.out);
  const Outcome likeliest = quaver(folder, {"sample", "run", "--temperature", "0", "--seed", "8", "--tokens", "12"});
  EXPECT_EQ(quaver(folder, {"sample", "run", "--temperature", "0", "--tokens", "12"}).out, likeliest.out);
  EXPECT_TRUE(fs::exists(folder / "run/samples/step-000020.txt"));
}

TEST(SampleVerb, SaysThatGeneratedTokensAreNoText) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny_training({"--dir=run"})).status, 0);
  const Outcome outcome = quaver(folder, {"sample", "run"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("no tokenizer"));
}

TEST(EvalVerb, AgreesWithTheRunsOwnValidation) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny_training({"--dir=run", "--train.checkpoint_every=3"})).status, 0);
  const Outcome outcome = quaver(folder, {"eval", "run", "--batches", "1", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const json output = json::parse(outcome.out);
  EXPECT_EQ(output["step"], 6);
  const std::string metrics = contents(folder / "run/metrics.jsonl");
  const json last = json::parse(metrics.substr(metrics.rfind("{\"step\":6")));
  EXPECT_DOUBLE_EQ(output["validation_loss"].get<double>(), last["validation_loss"].get<double>());
  EXPECT_NEAR(std::log(output["perplexity"].get<double>()), output["validation_loss"].get<double>(), 1e-9);

  const json earlier = json::parse(quaver(folder, {"eval", "run", "--batches=1", "--step=3", "--json"}).out);
  EXPECT_EQ(earlier["step"], 3);
  EXPECT_GT(earlier["validation_loss"].get<double>(), output["validation_loss"].get<double>());
  const Outcome missing = quaver(folder, {"eval", "run", "--step", "4"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.error, HasSubstr("the newest step is 6"));
}

TEST(EvalVerb, LooksAtTheModelInAnotherPrecision) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny_training({"--dir=run", "--recipe=bf16"})).status, 0);
  const auto loss_in = [&](Words more) {
    Words words{"eval", "run", "--batches=1", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = quaver(folder, words);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return json::parse(outcome.out);
  };
  const json own = loss_in({});
  EXPECT_EQ(own["recipe"], "bf16");
  const json fp8 = loss_in({"--recipe", "fp8-row"});
  EXPECT_EQ(fp8["recipe"], "fp8-row");
  EXPECT_NE(fp8["validation_loss"], own["validation_loss"]);
  const json one_role = loss_in({"--precision.layers.\"blocks.*/w\"=fp8-row"});
  EXPECT_EQ(one_role["layers"], (json{{"blocks.*/w", "fp8-row"}}));
  EXPECT_NE(one_role["validation_loss"], own["validation_loss"]);
  EXPECT_NE(one_role["validation_loss"], fp8["validation_loss"]);
  EXPECT_EQ(loss_in({})["validation_loss"], own["validation_loss"]);
  const Outcome told = quaver(folder, {"eval", "run", "--batches=1", "--precision.layers.\"blocks.*/w\"=fp8-row"});
  EXPECT_THAT(told.out, HasSubstr("bf16 (blocks.*/w: fp8-row): validation loss"));
}

TEST(CompareVerb, WritesAReportAndTheFigures) {
  const TemporaryFolder folder;
  Words words = tiny_training({"--out=all", "--recipes=fp32,bf16,fp8-delayed", "--seeds=1,2"});
  words.front() = "compare";
  const Outcome outcome = quaver(folder, words);
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const json output = json::parse(contents(folder / "all/comparison.json"));
  ASSERT_EQ(output.size(), 3U);
  EXPECT_EQ(output[0]["recipe"], "fp32");
  EXPECT_EQ(output[0]["gap_percent"], 0.0);
  for (const json& entry : output) {
    EXPECT_EQ(entry["baseline"], "fp32");
    ASSERT_EQ(entry["final_losses"].size(), 2U);
    EXPECT_NE(entry["final_losses"][0], entry["final_losses"][1]) << "the seeds are not used";
    EXPECT_THAT(outcome.out, HasSubstr("\n" + entry["recipe"].get<std::string>()));
    for (const json& seed : entry["seeds"]) {
      const std::string loss = fmt::format("{:.4f}", seed["final_loss"].get<double>());
      EXPECT_THAT(outcome.out, ContainsRegex(fmt::format("seed {} +{}", seed["seed"].get<int>(), loss)));
    }
    const std::string mean =
        fmt::format("{:.4f} ± {:.4f}", entry["final_loss"].get<double>(), entry["final_loss_deviation"].get<double>());
    EXPECT_THAT(outcome.out, HasSubstr(mean));
    EXPECT_THAT(contents(folder / "all/report.html"), HasSubstr(">" + mean + "<"));
  }
  const std::string report = contents(folder / "all/report.html");
  EXPECT_THAT(report, HasSubstr("fp8-delayed"));
  EXPECT_THAT(report, HasSubstr("<svg"));
  EXPECT_TRUE(fs::exists(folder / "all/bf16-seed2/config.toml"));

  const Outcome again = quaver(folder, words);
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.error, HasSubstr("already holds a comparison"));
}

// The learning rate grows until the loss diverges; the comparison goes on and says so.
TEST(CompareVerb, ListsARunThatDivergesAndFails) {
  const TemporaryFolder folder;
  Words words =
      tiny_training({"--out=all", "--recipes=fp32,bf16", "--seeds=1,2", "--train.steps=60", "--optim.learning_rate=30",
                     "--optim.warmup=0.6", "--optim.schedule=constant", "--optim.clip=none", "--guard.patience=3",
                     "--guard.divergence=1.2", "--guard.max_rewinds=0"});
  words.front() = "compare";
  const Outcome outcome = quaver(folder, words);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, ContainsRegex("fp32, seed 2: diverged and left out of the means: the run diverged at step"));
  const json output = json::parse(contents(folder / "all/comparison.json"));
  ASSERT_EQ(output.size(), 2U);
  EXPECT_EQ(output[0]["seeds"][1]["status"], "diverged");
  EXPECT_TRUE(output[0]["final_losses"][1].is_null());
}

TEST(CompareVerb, RefusesABaseThatIsNotComparedBeforeItTrains) {
  const TemporaryFolder folder;
  Words words = tiny_training({"--out=all", "--recipes=fp32,bf16", "--base=mxfp8"});
  words.front() = "compare";
  const Outcome outcome = quaver(folder, words);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("--base mxfp8 is not among the recipes"));
  EXPECT_FALSE(fs::exists(folder / "all"));
}

TEST(CompareVerb, RefusesARunThatIsNamedTwiceBeforeItTrains) {
  for (const Words& twice : {Words{"--recipes=fp32,bf16,fp32"}, Words{"--recipes=fp32,bf16", "--seeds=1,2,1"}}) {
    const TemporaryFolder folder;
    Words words = tiny_training(Words{"--out=all"} + twice);
    words.front() = "compare";
    const Outcome outcome = quaver(folder, words);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr("name fp32 with seed 1 twice"));
    EXPECT_FALSE(fs::exists(folder / "all"));
  }
}

TEST(CompareVerb, StopsAtOnceWhenInterrupted) {
  const TemporaryFolder folder;
  Words words = tiny_training({"--out=all", "--recipes=fp32,bf16", "--train.steps=1000000", "--train.log_every=1"});
  words.front() = "compare";
  Process process(folder, words);
  ASSERT_TRUE(process.wait_for("step       2/1000000"));
  process.send(SIGINT);
  EXPECT_EQ(process.wait().status, 130);
  EXPECT_TRUE(fs::exists(folder / "all/fp32"));
  EXPECT_FALSE(fs::exists(folder / "all/bf16")) << "the next recipe was started";
  EXPECT_FALSE(fs::exists(folder / "all/report.html"));
}

TEST(InspectVerb, ListsWhatThereIs) {
  const TemporaryFolder folder;
  const Outcome recipes = quaver(folder, {"inspect", "recipes"});
  EXPECT_EQ(recipes.status, 0);
  const std::regex heading("\n\\[recipes\\.[a-z0-9-]+\\]\n");
  EXPECT_EQ(std::distance(std::sregex_iterator(recipes.out.begin(), recipes.out.end(), heading), {}), 13);
  folder.write("own.toml", std::regex_replace(recipes.out, std::regex("\\[recipes\\."), "[recipes.my-"));
  const Outcome plan = quaver(folder, {"inspect", "plan", "own.toml", "--recipe=my-mxfp4"});
  EXPECT_EQ(plan.status, 0) << plan.error;
  EXPECT_THAT(plan.out, HasSubstr("e2m1 1x32/e8m0 current stochastic hadamard shrink 0.75"));
  EXPECT_THAT(quaver(folder, {"inspect", "presets"}).out, HasSubstr("gpt-124m"));
  EXPECT_THAT(quaver(folder, {"inspect", "config"}).out, HasSubstr("| `precision.switch_to` |"));
}

TEST(InspectVerb, ShowsAPlanWithItsReasons) {
  const TemporaryFolder folder;
  const Outcome plan = quaver(
      folder, {"inspect", "plan", "--recipe=nvfp4", "--model.layers=8", "--precision.layers.\"blocks.0.*/dy\"=bf16"});
  ASSERT_EQ(plan.status, 0) << plan.error;
  EXPECT_THAT(plan.out, HasSubstr("e2m1 16x16/e4m3 current"));
  EXPECT_THAT(plan.out, HasSubstr("pattern \"blocks.0.*/dy\""));
  EXPECT_THAT(plan.out, HasSubstr("in the last blocks"));
  EXPECT_THAT(plan.out, HasSubstr("kept in high precision by default"));
  EXPECT_THAT(plan.out, HasSubstr("share of the matrix products' operations"));
}

TEST(InspectVerb, LooksAtRunsDataSetsShardsAndFiles) {
  const TemporaryFolder folder;
  prepare_text(folder);
  ASSERT_EQ(quaver(folder, tiny_training_on("data", {"--dir=a", "--recipe=fp8-delayed"})).status, 0);
  ASSERT_EQ(quaver(folder, tiny_training_on("data", {"--dir=b", "--recipe=fp8-delayed", "--seed=2"})).status, 0);
  EXPECT_THAT(quaver(folder, {"inspect", "a"}).out, HasSubstr("blocks.0.mlp.down/dy"));
  EXPECT_THAT(quaver(folder, {"inspect", "data"}).out, HasSubstr("vocabulary 257"));
  EXPECT_THAT(quaver(folder, {"inspect", "data/train-00000.qv"}).out, HasSubstr("tokens"));
  EXPECT_THAT(quaver(folder, {"inspect", "a/checkpoints/step-000006/model.safetensors"}).out,
              HasSubstr("blocks.0.attn.qkv.weight"));
  const Outcome difference = quaver(folder, {"inspect", "a", "--against", "b"});
  EXPECT_EQ(difference.status, 0) << difference.error;
  EXPECT_THAT(difference.out, HasSubstr("train.seed: 1 → 2"));
  EXPECT_THAT(difference.out, ContainsRegex("\nsite +scale A +scale B +Δ binades +format A +format B\n"));
  EXPECT_THAT(quaver(folder, {"inspect", "a", "--against", "a"}).out, HasSubstr("scales:\nno difference"));
  EXPECT_EQ(quaver(folder, {"inspect", "nothing"}).status, 1);
}

}  // namespace
}  // namespace quaver::test
