#include "io/file_io.h"

#include <atomic>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <signal.h>
#include <sstream>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "support/crc32c.h"

#include "io/support.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::contents;
using test::crc32c_by_bits;
using testing::HasSubstr;
using namespace std::string_literals;

std::size_t entries_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

using FileIo = test::InAFolder;

TEST(Crc32c, GivesTheValuesOfTheStandard) {
  EXPECT_EQ(crc32c(bytes_of("")), 0U);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
  const std::string zeros(32, '\0');
  EXPECT_EQ(crc32c(bytes_of(zeros)), 0x8A9136AAU);  // RFC 3720, B.4
}

TEST(Crc32c, HardwareAndTablesAgreeWithTheDefinitionAtEveryLengthAndAlignment) {
  std::mt19937 random(1);
  std::vector<std::byte> data(300);
  for (auto& byte : data) byte = static_cast<std::byte>(random());
  for (std::size_t offset = 0; offset < 9; ++offset) {
    for (std::size_t length = 0; length + offset <= 200; ++length) {
      const auto piece = std::span<const std::byte>(data).subspan(offset, length);
      ASSERT_EQ(crc32c(piece), crc32c_by_bits(piece));
      ASSERT_EQ(crc32c_portable(piece), crc32c_by_bits(piece));
      const std::size_t cut = length / 3;
      ASSERT_EQ(crc32c(piece.subspan(cut), crc32c(piece.first(cut))), crc32c_by_bits(piece));
    }
  }
}

TEST(Crc32c, OfTwoPiecesFollowsFromThatOfEach) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * i * 31 + i / 7);
  for (const std::size_t split : {0U, 1U, 7U, 64U, 1000U, 4999U, 5000U}) {
    const std::string first = text.substr(0, split);
    const std::string second = text.substr(split);
    EXPECT_EQ(crc32c_joined(crc32c(bytes_of(first)), crc32c(bytes_of(second)), second.size()), crc32c(bytes_of(text)))
        << split;
  }
}

TEST_F(FileIo, AFileAppearsOnlyWhenCommitted) {
  const fs::path path = folder_ / "a.bin";
  {
    AtomicFile file(path);
    file.write("hello ");
    file.write("world");
    EXPECT_FALSE(fs::exists(path));
    const FileDigest digest = file.commit();
    EXPECT_EQ(digest, (FileDigest{11, crc32c(bytes_of("hello world"))}));
  }
  EXPECT_EQ(contents(path), "hello world");
  EXPECT_EQ(entries_in(folder_), 1U);
}

TEST_F(FileIo, AnAbandonedFileLeavesTheOldContentAndNoTemporary) {
  const fs::path path = folder_ / "a.bin";
  write_file_atomically(path, "old");
  {
    AtomicFile file(path);
    file.write("new");
  }
  EXPECT_EQ(contents(path), "old");
  EXPECT_EQ(entries_in(folder_), 1U);
}

TEST_F(FileIo, PiecesOfAnySizeArriveInOrder) {
  std::mt19937 random(2);
  std::string expected;
  AtomicFile file(folder_ / "a.bin");
  for (const std::size_t size : {1U, 70'000U, 300'000U, 5U, 0U, 262'144U, 262'143U, 17U}) {
    std::string piece(size, '\0');
    for (char& c : piece) c = static_cast<char>(random());
    expected += piece;
    file.write(piece);
  }
  file.commit();
  EXPECT_EQ(contents(folder_ / "a.bin"), expected);
  const MappedFile mapped = MappedFile::open(folder_ / "a.bin");
  EXPECT_EQ(mapped.text(), expected);
}

// RLIMIT_FSIZE makes write() fail part-way with EFBIG, as a full disk does with ENOSPC, without special rights.
TEST_F(FileIo, AWriteThatFailsPartWayNamesTheFileAndLeavesTheOldContent) {
  const fs::path path = folder_ / "a.bin";
  write_file_atomically(path, "old");
  auto* const previous_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit previous{};
  getrlimit(RLIMIT_FSIZE, &previous);
  rlimit limit = previous;
  limit.rlim_cur = 100'000;
  setrlimit(RLIMIT_FSIZE, &limit);
  std::string what;
  std::string remedy;
  try {
    write_file_atomically(path, std::string(1'000'000, 'x'));
  } catch (const Error& error) {
    what = error.what();
    remedy = error.remedy();
  }
  setrlimit(RLIMIT_FSIZE, &previous);
  signal(SIGXFSZ, previous_handler);
  EXPECT_THAT(what, HasSubstr("a.bin: File too large"));
  EXPECT_THAT(remedy, HasSubstr("ulimit -f"));
  EXPECT_EQ(contents(path), "old");
  EXPECT_EQ(entries_in(folder_), 1U);
}

TEST_F(FileIo, ASharedFileIsFilledByItsWritersInAnyOrder) {
  const auto path = folder_ / "shared";
  SharedFile::create(path, 10);
  {
    SharedFile one(path);
    SharedFile two(path);
    two.write_at(6, bytes_of("6789"));
    one.write_at(0, bytes_of("0123"));
    one.sync();
    two.sync();
  }
  EXPECT_EQ(read_file(path, 100), std::string("0123\0\0006789", 10));
  EXPECT_THROW(SharedFile::create(path, 10), Error) << "it is there already";
  EXPECT_THROW(SharedFile(folder_ / "another"), Error);
}

