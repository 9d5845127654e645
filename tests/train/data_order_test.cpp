// In which order a run reads the data it opened, what it checks of it, and what text it makes up.
#include <algorithm>
#include <gmock/gmock.h>
#include <numeric>

#include "data/prepare.h"
#include "data/shard.h"
#include "quaver/error.h"
#include "train/support.h"
#include "train/training_data.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Ascending tokens below 200: a window's first token says where in the text it lies.
std::string counting_shard(const fs::path& path, std::uint64_t tokenizer_hash, std::size_t count = 200) {
  std::vector<std::int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  ShardWriter writer(path, ShardFormat::quaver, 257, tokenizer_hash);
  writer.append(ids);
  writer.finish();
  return path.string();
}

std::vector<std::int32_t> first_tokens(const TokenSource& source, Size context) {
  const auto windows = static_cast<std::int64_t>(source.windows(context));
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(windows * context));
  std::vector<std::int32_t> targets(inputs.size());
  source.fill(0, windows, context, inputs.data(), targets.data());
  std::vector<std::int32_t> first;
  for (std::int64_t row = 0; row < windows; ++row) first.push_back(inputs[static_cast<std::size_t>(row * context)]);
  return first;
}

class DataOrder : public testing::Test {
 protected:
  DataOrder() {
    config_.kind = DataKind::dataset;
    config_.tokenizer = "bytes";
  }

  TemporaryFolder folder_;
  DataConfig config_;
};

TEST_F(DataOrder, TrainingTextIsShuffledByTheSeedAndValidationTextIsNot) {
  const std::uint64_t hash = make_byte_tokenizer()->hash();
  config_.path = counting_shard(folder_.path() / "a.qv", hash);
  config_.valid_path = counting_shard(folder_.path() / "b.qv", hash);
  const TrainingData data = open_training_data(config_, 1, 16);
  EXPECT_TRUE(std::ranges::is_sorted(first_tokens(*data.valid, 16)));
  const auto order = first_tokens(*data.train, 16);
  EXPECT_FALSE(std::ranges::is_sorted(order));
  EXPECT_EQ(order.size(), 12U) << "each window once";
  EXPECT_EQ(first_tokens(*open_training_data(config_, 1, 16).train, 16), order);
  EXPECT_NE(first_tokens(*open_training_data(config_, 2, 16).train, 16), order);
  EXPECT_EQ(data.vocab, 257);
}

TEST_F(DataOrder, OfAPreparedFolderIsTheSame) {
  for (int i = 0; i < 10; ++i) {
    std::ofstream file(folder_.path() / ("text" + std::to_string(i) + ".txt"));
    for (int c = 0; c < 40; ++c) file << static_cast<char>('0' + i) << static_cast<char>('!' + c);
  }
  const fs::path output = folder_.path() / "prepared";
  PrepareOptions options;
  options.inputs = {folder_.path()};
  options.output = output;
  options.valid_fraction = 0.5;
  prepare(options);
  config_.path = output.string();
  config_.tokenizer.clear();
  const TrainingData data = open_training_data(config_, 1, 8);
  ASSERT_NE(data.valid, nullptr);
  ASSERT_NE(data.tokenizer, nullptr);
  EXPECT_EQ(data.vocab, data.tokenizer->vocab_size());
  const auto in_order = [](const TokenSource& source) {  // rows go on where the row before ended
    const auto windows = static_cast<std::int64_t>(source.windows(8));
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(windows * 8)), targets(inputs.size());
    source.fill(0, windows, 8, inputs.data(), targets.data());
    bool follows = windows > 3;
    for (std::size_t i = 8; i < inputs.size(); i += 8) follows = follows && targets[i - 1] == inputs[i];
    return follows;
  };
  EXPECT_TRUE(in_order(*data.valid));
  EXPECT_FALSE(in_order(*data.train));
  EXPECT_EQ(data.identity.train_tokens, data.train->tokens());
  EXPECT_EQ(data.identity.valid_tokens, data.valid->tokens());

  config_.valid_path = counting_shard(folder_.path() / "own.qv", data.tokenizer->hash());
  const TrainingData with_own = open_training_data(config_, 1, 8);
  EXPECT_EQ(with_own.valid->tokens(), 200U) << "what the config names goes before what the folder has";
}

TEST_F(DataOrder, AShardThatNamesNoTokenizerGoesWithAny) {
  config_.path = counting_shard(folder_.path() / "a.qv", 0);
  EXPECT_NO_THROW(open_training_data(config_, 1, 16));
}

TEST_F(DataOrder, OneSequenceIsEnoughAndLessIsNot) {
  config_.path = counting_shard(folder_.path() / "a.qv", 0, 33);
  EXPECT_NO_THROW(open_training_data(config_, 1, 32)) << "and the token after it";
  try {
    open_training_data(config_, 1, 33);
    FAIL() << "it was opened";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the training data has 33 tokens: not one sequence of 33"));
  }
  config_.valid_path = config_.path;
  config_.path = counting_shard(folder_.path() / "b.qv", 0, 100);
  try {
    open_training_data(config_, 1, 40);
    FAIL() << "it was opened";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the validation data has 33 tokens"));
  }
}

TEST_F(DataOrder, WithoutAPathThereIsNothingToTrainOn) { EXPECT_THROW(open_training_data(config_, 1, 16), Error); }

TEST_F(DataOrder, SyntheticTextIsThatOfItsSeedAndValidatedOnOther) {
  config_.kind = DataKind::synthetic;
  config_.synthetic_vocab = 48;
  config_.synthetic_seed = 3;
  const auto batch_of = [](const TokenSource& source, std::uint64_t index) {
    std::vector<std::int32_t> inputs(64), targets(64);
    source.fill(index, 4, 16, inputs.data(), targets.data());
    return inputs;
  };
  const TrainingData data = open_training_data(config_, 1, 16);
  EXPECT_EQ(data.vocab, 48);
  EXPECT_NE(batch_of(*data.train, 0), batch_of(*data.valid, 0));
  EXPECT_EQ(batch_of(*open_training_data(config_, 9, 16).train, 2), batch_of(*data.train, 2));
  config_.synthetic_seed = 4;
  EXPECT_NE(batch_of(*open_training_data(config_, 1, 16).train, 0), batch_of(*data.train, 0));
  ASSERT_TRUE(data.best_loss.has_value());
  EXPECT_GT(*data.best_loss, 0);
}

}  // namespace
}  // namespace quaver::test
