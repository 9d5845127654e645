// BLOBs of the store that a disk or a program has changed: every one is noticed, named, and costs no others.
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <map>
#include <sys/stat.h>

#include "store/exports.h"
#include "store/store_fixture.h"

namespace quaver::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t steps = 24;

class StoreDamage : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    const RunDescription run = small_run("a");
    RunRecorder recorder(store_, run, 0, collect(), quick());
    for (std::uint64_t step = 1; step <= steps; ++step) {
      std::vector<BinadeCounts> binades(run.sites.size());
      for (std::size_t site = 0; site < binades.size(); ++site) binades[site][10] = 1000 * step + site;
      recorder.numerics(step, values_of(run, step), binades);
      ASSERT_TRUE(recorder.flush(std::chrono::seconds(10)));
    }
  }

  // Turns one bit of the BLOB in the row that the condition picks.
  void flip(const std::string& table, const std::string& condition, std::size_t bit) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(store_.c_str(), &database), SQLITE_OK);
    sqlite3_stmt* read = nullptr;
    const std::string select = "SELECT data FROM " + table + " WHERE " + condition;
    ASSERT_EQ(sqlite3_prepare_v2(database, select.c_str(), -1, &read, nullptr), SQLITE_OK);
    ASSERT_EQ(sqlite3_step(read), SQLITE_ROW) << condition;
    std::string blob(static_cast<const char*>(sqlite3_column_blob(read, 0)),
                     static_cast<std::size_t>(sqlite3_column_bytes(read, 0)));
    sqlite3_finalize(read);
    bit %= 8 * blob.size();
    blob[bit / 8] = static_cast<char>(blob[bit / 8] ^ (1 << (bit % 8)));
    sqlite3_stmt* write = nullptr;
    const std::string update = "UPDATE " + table + " SET data=? WHERE " + condition;
    ASSERT_EQ(sqlite3_prepare_v2(database, update.c_str(), -1, &write, nullptr), SQLITE_OK);
    sqlite3_bind_blob(write, 1, blob.data(), static_cast<int>(blob.size()), SQLITE_TRANSIENT);
    ASSERT_EQ(sqlite3_step(write), SQLITE_DONE);
    sqlite3_finalize(write);
    sqlite3_close(database);
  }

  static std::string numerics_of(std::uint64_t step) {
    return fmt::format("level=0 AND statistic=0 AND role=0 AND chunk=0 AND bin={}", step - 1);
  }
};

TEST_F(StoreDamage, AHealthyStoreHasNone) { EXPECT_THAT(StoreReader(store_).damaged_blobs("a"), IsEmpty()); }

TEST_F(StoreDamage, AllOfTwentyFourAreNoticed) {
  std::map<std::pair<std::string, std::uint64_t>, int> expected;
  for (std::uint64_t step = 1; step <= 12; ++step) {
    flip("numerics", numerics_of(step), 37 * step);
    flip("histograms", fmt::format("step={}", 2 * step), 41 * step);
    ++expected[{"numerics", step}];
    ++expected[{"histograms", 2 * step}];
  }
  std::map<std::pair<std::string, std::uint64_t>, int> found;
  for (const DamagedBlob& blob : StoreReader(store_).damaged_blobs("a")) ++found[{blob.table, blob.step}];
  EXPECT_EQ(found, expected);
}

TEST_F(StoreDamage, AnExportHasTheRest) {
  const StoreReader reader(store_);
  export_run(reader, "a", folder_ / "whole", {.format = ExportFormat::csv, .statistics = {}});
  flip("numerics", numerics_of(5), 3);
  export_run(reader, "a", folder_ / "rest", {.format = ExportFormat::csv, .statistics = {}});
  std::string expected;
  std::istringstream whole(contents(folder_ / "whole/a/numerics.csv"));
  for (std::string line; std::getline(whole, line);) {
    const bool lost = line.starts_with("5,") && line.find("/x,amax,") != std::string::npos;
    if (!lost) expected += line + "\n";
  }
  EXPECT_EQ(contents(folder_ / "rest/a/numerics.csv"), expected);
}

