// Training from the command line: what a run leaves behind, what it prints for programs, and how it is interrupted.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

std::vector<json> parsed_lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

fs::path checkpoint(const fs::path& run, int step) { return run / "checkpoints" / fmt::format("step-{:06}", step); }

int newest_checkpoint(const fs::path& run) {
  int newest = -1;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-")) newest = std::max(newest, std::stoi(name.substr(5)));
  }
  return newest;
}

TEST(TrainVerb, LeavesARunThatCanBeReadAgain) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_training({"--recipe=fp8-delayed", "--name=first"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const fs::path run = folder / "runs/first";
  for (const char* file : {"config.toml", "plan.toml", "env.json", "metrics.jsonl", "scales.json"}) {
    EXPECT_TRUE(fs::exists(run / file)) << file;
  }
  EXPECT_TRUE(fs::exists(checkpoint(run, 6) / "model.safetensors"));
  EXPECT_EQ(parsed_lines(contents(run / "metrics.jsonl")).size(), 6U);
  EXPECT_THAT(outcome.out, HasSubstr("runs/first: final training loss"));
  EXPECT_EQ(outcome.error, "");
}

TEST(TrainVerb, AConfigFileAndItsFlagsAgreeWithTheResolvedConfig) {
  const TemporaryFolder folder;
  folder.write("run.toml", "[precision]\nrecipe = \"fp8-row\"\n[precision.layers]\n\"blocks.0.attn.*\" = \"bf16\"\n");
  const Outcome outcome = quaver(folder, tiny_training({"run.toml", "--dir=run", "--train.seed=5"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const std::string resolved = contents(folder / "run/config.toml");
  EXPECT_THAT(resolved, HasSubstr("recipe = \"fp8-row\""));
  EXPECT_THAT(resolved, HasSubstr("seed = 5"));
  EXPECT_THAT(contents(folder / "run/plan.toml"), HasSubstr("pattern \"blocks.0.attn.*\""));

  const Outcome again = quaver(folder, {"train", "run/config.toml", "--dir=again"});
  ASSERT_EQ(again.status, 0) << again.error;
  EXPECT_EQ(contents(checkpoint(folder / "again", 6) / "model.safetensors"),
            contents(checkpoint(folder / "run", 6) / "model.safetensors"));
}

TEST(TrainVerb, JsonIsOneObjectALine) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_training({"--dir=run", "--json", "--train.log_every=2"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const std::vector<json> lines = parsed_lines(outcome.out);
  std::vector<int> steps;
  for (const json& line : lines) {
    ASSERT_TRUE(line.is_object()) << line;
    ASSERT_TRUE(line.contains("event")) << line;
    if (line["event"] == "step") steps.push_back(line["step"].get<int>());
  }
  EXPECT_EQ(steps, (std::vector<int>{2, 4, 6}));
  EXPECT_TRUE(lines.back().contains("validation_loss"));
  EXPECT_TRUE(lines.back()["loss"].is_number());
}

// A run on text ends with a sample for people; programs get none between their lines.
TEST(TrainVerb, TheTextAtTheEndIsForPeople) {
  const TemporaryFolder folder;
  prepare_text(folder);
  const Words prompt{"--train.sample_prompt=thus begins", "--train.sample_every=6"};
  const Outcome told = quaver(folder, tiny_training_on("data", Words{"--dir=people"} + prompt));
  ASSERT_EQ(told.status, 0) << told.error;
  EXPECT_NE(told.out.find("\nthus begins"), std::string::npos) << told.out;
  const Outcome programs = quaver(folder, tiny_training_on("data", Words{"--dir=programs", "--json"} + prompt));
  ASSERT_EQ(programs.status, 0) << programs.error;
  for (const json& line : parsed_lines(programs.out)) EXPECT_TRUE(line.contains("event")) << line;
}

// Weights times a million saturate, so the guard must step in, and say so to programs too.
TEST(TrainVerb, AWidenedSiteIsReportedByName) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_training({"--dir=run", "--json", "--recipe=fp8-static",
                                                        "--train.steps=10", "--precision.static_weight_scale=1e6",
                                                        "--precision.recalibrate_every=0", "--alerts.enabled=false"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  int widened = 0;
  for (const json& line : parsed_lines(outcome.out)) {
    if (line["event"] != "warning") continue;
    ++widened;
    EXPECT_THAT(line["text"].get<std::string>(), HasSubstr("/w overflowed 8 steps in a row"));
  }
  EXPECT_EQ(widened, 4) << "one for each linear layer of the block";
  EXPECT_THAT(contents(folder / "run/metrics.jsonl"), HasSubstr("\"widened\""));
}

// Ctrl-C at any moment, then --resume, ends with the very bits of a run that was never disturbed.
TEST(TrainVerb, CtrlCWritesACheckpointAndResumeContinuesBitForBit) {
  const TemporaryFolder folder;
  const Words setup{"--recipe=nvfp4", "--optim.schedule=constant", "--optim.warmup=0", "--train.eval_every=0",
                    "--train.checkpoint_every=0"};
  Process first(folder, tiny_training(setup + Words{"--dir=stopped", "--train.steps=1000000", "--train.log_every=1"}));
  ASSERT_TRUE(first.wait_for("step       3/1000000"));
  first.send(SIGINT);
  const Outcome stopped = first.wait();
  EXPECT_EQ(stopped.status, 130) << stopped.error;
  EXPECT_THAT(stopped.out, HasSubstr("continue with: quaver train --resume stopped"));
  const int step = newest_checkpoint(folder / "stopped");
  ASSERT_GE(step, 3);

  const std::string steps = fmt::format("--train.steps={}", step + 4);
  const Outcome resumed = quaver(folder, {"train", "--resume", "stopped", steps});
  ASSERT_EQ(resumed.status, 0) << resumed.error;
  EXPECT_THAT(resumed.out, HasSubstr(fmt::format("resumed at step {}", step)));
  const Outcome straight = quaver(folder, tiny_training(setup + Words{"--dir=straight", steps}));
  ASSERT_EQ(straight.status, 0) << straight.error;
  EXPECT_EQ(contents(checkpoint(folder / "stopped", step + 4) / "model.safetensors"),
            contents(checkpoint(folder / "straight", step + 4) / "model.safetensors"));

  std::vector<int> logged;
  for (const json& line : parsed_lines(contents(folder / "stopped/metrics.jsonl"))) {
    if (line.contains("loss")) logged.push_back(line["step"].get<int>());
  }
  ASSERT_EQ(logged.size(), static_cast<std::size_t>(step + 4)) << "every step once";
  EXPECT_TRUE(std::is_sorted(logged.begin(), logged.end()));
}

TEST(TrainVerb, AskedToEndBySigtermItLeavesACheckpointToo) {
  const TemporaryFolder folder;
  Process process(folder, tiny_training({"--dir=run", "--train.steps=1000000", "--train.log_every=1", "--json"}));
  ASSERT_TRUE(process.wait_for("\"step\":2,"));
  process.send(SIGTERM);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.status, 130);
  EXPECT_GE(newest_checkpoint(folder / "run"), 2);
  EXPECT_NO_THROW(parsed_lines(outcome.out)) << "the last line is whole";
}

TEST(TrainVerb, ADamagedCheckpointIsPassedOverAloud) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny_training({"--dir=run", "--train.checkpoint_every=3"})).status, 0);
  const fs::path newest = checkpoint(folder / "run", 6) / "model.safetensors";
  std::string bytes = contents(newest);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  fs::remove(newest);
  folder.write("run/checkpoints/step-000006/model.safetensors", bytes);
  const Outcome outcome = quaver(folder, {"train", "--resume", "run"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("step-000006 is not usable"));
  EXPECT_THAT(outcome.out, HasSubstr("resumed at step 3"));
}

}  // namespace
}  // namespace quaver::test
