#include "engine/gemm_cache_file.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace quaver {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

GemmChoices two_choices() {
  GemmChoice first;
  for (std::size_t i = 0; i < first.algorithm.size(); ++i) first.algorithm[i] = static_cast<std::uint8_t>(255 - 3 * i);
  first.workspace = gemm_workspace_limit;
  first.microseconds = 12.5F;
  return {{"e4m3 64x64T * e4m3 64x64N", first}, {"f32", GemmChoice{}}};
}

class GemmCacheFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("quaver_gemm_cache_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(GemmCacheFile, WhatIsWrittenIsRead) {
  ASSERT_TRUE(write_gemm_choices(folder_ / "new" / "gemm.txt", two_choices()));
  EXPECT_EQ(read_gemm_choices(folder_ / "new" / "gemm.txt"), two_choices());
}

TEST_F(GemmCacheFile, DamagedLinesArePassedOver) {
  const std::string good = render_gemm_choices(two_choices());
  const std::string algorithm(128, 'a');
  for (const std::string& bad :
       {std::string("no fields\n"), "\t" + algorithm + "\t1\t1\n", "k\t" + algorithm + "\t67108865\t1\n",
        "k\t" + algorithm + "\t-1\t1\n", "k\t" + algorithm + "\t1\t1\t1\n", "k\t" + algorithm.substr(1) + "z\t1\t1\n",
        "k\t" + algorithm + "\t1\t4294967296\n", std::string("\0\n", 2)}) {
    EXPECT_EQ(parse_gemm_choices(bad + good), two_choices()) << bad;
  }
  EXPECT_THAT(parse_gemm_choices(std::string(5000, 'x') + "\n" + good), IsEmpty()) << "a line that is none of ours";
  EXPECT_EQ(parse_gemm_choices(good.substr(0, good.size() - 1)).size(), 1U) << "the last line is cut off";
}

TEST_F(GemmCacheFile, WhatIsNoFileIsEmptyAndNotWaitedFor) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  std::ofstream(folder_ / "huge").put('x');
  fs::resize_file(folder_ / "huge", std::uintmax_t{100} << 30U);  // sparse
  for (const fs::path& path : {folder_ / "pipe", folder_, folder_ / "none", folder_ / "huge", fs::path("/dev/zero")}) {
    EXPECT_THAT(read_gemm_choices(path), IsEmpty()) << path;
  }
}

TEST_F(GemmCacheFile, AFolderInItsPlaceIsToldToTheWriter) {
  fs::create_directories(folder_ / "gemm.txt");
  EXPECT_FALSE(write_gemm_choices(folder_ / "gemm.txt", two_choices()));
}

}  // namespace
}  // namespace quaver
