// Folders of images: every format gives the same pixels, classes are named by folders, and hostile files are refused.
#include "data/folder_images.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

#include "data/expect_error.h"
#include "data/image_file.h"

namespace quaver::test {
namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// 2 × 2 pixels: red, green, blue and (10, 20, 30); and 1 to 4 in gray.
const std::string color_png = from_hex(
    "89504e470d0a1a0a0000000d4948445200000002000000020802000000fdd49a73000000134944415478da63f8cfc0c000c20cffb9"
    "44e4001a58033ae2926ed90000000049454e44ae426082");
const std::string gray_png = from_hex(
    "89504e470d0a1a0a0000000d494844520000000200000002080000000057dd52f80000000e4944415478da6360646260660100001d"
    "000b10dd1c700000000049454e44ae426082");
const std::vector<std::uint8_t> color_pixels{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30};

std::string portable(const std::string& header, std::vector<std::uint8_t> pixels) {
  return header + std::string(pixels.begin(), pixels.end());
}

std::vector<std::uint8_t> read(const std::filesystem::path& path, const ImageShape& shape) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape.pixels()));
  read_image(path, shape, pixels);
  return pixels;
}

TEST(ImageFile, EveryFormatGivesItsPixels) {
  const TemporaryFolder folder;
  const ImageShape color{2, 2, 3};
  const ImageShape gray{2, 2, 1};
  EXPECT_EQ(read(folder.write("a.png", color_png), color), color_pixels);
  EXPECT_EQ(read(folder.write("a.PPM", portable("P6\n# a comment\n2 2\n255\n", color_pixels)), color), color_pixels);
  EXPECT_EQ(read(folder.write("b.png", gray_png), gray), (std::vector<std::uint8_t>{1, 2, 3, 4}));
  EXPECT_EQ(read(folder.write("b.pgm", portable("P5 2 2 255\n", {1, 2, 3, 4})), gray),
            (std::vector<std::uint8_t>{1, 2, 3, 4}));
  const std::vector<std::uint8_t> repeated{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4};
  EXPECT_EQ(read(folder / "b.png", color), repeated);
  EXPECT_EQ(read(folder / "b.pgm", color), repeated);
  EXPECT_EQ(image_shape_of(folder / "a.png").channels, 3);
  EXPECT_EQ(image_shape_of(folder / "b.png").channels, 1);
}

TEST(ImageFile, ValuesAreTheStoredOnesAndTransparentOnesLieOnBlack) {
  const TemporaryFolder folder;
  const std::string interlaced_16_bits = from_hex(  // 2 × 3, every byte twice; opaque but for pixels 2, 3 and 5
      "89504e470d0a1a0a0000000d49484452000000020000000310060000019e7d32540000003749444154789c636060e0e2fa0f040c9c9c1c1c"
      "ecec40063373430398c1c6c6cacac2626ccc1015c5c8c8c4c4c070e2444a8a91514303008e890e4b3c0eaeff0000000049454e44ae4260"
      "82");
  EXPECT_EQ(read(folder.write("a.png", interlaced_16_bits), {3, 2, 3}),
            (std::vector<std::uint8_t>{0, 10, 255, 3, 128, 7, 0, 0, 0, 100, 50, 25, 9, 8, 7, 1, 1, 1}));
  const std::string linear = from_hex(  // 1 to 4 in gray with a gamma of 1
      "89504e470d0a1a0a0000000d494844520000000200000002080000000057dd52f80000000467414d41000186a031e8965f0000000e494441"
      "54789c6360646260660100001d000b0db552060000000049454e44ae426082");
  EXPECT_EQ(read(folder.write("b.png", linear), {2, 2, 1}), (std::vector<std::uint8_t>{1, 2, 3, 4}));
}

TEST(ImageFile, HostileFilesAreRefusedWithTheirReason) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* name, const std::string& bytes, const std::string& why) {
    const auto path = folder.write(name, bytes);
    expect_error([&] { read(path, {2, 2, 3}); }, why);
  };
  refused("a.png", "", "a.png: the file is empty");
  refused("a.png", "not a png", "a.png: ");
  refused("a.png", color_png.substr(0, 50), "a.png: ");
  for (std::size_t at = 8; at < color_png.size() - 12; ++at) {  // any damage: an Error or an image, never more
    std::string damaged = color_png;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    try {
      read(folder.write("a.png", damaged), {2, 2, 3});
    } catch (const Error&) {
    }
  }
  refused("a.ppm", "", "a.ppm: the file is empty");
  refused("a.ppm", "P3", "begins neither with P6 nor with P5");
  refused("a.ppm", "P6", "does not have three numbers");
  refused("a.ppm", "P6 2 2", "does not have three numbers");
  refused("a.ppm", "P6 2 2 255", "ends before its last pixel");
  refused("a.ppm", "P6 -2 2 255 ", "does not have three numbers");
  refused("a.ppm", "P6 99999999999999999999 2 255 ", "does not have three numbers");
  refused("a.ppm", "P6 4294967297 4294967297 255 ", "are more than");
  refused("a.ppm", "P6 0 2 255 ", "the image is empty");
  refused("a.ppm", portable("P6 2 2 65535 ", color_pixels), "largest value is 65535");
  refused("a.ppm", portable("P6 2 2 255 ", color_pixels).substr(0, 20), "ends before its last pixel");
  refused("a.ppm", portable("P6 1 4 255 ", color_pixels), "4 × 1 pixels, where the other images have 2 × 2");
  folder.write("c.png", color_png);
  expect_error([&] { read(folder / "c.png", {2, 2, 1}); }, "it has colors");
  const std::string gray(most_image_values, 'x');
  folder.write("large.pgm", "P5 512 512 255 " + gray);
  EXPECT_EQ(image_shape_of(folder / "large.pgm").pixels(), most_image_values);
  expect_error([&] { read(folder / "large.pgm", {512, 512, 3}); }, "no room for colors");
  refused("a.ppm", "P6 512 512 255 " + gray + gray + gray,
          "512 × 512 pixels in 3 channels are more than 262144 values");
}

class FolderImagesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder.write("train/dogs/1.png", color_png);
    folder.write("train/cats/1.ppm", portable("P6 2 2 255\n", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    folder.write("train/cats/2.png", gray_png);
    folder.write("valid/dogs/x.png", color_png);
    folder.write("valid/cats/x.png", gray_png);
  }

  const ImageOptions as_stored{.order = ImageOrder::once, .normalization = std::vector<Normalization>(3)};
  TemporaryFolder folder;
};

TEST_F(FolderImagesTest, ClassesAreTheFoldersInTheOrderOfTheirNames) {
  const ImageFolders folders = find_image_folders(folder.path());
  EXPECT_EQ(folders.train, folder / "train");
  ASSERT_TRUE(folders.valid);
  const FolderImages train(folders.train, as_stored);
  EXPECT_EQ(train.class_names(), (std::vector<std::string>{"cats", "dogs"}));
  EXPECT_EQ(train.shape().channels, 3) << "one of them has colors";
  std::vector<float> pixels(4 * 12);
  std::vector<std::int32_t> labels(4);
  train.fill(0, 4, pixels.data(), labels.data());
  EXPECT_EQ(labels, (std::vector<std::int32_t>{0, 0, 1, -1}));
  EXPECT_EQ(pixels[1], 2);
  EXPECT_EQ(pixels[12], 1);
  EXPECT_EQ(pixels[24], 255);
  const FolderImages valid(*folders.valid, as_stored, &train);
  EXPECT_EQ(valid.images(), 2U);
  EXPECT_EQ(valid.classes(), 2);
  EXPECT_FALSE(find_image_folders(folder / "train").valid) << "folders of classes alone";
}

TEST_F(FolderImagesTest, ValidationMayLackClasses) {
  std::filesystem::remove_all(folder / "valid/cats");
  const FolderImages train(folder / "train", as_stored);
  const FolderImages valid(folder / "valid", as_stored, &train);
  std::vector<float> pixels(12);
  std::int32_t label = -1;
  valid.fill(0, 1, pixels.data(), &label);
  EXPECT_EQ(label, 1);
}

TEST_F(FolderImagesTest, AClassMayBeOfTrains) {
  const TemporaryFolder vehicles;
  vehicles.write("train/1.png", gray_png);
  vehicles.write("car/1.png", gray_png);
  EXPECT_EQ(find_image_folders(vehicles.path()).train, vehicles.path());
  std::filesystem::create_directory(vehicles / "valid");
  EXPECT_EQ(find_image_folders(vehicles.path()).train, vehicles / "train") << "images without classes";
}

TEST_F(FolderImagesTest, AChannelInWhichNothingVariesIsZero) {
  const TemporaryFolder yellow;
  yellow.write("a/1.ppm", portable("P6 2 1 255\n", {10, 30, 7, 20, 30, 7}));
  yellow.write("b/1.ppm", portable("P6 2 1 255\n", {10, 60, 7, 20, 60, 7}));
  const FolderImages images(yellow.path(), {.order = ImageOrder::once});
  std::vector<float> pixels(12);
  std::vector<std::int32_t> labels(2);
  images.fill(0, 2, pixels.data(), labels.data());
  EXPECT_EQ(pixels, (std::vector<float>{-1, -1, 0, 1, -1, 0, -1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(images.normalization()[2].deviation, 15) << "of the channel that varies most";
}

TEST_F(FolderImagesTest, WhatDoesNotFitIsNamed) {
  const auto open = [&] { FolderImages(folder / "train", as_stored); };
  folder.write("train/dogs/2.ppm", portable("P6 1 1 255\n", {1, 2, 3}));
  expect_error(open, "1 × 1 pixels, where the other images have 2 × 2");
  std::filesystem::remove(folder / "train/dogs/2.ppm");
  folder.write("train/dogs/list.txt", "x");
  expect_error(open, "list.txt is neither a PNG nor a PPM or PGM file");
  std::filesystem::remove(folder / "train/dogs/list.txt");
  std::filesystem::create_directory(folder / "train/birds");
  expect_error(open, "birds has no images");
  std::filesystem::remove(folder / "train/birds");
  std::filesystem::create_symlink("birds", folder / "train/birds");
  expect_error(open, "birds cannot be read");
  std::filesystem::remove(folder / "train/birds");
  EXPECT_NO_THROW(open());
  const FolderImages train(folder / "train", as_stored);
  folder.write("valid/birds/1.png", gray_png);
  expect_error([&] { FolderImages(folder / "valid", as_stored, &train); }, "birds is no class");
  expect_error([&] { FolderImages(folder / "train/dogs", as_stored); }, "has 0 folders of images");
  expect_error([&] { FolderImages(folder / "nowhere", as_stored); }, "cannot be read");
}

}  // namespace
}  // namespace quaver::test
