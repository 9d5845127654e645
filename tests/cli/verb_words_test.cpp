// What verbs print, called as the functions they are: numbers of data sets, plans, runs and samples.
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/narrator.h"
#include "cli/verbs.h"
#include "cli/verify.h"
#include "data/shard.h"
#include "quaver/error.h"
#include "train/own_text.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string words_of(const std::function<void()>& act) {
  ::testing::internal::CaptureStdout();
  act();
  std::fflush(stdout);
  return ::testing::internal::GetCapturedStdout();
}

std::string told_on_stderr(const std::function<void()>& act) {
  ::testing::internal::CaptureStderr();
  act();
  return ::testing::internal::GetCapturedStderr();
}

// Ten training tokens and five to validate with, as bytes.
DataArguments two_documents(const TemporaryFolder& folder) {
  DataArguments arguments;
  arguments.options.inputs = {folder.write("in.jsonl", "{\"text\":\"four\"}\n{\"text\":\"something\"}\n")};
  arguments.options.output = folder / "set";
  arguments.options.shard_tokens = 6;
  return arguments;
}

TEST(DataWords, AreTheReportAndTheStages) {
  const TemporaryFolder folder;
  DataArguments arguments = two_documents(folder);
  std::string out;
  const std::string error = told_on_stderr([&] { out = words_of([&] { EXPECT_EQ(data_verb(arguments), 0); }); });
  EXPECT_EQ(error, "scan …\nwrite …\n");
  EXPECT_THAT(out, StartsWith("documents     2 of 1 files: 1 train, 1 valid\n"));
  arguments.options.existing = ExistingDataset::overwrite;
  arguments.output = Output::json;
  told_on_stderr([&] { out = words_of([&] { data_verb(arguments); }); });
  EXPECT_EQ(nlohmann::json::parse(out)["tokens"], (nlohmann::json{{"train", 10}, {"valid", 5}}));
}

TEST(VerifiedWords, AreOneLinePerShardOfBothSplits) {
  const TemporaryFolder folder;
  told_on_stderr([&] { words_of([&] { data_verb(two_documents(folder)); }); });
  const std::string set = (folder / "set").string();
  EXPECT_EQ(words_of([&] { verify_shards(set, Output::human); }), set + "/train-00000.qv: ok, 6 tokens\n" + set +
                                                                      "/train-00001.qv: ok, 4 tokens\n" + set +
                                                                      "/valid-00000.qv: ok, 5 tokens\n");
  EXPECT_EQ(words_of([&] { verify_shards(set + "/train-00001.qv", Output::human); }),
            set + "/train-00001.qv: ok, 4 tokens\n");
  InspectArguments inspect;
  inspect.path = set;
  EXPECT_THAT(
      words_of([&] { inspect_verb(inspect); }),
      StartsWith(set + ": 10 training tokens in 2 shards, 5 validation tokens, vocabulary 257 (bytes)\n" + set));
  inspect.path = set + "/valid-00000.qv";
  EXPECT_EQ(words_of([&] { inspect_verb(inspect); }),
            inspect.path + ": 5 tokens, quaver format\n" + inspect.path + ": ok, 5 tokens\n");
  for (const char* name : {"train-00000.qv", "valid-00000.qv"}) {  // an id, and the size
    std::string bytes = contents(folder / "set" / name);
    bytes[256] ^= 1;
    folder.write(std::string("set/") + name, bytes);
  }
  std::string text;
  try {
    text = words_of([&] { EXPECT_THROW(verify_shards(set, Output::json), Error); });
    words_of([&] { verify_shards(set, Output::human); });
    ADD_FAILURE();
  } catch (const Error& error) {
    ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(error.what(), set + ": 2 of 3 shards damaged");
  }
  const auto shards = nlohmann::json::parse(text)["shards"];
  ASSERT_EQ(shards.size(), 3U);
  EXPECT_EQ(shards[1],
            (nlohmann::json{{"file", set + "/train-00001.qv"}, {"tokens", 4}, {"checksum", true}, {"damage", ""}}));
  EXPECT_NE(shards[0]["damage"], "");
  EXPECT_NE(shards[2]["damage"], "");
}

// A shard in llm.c's format does not tell its vocabulary; that of the data set is the one ids are checked against.
TEST(VerifiedWords, IdsAreThoseOfTheDataSetsVocabulary) {
  const TemporaryFolder folder;
  DataArguments arguments = two_documents(folder);
  arguments.options.format = ShardFormat::llmc;
  told_on_stderr([&] { words_of([&] { data_verb(arguments); }); });
  EXPECT_THAT(words_of([&] { verify_shards(folder / "set", Output::human); }),
              HasSubstr("valid-00000.bin: ok, 5 tokens (the format has no checksum: only the ids were checked)\n"));
  const auto told = nlohmann::json::parse(words_of([&] { verify_shards(folder / "set", Output::json); }));
  EXPECT_EQ(told["shards"][0]["checksum"], false);
  ShardWriter writer(folder / "set/valid-00000.bin", ShardFormat::llmc, 300, 0);
  writer.append(std::vector<std::int32_t>{1, 2, 3, 4, 257});
  writer.finish();
  words_of([&] { EXPECT_THROW(verify_shards(folder / "set", Output::human), Error); });
}

