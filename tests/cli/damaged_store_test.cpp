// A store that a disk has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "cli/command.h"

namespace quaver::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DamagedStore, IsExportedButForWhatIsDamagedAndEndsWithAFailure) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny_training({"--dir=runs/one", "--train.statistics_every=1"})).status, 0);
  const Words words{"export", "runs", "--format", "csv", "--out"};
  ASSERT_EQ(quaver(folder, words + Words{"whole"}).status, 0);
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((folder / "runs/quaver.db").c_str(), &database), SQLITE_OK);
  for (const char* sql : {"UPDATE numerics SET data=zeroblob(length(data)) WHERE level=0 AND statistic=0 AND bin=2",
                          "UPDATE histograms SET data=substr(data, 1, length(data) - 1) WHERE step=4"}) {
    ASSERT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    ASSERT_GT(sqlite3_changes(database), 0) << sql;
  }
  sqlite3_close(database);
  const Outcome outcome = quaver(folder, words + Words{"rest"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("step 3: a BLOB of the table numerics is damaged"),
                                   HasSubstr("step 4: a BLOB of the table histograms is damaged")));
  EXPECT_THAT(outcome.out, HasSubstr("numerics.csv"));
}

}  // namespace
}  // namespace quaver::test