TEST_F(StoreDamage, AnAnswerThatNeedsItNamesRunStepAndTable) {
  flip("numerics", numerics_of(5), 3);
  flip("histograms", "step=7", 3);
  const StoreReader reader(store_);
  const auto what = [&](const auto& ask) {
    try {
      ask();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto view = [&](std::uint64_t from, std::uint64_t to) {
    reader.numerics("a", {.statistic = "amax", .role = "x", .from = from, .to = to});
  };
  const auto names = [](const char* step, const char* table) {
    return AllOf(HasSubstr("run a"), HasSubstr(step), HasSubstr(table));
  };
  EXPECT_THAT(what([&] { view(0, 100); }), names("step 5:", "numerics"));
  EXPECT_THAT(what([&] { reader.history("a", "blocks.0.up/x"); }), names("step 5:", "numerics"));
  EXPECT_THAT(what([&] { reader.histogram("a", "blocks.0.up/x", 7); }), names("step 7:", "histograms"));
  EXPECT_EQ(what([&] { view(6, 100); }), "");
  EXPECT_EQ(what([&] { view(0, 4); }), "");
  EXPECT_EQ(what([&] { reader.history("a", "blocks.0.up/dy"); }), "");
  EXPECT_EQ(what([&] { reader.histogram("a", "blocks.0.up/x", 8); }), "");
}

// What the trainer sums up and cuts must not be given a fresh checksum.
TEST_F(StoreDamage, ADamagedRowIsNotPassedOnByTheWriter) {
  flip("numerics", numerics_of(20), 30);
  flip("numerics", numerics_of(23), 30);
  const RunDescription run = small_run("a");
  {
    RunRecorder recorder(store_, run, 22, collect(), quick());
    for (std::uint64_t step = 23; step <= 32; ++step) recorder.numerics(step, values_of(run, step), {});
    ASSERT_TRUE(recorder.flush(std::chrono::seconds(10)));
  }
  const auto damaged = StoreReader(store_).damaged_blobs("a");
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(damaged[0].step, 20U);
}

class NoStore : public StoreTest {};

TEST_F(NoStore, APipeOrAFolderInItsPlaceIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(store_.c_str(), 0600), 0);
  EXPECT_THROW(StoreReader{store_}, Error);  // and does not wait for a writer
  {
    RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
    EXPECT_FALSE(recorder.recording());
  }
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("not a regular file"));
  fs::remove(store_);
  fs::create_directories(store_);
  EXPECT_THROW(StoreReader{store_}, Error);
}

class OldStore : public StoreDamage {
 protected:
  void SetUp() override {
    StoreDamage::SetUp();
    sql(store_, "ALTER TABLE numerics DROP COLUMN checksum");
    sql(store_, "ALTER TABLE histograms DROP COLUMN checksum");
    sql(store_, "DROP TABLE annotations");
    sql(store_, "PRAGMA user_version=1");
  }
};

TEST_F(OldStore, OfSchemaOneIsReadAsItIs) {
  const StoreReader reader(store_);
  EXPECT_EQ(reader.history("a", "blocks.0.up/x").step.size(), steps);
  EXPECT_EQ(reader.histogram("a", "blocks.1.up/w", 3).counts[10], 3004U);
  EXPECT_THAT(reader.damaged_blobs("a"), IsEmpty());
  EXPECT_EQ(sql(store_, "PRAGMA user_version"), "1") << "reading changes nothing";
}

TEST_F(OldStore, GetsChecksumsFromTheNextRecordOn) {
  const RunDescription run = small_run("a");
  {
    RunRecorder recorder(store_, run, steps, collect(), quick());
    recorder.numerics(steps + 1, values_of(run, steps + 1), {});
    ASSERT_TRUE(recorder.flush(std::chrono::seconds(10)));
  }
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(sql(store_, "PRAGMA user_version"), "3");
  flip("numerics", numerics_of(3), 3);  // written without a checksum
  flip("numerics", numerics_of(steps + 1), 3);
  const StoreReader reader(store_);
  const auto damaged = reader.damaged_blobs("a");
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(damaged[0].step, steps + 1);
}

}  // namespace
}  // namespace quaver::test
