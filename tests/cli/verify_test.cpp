// `quaver data --verify` and `quaver inspect` find damage in prepared data, name the place and fail.
#include <chrono>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;

void flip_bit(const std::filesystem::path& path, std::streamoff byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(byte);
  const char flipped = static_cast<char>(file.get() ^ 1);
  file.seekp(byte);
  file.put(flipped);
}

TEST(VerifyData, EveryShardIsListed) {
  const TemporaryFolder folder;
  prepare_text(folder);
  const Outcome outcome = quaver(folder, {"data", "--verify", "data"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("data/train-00000.qv: ok, "));
  EXPECT_THAT(outcome.out, HasSubstr("data/valid-00000.qv: ok, "));
  EXPECT_EQ(quaver(folder, {"data", "--verify", "data/valid-00000.qv"}).status, 0);
  EXPECT_EQ(quaver(folder, {"data", "--verify", "nowhere"}).status, 1);
}

TEST(VerifyData, AFlippedBitIsNamedAndFails) {
  const TemporaryFolder folder;
  prepare_text(folder);
  flip_bit(folder / "data/train-00000.qv", 300);
  for (const Words& words : {Words{"data", "--verify", "data"}, Words{"data", "--verify", "data/train-00000.qv"},
                             Words{"inspect", "data"}, Words{"inspect", "data/train-00000.qv"}}) {
    const Outcome outcome = quaver(folder, words);
    EXPECT_EQ(outcome.status, 1) << words.back();
    EXPECT_THAT(outcome.out, HasSubstr("train-00000.qv: damaged between bytes 256 and "));
    EXPECT_THAT(outcome.error, HasSubstr("shards damaged"));
  }
  const Outcome answer = quaver(folder, {"data", "--verify", "data", "--json"});
  EXPECT_EQ(answer.status, 1);
  const auto shards = nlohmann::json::parse(answer.out)["shards"];
  EXPECT_THAT(shards[0]["damage"].get<std::string>(), HasSubstr("damaged between bytes 256 and "));
  EXPECT_EQ(shards[1]["damage"], "");
}

TEST(VerifyData, AShardWithoutAChecksumSaysSo) {
  const TemporaryFolder folder;
  write_text(folder);
  ASSERT_EQ(quaver(folder, {"data", "text", "--out", "data", "--llmc"}).status, 0);
  EXPECT_THAT(quaver(folder, {"inspect", "data"}).out, HasSubstr("only the ids were checked"));
  flip_bit(folder / "data/train-00000.bin", 1025);  // an id's high byte
  flip_bit(folder / "data/train-00000.bin", 1024);
  const Outcome outcome = quaver(folder, {"data", "--verify", "data"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("at position 0 (byte 1024) is outside the vocabulary of 257"));
}

TEST(VerifyData, ItTakesTheFormOfOneTask) {
  const TemporaryFolder folder;
  write_text(folder);
  EXPECT_EQ(quaver(folder, {"data"}).status, 1);
  EXPECT_EQ(quaver(folder, {"data", "text"}).status, 1);
  EXPECT_EQ(quaver(folder, {"data", "--out", "data"}).status, 1);
  EXPECT_EQ(quaver(folder, {"data", "text", "--out", "data", "--verify", "data"}).status, 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "data"));
}

// Starts a run, changes a shard under it, and gives what it ended with.
template <class Change>
Outcome train_while(const TemporaryFolder& folder, const Change& change) {
  Process process(folder, tiny_training_on("data", {"--dir=run", "--train.steps=2000", "--train.log_every=1",
                                                    "--train.eval_every=1", "--optim.schedule=constant"}));
  EXPECT_TRUE(process.wait_for("step    3/2000"));
  change();
  return process.wait();
}

TEST(TrainVerb, AShardThatIsCutOffMeanwhileIsAnErrorNotASignal) {
  const TemporaryFolder folder;
  prepare_text(folder);
  const Outcome outcome =
      train_while(folder, [&] { std::filesystem::resize_file(folder / "data/train-00000.qv", 300); });
  EXPECT_EQ(outcome.status, 1) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("data/train-00000.qv changed while it was being read"));
}

TEST(TrainVerb, AValidationShardThatTurnsToZerosIsAnError) {
  const TemporaryFolder folder;
  prepare_text(folder);
  const auto path = folder / "data/valid-00000.qv";
  const auto size = std::filesystem::file_size(path);
  const Outcome outcome = train_while(folder, [&] {
    std::filesystem::resize_file(path, 256);
    std::filesystem::resize_file(path, size);
  });
  EXPECT_EQ(outcome.status, 1) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("data/valid-00000.qv changed while it was being read"));
}

TEST(TrainVerb, GoesOnWhenItsDataSetIsOverwritten) {
  const TemporaryFolder folder;
  prepare_text(folder);
  Process process(folder, tiny_training_on("data", {"--dir=run", "--train.steps=1000000", "--train.log_every=1",
                                                    "--train.eval_every=1", "--optim.schedule=constant"}));
  ASSERT_TRUE(process.wait_for("step       3/1000000"));
  ASSERT_EQ(quaver(folder, {"data", "text/0.txt", "text/1.txt", "--out", "data", "--overwrite"}).status, 0);
  const auto log = folder / "run/metrics.jsonl";
  const auto seen = std::filesystem::file_size(log);
  for (int i = 0; i < 1000 && std::filesystem::file_size(log) < seen + 5000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GE(std::filesystem::file_size(log), seen + 5000) << "it stands still";
  process.send(SIGINT);
  EXPECT_EQ(process.wait().status, 130);
}

TEST(DataVerb, AnEmptyInputDoesNotCostTheOldDataSet) {
  const TemporaryFolder folder;
  prepare_text(folder);
  folder.write("blank.txt", " \n");
  const std::string before = contents(folder / "data/dataset.json");
  const Outcome outcome = quaver(folder, {"data", "blank.txt", "--out", "data", "--overwrite"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("no document left"));
  EXPECT_EQ(contents(folder / "data/dataset.json"), before);
  EXPECT_EQ(quaver(folder, {"data", "--verify", "data"}).status, 0);
}

}  // namespace
}  // namespace quaver::test
