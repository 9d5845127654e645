// Which store a path names, and a handle to it while its file is created, replaced and deleted.
#include "serve/store_handle.h"

#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>

#include "serve/client.h"
#include "serve/sample_store.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;

void touch_file(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "x";
}

TEST(StoreHandlePath, OfARunIsTheStoreBesideItUnlessItHasItsOwn) {
  const StoreFolder folder;
  const fs::path run = folder.path() / "run";
  touch_file(run / "config.toml");
  EXPECT_EQ(find_store(run), run / "quaver.db") << "no store is there yet";
  touch_file(folder.store());
  EXPECT_EQ(find_store(run), fs::weakly_canonical(folder.store()));
  EXPECT_EQ(find_store(run / ""), fs::weakly_canonical(folder.store())) << "a slash behind it means nothing";
  touch_file(run / "quaver.db");
  EXPECT_EQ(find_store(run), run / "quaver.db");
  fs::create_directories(folder.path() / "no run");
  EXPECT_EQ(find_store(folder.path() / "no run"), folder.path() / "no run" / "quaver.db");
}

TEST(StoreHandlePath, OfAFileIsTheFileAndOfANameThatEndsInDbAsWell) {
  const StoreFolder folder;
  EXPECT_EQ(find_store(folder.path() / "absent.db"), folder.path() / "absent.db");
  EXPECT_EQ(find_store(folder.path() / "absent"), folder.path() / "absent" / "quaver.db");
  EXPECT_EQ(find_store(folder.path() / "absent.txt"), folder.path() / "absent.txt" / "quaver.db");
  touch_file(folder.path() / "any.name");
  EXPECT_EQ(find_store(folder.path() / "any.name"), folder.path() / "any.name");
  fs::create_directories(folder.path() / "folder.db");
  EXPECT_EQ(find_store(folder.path() / "folder.db"), folder.path() / "folder.db" / "quaver.db");
}

TEST(StoreHandle, IsTheSameReaderUntilAnotherFileTakesItsPlace) {
  const StoreFolder folder;
  StoreHandle handle(folder.store());
  EXPECT_EQ(handle.file_name(), "quaver.db");
  EXPECT_EQ(handle.reader(), nullptr);
  record_run(folder.store(), describe_run("one"));
  const auto first = handle.reader();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(handle.reader(), first);
  record_run(folder.path() / "other.db", describe_run("two"));
  for (const char* end : {"-wal", "-shm"}) fs::remove(folder.store().string() + end);
  fs::rename(folder.path() / "other.db", folder.store());
  const auto second = handle.reader();
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, first);
  EXPECT_EQ(second->runs().at(0).id, "two");
  fs::remove(folder.store());
  EXPECT_EQ(handle.reader(), nullptr);
  EXPECT_EQ(second.use_count(), 1) << "the handle has let go of the file that is gone";
}

TEST(StoreHandle, TakesEveryMentionOfItsFoldersOutOfAText) {
  const StoreFolder folder;
  const fs::path real = folder.path() / "real";
  fs::create_directories(real);
  fs::create_directory_symlink(real, folder.path() / "link");
  const StoreHandle handle(folder.path() / "link" / "quaver.db");
  const std::string linked = (folder.path() / "link").string(), target = fs::weakly_canonical(real).string();
  EXPECT_EQ(handle.without_folders(fmt::format("{0}/quaver.db and {0}/quaver.db-wal", linked)),
            "quaver.db and quaver.db-wal");
  EXPECT_EQ(handle.without_folders(fmt::format("{0}/1 {0}/2 {0}/3 {0}/4 {0}/5", linked)), "1 2 3 4 5");
  EXPECT_EQ(handle.without_folders(fmt::format("{0}/quaver.db: {1}/x", linked, target)), "quaver.db: x");
  EXPECT_EQ(handle.without_folders("nothing / of it"), "nothing / of it");
  EXPECT_EQ(StoreHandle("/quaver.db").without_folders("a/b /quaver.db"), "a/b /quaver.db") << "the root is no secret";
  const fs::path here = fs::current_path();
  EXPECT_EQ(StoreHandle("quaver.db").without_folders(fmt::format("{}/quaver.db quaver.db", here.string())),
            "quaver.db quaver.db");
}

}  // namespace
}  // namespace quaver::test
