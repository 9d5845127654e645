// How much of a file is read where a limit is given.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {
namespace {

class ReadLimit : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::filesystem::path& write(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / ("quaver-limit-" + std::to_string(getpid()));
};

TEST_F(ReadLimit, AFileOfExactlyTheLimitIsRead) { EXPECT_EQ(read_file(write("0123456789"), 10), "0123456789"); }

TEST_F(ReadLimit, OneByteMoreIsRefusedWithBothNumbers) {
  try {
    read_file(write("0123456789A"), 10);
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("11 bytes, more than the 10"));
  }
}

TEST_F(ReadLimit, AnEmptyFileFitsALimitOfNothing) { EXPECT_EQ(read_file(write(""), 0), ""); }

}  // namespace
}  // namespace quaver
