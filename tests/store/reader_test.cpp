#include "store/reader.h"

#include <gmock/gmock.h>
#include <random>
#include <thread>

#include "store/run_edits.h"
#include "store/store_fixture.h"
#include "store/thinning.h"

namespace quaver {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::IsEmpty;

class Reader : public StoreTest {};

TEST(Thinned, KeepsEndsAndExtremesInOrder) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (const std::size_t count : {5UL, 100UL, 1001UL, 20000UL}) {
    for (const std::size_t points : {0UL, 4UL, 50UL, 999UL, 2000UL}) {
      MetricSeries series;
      for (std::size_t i = 0; i < count; ++i) {
        series.step.push_back(3 * i + 1);
        series.value.push_back(i % 7 == 3 ? std::nan("") : normal(random));
      }
      const MetricSeries thin = thinned(series, points);
      ASSERT_LE(thin.step.size(), std::max<std::size_t>(points, 4));
      ASSERT_EQ(thin.step.size(), thin.value.size());
      EXPECT_EQ(thin.step.front(), series.step.front());
      EXPECT_EQ(thin.step.back(), series.step.back());
      EXPECT_TRUE(std::is_sorted(thin.step.begin(), thin.step.end()));
      const auto extremes = [](const MetricSeries& of) {
        double low = 1e9;
        double high = -1e9;
        for (const double value : of.value) {
          if (value < low) low = value;
          if (value > high) high = value;
        }
        return std::pair(low, high);
      };
      EXPECT_EQ(extremes(thin), extremes(series));
      for (std::size_t i = 0; i < thin.step.size(); ++i) {
        const double original = series.value[(thin.step[i] - 1) / 3];
        EXPECT_TRUE(thin.value[i] == original || (std::isnan(thin.value[i]) && std::isnan(original)));
      }
    }
  }
}

TEST(Thinned, EveryBucketKeepsItsSpike) {
  MetricSeries series;
  for (std::size_t i = 0; i < 10000; ++i) {
    series.step.push_back(i);
    series.value.push_back(i % 100 == 57 ? 100.0 + static_cast<double>(i) : 0.0);
  }
  const MetricSeries thin = thinned(series, 400);
  for (std::size_t spike = 57; spike < 10000; spike += 100) {
    EXPECT_THAT(thin.step, testing::Contains(spike));
  }
}

TEST_F(Reader, GivesLaterStepsOnlyAndEmptySeriesForUnknownNames) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  for (std::uint64_t step = 1; step <= 10; ++step) record_metric(recorder, step, 1);
  ASSERT_TRUE(recorder.flush());
  const std::string names[] = {"loss", "no_such"};
  const auto found = StoreReader(store_).metrics("a", names, 7);
  EXPECT_EQ(found.size(), 2U);
  EXPECT_THAT(found.at("loss").step, ElementsAre(8, 9, 10));
  EXPECT_THAT(found.at("no_such").step, IsEmpty());
  EXPECT_THAT(StoreReader(store_).metrics("a", names, UINT64_MAX).at("loss").step, IsEmpty());
}

TEST_F(Reader, WhatIsNotThereIsNoSuchRecord) {
  const RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  StoreReader reader(store_);
  EXPECT_THROW(reader.run("b"), NoSuchRecord);
  EXPECT_THROW(reader.run("' OR 1=1 --"), NoSuchRecord);
  EXPECT_THROW(reader.metrics("b", {}), NoSuchRecord);
  EXPECT_THROW(reader.numerics("a", {.statistic = "none", .role = "x"}), NoSuchRecord);
  EXPECT_THROW(reader.numerics("a", {.statistic = "amax", .role = "z"}), NoSuchRecord);
  EXPECT_THROW(reader.history("a", "nowhere"), NoSuchRecord);
  EXPECT_THROW(reader.histogram("a", "blocks.0.up/x"), NoSuchRecord);
  EXPECT_THROW(edit_run(store_, "b", {.hidden = true}), NoSuchRecord);
}

