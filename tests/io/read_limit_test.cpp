// How much of a file is read where a limit is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {
namespace {

class ReadLimit : public testing::Test {
 protected:
  std::filesystem::path write(std::string_view text) { return folder_.write("file", text); }

 private:
  const test::TemporaryFolder folder_;
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
