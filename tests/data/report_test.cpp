// What the report of a data set says of what was left out, and limits of what is learned and drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

#include "data/bpe.h"
#include "data/expect_error.h"
#include "data/prepare.h"
#include "data/random_tokens.h"

namespace quaver {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportOfData : public ::testing::Test {
 protected:
  // One document a line of JSON.
  PrepareReport report_of(const std::vector<std::string>& documents, PrepareOptions options = {}) {
    std::string lines;
    for (const std::string& document : documents) lines += "{\"text\":\"" + document + "\"}\n";
    options.inputs = {folder_.write("in.jsonl", lines)};
    options.output = folder_ / "set";
    options.existing = ExistingDataset::overwrite;
    return prepare(options);
  }

  TemporaryFolder folder_;
};

// The smallest shard over the largest.
TEST_F(ReportOfData, BalanceOfShards) {
  PrepareOptions options;
  options.shard_tokens = 4;
  options.valid_fraction = 0;
  EXPECT_DOUBLE_EQ(report_of({"aaaaaaaaa"}, options).shard_balance(), 0.5);
  EXPECT_DOUBLE_EQ(report_of({"aaaaaaa"}, options).shard_balance(), 1);
}

TEST_F(ReportOfData, NotesThatMoreWasLeftOutThanTaken) {
  PrepareOptions options;
  options.min_bytes = 3;
  EXPECT_THAT(report_of({"aaa", "bbb", "a", "b"}, options).notes, Not(Contains(HasSubstr("left out"))));
  EXPECT_THAT(report_of({"aaa", "bbb", "a", "b", "c"}, options).notes,
              Contains("more documents were left out (3) than taken (2)"));
}

TEST_F(ReportOfData, WhatIsLeftOutIsCountedWithItsFirst) {
  const PrepareReport report = report_of({"one", "two", "two", "", "one"});
  const SkippedDocuments& twice = report.skipped[static_cast<std::size_t>(SkipReason::duplicate)];
  EXPECT_EQ(twice.count, 2U);
  EXPECT_THAT(twice.example, HasSubstr("in.jsonl:3"));
  const SkippedDocuments& empty = report.skipped[static_cast<std::size_t>(SkipReason::empty)];
  EXPECT_EQ(empty.count, 1U);
  EXPECT_THAT(empty.example, HasSubstr("in.jsonl:4"));
  PrepareOptions keep;
  keep.duplicates = Duplicates::keep;
  EXPECT_EQ(report_of({"one", "two", "two", "", "one"}, keep).documents(), 4U);
}

// Windows of random tokens share nothing: the last of one is not the first of the next.
TEST(RandomWindows, DoNotOverlap) {
  const RandomTokens source(1 << 20, 3);
  constexpr std::int64_t rows = 50, context = 5;
  std::vector<std::int32_t> inputs(rows * context), targets(rows * context);
  source.fill(0, rows, context, inputs.data(), targets.data());
  std::set<std::int32_t> distinct(inputs.begin(), inputs.end());
  for (std::int64_t row = 0; row < rows; ++row) distinct.insert(targets[(row + 1) * context - 1]);
  EXPECT_GE(distinct.size(), rows * (context + 1) - 2U);
}

// Pieces of one byte teach nothing, and those of more than 128 bytes are not worth it.
TEST(BpeTraining, LearnsFromPiecesOfTwoTo128Bytes) {
  const auto learned = [](std::size_t length) {
    const std::string word(length, 'x');
    return train_bpe(std::vector<std::string>{word, word}, 300)->vocab_size() > 257;
  };
  EXPECT_FALSE(learned(1));
  EXPECT_TRUE(learned(2));
  EXPECT_TRUE(learned(128));
  EXPECT_FALSE(learned(129));
  EXPECT_EQ(train_bpe(std::vector<std::string>{"ab ab"}, 257)->vocab_size(), 257);
  expect_error([] { train_bpe(std::vector<std::string>{"ab ab"}, 256); }, "a BPE vocabulary of 256 tokens");
}

}  // namespace
}  // namespace quaver
