// What people change about a run: names, notes, hiding, deletion and its undoing, removal for good.
#include "store/run_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "store/exports.h"
#include "store/store_fixture.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunEdits : public StoreTest {
 protected:
  // A finished run with rows in every table.
  void record_everything(const std::string& id, std::uint64_t steps = 20) {
    const RunDescription run = small_run(id);
    RunRecorder recorder(store_, run, 0, collect(), quick());
    for (std::uint64_t step = 1; step <= steps; ++step) {
      record_metric(recorder, step, 1.0 / static_cast<double>(step));
      recorder.numerics(step, values_of(run, step), std::vector<BinadeCounts>(run.sites.size()));
      recorder.scale_change({step, run.sites[0].name, "overflow", 16, 8, "e4m3", "e5m2"});
      recorder.event(step, "note", "text");
    }
    AlertRecord alert;
    alert.step = alert.last_step = 3;
    alert.rule = "underflow";
    recorder.alert(alert);
    recorder.sample(2, "text");
    recorder.document("localization", "{}");
    recorder.status(RunStatus::finished);
    ASSERT_TRUE(recorder.flush());
    edit_run(store_, id, {.tags = {{"tag"}}, .note = "note"});
  }

  // Rows of a run in every table that has a column for it, by the run's number.
  std::vector<std::string> tables_with_rows_of(const std::string& key) {
    std::vector<std::string> found;
    const int count = std::stoi(sql(store_, "SELECT count(*) FROM sqlite_schema WHERE type='table'"));
    for (int i = 0; i < count; ++i) {
      const std::string table = sql(
          store_, fmt::format("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY name LIMIT 1 OFFSET {}", i));
      const std::string column = table == "runs" ? "key" : "run";
      if (sql(store_, fmt::format("SELECT count(*) FROM pragma_table_info('{}') WHERE name='{}'", table, column)) ==
          "0") {
        continue;
      }
      if (sql(store_, fmt::format("SELECT count(*) FROM {} WHERE {}={}", table, column, key)) != "0") {
        found.push_back(table);
      }
    }
    return found;
  }

  RunSummary summary(const std::string& id) const { return StoreReader(store_).run(id).summary; }
};

TEST_F(RunEdits, ANameIsShownInPlaceOfTheTrainedOneUntilItIsTakenBack) {
  record_everything("a");
  edit_run(store_, "a", {.name = "'; DROP TABLE runs; -- <b>ü"});
  EXPECT_EQ(summary("a").name, "'; DROP TABLE runs; -- <b>ü");
  EXPECT_EQ(summary("a").trained_name, "run a");
  EXPECT_EQ(StoreReader(store_).runs().at(0).name, summary("a").name);
  EXPECT_EQ(StoreReader(store_).alerts().at(0).run_name, summary("a").name);
  edit_run(store_, "a", {.name = ""});
  EXPECT_EQ(summary("a").name, "run a");
}

TEST_F(RunEdits, ChangeNothingButWhatTheyName) {
  record_everything("a");
  edit_run(store_, "a", {.name = "name", .note = "first line\nsecond", .hidden = true});
  edit_run(store_, "a", {.deleted = true});
  const RunSummary after = summary("a");
  EXPECT_EQ(after.name, "name");
  EXPECT_EQ(after.note, "first line\nsecond");
  EXPECT_TRUE(after.hidden);
  EXPECT_TRUE(after.deleted);
  EXPECT_THAT(after.tags, ElementsAre("tag"));
  edit_run(store_, "a", {.deleted = false});
  EXPECT_FALSE(summary("a").deleted);
  EXPECT_TRUE(summary("a").hidden) << "restored as it was";
}

TEST_F(RunEdits, AreToldAsAChangeOfStatus) {
  record_everything("a");
  const StoreReader reader(store_);
  const auto before = reader.revisions().at(0).revisions.at("status");
  edit_run(store_, "a", {.note = "another"});
  EXPECT_EQ(reader.revisions().at(0).revisions.at("status"), before + 1);
}

TEST_F(RunEdits, AreBoundedInCharacters) {
  record_everything("a");
  std::string name;
  for (std::size_t i = 0; i < longest_run_name; ++i) name += "ü";
  edit_run(store_, "a", {.name = name, .note = std::string(longest_run_note, 'n')});
  EXPECT_THROW(edit_run(store_, "a", {.name = name + "x"}), Error);
  EXPECT_THROW(edit_run(store_, "a", {.note = std::string(longest_run_note + 1, 'n')}), Error);
  EXPECT_EQ(summary("a").name, name);
  EXPECT_THROW(edit_run(store_, "b", {.name = "x"}), NoSuchRecord);
}

TEST_F(RunEdits, AlertsOfAllLeaveOutHiddenAndDeletedRuns) {
  record_everything("a");
  record_everything("b");
  record_everything("c");
  edit_run(store_, "a", {.hidden = true});
  edit_run(store_, "b", {.deleted = true});
  const StoreReader reader(store_);
  ASSERT_EQ(reader.alerts().size(), 1U);
  EXPECT_EQ(reader.alerts().at(0).run, "c");
  EXPECT_EQ(reader.alerts("a").size(), 1U) << "its own page still has them";
}