TEST(PlanWords, HaveSharesInPercentThatAddUp) {
  InspectArguments arguments;
  arguments.what = InspectWhat::plan;
  const auto plan = [&](std::vector<std::string> settings) {
    arguments.config.settings = std::move(settings);
    arguments.config.settings.insert(arguments.config.settings.end(),
                                     {"model.layers=1", "model.width=64", "model.heads=2", "model.context=16"});
    return words_of([&] { EXPECT_EQ(inspect_verb(arguments), 0); });
  };
  const std::string bf16 = plan({"precision.recipe=bf16"});
  EXPECT_THAT(bf16, HasSubstr("\nshare of the matrix products' operations: bf16 100.0 %\n"));
  // A block has 12·64² weights, the head 320·64: a byte vocabulary, rounded up. The head is kept in high precision.
  const std::string fp8 = plan({"precision.recipe=fp8-current"});
  EXPECT_THAT(fp8, HasSubstr(fmt::format("bf16 {:.1f} %", 100 * 320.0 / (320 + 12 * 64)))) << fp8;
  const std::string given = plan({"precision.recipe=fp8-current", "model.vocab=1000"});
  EXPECT_THAT(given, HasSubstr(fmt::format("bf16 {:.1f} %", 100 * 1000.0 / (1000 + 12 * 64)))) << given;
}

class RunWords : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    Words words = tiny_training({"--dir=run", "--recipe=fp8-delayed", "--train.checkpoint_every=3"});
    ASSERT_EQ(quaver(*folder_, words).status, 0);
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string run() { return (*folder_ / "run").string(); }
  static TemporaryFolder* folder_;
};
TemporaryFolder* RunWords::folder_ = nullptr;

TEST_F(RunWords, OfAnEvaluation) {
  RunArguments arguments;
  arguments.run = run();
  const auto figures = [&](Size batches) {
    arguments.batches = batches;
    arguments.output = Output::json;
    return nlohmann::json::parse(words_of([&] { EXPECT_EQ(eval_verb(arguments), 0); }));
  };
  const auto one = figures(1);
  const auto three = figures(3);
  EXPECT_NE(one["validation_loss"], three["validation_loss"]);
  EXPECT_EQ(one["step"], 6);
  EXPECT_EQ(one["recipe"], "fp8-delayed");
  EXPECT_FALSE(one.contains("layers"));
  EXPECT_DOUBLE_EQ(one["perplexity"].get<double>(), std::exp(one["validation_loss"].get<double>()));
  arguments.output = Output::human;
  const std::string text = words_of([&] { eval_verb(arguments); });
  const double loss = three["validation_loss"].get<double>();
  EXPECT_THAT(text, StartsWith(fmt::format("step 6, fp8-delayed: validation loss {:.5f} nats per token, perplexity "
                                           "{:.3f} ({} tokens)\nbest possible: ",
                                           loss, std::exp(loss), three["tokens"].get<int>())));
}

TEST_F(RunWords, OfItsScales) {
  InspectArguments arguments;
  arguments.path = run();
  const std::string text = words_of([&] { EXPECT_EQ(inspect_verb(arguments), 0); });
  EXPECT_THAT(text, StartsWith(run() + ": step 6, "));
  EXPECT_THAT(text, HasSubstr(" parameters, fp8-delayed\n\nsite "));
  const auto book = nlohmann::json::parse(contents(*folder_ / "run/scales.json"));
  std::istringstream lines(text);
  std::size_t compared = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("blocks.0.mlp.up/x ")) continue;
    std::istringstream words(line);
    std::string site, format, scale, amax, saturated, underflowed, nonfinite;
    words >> site >> format >> scale >> amax >> saturated >> underflowed >> nonfinite;
    EXPECT_EQ(format, "e4m3");
    const auto& entry = book.at("sites").at(site);
    EXPECT_EQ(scale, fmt::format("{:.5g}", entry.at("scale").get<float>()));
    EXPECT_EQ(amax, fmt::format("{:.5g}", entry.at("history").back().get<float>()));
    EXPECT_EQ(saturated, entry.at("saturated").dump());
    EXPECT_EQ(underflowed, entry.at("underflowed").dump());
    EXPECT_EQ(nonfinite, entry.at("nonfinite").dump());
    ++compared;
  }
  EXPECT_EQ(compared, 1U) << text;
  EXPECT_THAT(text, Not(HasSubstr("history"))) << "scales that follow the history are no event";
}

