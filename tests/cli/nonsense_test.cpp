// Values that make no sense are refused by name before anything begins; output that goes nowhere is a failure.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

void expect_refusal(const TemporaryFolder& folder, const Words& words, const std::string& part) {
  const Outcome outcome = quaver(folder, words);
  const std::string asked = ::testing::PrintToString(words);
  EXPECT_EQ(outcome.status, 1) << asked << outcome.out << outcome.error;
  EXPECT_EQ(outcome.out, "") << asked;
  EXPECT_THAT(outcome.error, AllOf(::testing::StartsWith("quaver: "), HasSubstr(part), HasSubstr("\n  → "))) << asked;
}

TEST(Nonsense, OptionsOutOfRangeAreRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny_training({"--dir=run"})).status, 0);
  write_text(folder);
  const std::pair<Words, std::vector<std::string>> verbs[] = {
      {{"sample", "run", "--temperature"}, {"nan", "-1", "inf", "-0.001", "1e300", "warm"}},
      {{"sample", "run", "--top-k"}, {"-1", "3000000000", "nan"}},
      {{"sample", "run", "--top-p"}, {"-0.1", "1.1", "nan", "much"}},
      {{"sample", "run", "--tokens"}, {"0", "-5", "9223372036854775807"}},
      {{"sample", "run", "--count"}, {"0", "-1", "9223372036854775807"}},
      {{"sample", "run", "--seed"}, {"-1", "x"}},
      {{"sample", "run", "--step"}, {"-1"}},
      {{"eval", "run", "--batches"}, {"0", "-1", "9223372036854775807"}},
      {{"calibrate", "--run", "run", "--out", "s.json", "--percentile"}, {"nan", "0", "-1", "100.1", "inf"}},
      {{"calibrate", "--run", "run", "--out", "s.json", "--batches"}, {"0", "-1", "nan"}},
      {{"calibrate", "--run", "run", "--out", "s.json", "--margin"}, {"-1", "17", "nan"}},
      {{"calibrate", "--run", "run", "--out", "s.json", "--warmup-steps"}, {"-1"}},
      {{"localize", "--run", "run", "--out", "map", "--budget"}, {"nan", "-1", "101", "inf"}},
      {{"compare", "--out", "c", "--seeds"}, {"-1", "x"}},
      {{"data", "text", "--out", "d", "--shard-tokens"}, {"0", "1", "-1", "18446744073709551615"}},
      {{"data", "text", "--out", "d", "--valid"}, {"nan", "-0.1", "1.5", "inf"}},
      {{"bench", "step", "--tokens"}, {"0", "-1", "9223372036854775807"}},
      {{"bench", "step", "--steps"}, {"0", "-1"}},
      {{"dash", "--port"}, {"-1", "65536"}},
      {{"estimate", "--gpu-memory"}, {"nan", "-1GiB", "1e300GiB"}},
      {{"estimate", "--tokens-per-second"}, {"nan", "0", "-1", "inf", "fast"}},
      {{"estimate", "--gpus"}, {"0", "-1", "nan", "65537"}},
      {{"estimate", "--gpus", "8", "--nodes"}, {"0", "-1", "x", "9", "3"}},
      {{"estimate", "--gpus", "8", "--link"}, {"carrier-pigeon", "ib"}},
      {{"estimate", "--gpus", "8", "--gradients"}, {"fp8", "-1"}},
      {{"estimate", "--gpus", "8", "--overlap"}, {"nan", "-0.1", "1.1"}}};
  for (const auto& [words, values] : verbs) {
    for (const std::string& value : values) expect_refusal(folder, words + Words{value}, value);
  }
  EXPECT_FALSE(fs::exists(folder / "d") || fs::exists(folder / "s.json") || fs::exists(folder / "c"));
}