TEST_F(RunEdits, ExportsOfAllLeaveOutDeletedRuns) {
  record_everything("a");
  record_everything("b");
  edit_run(store_, "a", {.deleted = true});
  const StoreReader reader(store_);
  const auto files = export_runs(reader, {}, folder_ / "out", {.format = ExportFormat::csv, .statistics = {}});
  EXPECT_THAT(files, ElementsAre(folder_ / "out/b/metrics.csv", folder_ / "out/b/numerics.csv"));
  EXPECT_FALSE(export_runs(reader, std::vector<std::string>{"a"}, folder_ / "out", {}).empty()) << "by name it is";
}

TEST_F(RunEdits, RemovalTakesEveryRowOfTheRunAndNoneOfAnother) {
  record_everything("a", 1200);  // more rows than one transaction removes
  record_everything("b");
  const std::string a = sql(store_, "SELECT key FROM runs WHERE id='a'");
  const std::string b = sql(store_, "SELECT key FROM runs WHERE id='b'");
  const auto tables = tables_with_rows_of(b);
  ASSERT_THAT(tables,
              ElementsAre("alerts", "annotations", "changes", "config", "documents", "events", "histogram_steps",
                          "histograms", "metrics", "numerics", "numerics_steps", "quantities", "revisions", "runs",
                          "samples", "site_states", "sites", "statistics", "tags"))
      << "every table that records of a run is looked at";
  edit_run(store_, "a", {.deleted = true});
  remove_run(store_, "a");
  EXPECT_THAT(tables_with_rows_of(a), IsEmpty());
  EXPECT_EQ(tables_with_rows_of(b), tables);
  EXPECT_THROW(summary("a"), NoSuchRecord);
  EXPECT_EQ(summary("b").loss, 1.0 / 20);
  EXPECT_THROW(remove_run(store_, "a"), NoSuchRecord);
}

TEST_F(RunEdits, OnlyADeletedRunThatIsNotTrainingIsRemoved) {
  record_everything("a");
  EXPECT_THROW(remove_run(store_, "a"), EditConflict);
  edit_run(store_, "a", {.deleted = true});
  sql(store_, "UPDATE runs SET status='running'");
  EXPECT_THROW(remove_run(store_, "a"), EditConflict);
  EXPECT_EQ(summary("a").loss, 1.0 / 20) << "nothing of it was removed";
  sql(store_, "UPDATE runs SET heartbeat=heartbeat-61");  // lost
  EXPECT_NO_THROW(remove_run(store_, "a"));
}

TEST_F(RunEdits, ARunThatTrainsAgainIsNoLongerDeleted) {
  record_everything("a");
  edit_run(store_, "a", {.name = "kept", .hidden = true, .deleted = true});
  const RunRecorder recorder(store_, small_run("a"), 10, collect(), quick());
  EXPECT_FALSE(summary("a").deleted);
  EXPECT_EQ(summary("a").name, "kept");
  EXPECT_TRUE(summary("a").hidden);
}

// Suspended, counted as lost, removed, and woken up: its number belongs to another run by then.
TEST_F(RunEdits, ARemovedRunThatGoesOnWritesIntoNoOther) {
  RunRecorder sleeper(store_, small_run("sleeper"), 0, collect(), quick());
  record_metric(sleeper, 1, 5);
  ASSERT_TRUE(sleeper.flush());
  edit_run(store_, "sleeper", {.deleted = true});
  sql(store_, "UPDATE runs SET heartbeat=heartbeat-61");
  remove_run(store_, "sleeper");
  record_everything("next");
  ASSERT_EQ(sql(store_, "SELECT key FROM runs WHERE id='next'"), "1") << "the number is given again";
  record_metric(sleeper, 2, 77);
  EXPECT_FALSE(sleeper.flush(std::chrono::seconds(10)));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("removed from the store")));
  EXPECT_EQ(summary("next").loss, 1.0 / 20);
  EXPECT_EQ(sql(store_, "SELECT count(*) FROM metrics WHERE value=77"), "0");
}

TEST_F(RunEdits, AndATrainingRunDoNotDisturbEachOther) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  std::thread editor([&] {
    for (int i = 0; i < 50; ++i) edit_run(store_, "a", {.note = std::to_string(i)});
  });
  for (std::uint64_t step = 1; step <= 500; ++step) {
    record_metric(recorder, step, 1);
    if (step % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  editor.join();
  ASSERT_TRUE(recorder.flush());
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(recorder.dropped(), 0U);
  EXPECT_EQ(summary("a").note, "49");
  EXPECT_EQ(StoreReader(store_).metrics("a", {}).at("loss").step.size(), 500U);
}

TEST_F(RunEdits, AStoreOfSchemaTwoIsReadAsItIsAndBroughtUpToDateByTheFirstEdit) {
  record_everything("a");
  sql(store_, "DROP TABLE annotations");
  sql(store_, "PRAGMA user_version=2");
  EXPECT_EQ(summary("a").name, "run a");
  EXPECT_FALSE(summary("a").hidden);
  EXPECT_EQ(StoreReader(store_).alerts().size(), 1U);
  EXPECT_EQ(sql(store_, "PRAGMA user_version"), "2") << "reading changes nothing";
  const StoreReader reader(store_);
  edit_run(store_, "a", {.name = "new"});
  EXPECT_EQ(reader.run("a").summary.name, "new");
  EXPECT_EQ(sql(store_, "PRAGMA user_version"), "3");
}

}  // namespace
}  // namespace quaver::test