TEST_F(RunWords, OfAnExport) {
  ExportArguments arguments;
  arguments.path = folder_->path().string();
  arguments.out = (*folder_ / "files").string();
  arguments.options.format = ExportFormat::csv;
  const std::string all = words_of([&] { EXPECT_EQ(export_verb(arguments), 0); });
  EXPECT_NE(all, "");
  arguments.runs = {"run"};
  arguments.out = (*folder_ / "named").string();
  const std::string named = words_of([&] { EXPECT_EQ(export_verb(arguments), 0); });
  EXPECT_EQ(std::ranges::count(all, '\n'), std::ranges::count(named, '\n'));
  std::istringstream lines(named);
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(std::filesystem::exists(line)) << line;
  arguments.runs = {"other"};
  try {
    export_verb(arguments);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("there is no run 'other' in "));
    EXPECT_EQ(error.remedy(), "it has run");
  }
}

TEST(NarratedStart, HasTheSizeTheTokensOfAStepAndThePlanOfAFreshRun) {
  Config config = small_config("fp8-delayed", "unused");
  config.train.accumulation = 3;
  OwnTrainer own(config);
  const auto introduced = [&](Size first_step) {
    return words_of([&] {
      Narrator narrator(config, Output::human);
      narrator.observer().started(own.trainer, first_step);
    });
  };
  const std::string fresh = introduced(0);
  EXPECT_THAT(fresh, HasSubstr(fmt::format(
                         "{} · {} parameters · fp8-delayed · {} tokens per step · {} of memory\n", config.preset,
                         format_count(static_cast<double>(own.trainer.model().parameters().count())),
                         format_count(static_cast<double>(config.train.batch * 3 * own.trainer.config().train.context)),
                         format_bytes(static_cast<std::uint64_t>(own.trainer.memory().total())))));
  EXPECT_GT(std::ranges::count(fresh, '\n'), 1) << "the plan follows";
  EXPECT_EQ(std::ranges::count(introduced(5), '\n'), 1) << "a run that goes on told its plan before";
}

TEST(NarratedSteps, AppearAtTheRunsInterval) {
  Config config = small_config("bf16", "unused");
  config.train.steps = 100;
  config.train.log_every = 7;
  const std::string text = words_of([&] {
    Narrator narrator(config, Output::human);
    const RunObserver observer = narrator.observer();
    for (Size step = 1; step <= 20; ++step) {
      StepReport report;
      report.step = step;
      report.tokens = 64;
      report.seconds = 1;
      observer.stepped(report, std::nullopt);
    }
  });
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  EXPECT_THAT(text, StartsWith("step   7/100 "));
  EXPECT_THAT(text, HasSubstr("\nstep  14/100 "));
}

TEST(NarratedSteps, HaveAValidationLossOnlyWhereTheyWereValidated) {
  Config config = small_config("bf16", "unused");
  config.train.steps = 100;
  config.train.log_every = 1;
  const std::string text = words_of([&] {
    Narrator narrator(config, Output::json);
    const RunObserver observer = narrator.observer();
    StepReport report;
    report.tokens = 64;
    report.seconds = 1;
    for (report.step = 1; report.step <= 3; ++report.step) {
      observer.stepped(report, report.step == 2 ? std::optional(2.5) : std::nullopt);
    }
  });
  std::istringstream lines(text);
  std::vector<bool> validated;
  for (std::string line; std::getline(lines, line);) {
    validated.push_back(nlohmann::json::parse(line).contains("validation_loss"));
  }
  EXPECT_THAT(validated, ElementsAre(false, true, false));
}

TEST(NarratedEnd, SaysHowToGoOnOnlyWhereItWasInterrupted) {
  RunResult result;
  result.directory = "runs/one";
  result.losses = {{1, 2.0}};
  result.final_train_loss = 2;
  result.tokens_per_second = 10;
  const auto concluded = [&](Output output) {
    return words_of([&] { Narrator(small_config("bf16", "unused"), output).conclude(result); });
  };
  EXPECT_EQ(concluded(Output::human), "runs/one: final training loss 2.0000, 10 tokens/s\n");
  EXPECT_EQ(concluded(Output::json), "");
  result.best_loss = 1.5;
  EXPECT_EQ(concluded(Output::human), "runs/one: final training loss 2.0000 (best possible 1.5000), 10 tokens/s\n");
  result.tokens_per_second = 0;  // nothing was trained: it was complete already
  result.final_train_loss.reset();
  result.best_loss.reset();
  result.final_validation_loss = 2.5;
  EXPECT_EQ(concluded(Output::human), "runs/one: validation loss 2.5000\n");
}

}  // namespace
}  // namespace quaver::test
