// SQLite as the store uses it: values that come back, failures by their kind, transactions, paths with odd characters.
#include "store/database.h"

#include <gmock/gmock.h>

#include "store/store_fixture.h"

namespace quaver::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr std::chrono::milliseconds no_patience{0};

class DatabaseBasics : public StoreTest {
 protected:
  Database open() const { return Database(store_, Database::Access::write, no_patience); }
};

TEST_F(DatabaseBasics, ValuesComeBackAsTheyWere) {
  Database database = open();
  database.execute("CREATE TABLE t(i, u, d, n, s, b, z, o)");
  const std::string text("a\0b", 3);
  const std::byte bytes[] = {std::byte{0}, std::byte{255}, std::byte{7}};
  database.prepared("INSERT INTO t VALUES(?,?,?,?,?,?,?,?)")
      .bind(std::int64_t{-5}, std::uint64_t{9}, 0.1, std::nan(""), text, std::span<const std::byte>(bytes),
            std::nullopt, std::optional<std::string>("there"))
      .run();
  Statement& row = database.prepared("SELECT * FROM t");
  ASSERT_TRUE(row.step());
  EXPECT_EQ(row.column_int(0), -5);
  EXPECT_EQ(row.column_unsigned(0), 0U) << "a negative count is none";
  EXPECT_EQ(row.column_unsigned(1), 9U);
  EXPECT_EQ(row.column_double(2), 0.1);
  EXPECT_TRUE(row.column_null(3)) << "NaN";
  EXPECT_TRUE(std::isnan(row.column_double(3)));
  EXPECT_EQ(row.column_text(4), text);
  ASSERT_EQ(row.column_blob(5).size(), 3U);
  EXPECT_EQ(row.column_blob(5)[1], std::byte{255});
  EXPECT_TRUE(row.column_null(6));
  EXPECT_EQ(row.column_text(6), "");
  EXPECT_TRUE(row.column_blob(6).empty());
  EXPECT_EQ(row.column_text(7), "there");
  EXPECT_FALSE(row.step());
  EXPECT_TRUE(row.step()) << "from the beginning again";
}

TEST_F(DatabaseBasics, AStatementIsKeptAndBeginsAnew) {
  Database database = open();
  database.execute("CREATE TABLE t(i); INSERT INTO t VALUES(1),(2),(3)");
  Statement& first = database.prepared("SELECT i FROM t ORDER BY i");
  ASSERT_TRUE(first.step());
  ASSERT_TRUE(first.step());
  EXPECT_EQ(first.column_int(0), 2);
  Statement& again = database.prepared("SELECT i FROM t ORDER BY i");
  EXPECT_EQ(&again, &first);
  ASSERT_TRUE(again.step());
  EXPECT_EQ(again.column_int(0), 1);
  database.execute("INSERT INTO t VALUES(9)");
  EXPECT_EQ(database.last_insert_id(), 4);
  EXPECT_EQ(database.pragma("user_version"), 0);
  database.execute("PRAGMA user_version=12");
  EXPECT_EQ(database.pragma("user_version"), 12);
  EXPECT_EQ(database.pragma("no_such_pragma"), 0);
}

