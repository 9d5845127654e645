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

TEST(TrainingData, ValidationImagesHaveTheShapeOfTrainingImages) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& split, const std::string& extents) {
    folder.write(split + "-images-idx3-ubyte", std::string("\0\0\x08\3\0\0\0\2", 8) + extents + "abcdefghijkl");
    folder.write(split + "-labels-idx1-ubyte", std::string("\0\0\x08\1\0\0\0\2\0\1", 10));
  };
  DataConfig config;
  config.kind = DataKind::idx;
  config.path = folder.path().string();
  write("train", std::string("\0\0\0\2\0\0\0\3", 8));
  write("t10k", std::string("\0\0\0\2\0\0\0\3", 8));
  EXPECT_NO_THROW(open_training_data(config, 1, 1));
  write("t10k", std::string("\0\0\0\3\0\0\0\2", 8));
  EXPECT_THROW(open_training_data(config, 1, 1), Error) << "as many pixels in another order";
}

TEST(TrainingData, GeneratedImagesAreAugmentedInTrainingAlone) {
  DataConfig config;
  config.kind = DataKind::synthetic_images;
  const TrainingData plain = open_training_data(config, 1, 1);
  config.augment_mirror = true;
  const TrainingData mirrored = open_training_data(config, 1, 1);
  constexpr Size batch = 8;
  const auto images = [](const ImageSource& source) {
    std::vector<float> pixels(static_cast<std::size_t>(batch * source.pixels()));
    std::vector<std::int32_t> labels(batch);
    source.fill(0, batch, pixels.data(), labels.data());
    return pixels;
  };
  EXPECT_NE(images(*mirrored.train_images), images(*plain.train_images));
  EXPECT_EQ(images(*mirrored.valid_images), images(*plain.valid_images));
  EXPECT_EQ(mirrored.identity, plain.identity);
  EXPECT_EQ(mirrored.best_accuracy, plain.best_accuracy);
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
