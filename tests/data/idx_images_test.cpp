// IDX files: read as published, normalized, visited once per epoch; what is damaged is refused with its reason.
#include "data/idx_images.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "support/temporary_folder.h"

#include "data/expect_error.h"

namespace quaver::test {
namespace {

std::string header(char type, const std::vector<std::uint32_t>& extents) {
  std::string text{'\0', '\0', type, static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) text += static_cast<char>(extent >> shift & 0xFFU);
  }
  return text;
}

std::string bytes_of(std::size_t count, std::size_t step) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>(i * step % 256);
  return text;
}

constexpr std::uint32_t count = 7;

class IdxImagesTest : public testing::Test {
 protected:
  // Seven images of 2 × 3 pixels; the first pixel tells which it is.
  void SetUp() override {
    std::string pixels = bytes_of(count * 6, 37);
    for (std::size_t i = 0; i < count; ++i) pixels[6 * i] = static_cast<char>(10 * i);
    images = folder.write("train-images-idx3-ubyte", header(8, {count, 2, 3}) + pixels);
    labels = folder.write("train-labels-idx1-ubyte", header(8, {count}) + std::string("\0\1\2\0\1\2\0", 7));
  }

  IdxImages open(const ImageOptions& options = {}) const { return IdxImages({images, labels}, options); }
  void expect_refused(const std::string& why) const {
    expect_error([this] { open(); }, why);
  }
  void write_images(const std::string& bytes) { images = folder.write("images", bytes); }
  void write_labels(const std::string& bytes) { labels = folder.write("labels", bytes); }

  TemporaryFolder folder;
  std::filesystem::path images;
  std::filesystem::path labels;
};

TEST_F(IdxImagesTest, ReadsImagesInOrderAndSaysWhereTheyEnd) {
  const IdxImages source = open({.order = ImageOrder::once});
  EXPECT_EQ(source.pixels(), 6);
  EXPECT_EQ(source.classes(), 3);
  EXPECT_EQ(source.images(), count);
  std::vector<float> pixels(4 * 6);
  std::vector<std::int32_t> read(4);
  source.fill(1, 4, pixels.data(), read.data());
  EXPECT_THAT(read, testing::ElementsAre(1, 2, 0, -1));
  const Normalization& scale = source.normalization().front();
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_NEAR(pixels[6 * row] * scale.deviation + scale.mean, 10.0 * (4.0 + static_cast<double>(row)), 1e-3);
  }
  EXPECT_THAT(std::vector(pixels.begin() + 18, pixels.end()), testing::Each(0.0F));
}

TEST_F(IdxImagesTest, TrainingImagesHaveZeroMeanAndUnitVariance) {
  const IdxImages source = open({.order = ImageOrder::once});
  std::vector<float> pixels(count * 6);
  std::vector<std::int32_t> read(count);
  source.fill(0, count, pixels.data(), read.data());
  double sum = 0;
  double squares = 0;
  for (const float pixel : pixels) {
    sum += pixel;
    squares += static_cast<double>(pixel) * pixel;
  }
  EXPECT_NEAR(sum / (count * 6), 0, 1e-6);
  EXPECT_NEAR(squares / (count * 6), 1, 1e-6);
}

TEST_F(IdxImagesTest, ValidationTakesTheNormalizationOfTraining) {
  const IdxImages source = open({.order = ImageOrder::once, .normalization = {{5, 2}}});
  std::vector<float> pixels(6);
  std::int32_t label = -1;
  source.fill(3, 1, pixels.data(), &label);
  EXPECT_EQ(pixels[0], (30.0F - 5) / 2);
}

