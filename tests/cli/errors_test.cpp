// What goes wrong is named, says what to do, and ends with a status that scripts can see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Exit status 1, nothing on standard output, a message with these parts, and a remedy below it.
void expect_refusal(const Outcome& outcome, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.error;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.error, ::testing::StartsWith("quaver: "));
  EXPECT_THAT(outcome.error, HasSubstr("\n  → ")) << "no remedy";
  for (const std::string& part : parts) EXPECT_THAT(outcome.error, HasSubstr(part));
}

TEST(Errors, AnUnknownKeyNamesTheNearest) {
  const TemporaryFolder folder;
  expect_refusal(quaver(folder, tiny_training({"--train.stepz=3"})), {"train.stepz", "did you mean \"train.steps\"?"});
  folder.write("bad.toml", "[train]\nsteps = 3\n[optim]\nlerning_rate = 0.1\n");
  expect_refusal(quaver(folder, tiny_training({"bad.toml"})),
                 {"bad.toml", "4", "did you mean \"optim.learning_rate\"?"});
  expect_refusal(quaver(folder, tiny_training({"--recepi", "bf16"})),
                 {"--recepi", "did you mean \"precision.recipe\"?"});
  expect_refusal(quaver(folder, tiny_training({"nowhere.toml"})), {"nowhere.toml", "No such file"});
  expect_refusal(quaver(folder, tiny_training({"--train.steps"})), {"train.steps", "found no value"});
}

TEST(Errors, AValueOfTheWrongKindSaysWhatWasExpected) {
  const TemporaryFolder folder;
  expect_refusal(quaver(folder, tiny_training({"--train.steps=many"})), {"train.steps", "an integer", "many"});
  expect_refusal(quaver(folder, tiny_training({"--recipe=fp8-delayd"})), {"did you mean \"fp8-delayed\"?"});
  expect_refusal(quaver(folder, tiny_training({"--preset=tinny"})), {"did you mean \"tiny\""});
}

TEST(Errors, APatternThatMatchesNoLayerListsSome) {
  const TemporaryFolder folder;
  expect_refusal(quaver(folder, tiny_training({"--precision.layers.\"blocks.9.*\"=bf16"})),
                 {"\"blocks.9.*\" matches no layer", "blocks.0.attn.qkv"});
  expect_refusal(quaver(folder, tiny_training({"--optim.learning_rate_of.\"nothing.*\"=2"})),
                 {"\"nothing.*\" matches no parameter", "embed.weight"});
}

TEST(Errors, DataThatIsNotThere) {
  const TemporaryFolder folder;
  expect_refusal(quaver(folder, {"train"}), {"nothing to train on", "quaver data"});
  expect_refusal(quaver(folder, {"train", "--data", "nowhere"}), {"nowhere"});
  EXPECT_FALSE(fs::exists(folder / "runs")) << "a refused run leaves nothing";
}

TEST(Errors, APathThatNoFileCanHave) {
  const TemporaryFolder folder;
  expect_refusal(quaver(folder, {"train", "--preset=mlp-tiny", "--data.kind=idx", "--data", std::string(5000, 'a')}),
                 {"aaa", "File name too long"});
}

TEST(Errors, AShardThatIsCutOffOrOverwrittenIsNotTrainedOn) {
  const TemporaryFolder folder;
  prepare_text(folder);
  const std::string good = contents(folder / "data/train-00000.qv");
  std::string flipped = good;
  flipped[16] = static_cast<char>(flipped[16] ^ 1);  // the number of ids
  const std::string truncated = good.substr(0, good.size() - 10);
  for (const std::string& damaged : {flipped, truncated, std::string("no shard")}) {
    fs::remove(folder / "data/train-00000.qv");
    folder.write("data/train-00000.qv", damaged);
    expect_refusal(quaver(folder, tiny_training_on("data", {"--dir=run"})), {"train-00000.qv"});
  }
}

TEST(Errors, ARunIsNotOverwritten) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny_training({"--dir=run"})).status, 0);
  const std::string before = contents(folder / "run/metrics.jsonl");
  expect_refusal(quaver(folder, tiny_training({"--dir=run"})), {"run already holds a run", "--resume"});
  EXPECT_EQ(contents(folder / "run/metrics.jsonl"), before);
}

TEST(Errors, AFolderWithoutARun) {
  const TemporaryFolder folder;
  for (const Words& words : {Words{"train", "--resume", "none"}, Words{"eval", "none"}, Words{"sample", "none"}}) {
    expect_refusal(quaver(folder, words), {"none holds no run", "config.toml"});
  }
}

TEST(Errors, AFolderThatCannotBeWritten) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const TemporaryFolder folder;
  fs::create_directories(folder / "closed");
  fs::permissions(folder / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  const Outcome outcome = quaver(folder, tiny_training({"--dir=closed/run"}));
  fs::permissions(folder / "closed", fs::perms::owner_all);
  expect_refusal(outcome, {"closed/run"});
}

TEST(Errors, AModelThatDoesNotFitSaysWhatWould) {
  const TemporaryFolder folder;
  const Words huge{"--preset=gpt-350m", "--data.kind=synthetic", "--train.memory_limit_mb=12000"};
  expect_refusal(quaver(folder, Words{"train"} + huge), {"GiB too much", "train.batch = "});
}

TEST(Errors, WordsThatNoVerbTakes) {
  const TemporaryFolder folder;
  EXPECT_NE(quaver(folder, {}).status, 0);
  EXPECT_NE(quaver(folder, {"trian"}).status, 0);
  EXPECT_NE(quaver(folder, {"data", "text", "--out", "data", "--bogus"}).status, 0);
  EXPECT_NE(quaver(folder, {"train", "missing.toml"}).status, 0);
}

}  // namespace
}  // namespace quaver::test