TEST(Nonsense, NumbersOfTheConfigHaveBounds) {
  const TemporaryFolder folder;
  for (const char* setting :
       {"model.activation_scale=1e308", "model.activation_scale=1e-300", "model.activation_clip=1e308",
        "model.rope_theta=1e308", "model.residual_alpha=1e300", "model.attention_ratio=1e300",
        "model.attention_scale=1e300", "optim.weight_decay=1e300", "optim.clip_limit=1e300",
        "precision.static_activation_scale=1e39", "precision.static_weight_scale=1e-46", "guard.divergence=1e308",
        "train.steps=0", "train.steps=-1", "train.batch=0", "train.seed=-1", "optim.learning_rate=nan"}) {
    const std::string text = setting;
    expect_refusal(folder, tiny_training({"--" + text}), text.substr(0, text.find('=')));
  }
}

TEST(Nonsense, ARunsNameStaysInTheFolderOfRuns) {
  const TemporaryFolder folder;
  for (const std::string& name : {std::string("../outside"), std::string(".."), std::string("."), std::string("a/b"),
                                  (folder / "absolute").string(), std::string("bell\a"), std::string("line\nbreak"),
                                  std::string("\x1b[2J"), std::string(300, 'a')}) {
    expect_refusal(folder, tiny_training({"--name=" + name}), "run.name");
  }
  EXPECT_FALSE(fs::exists(folder / "outside") || fs::exists(folder / "runs") || fs::exists(folder / "absolute"));
  EXPECT_EQ(quaver(folder, tiny_training({"--name=größer 2"})).status, 0);
  EXPECT_TRUE(fs::exists(folder / "runs/größer 2/config.toml"));
}

// Runs the program through a shell, for redirections and limits.
Outcome in_shell(const TemporaryFolder& folder, const std::string& command) {
  const fs::path out = folder / "shell.out";
  const fs::path error = folder / "shell.error";
  const std::string line =
      "cd '" + folder.path().string() + "' && ( " + command + " ) >'" + out.string() + "' 2>'" + error.string() + "'";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(out), contents(error)};
}

TEST(Nonsense, OutputThatCannotBeWrittenIsAFailure) {
  const TemporaryFolder folder;
  prepare_text(folder);
  ASSERT_EQ(quaver(folder, tiny_training_on("data", {"--dir=runs/one"})).status, 0);
  const std::string quaver = program().string();
  for (const char* words :
       {"--help", "--version", "train --help", "inspect recipes", "inspect config", "inspect plan", "inspect runs/one",
        "inspect data", "eval runs/one", "eval runs/one --json", "sample runs/one --tokens 4", "doctor",
        "doctor --json", "estimate --preset tiny --no-time --json", "export runs --format csv --out e",
        "data text --out other --json"}) {
    const Outcome outcome = in_shell(folder, quaver + " " + words + " > /dev/full");
    EXPECT_EQ(outcome.status, 1) << words << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr("standard output cannot be written")) << words;
  }
  EXPECT_EQ(in_shell(folder, quaver + " --version >&-").status, 1) << "closed";
}

// OpenBLAS would try for ever to get its buffers.
TEST(Nonsense, TooLittleAddressSpaceIsToldAtOnce) {
#ifdef QUAVER_SANITIZED
  GTEST_SKIP() << "the sanitizers reserve terabytes";
#endif
  const TemporaryFolder folder;
  for (const char* words : {"--version", "inspect presets", "doctor"}) {
    for (const char* kibibytes : {"200000", "350000", "500000"}) {
      const Outcome outcome = in_shell(folder, std::string("ulimit -v ") + kibibytes + "; exec timeout -s KILL 20 " +
                                                   program().string() + " " + words);
      EXPECT_EQ(outcome.status, 1) << words << " " << kibibytes << outcome.error;
      EXPECT_THAT(outcome.error, AllOf(HasSubstr("ulimit -v"), HasSubstr("\n  → "))) << words << " " << kibibytes;
    }
  }
}

}  // namespace
}  // namespace quaver::test