TEST_F(FileIo, AFullDiskIsNamedAndLeavesTheOldContent) {
  const fs::path disk = folder_ / "disk";
  fs::create_directories(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=256k") != 0) GTEST_SKIP() << "mounting a tmpfs is not permitted";
  write_file_atomically(disk / "a.bin", "old");
  std::string what;
  std::string remedy;
  try {
    write_file_atomically(disk / "a.bin", std::string(1'000'000, 'x'));
  } catch (const Error& error) {
    what = error.what();
    remedy = error.remedy();
  }
  EXPECT_EQ(contents(disk / "a.bin"), "old");
  EXPECT_EQ(entries_in(disk), 1U);
  umount(disk.c_str());
  EXPECT_THAT(what, HasSubstr("No space left on device"));
  EXPECT_THAT(remedy, HasSubstr("free space"));
}

TEST_F(FileIo, AReadOnlyDiskIsNamed) {
  const fs::path disk = folder_ / "disk";
  fs::create_directories(disk);
  if (mount("none", disk.c_str(), "tmpfs", MS_RDONLY, "size=64k") != 0) {
    GTEST_SKIP() << "mounting a tmpfs is not permitted";
  }
  std::string remedy;
  try {
    write_file_atomically(disk / "a.bin", "x");
  } catch (const Error& error) {
    remedy = error.remedy();
  }
  umount(disk.c_str());
  EXPECT_THAT(remedy, HasSubstr("read-only"));
}

TEST_F(FileIo, MissingDirectoriesAndNonFilesAreErrors) {
  EXPECT_THROW(write_file_atomically(folder_ / "none" / "a.bin", "x"), Error);
  EXPECT_THROW(MappedFile::open(folder_ / "none"), Error);
  EXPECT_THROW(MappedFile::open(folder_), Error);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile::open(folder_ / "pipe"), Error);  // and does not wait for a writer
}

TEST_F(FileIo, ATargetThatIsADirectoryIsAnErrorAndLeavesNoTemporary) {
  fs::create_directories(folder_ / "target");
  EXPECT_THROW(write_file_atomically(folder_ / "target", "x"), Error);
  EXPECT_EQ(entries_in(folder_), 1U);
}

TEST_F(FileIo, AnEmptyFileMapsToAnEmptySpanAndAMappingCanBeMoved) {
  write_file_atomically(folder_ / "empty", "");
  EXPECT_TRUE(MappedFile::open(folder_ / "empty").bytes().empty());
  write_file_atomically(folder_ / "a", "abc");
  MappedFile first = MappedFile::open(folder_ / "a");
  const MappedFile second = std::move(first);
  EXPECT_EQ(second.text(), "abc");
}

std::string refusal_of(const fs::path& path, std::uint64_t limit) {
  try {
    read_file(path, limit);
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
  return "";
}

TEST_F(FileIo, ATextFileIsReadWhole) {
  const std::string text = "one\ntwo\0three"s;
  write_file_atomically(folder_ / "a", text);
  EXPECT_EQ(read_file(folder_ / "a", text.size()), text);
  write_file_atomically(folder_ / "empty", "");
  EXPECT_EQ(read_file(folder_ / "empty", 0), "");
}

TEST_F(FileIo, WhatIsNoTextFileIsRefusedAtOnceAndSaysWhatItIs) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  std::ofstream(folder_ / "huge").put('x');
  fs::resize_file(folder_ / "huge", std::uintmax_t{100} << 30U);                 // sparse
  EXPECT_THAT(refusal_of(folder_ / "pipe", 1000), HasSubstr("pipe is a pipe"));  // and does not wait for a writer
  EXPECT_THAT(refusal_of(folder_, 1000), HasSubstr(folder_.string() + " is a folder"));
  EXPECT_THAT(refusal_of("/dev/zero", 1000), HasSubstr("/dev/zero is a device"));
  EXPECT_THAT(refusal_of(folder_ / "huge", 1000), HasSubstr("huge has 107374182400 bytes, more than the 1000"));
  EXPECT_THAT(refusal_of(folder_ / "none", 1000), HasSubstr("No such file"));
}

// A mapping would end the process with SIGBUS.
TEST_F(FileIo, AFileThatIsCutWhileItIsReadIsAnError) {
  const fs::path path = folder_ / "restless";
  constexpr std::size_t size = std::size_t{4} << 20U;
  std::ofstream(path).put('x');
  std::atomic<bool> enough = false;
  std::thread writer([&] {
    while (!enough) {
      fs::resize_file(path, 10);
      fs::resize_file(path, size);
    }
  });
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    try {
      const std::size_t length = read_file(path, size).size();
      EXPECT_TRUE(length == 1 || length == 10 || length == size) << length;
    } catch (const Error&) {
      ++refused;
    }
  }
  enough = true;
  writer.join();
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace quaver
