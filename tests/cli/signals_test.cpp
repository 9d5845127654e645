// What a shell, a terminal or a scheduler does to a run: it ends with a checkpoint, or goes on.
#include <cstdio>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path manifest(const fs::path& run, int step) {
  return run / "checkpoints" / fmt::format("step-{:06}", step) / "manifest.json";
}

class StopSignals : public ::testing::TestWithParam<int> {};

TEST_P(StopSignals, WriteACheckpointThatARunGoesOnFrom) {
  const TemporaryFolder folder;
  Process process(folder, tiny_training({"--dir=run", "--steps=100000", "--train.log_every=1"}));
  ASSERT_TRUE(process.wait_for(" 3/100000 "));
  process.send(GetParam());
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.status, 130) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("continue with: quaver train --resume run"));
  const Outcome status = quaver(folder, {"inspect", "run"});
  ASSERT_EQ(status.status, 0) << status.error;
  EXPECT_THAT(status.out, ::testing::Not(HasSubstr("run: step 0,")));
}

INSTANTIATE_TEST_SUITE_P(All, StopSignals, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(Signals, NohupIsRespected) {
  const TemporaryFolder folder;
  std::signal(SIGHUP, SIG_IGN);  // as nohup does; the program inherits it
  Process process(folder, tiny_training({"--dir=run", "--steps=40", "--train.log_every=1"}));
  std::signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(process.wait_for(" 3/40 "));
  process.send(SIGHUP);
  EXPECT_EQ(process.wait().status, 0);
  EXPECT_TRUE(fs::exists(manifest(folder / "run", 40)));
}

// `quaver train … | head -1`
TEST(Signals, AClosedPipeStopsThePrintingAndNotTheTraining) {
  const TemporaryFolder folder;
  std::string command = fmt::format("cd '{}' && exec '{}'", folder.path().string(), program().string());
  for (const std::string& word : tiny_training({"--dir=run", "--steps=60", "--train.log_every=1"})) {
    command += fmt::format(" '{}'", word);
  }
  std::FILE* out = ::popen((command + " 2>error").c_str(), "r");
  ASSERT_NE(out, nullptr);
  char first[2] = {};
  EXPECT_EQ(std::fread(first, 1, 1, out), 1U);
  const int status = ::pclose(out);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << contents(folder / "error");
  EXPECT_TRUE(fs::exists(manifest(folder / "run", 60)));
}

}  // namespace
}  // namespace quaver::test
