// CIFAR's binary files: planes become pixels, files follow each other, and what is damaged is refused with its reason.
#include "data/cifar_images.h"

#include <cmath>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

#include "data/expect_error.h"

namespace quaver::test {
namespace {

// Channel c of pixel p of image i has byte (i + 7 · p + 50 · c) mod 256.
std::string record(int image, const std::string& labels) {
  std::string bytes = labels;
  for (int channel = 0; channel < 3; ++channel) {
    for (int pixel = 0; pixel < 1024; ++pixel) bytes += static_cast<char>((image + 7 * pixel + 50 * channel) % 256);
  }
  return bytes;
}

struct CifarBatch {
  CifarBatch(const ImageSource& source, std::uint64_t index, std::int64_t batch)
      : pixels(static_cast<std::size_t>(batch * source.pixels())), labels(static_cast<std::size_t>(batch)) {
    source.fill(index, batch, pixels.data(), labels.data());
  }
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
};

const ImageOptions as_stored{.order = ImageOrder::once, .normalization = std::vector<Normalization>(3)};

TEST(CifarImages, PlanesBecomePixelsAndFilesFollowEachOther) {
  const TemporaryFolder folder;
  folder.write("data_batch_1.bin", record(0, "\3") + record(1, "\1"));
  folder.write("data_batch_2.bin", record(2, "\2"));
  folder.write("test_batch.bin", record(3, "\1"));
  const CifarFiles files = find_cifar_files(folder.path());
  ASSERT_EQ(files.train.size(), 2U);
  ASSERT_EQ(files.valid.size(), 1U);
  const CifarImages source(files.train, files.label_bytes, as_stored);
  EXPECT_EQ(source.images(), 3U);
  EXPECT_EQ(source.classes(), 4);
  EXPECT_EQ(source.shape().height, 32);
  EXPECT_EQ(source.shape().channels, 3);
  const CifarBatch batch(source, 0, 4);
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{3, 1, 2, -1}));
  for (const int image : {0, 1, 2}) {
    for (const int pixel : {0, 1, 33, 1023}) {
      for (int channel = 0; channel < 3; ++channel) {
        EXPECT_EQ(batch.pixels[static_cast<std::size_t>((image * 1024 + pixel) * 3 + channel)],
                  static_cast<float>((image + 7 * pixel + 50 * channel) % 256));
      }
    }
  }
}

TEST(CifarImages, OfTwoLabelsTheFineOneIsTheClass) {
  const TemporaryFolder folder;
  folder.write("train.bin", record(0, "\5\7") + record(1, "\5\11"));
  const CifarFiles files = find_cifar_files(folder.path());
  EXPECT_TRUE(files.valid.empty());
  const CifarImages source(files.train, files.label_bytes, as_stored);
  EXPECT_EQ(CifarBatch(source, 0, 2).labels, (std::vector<std::int32_t>{7, 9}));
}

TEST(CifarImages, EachChannelIsNormalized) {
  const TemporaryFolder folder;
  const auto file = folder.write("data_batch_1.bin", record(0, std::string(1, '\0')) + record(9, "\1"));
  const CifarImages source({file}, 1, {.order = ImageOrder::once});
  const CifarBatch batch(source, 0, 2);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    double sum = 0;
    double squares = 0;
    for (std::size_t i = channel; i < batch.pixels.size(); i += 3) {
      sum += batch.pixels[i];
      squares += std::pow(batch.pixels[i], 2);
    }
    EXPECT_NEAR(sum / 2048, 0, 1e-5);
    EXPECT_NEAR(squares / 2048, 1, 1e-5);
  }
}

TEST(CifarImages, TheHashIsThatOfImagesAndLabels) {
  const TemporaryFolder folder;
  const auto hash = [&](const std::string& bytes) {
    return CifarImages({folder.write("a.bin", bytes)}, 1, as_stored).content_hash();
  };
  const std::uint64_t first = hash(record(0, "\1") + record(1, "\2"));
  EXPECT_EQ(hash(record(0, "\1") + record(1, "\2")), first);
  EXPECT_NE(hash(record(0, "\1") + record(1, "\3")), first);
  EXPECT_NE(hash(record(0, "\1") + record(2, "\2")), first);
}

TEST(CifarImages, DamagedFilesAreNamed) {
  const TemporaryFolder folder;
  expect_error([&] { find_cifar_files(folder.path()); }, "has neither data_batch_1.bin");
  const auto open = [&](const std::string& bytes, const ImageOptions& options) {
    CifarImages({folder.write("data_batch_1.bin", bytes)}, 1, options);
  };
  expect_error([&] { open(record(0, "\1") + "x", as_stored); }, "data_batch_1.bin: its 3074 bytes are no whole number");
  expect_error([&] { open("", as_stored); }, "its 0 bytes");
  expect_error([&] { open(record(0, std::string(1, '\0')), as_stored); }, "all labels are 0");
  expect_error([&] { open(record(0, "\1") + record(0, "\12"), as_stored); },
               "data_batch_1.bin: label 10 of image 1 is none of the 10 classes");
  expect_error([&] { CifarImages({folder.write("train.bin", record(0, "\1\144"))}, 2, as_stored); },
               "train.bin: label 100 of image 0 is none of the 100 classes");
  expect_error([&] { open("\1" + std::string(3072, 'x'), {}); }, "all pixels are the same");
}

}  // namespace
}  // namespace quaver::test