TEST_F(Reader, RunsComeNewestFirstAndASilentOneIsLost) {
  { const RunRecorder first(store_, small_run("first"), 0, collect(), quick()); }
  const RunRecorder second(store_, small_run("second"), 0, collect(), quick());
  const StoreReader reader(store_);
  ASSERT_EQ(reader.runs().size(), 2U);
  EXPECT_EQ(reader.runs()[0].id, "second");
  EXPECT_EQ(reader.runs()[1].status, RunStatus::running);
  sql(store_, "UPDATE runs SET heartbeat=heartbeat-59 WHERE id='first'");
  EXPECT_EQ(reader.runs()[1].status, RunStatus::running);
  sql(store_, "UPDATE runs SET heartbeat=heartbeat-2 WHERE id='first'");
  EXPECT_EQ(reader.runs()[1].status, RunStatus::lost);
  EXPECT_EQ(reader.revisions()[0].status, RunStatus::lost);
  sql(store_, "UPDATE runs SET status='finished' WHERE id='first'");
  EXPECT_EQ(reader.runs()[1].status, RunStatus::finished);
}

TEST_F(Reader, TagsAreKeptAsTheyAre) {
  const RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  const StoreReader reader(store_);
  const std::vector<std::string> tags{"gut", "ж\"'; DROP TABLE tags", "<b>"};
  edit_run(store_, "a", {.tags = tags});
  EXPECT_EQ(reader.run("a").summary.tags, tags);
  edit_run(store_, "a", {.tags = {{"one"}}});
  EXPECT_THAT(reader.runs()[0].tags, ElementsAre("one"));
  EXPECT_THROW(edit_run(store_, "a", {.tags = std::vector<std::string>(33, "t")}), Error);
  EXPECT_THROW(edit_run(store_, "a", {.tags = {{std::string(65, 't')}}}), Error);
  std::string wide;
  for (int i = 0; i < 64; ++i) wide += "ж";
  EXPECT_NO_THROW(edit_run(store_, "a", {.tags = {{wide}}}));
}

TEST_F(Reader, SaysWhatChangedSinceTheLastLook) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  StoreReader reader(store_);
  const std::uint64_t version = reader.data_version();
  EXPECT_EQ(reader.data_version(), version);
  const auto before = reader.revisions();
  record_metric(recorder, 4, 1);
  recorder.event(4, "kind", "text");
  ASSERT_TRUE(recorder.flush());
  EXPECT_NE(reader.data_version(), version);
  const auto after = reader.revisions();
  ASSERT_EQ(after.size(), 1U);
  EXPECT_EQ(after[0].step, 4U);
  const auto changed = [&](const std::string& kind) {
    const auto count = [&](const RunRevision& run) {
      const auto found = run.revisions.find(kind);
      return found == run.revisions.end() ? 0 : found->second;
    };
    return count(after[0]) != count(before[0]);
  };
  EXPECT_TRUE(changed("metrics"));
  EXPECT_TRUE(changed("events"));
  EXPECT_FALSE(changed("numerics"));
  EXPECT_FALSE(changed("status"));
}

TEST_F(Reader, SeesAStoreThatWasReplaced) {
  { const RunRecorder recorder(store_, small_run("old"), 0, collect(), quick()); }
  const StoreReader reader(store_);
  EXPECT_EQ(reader.runs()[0].id, "old");
  const std::uint64_t version = reader.data_version();
  fs::rename(store_, folder_ / "away.db");
  EXPECT_THROW(reader.runs(), Error);
  { const RunRecorder recorder(store_, small_run("new"), 0, collect(), quick()); }
  EXPECT_EQ(reader.runs()[0].id, "new");
  EXPECT_NE(reader.data_version(), version);
}

TEST_F(Reader, AnswersFromSeveralThreadsAreConsistentWhileATrainerWrites) {
  const RunDescription run = small_run("a");
  RunRecorder recorder(store_, run, 0, collect(), quick());
  record_metric(recorder, 1, 1);
  ASSERT_TRUE(recorder.flush());
  const StoreReader reader(store_);
  std::atomic<bool> done = false;
  std::atomic<int> looks = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (!done) {
        // Both series are written in one transaction, so neither may be ahead of the other.
        const auto found = reader.metrics("a", {});
        EXPECT_EQ(found.at("loss").step, found.at("learning_rate").step);
        const NumericsView view = reader.numerics("a", {.statistic = "amax", .role = "w"});
        EXPECT_EQ(view.values.size(), view.rows.size() * view.steps.size());
        ++looks;
      }
    });
  }
  for (std::uint64_t step = 2; step <= 300; ++step) {
    record_metric(recorder, step, 1);
    recorder.numerics(step, values_of(run, step));
    if (step % 5 == 0) {
      EXPECT_TRUE(recorder.flush());
    }
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(looks, 4);
  EXPECT_THAT(warnings_, IsEmpty());
}

}  // namespace
}  // namespace quaver
