// What `quaver data` finds among its inputs that is no good text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BrokenLines, StopTheWorkUnlessTheyMayBePassedOver) {
  const TemporaryFolder folder;
  folder.write("lines.jsonl", "{\"text\": \"one\"}\n{\"text\": \n{\"title\": \"two\"}\n{\"text\": \"three\"}\n");
  const Outcome refused = quaver(folder, {"data", "lines.jsonl", "--out", "data"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("lines.jsonl:2"), HasSubstr("--skip-bad-lines")));
  EXPECT_FALSE(fs::exists(folder / "data/dataset.json"));
  const Outcome taken = quaver(folder, {"data", "lines.jsonl", "--out", "data", "--skip-bad-lines"});
  EXPECT_EQ(taken.status, 0) << taken.error;
  EXPECT_THAT(taken.out, HasSubstr("2 malformed (lines.jsonl:2)"));
  EXPECT_THAT(taken.out, HasSubstr("documents     2 of 1 files"));
}

TEST(LoopsOfLinks, ArePassedOverAndNamed) {
  const TemporaryFolder folder;
  write_text(folder);
  fs::create_symlink("loop", folder / "text/loop");
  const Outcome outcome = quaver(folder, {"data", "text", "--out", "data"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("passed over: 1 links that lead back to themselves, the first text/loop"));
}

}  // namespace
}  // namespace quaver::test
