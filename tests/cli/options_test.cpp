// Options that change what a verb does, each seen in its result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

json report_of(const TemporaryFolder& folder, const Words& more) {
  const Outcome outcome = quaver(folder, Words{"data", "in.jsonl", "--out", "set", "--overwrite", "--json"} + more);
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  return json::parse(outcome.out);
}

// JSON lines are valid UTF-8 by themselves, so what is not comes from a file of text.
TEST(DataOptions, KeepWhatIsOtherwiseLeftOut) {
  const TemporaryFolder folder;
  folder.write("good.txt", "all is well");
  folder.write("bad.txt", "this is \xFF not UTF-8");
  folder.write("twin.txt", "all is well");
  const auto report = [&](const Words& more) {
    const Outcome outcome = quaver(
        folder, Words{"data", "good.txt", "bad.txt", "twin.txt", "--out", "set", "--overwrite", "--json"} + more);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return json::parse(outcome.out);
  };
  const auto bytes = [](const json& of) { return of.at("bytes").get<int>(); };
  EXPECT_EQ(bytes(report({})), 11);
  EXPECT_EQ(bytes(report({"--keep-invalid"})), 11 + 19);
  EXPECT_EQ(bytes(report({"--keep-duplicates"})), 11 + 11);
  EXPECT_EQ(bytes(report({"--keep-invalid", "--keep-duplicates"})), 11 + 19 + 11);
}

TEST(DataOptions, SizesAreThoseAskedFor) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";  // 10 bytes, 11 tokens
  folder.write("in.jsonl", lines);
  const json report = report_of(folder, {"--shard-tokens", "50", "--valid", "0"});
  EXPECT_EQ(report.at("bytes"), 100);
  EXPECT_TRUE(fs::exists(folder / "set/train-00002.qv"));
  EXPECT_FALSE(fs::exists(folder / "set/train-00003.qv")) << "110 tokens";
  EXPECT_FALSE(fs::exists(folder / "set/valid-00000.qv"));
}

std::vector<std::string> samples_in(std::string text) {
  std::vector<std::string> samples;
  const std::string mark = "────\n";
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) {
    samples.push_back(text.substr(0, at));
    text.erase(0, at + mark.size());
  }
  samples.push_back(text);
  return samples;
}

// Each sample of several is drawn with a seed of its own, one after the other.
TEST(SampleOptions, EachOfSeveralIsAnother) {
  const TemporaryFolder folder;
  prepare_text(folder);
  ASSERT_EQ(quaver(folder, tiny_training_on("data", {"--dir=run"})).status, 0);
  const auto sample = [&](const Words& more) {
    const Outcome outcome = quaver(folder, Words{"sample", "run", "--prompt", "a", "--tokens", "16"} + more);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return outcome.out;
  };
  const std::vector<std::string> three = samples_in(sample({"--seed", "5", "--count", "3"}));
  ASSERT_EQ(three.size(), 3U);
  EXPECT_EQ(three[0], sample({"--seed", "5"}));
  EXPECT_EQ(three[1], sample({"--seed", "6"}));
  EXPECT_EQ(three[2], sample({"--seed", "7"}));
  EXPECT_NE(three[0], three[1]);
  EXPECT_NE(sample({"--seed", "5", "--top-k", "1"}), three[0]);
  EXPECT_EQ(sample({"--seed", "5", "--top-k", "1"}), sample({"--seed", "5", "--temperature", "0"}));
}

// A trained model is looked at with another recipe, data, batch and device: each is taken by its short name.
TEST(EvalOptions, AreTakenByTheirShortNames) {
  const TemporaryFolder folder;
  prepare_text(folder);
  ASSERT_EQ(quaver(folder, tiny_training_on("data", {"--dir=run"})).status, 0);
  fs::copy(folder / "data", folder / "other", fs::copy_options::recursive);
  const auto loss = [&](const Words& more) {
    const Outcome outcome = quaver(folder, Words{"eval", "run", "--json"} + more);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return json::parse(outcome.out);
  };
  const json usual = loss({});
  EXPECT_EQ(loss({"--batch", "1", "--device", "cpu", "--data", "other"}).at("step"), usual.at("step"));
  EXPECT_NE(loss({"--recipe", "mxfp4"}).at("validation_loss"), usual.at("validation_loss"));
  EXPECT_EQ(quaver(folder, {"eval", "run", "--batch", "0"}).status, 1);
  EXPECT_EQ(quaver(folder, {"eval", "run", "--data", "nowhere"}).status, 1);
  EXPECT_EQ(quaver(folder, {"eval", "run", "--device", "abacus"}).status, 1);
  EXPECT_EQ(quaver(folder, {"eval", "run", "--steps", "3"}).status, 1) << "it stays the model it is";
}

// 384 MiB, and 200 MiB for each thread that will be used.
TEST(AddressSpace, IsAskedForByThread) {
#ifdef QUAVER_SANITIZED
  GTEST_SKIP() << "the sanitizers reserve terabytes";
#endif
  const TemporaryFolder folder;
  const auto with_limit = [&](const char* kibibytes) {
    const std::string line = "cd '" + folder.path().string() + "' && ulimit -v " + kibibytes +
                             " && OMP_NUM_THREADS=1 timeout -s KILL 20 '" + program().string() +
                             "' --version >/dev/null 2>error";
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(with_limit("598015"), 1);
  EXPECT_THAT(contents(folder / "error"), HasSubstr("limited to 598015 KiB (ulimit -v), and OpenBLAS needs 598016 KiB "
                                                    "for 1 threads"));
  EXPECT_EQ(with_limit("598016"), 0) << contents(folder / "error");
}

}  // namespace
}  // namespace quaver::test
