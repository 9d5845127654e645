// What --log-to starts gets every line in order, and never holds the run up.
#include "cli/log_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct Heard {
  std::vector<std::string> warnings;
  LogCommand::Warning warning() {
    return [this](const std::string& text) { warnings.push_back(text); };
  }
};

TEST(LogCommandTest, GetsEveryLineInOrder) {
  const TemporaryFolder folder;
  Heard heard;
  std::string expected;
  {
    LogCommand command("cat > '" + (folder / "lines").string() + "'", heard.warning());
    for (int i = 0; i < 5000; ++i) {
      expected += std::to_string(i) + "\n";
      command.send(std::to_string(i));
    }
  }
  EXPECT_EQ(contents(folder / "lines"), expected);
  EXPECT_THAT(heard.warnings, testing::IsEmpty());
}

TEST(LogCommandTest, ACommandThatEndsGivesOneWarningAndACount) {
  Heard heard;
  {
    LogCommand command("exit 3", heard.warning());
    for (int i = 0; i < 200 && heard.warnings.empty(); ++i) {
      command.send(std::string(1000, 'x'));
      std::this_thread::sleep_for(milliseconds(10));
    }
    for (int i = 0; i < 100; ++i) command.send("more");
  }
  ASSERT_EQ(heard.warnings.size(), 2U);
  EXPECT_THAT(heard.warnings[0], testing::HasSubstr("reads no more"));
  EXPECT_THAT(heard.warnings[1], testing::ContainsRegex("not given [0-9]+ lines"));
}

TEST(LogCommandTest, ACommandThatReadsNothingHoldsNobodyUp) {
  Heard heard;
  const auto start = steady_clock::now();
  {
    LogCommand command("sleep 100", heard.warning(), milliseconds(200));
    for (std::size_t i = 0; i < 2 * LogCommand::most_lines; ++i) command.send(std::string(100, 'x'));
    EXPECT_EQ(heard.warnings.size(), 1U);
  }
  EXPECT_EQ(heard.warnings.size(), 2U);
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_THAT(heard.warnings[0], testing::HasSubstr("lines behind"));
}

TEST(TensorboardOption, WritesAnEventOfEveryStepWhileTheRunTrains) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_training({"--tensorboard", "board/first"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "board/first")) bytes += contents(entry.path());
  EXPECT_THAT(bytes, testing::HasSubstr("brain.Event:2"));
  EXPECT_THAT(bytes, testing::HasSubstr("gradient_norm"));
  folder.write("file", "");
  EXPECT_NE(quaver(folder, tiny_training({"--tensorboard", "file", "--run.dir=other"})).status, 0);
}

TEST(LogTo, WritesTheLinesOfMetricsWithoutItsEvents) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_training({"--log-to", "cat > lines", "--run.dir=run"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  std::string steps;
  std::istringstream metrics(contents(folder / "run/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    if (!nlohmann::json::parse(line).contains("event")) steps += line + "\n";
  }
  EXPECT_FALSE(steps.empty());
  EXPECT_EQ(contents(folder / "lines"), steps);
}

TEST(LogTo, WhatTheCommandPrintsGoesToStandardError) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_training({"--log-to", "echo heard; cat", "--json", "--run.dir=run"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, testing::Not(testing::HasSubstr("heard")));
  EXPECT_THAT(outcome.error, testing::HasSubstr("heard"));
}

TEST(LogTo, ACommandThatFailsDoesNotFailTheRun) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny_training({"--log-to", "exit 1", "--train.steps=40", "--run.dir=run"}));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out + outcome.error, testing::HasSubstr("metrics.jsonl has all of them"));
}

}  // namespace
}  // namespace quaver::test
