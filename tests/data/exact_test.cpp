// Figures and rules of data sets, by hand: lengths of documents, globs, vocabularies of shards, the best loss of
// generated text, where shards end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "support/temporary_folder.h"

#include "data/dataset.h"
#include "data/documents.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "data/synthetic.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;

// Documents of 1 to `count` bytes; as bytes and an end of text they have 2 to `count` + 1 tokens.
PrepareReport of_lengths(const TemporaryFolder& folder, int count, const std::function<void(PrepareOptions&)>& change) {
  std::string lines;
  for (int i = 1; i <= count; ++i) {
    lines += R"({"text": ")" + std::string(static_cast<std::size_t>(i), static_cast<char>('a' + i % 26)) + "\"}\n";
  }
  folder.write("in.jsonl", lines);
  PrepareOptions options;
  options.inputs = {folder / "in.jsonl"};
  options.output = folder / "out";
  options.valid_fraction = 0;
  change(options);
  return prepare(options);
}

TEST(Lengths, AreThoseOfTokensWithTheEndOfText) {
  const TemporaryFolder folder;
  const LengthDistribution lengths = of_lengths(folder, 10, [](PrepareOptions&) {}).lengths;
  EXPECT_EQ(lengths.min, 2U);
  EXPECT_EQ(lengths.median, 6U);  // the fifth of 2, 3 … 11
  EXPECT_EQ(lengths.p90, 10U);    // the ninth
  EXPECT_EQ(lengths.max, 11U);
  EXPECT_DOUBLE_EQ(lengths.mean, 6.5);
  EXPECT_THAT(lengths.histogram, ElementsAre(0, 2, 4, 4));  // 2-3, 4-7, 8-11
}

TEST(Shards, AllButTheLastAreFull) {
  const TemporaryFolder folder;
  const PrepareReport report = of_lengths(folder, 10, [](PrepareOptions& options) { options.shard_tokens = 20; });
  EXPECT_EQ(report.train_tokens, 65U);
  std::vector<std::uint64_t> sizes;
  for (const WrittenShard& shard : report.train_shards) sizes.push_back(shard.tokens);
  EXPECT_THAT(sizes, ElementsAre(20, 20, 20, 5));
  EXPECT_EQ(open_dataset(folder / "out").train_tokens, 65U);
}

TEST(Shards, ExactlyFullLeavesNoEmptyOne) {
  const TemporaryFolder folder;
  const PrepareReport report = of_lengths(folder, 10, [](PrepareOptions& options) { options.shard_tokens = 13; });
  EXPECT_EQ(report.train_shards.size(), 5U);
}

TEST(Report, CountsTokensAndBytes) {
  const TemporaryFolder folder;
  const PrepareReport report = of_lengths(folder, 4, [](PrepareOptions&) {});
  EXPECT_EQ(report.bytes, 10U);
  EXPECT_EQ(report.train_documents, 4U);
  EXPECT_EQ(report.tokens_used, 5);  // four letters and the end of text
  ASSERT_EQ(report.frequent.size(), 5U);
  EXPECT_EQ(report.frequent[0].count, 4U);  // "eeee" before the four ends of text, whose id is larger
  EXPECT_EQ(report.frequent[0].text, "e");
  EXPECT_EQ(report.frequent[4].count, 1U);
}

TEST(Glob, StarsAndQuestionMarksStayWithinAFolder) {
  EXPECT_TRUE(matches_glob("a?c", "abc"));
  EXPECT_FALSE(matches_glob("x/a?c", "x/a/c"));
  EXPECT_FALSE(matches_glob("a?c", "ac"));
  EXPECT_TRUE(matches_glob("*.txt", "notes.txt"));
  EXPECT_TRUE(matches_glob("*.txt", "folder/notes.txt"));  // without a slash: of the name alone
  EXPECT_TRUE(matches_glob("folder/*.txt", "folder/notes.txt"));
  EXPECT_FALSE(matches_glob("folder/*.txt", "folder/below/notes.txt"));
  EXPECT_FALSE(matches_glob("f?lder/n*", "folder/below/n"));
  EXPECT_TRUE(matches_glob("**/*.txt", "folder/below/notes.txt"));
  EXPECT_TRUE(matches_glob("**/*.txt", "notes.txt"));
  EXPECT_FALSE(matches_glob("*.txt", "notes.txt.gz"));
  EXPECT_FALSE(matches_glob("notes", "notes.txt"));
}

void write_shard(const std::filesystem::path& path, int vocab, std::uint64_t tokenizer, int tokens) {
  ShardWriter writer(path, ShardFormat::quaver, vocab, tokenizer);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  writer.append(ids);
  writer.finish();
}

TEST(DatasetShards, OfAnotherVocabularyAreRefused) {
  const TemporaryFolder folder;
  of_lengths(folder, 10, [](PrepareOptions&) {});
  const Dataset before = open_dataset(folder / "out");
  const std::uint64_t hash = before.tokenizer->hash();
  write_shard(before.train[0], before.vocab_size, hash, 65);
  EXPECT_EQ(open_dataset(folder / "out").train_tokens, 65U);
  write_shard(before.train[0], before.vocab_size + 1, hash, 65);
  EXPECT_THROW(open_dataset(folder / "out"), Error);
  write_shard(before.train[0], before.vocab_size, hash + 1, 65);
  EXPECT_THROW(open_dataset(folder / "out"), Error);
  write_shard(before.train[0], before.vocab_size, hash, 64);
  EXPECT_THROW(open_dataset(folder / "out"), Error);
}

// A window of context + 1 tokens, each beginning with the last of the one before.
TEST(Windows, OfAShard) {
  const TemporaryFolder folder;
  write_shard(folder / "a.qv", 100, 1, 21);
  write_shard(folder / "b.qv", 100, 1, 20);
  const std::vector<std::filesystem::path> both{folder / "a.qv", folder / "b.qv"};
  const ShardSource source(both, {.order = WindowOrder::sequential, .seed = 1, .vocab_size = 0});
  EXPECT_EQ(source.tokens(), 41U);
  EXPECT_EQ(source.windows(10), 3U);  // two of the first, one of the second, which lacks a token for another
  EXPECT_EQ(source.windows(20), 1U);
  EXPECT_EQ(source.windows(21), 0U);
  std::vector<std::int32_t> inputs(30), targets(30);
  source.fill(0, 3, 10, inputs.data(), targets.data());
  EXPECT_EQ(inputs[0], 0);
  EXPECT_EQ(targets[0], 1);
  EXPECT_EQ(inputs[10], 10);
  EXPECT_EQ(targets[19], 20);
  EXPECT_EQ(inputs[20], 0);  // the second shard
  source.fill(1, 3, 10, inputs.data(), targets.data());
  EXPECT_EQ(inputs[10], 10);  // the next epoch
}

// The first prediction of a window has less to go by than the others.
TEST(BestLoss, IsTheMeanOverAWindow) {
  const SyntheticSource source({.kind = SyntheticKind::skip_markov, .vocab_size = 16, .seed = 3, .stream = 0});
  const double first = source.best_loss(1);
  const double others = source.best_loss(1'000'000'000);
  EXPECT_GT(first, others + 0.01);
  EXPECT_NEAR(3 * source.best_loss(3), first + 2 * others, 1e-6);
  EXPECT_NEAR(10 * source.best_loss(10), first + 9 * others, 1e-6);
  EXPECT_THROW(source.best_loss(0), Error);
}

}  // namespace
}  // namespace quaver