TEST_F(IdxImagesTest, AShuffledEpochVisitsEveryImageOnce) {
  const IdxImages source = open({.seed = 4});
  std::vector<float> pixels(count * 6);
  std::vector<std::int32_t> read(count);
  std::vector<std::vector<long>> epochs;
  for (const std::uint64_t epoch : {0U, 1U, 0U}) {
    source.fill(epoch, count, pixels.data(), read.data());
    std::vector<long>& order = epochs.emplace_back();
    for (std::size_t row = 0; row < count; ++row) {
      const Normalization& scale = source.normalization().front();
      order.push_back(std::lround(pixels[6 * row] * scale.deviation + scale.mean));
      EXPECT_EQ(read[row], order.back() / 10 % 3);
    }
    EXPECT_EQ(std::set<long>(order.begin(), order.end()).size(), count);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_EQ(epochs[0], epochs[2]);
}

TEST_F(IdxImagesTest, TheHashIsThatOfTheContent) {
  const std::uint64_t hash = open().content_hash();
  EXPECT_EQ(open({.seed = 9, .normalization = {Normalization{}}}).content_hash(), hash);
  std::string bytes = contents(images);
  bytes.back() = static_cast<char>(bytes.back() + 1);
  write_images(bytes);
  EXPECT_NE(open().content_hash(), hash);
}

TEST_F(IdxImagesTest, FindsTheFilesOfAFolder) {
  EXPECT_EQ(find_idx_files(folder.path()).train.images, images);
  EXPECT_FALSE(find_idx_files(folder.path()).valid);
  const auto valid = folder.write("t10k-images.idx3-ubyte", contents(images));
  expect_error([this] { find_idx_files(folder.path()); }, "no labels");
  folder.write("t10k-labels-idx1-ubyte", contents(labels));
  EXPECT_EQ(find_idx_files(folder.path()).valid->images, valid);
  const TemporaryFolder empty;
  expect_error([&] { find_idx_files(empty.path()); }, "no train-images-idx3-ubyte");
}

TEST_F(IdxImagesTest, RefusesHeadersThatTheFileDoesNotBearOut) {
  const std::string good = contents(images);
  for (const std::size_t length : {0U, 3U, 7U, 15U}) {
    write_images(good.substr(0, length));
    EXPECT_THROW(open(), Error) << length;
  }
  write_images(good.substr(0, good.size() - 1));
  expect_refused("announces 58 bytes and it has 57");
  write_images(good + "x");
  expect_refused("announces 58 bytes and it has 59");
  write_images(header(8, {0xFFFFFFFF, 2, 3}) + bytes_of(42, 1));
  expect_refused("announces");
  write_images(header(8, {count, 0xFFFFFFFF, 0xFFFFFFFF}) + bytes_of(42, 1));
  expect_refused("more than");
  write_images(header(8, {count, 0x10000, 0x10000, 0x10000}) + bytes_of(42, 1));
  expect_refused("more than");
  write_images(header(8, {count, 0, 3}));
  expect_refused("dimensions is 0");
  write_images(header(8, {0, 2, 3}));
  expect_refused("dimensions is 0");
}

TEST_F(IdxImagesTest, RefusesOtherKindsOfFile) {
  write_images(std::string("\x1F\x8B\x08\x08", 4) + bytes_of(50, 1));
  expect_refused("compressed");
  write_images("PNG, not IDX at all");
  expect_refused("does not begin");
  write_images(header(0x0D, {count, 2, 3}) + bytes_of(42, 1));
  expect_refused("type 0x0d");
  write_images(contents(labels));
  expect_refused("1 dimensions");
  write_images(header(8, {count, 2, 3}) + std::string(42, 'a'));
  expect_refused("all pixels are the same");
}

TEST_F(IdxImagesTest, RefusesLabelsThatAreNotOfTheImages) {
  write_labels(header(8, {count - 1}) + bytes_of(count - 1, 1));
  expect_refused("7 images");
  write_labels(header(8, {count}) + std::string(count, '\0'));
  expect_refused("all labels are 0");
  write_labels(header(8, {count}) + std::string("\0\1\2\xFF\1\2\0", 7));
  EXPECT_EQ(open().classes(), 256);
  expect_error([this] { open({.classes = 3}); }, "label 255 of image 3 is none of the 3 classes");
}

}  // namespace
}  // namespace quaver::test
