// What a run is told about the data it opened.
#include "train/training_data.h"

#include <gtest/gtest.h>

#include "data/shard.h"
#include "train/support.h"

namespace quaver::test {
namespace {

std::filesystem::path write_shard(const std::filesystem::path& path, std::int32_t first, ShardFormat format) {
  std::vector<std::int32_t> ids(200);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = (first + static_cast<std::int32_t>(i)) % 257;
  ShardWriter writer(path, format, 257, make_byte_tokenizer()->hash());
  writer.append(ids);
  writer.finish();
  return path;
}

TEST(TrainingData, KnowsItsIdentity) {
  const TemporaryFolder folder;
  DataConfig config;
  config.kind = DataKind::dataset;
  config.path = write_shard(folder.path() / "a.qv", 0, ShardFormat::quaver).string();
  const DataIdentity alone = open_training_data(config, 1, 16).identity;
  EXPECT_EQ(alone.train_tokens, 200u);
  EXPECT_EQ(alone.valid_hash, "");
  EXPECT_EQ(alone.vocab_size, 257);
  EXPECT_EQ(alone.tokenizer_hash, fmt::format("{:016x}", make_byte_tokenizer()->hash()));

  config.path = write_shard(folder.path() / "moved.qv", 0, ShardFormat::quaver).string();
  EXPECT_EQ(open_training_data(config, 2, 32).identity, alone);  // nor do seed and context matter
  config.tokenizer = "bytes";
  EXPECT_EQ(open_training_data(config, 1, 16).identity, alone);

  config.valid_path = write_shard(folder.path() / "valid.bin", 9, ShardFormat::llmc).string();
  const DataIdentity validated = open_training_data(config, 1, 16).identity;
  EXPECT_EQ(validated.train_hash, alone.train_hash);
  EXPECT_EQ(describe_difference(alone, validated), "validation data: none → some");
}

TEST(TrainingData, RefusesAShardOfAnotherTokenizer) {
  const TemporaryFolder folder;
  DataConfig config;
  config.kind = DataKind::dataset;
  config.tokenizer = "bytes";
  config.path = write_shard(folder.path() / "a.qv", 0, ShardFormat::quaver).string();
  EXPECT_NO_THROW(open_training_data(config, 1, 16));
  ShardWriter other(folder.path() / "b.qv", ShardFormat::quaver, 257, 99);  // the same vocabulary, other tokens
  other.append(std::vector<std::int32_t>(200, 1));
  other.finish();
  config.valid_path = (folder.path() / "b.qv").string();
  EXPECT_THROW(open_training_data(config, 1, 16), Error);
  std::swap(config.path, config.valid_path);
  EXPECT_THROW(open_training_data(config, 1, 16), Error);
}

TEST(TrainingData, SyntheticTextHasAnIdentityToo) {
  DataConfig config;
  config.kind = DataKind::synthetic;
  const DataIdentity first = open_training_data(config, 1, 16).identity;
  EXPECT_NE(first.train_hash, first.valid_hash);
  EXPECT_EQ(first.tokenizer_hash, "");
  EXPECT_EQ(open_training_data(config, 2, 16).identity, first);  // the run's seed is not the text's
  ++config.synthetic_seed;
  EXPECT_NE(open_training_data(config, 1, 16).identity, first);
}

}  // namespace
}  // namespace quaver::test