TEST_F(DatabaseBasics, FailuresPassOrLast) {
  const Database database = open();
  const auto failure_of = [&](int code) {
    try {
      database.fail(code);
    } catch (const StoreFailure& failure) {
      EXPECT_THAT(failure.what(), HasSubstr(store_.string()));
      return std::pair(failure.kind(), failure.remedy());
    }
    return std::pair(StoreFailure::Kind::lasting, std::string());
  };
  const std::string folder = folder_.string();
  const std::pair<int, std::string> passing[] = {{SQLITE_BUSY, "another process"},
                                                 {SQLITE_BUSY_SNAPSHOT, "another process"},
                                                 {SQLITE_LOCKED, "another process"},
                                                 {SQLITE_FULL, "free space on the file system of " + folder},
                                                 {SQLITE_IOERR, "disk"},
                                                 {SQLITE_IOERR_WRITE, "free space of " + folder},
                                                 {SQLITE_NOMEM, "free memory"},
                                                 {SQLITE_INTERRUPT, "integrity_check"},
                                                 {SQLITE_PROTOCOL, "local disk"}};
  for (const auto& [code, remedy] : passing) {
    EXPECT_EQ(failure_of(code).first, StoreFailure::Kind::passing) << code;
    EXPECT_THAT(failure_of(code).second, HasSubstr(remedy)) << code;
  }
  const std::pair<int, std::string> lasting[] = {{SQLITE_CORRUPT, "move it away"},
                                                 {SQLITE_NOTADB, "move it away"},
                                                 {SQLITE_READONLY, "permissions of it and of " + folder},
                                                 {SQLITE_PERM, "permissions"},
                                                 {SQLITE_AUTH, "permissions"},
                                                 {SQLITE_CANTOPEN, "check that " + folder + " exists"},
                                                 {SQLITE_ERROR, "integrity_check"},
                                                 {SQLITE_CONSTRAINT, "integrity_check"}};
  for (const auto& [code, remedy] : lasting) {
    EXPECT_EQ(failure_of(code).first, StoreFailure::Kind::lasting) << code;
    EXPECT_THAT(failure_of(code).second, HasSubstr(remedy)) << code;
  }
}

TEST_F(DatabaseBasics, AnExistingFileIsNotMade) {
  EXPECT_THROW(Database(store_, Database::Access::existing, no_patience), StoreFailure);
  EXPECT_THROW(Database(store_, Database::Access::read, no_patience), StoreFailure);
  EXPECT_FALSE(fs::exists(store_));
  { Database(store_, Database::Access::write, no_patience).execute("CREATE TABLE t(i)"); }
  EXPECT_TRUE(fs::exists(store_));
  Database(store_, Database::Access::existing, no_patience).execute("INSERT INTO t VALUES(1)");
  EXPECT_THROW(Database(store_, Database::Access::read, no_patience).execute("INSERT INTO t VALUES(2)"), StoreFailure);
  EXPECT_THROW(Database(store_, Database::Access::immutable, no_patience).execute("INSERT INTO t VALUES(2)"),
               StoreFailure);
  EXPECT_EQ(sql(store_, "SELECT count(*) FROM t"), "1");
}

TEST_F(DatabaseBasics, PathsMayHoldWhatHasAMeaningInUris) {
  for (const char* name : {"a?b", "a#b", "a%20b", "a?mode=memory", "a b"}) {
    const fs::path path = folder_ / name;
    { Database(path, Database::Access::write, no_patience).execute("CREATE TABLE t(i)"); }
    EXPECT_TRUE(fs::is_regular_file(path)) << name;
    EXPECT_NO_THROW(Database(path, Database::Access::immutable, no_patience).execute("SELECT * FROM t")) << name;
  }
}

TEST_F(DatabaseBasics, ATransactionIsRolledBackUnlessItIsCommitted) {
  Database database = open();
  database.execute("CREATE TABLE t(i)");
  const auto rows = [&] { return sql(store_, "SELECT count(*) FROM t"); };
  {
    const Transaction transaction(database, Transaction::Mode::write);
    database.execute("INSERT INTO t VALUES(1)");
  }
  EXPECT_EQ(rows(), "0");
  {
    Transaction transaction(database, Transaction::Mode::write);
    database.execute("INSERT INTO t VALUES(1)");
    transaction.commit();
  }
  EXPECT_EQ(rows(), "1");
}

TEST_F(DatabaseBasics, OneWritesAtATimeFromTheBeginningOfItsTransaction) {
  Database first = open();
  first.execute("PRAGMA journal_mode=WAL");
  first.execute("CREATE TABLE t(i)");
  Database second = open();
  const Transaction writing(first, Transaction::Mode::write);
  try {
    const Transaction also(second, Transaction::Mode::write);
    ADD_FAILURE() << "two write at once";
  } catch (const StoreFailure& failure) {
    EXPECT_EQ(failure.kind(), StoreFailure::Kind::passing);
  }
  EXPECT_NO_THROW(Transaction(second, Transaction::Mode::read));
}

}  // namespace
}  // namespace quaver::test
