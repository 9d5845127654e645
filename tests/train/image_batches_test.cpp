// Images as a trainer's batches: those that the config names, in an order that a resumed run finds again.
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/dense_classifier.h"
#include "train/support.h"
#include "train/trainer.h"

namespace quaver::test {
namespace {

DataConfig synthetic_images() {
  DataConfig config;
  config.kind = DataKind::synthetic_images;
  config.synthetic_classes = 3;
  config.synthetic_pixels = 16;
  return config;
}

// Images of 2 × 2 pixels and their labels, all different, in the files of one split.
void write_idx(const std::filesystem::path& folder, const std::string& split, unsigned char count) {
  std::ofstream images(folder / (split + "-images-idx3-ubyte"), std::ios::binary);
  images << std::string("\0\0\x08\x03\0\0\0", 7) << count << std::string("\0\0\0\2\0\0\0\2", 8);
  std::ofstream labels(folder / (split + "-labels-idx1-ubyte"), std::ios::binary);
  labels << std::string("\0\0\x08\x01\0\0\0", 7) << count;
  for (unsigned char i = 0; i < count; ++i) {
    for (const int factor : {1, 3, 5, 7}) images << static_cast<char>(factor * (i + 1));
    labels << static_cast<char>(i % 2);
  }
}

TEST(ImageData, SyntheticImagesHaveAShapeAnIdentityAndABestLoss) {
  DataConfig config = synthetic_images();
  const TrainingData data = open_training_data(config, 1, 1);
  EXPECT_EQ(data.shape().vocab, 0);
  EXPECT_EQ(data.shape().features, 16);
  EXPECT_EQ(data.shape().classes, 3);
  EXPECT_GT(data.best_loss.value(), 0);
  EXPECT_NE(data.identity.train_hash, data.identity.valid_hash);
  EXPECT_EQ(open_training_data(config, 2, 1).identity, data.identity);  // the run's seed is not the images'
  ++config.synthetic_seed;
  EXPECT_EQ(describe_difference(data.identity, open_training_data(config, 1, 1).identity).substr(0, 21),
            "training data has ano");
}

TEST(ImageData, ReadsAFolderOfIdxFiles) {
  const TemporaryFolder folder;
  write_idx(folder.path(), "train", 5);
  DataConfig config;
  config.kind = DataKind::idx;
  config.path = folder.path().string();
  EXPECT_EQ(open_training_data(config, 1, 1).valid_images, nullptr);
  write_idx(folder.path(), "t10k", 3);
  const TrainingData data = open_training_data(config, 1, 1);
  EXPECT_EQ(data.shape().features, 4);
  EXPECT_EQ(data.shape().classes, 2);
  EXPECT_EQ(data.train_images->images(), 5U);
  EXPECT_EQ(data.valid_images->images(), 3U);
  EXPECT_FALSE(data.best_loss);
}

TEST(ImageData, NoLanguageModelTakesIt) {
  EXPECT_THROW(for_data({}, open_training_data(synthetic_images(), 1, 1).shape()), Error);
}

TEST(ImageBatches, AnyOrderGivesTheSameBatches) {
  const TrainingData data = open_training_data(synthetic_images(), 1, 1);
  const auto batches = make_batches(data);
  const BatchShape shape{4, 1};
  batches->start({.first = 6}, shape);
  batches->next();
  const auto second = std::get<FeatureBatch>(batches->next());
  BatchStorage storage;
  const auto again = std::get<FeatureBatch>(batches->training_batch(7, shape, storage));
  EXPECT_TRUE(std::ranges::equal(second.features, again.features));
  EXPECT_TRUE(std::ranges::equal(second.classes, again.classes));
  const auto valid = std::get<FeatureBatch>(batches->validation_batch(7, shape, storage));
  EXPECT_FALSE(std::ranges::equal(second.features, valid.features));
}

TEST(ImageBatches, AValidationVisitsEachImageOnce) {
  const TemporaryFolder folder;
  write_idx(folder.path(), "train", 5);
  write_idx(folder.path(), "t10k", 5);
  DataConfig config;
  config.kind = DataKind::idx;
  config.path = folder.path().string();
  const TrainingData data = open_training_data(config, 1, 1);
  const auto batches = make_batches(data);
  const BatchShape shape{2, 1};
  EXPECT_EQ(batches->validation_batches(100, shape), 3);
  EXPECT_EQ(batches->validation_batches(2, shape), 2);
  BatchStorage storage;
  Size rows = 0;
  for (std::uint64_t i = 0; i < 3; ++i) rows += rows_with_loss(batches->validation_batch(i, shape, storage));
  EXPECT_EQ(rows, 5);
}

// Five images in batches of two or in one of five: the row without an image costs nothing.
TEST(ImageBatches, RowsWithoutAnImageDoNotCount) {
  const TemporaryFolder folder;
  write_idx(folder.path(), "train", 5);
  write_idx(folder.path(), "t10k", 5);
  Config config;
  config.precision.recipe = "fp32";
  config.data.kind = DataKind::idx;
  config.data.path = folder.path().string();
  config.train.context = 1;
  const TrainingData data = open_training_data(config.data, 1, 1);
  const auto engine = make_cpu_engine(1);
  const ModelFactory make = [](const Config&) {
    return std::make_unique<DenseClassifier>(DenseShape{.features = 4, .hidden = 8, .classes = 2});
  };
  const auto validation = [&](Size batch) {
    config.train.batch = batch;
    Trainer trainer(config, make, make_batches(data), *engine, [](const std::string&) {});
    return trainer.validate(100).value();
  };
  EXPECT_EQ(validation(2).rows, 5);
  EXPECT_NEAR(validation(2).loss, validation(5).loss, 1e-6);
}

}  // namespace
}  // namespace quaver::test
