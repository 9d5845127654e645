#include "io/file_reader.h"

#include <chrono>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/temporary_folder.h"

#include "quaver/error.h"

namespace quaver {
namespace {

using test::TemporaryFolder;

std::string read_text(const FileReader& file, std::uint64_t offset, std::size_t length) {
  std::string text(length, '?');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

void expect_changed(const FileReader& file, std::uint64_t offset) {
  try {
    read_text(file, offset, 4);
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(file.path().string()));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("changed while it was being read"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("bytes " + std::to_string(offset) + " to "));
  }
}

// Two writes within a tick of the file system's clock have the same time.
void let_the_clock_tick() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(FileReader, ReadsAnyPart) {
  const TemporaryFolder folder;
  const FileReader file = FileReader::open(folder.write("a", "0123456789"));
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(read_text(file, 0, 10), "0123456789");
  EXPECT_EQ(read_text(file, 7, 3), "789");
  EXPECT_EQ(read_text(file, 10, 0), "");
  EXPECT_THROW(read_text(file, 8, 3), Error);
  EXPECT_THROW(FileReader::open(folder.path()), Error);
  EXPECT_THROW(FileReader::open(folder / "none"), Error);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(FileReader::open(folder / "pipe"), Error);  // and does not wait for a writer
}

TEST(FileReader, NoticesThatTheFileIsShortened) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "0123456789");
  const FileReader file = FileReader::open(path);
  std::filesystem::resize_file(path, 5);
  expect_changed(file, 6);
  expect_changed(file, 0);
}

TEST(FileReader, NoticesZerosInPlaceOfTheContent) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "0123456789");
  const FileReader file = FileReader::open(path);
  let_the_clock_tick();
  std::filesystem::resize_file(path, 0);
  std::filesystem::resize_file(path, 10);  // a hole of the same size
  expect_changed(file, 3);
}

TEST(FileReader, KeepsAFileThatIsRemovedOrReplaced) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "0123456789");
  const FileReader file = FileReader::open(path);
  let_the_clock_tick();
  std::filesystem::create_hard_link(path, folder / "other");
  std::filesystem::remove(path);
  folder.write("a", "something else");
  std::filesystem::remove(folder / "other");
  EXPECT_EQ(read_text(file, 2, 3), "234");
}

// In a process of its own: the limit is the whole process's.
TEST(FileReader, OpensMoreFilesThanTheSoftLimit) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "0123456789");
  const pid_t child = fork();
  if (child == 0) {
    struct rlimit limit {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 32;
    if (limit.rlim_max < 128 || setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(2);
    try {
      std::vector<FileReader> files;
      for (int i = 0; i < 100; ++i) files.push_back(FileReader::open(path));
      _exit(read_text(files.back(), 0, 2) == "01" ? 0 : 3);
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

}  // namespace
}  // namespace quaver
