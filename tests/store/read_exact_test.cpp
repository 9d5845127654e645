// The reader's answers at their edges: lists, limits, replaced stores, columns, histograms, damage, and thinned series.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "store/histograms.h"
#include "store/numerics_table.h"
#include "store/schema.h"
#include "store/store_fixture.h"
#include "store/thinning.h"

namespace quaver::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ReadExact : public StoreTest {
 protected:
  std::unique_ptr<RunRecorder> recorder_of(const RunDescription& run, std::uint64_t last_step = 0) {
    return std::make_unique<RunRecorder>(store_, run, last_step, collect(), quick());
  }
  // One site of role x and one statistic that is worse when it is higher.
  static RunDescription one_site(std::size_t sites = 1) {
    RunDescription run = small_run("a", 1);
    const SiteDescription site = run.sites[0];
    run.sites.clear();
    for (std::size_t i = 0; i < sites; ++i) {
      run.sites.push_back(site);
      run.sites.back().name = fmt::format("{}/x", i);
      run.sites.back().layer = std::to_string(i);
    }
    run.statistics.resize(1);
    return run;
  }
  void record_samples(const RunDescription& run, std::uint64_t samples) {
    const auto recorder = recorder_of(run);
    for (std::uint64_t step = 1; step <= samples; ++step) {
      recorder->numerics(step, std::vector<float>(run.sites.size(), static_cast<float>(step)));
    }
    ASSERT_TRUE(recorder->flush());
  }
};

TEST_F(ReadExact, ListsAreLongWhenMuchHappened) {
  const auto recorder = recorder_of(small_run("a"));
  for (std::uint64_t step = 1; step <= 1001; ++step) {
    recorder->event(step, "kind", "text");
    recorder->sample(step, "text");
  }
  ASSERT_TRUE(recorder->flush());
  const StoreReader reader(store_);
  EXPECT_EQ(reader.events("a").size(), 1001U);
  EXPECT_EQ(reader.samples("a").size(), 1000U);
  EXPECT_EQ(reader.samples("a").front().step, 2U) << "the newest thousand";
  EXPECT_THAT(reader.events("a", 0), IsEmpty());
  EXPECT_EQ(reader.events("a", SIZE_MAX).size(), 1001U);
}

TEST_F(ReadExact, RecordsOfOneStepComeInTheirOrder) {
  const auto recorder = recorder_of(small_run("a"));
  for (const char* text : {"first", "second", "third"}) {
    recorder->event(4, "kind", text);
    recorder->scale_change({4, "s", text, 1, 2, "a", "b"});
    AlertRecord alert;
    alert.step = 4;
    alert.last_step = text == std::string("first") ? 9 : 4;
    alert.rule = text;
    recorder->alert(alert);
  }
  AlertRecord earlier;
  earlier.step = 3;
  earlier.last_step = 20;
  earlier.rule = "earlier";
  recorder->alert(earlier);
  ASSERT_TRUE(recorder->flush());
  const StoreReader reader(store_);
  std::vector<std::string> events, changes, alerts, all;
  for (const EventRecord& event : reader.events("a")) events.push_back(event.text);
  for (const ScaleChangeRecord& change : reader.changes("a")) changes.push_back(change.reason);
  for (const RunAlert& alert : reader.alerts("a")) alerts.push_back(alert.alert.rule);
  for (const RunAlert& alert : reader.alerts()) all.push_back(alert.alert.rule);
  EXPECT_THAT(events, ElementsAre("first", "second", "third"));
  EXPECT_THAT(changes, ElementsAre("third", "second", "first"));
  EXPECT_THAT(alerts, ElementsAre("third", "second", "first", "earlier")) << "by the step at which they began";
  EXPECT_THAT(all, ElementsAre("earlier", "third", "second", "first")) << "of all runs by when they were recorded";
}

TEST_F(ReadExact, MetricsAreThinnedToThePointsAskedFor) {
  const auto recorder = recorder_of(small_run("a"));
  for (std::uint64_t step = 1; step <= 100; ++step) record_metric(*recorder, step, static_cast<double>(step));
  ASSERT_TRUE(recorder->flush());
  const StoreReader reader(store_);
  const std::string names[] = {"loss"};
  EXPECT_THAT(reader.metrics("a", names, 0, 8).at("loss").step, ElementsAre(1, 50, 51, 100));
  EXPECT_EQ(reader.metrics("a", names, 0, 100).at("loss").step.size(), 100U);
  EXPECT_EQ(reader.metrics("a", names, 0, 99).at("loss").step.size(), 48U) << "24 buckets, of each the two ends";
  EXPECT_EQ(reader.metrics("a", names, 96, 4).at("loss").step.size(), 4U);
  EXPECT_EQ(reader.metrics("a", {}).size(), 2U) << "no names stand for all";
}

// Of equal values the first counts as the lowest and as the highest.
TEST(ThinnedExact, ABucketKeepsItsFirstLowestHighestAndLast) {
  const double none = std::nan("");
  const MetricSeries series{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 9, 1, 9, 1, 5, none, none, none, 5}};
  EXPECT_THAT(thinned(series, 4).step, ElementsAre(1, 2, 3, 10));
  EXPECT_THAT(thinned(series, 4).value, ElementsAre(5, 9, 1, 5));
  EXPECT_THAT(thinned(series, 8).step, ElementsAre(1, 2, 3, 5, 6, 10));
  EXPECT_EQ(thinned(series, 10).step.size(), 10U);
  EXPECT_EQ(thinned(series, 9).step.size(), 6U) << "two buckets of five";
  EXPECT_EQ(thinned({{1, 2, 3, 4}, {1, 2, 3, 4}}, 0).step.size(), 4U) << "four are always left";
  const MetricSeries nothing{{1, 2, 3, 4, 5}, {none, none, none, none, none}};
  EXPECT_THAT(thinned(nothing, 4).step, ElementsAre(1, 5));
}

TEST(PlanExact, ColumnsHoldEquallyManySamplesCountedFromTheFirst) {
  const auto expect = [](const ColumnPlan& plan, int level, std::uint64_t per_column, std::uint64_t first,
                         std::size_t columns) {
    EXPECT_EQ(plan.level, level);
    EXPECT_EQ(plan.samples_per_column, per_column);
    EXPECT_EQ(plan.first_column, first);
    EXPECT_EQ(plan.columns, columns);
  };
  const std::size_t plenty = std::size_t{1} << 40U;
  expect(plan_columns(0, 0, 10, 4, plenty), 0, 1, 0, 0);
  expect(plan_columns(0, 10, 10, 4, plenty), 0, 1, 0, 10);
  expect(plan_columns(0, 11, 10, 4, plenty), 0, 2, 0, 6);
  expect(plan_columns(5, 10, 10, 4, plenty), 0, 1, 5, 10);
  expect(plan_columns(3, 4, 2, 4, plenty), 0, 3, 1, 2);
  expect(plan_columns(0, 100, 0, 4, plenty), 0, 100, 0, 1);
  // A level is left only where it would read more than the budget and has more bins than columns.
  expect(plan_columns(0, 800, 10, 4, 3200), 0, 80, 0, 10);
  expect(plan_columns(0, 800, 10, 4, 3199), 1, 80, 0, 10);
  expect(plan_columns(0, 800, 800, 4, 1), 0, 1, 0, 800);
  expect(plan_columns(0, 6400, 10, 4, 3199), 2, 640, 0, 10);
  const ColumnPlan coarsest = plan_columns(0, std::uint64_t{1} << 40U, 1, 4, 1);
  EXPECT_EQ(coarsest.level, numerics_levels - 1);
  EXPECT_EQ(coarsest.columns, 1U);
}

TEST(WorseExact, OfEqualsTheFirstStays) {
  EXPECT_EQ(worse_of(WorseWay::larger_magnitude, 3, -3), 3);
  EXPECT_EQ(worse_of(WorseWay::larger_magnitude, -3, 3), -3);
  EXPECT_EQ(worse_of(WorseWay::larger_magnitude, -3, 2), -3);
  EXPECT_EQ(worse_of(WorseWay::higher, -3, 2), 2);
  EXPECT_EQ(worse_of(WorseWay::lower, -3, 2), -3);
  EXPECT_EQ(worse_of(WorseWay::lower, 4, 2), 2);
}

TEST(LayoutExact, ChunksHave240SitesOr1024) {
  EXPECT_EQ(sites_per_chunk(1), 240U);
  EXPECT_EQ(sites_per_chunk(719), 240U);
  EXPECT_EQ(sites_per_chunk(720), 1024U);
  EXPECT_EQ(samples_per_bin(0), 1U);
  EXPECT_EQ(samples_per_bin(1), 8U);
  EXPECT_EQ(samples_per_bin(3), 512U);
  EXPECT_EQ(numerics_levels, 9);
  const std::string roles[] = {"w", "x", "w", "dy", "x"};
  const SiteLayout layout = SiteLayout::of(roles);
  EXPECT_EQ(layout.sites, 5U);
  ASSERT_EQ(layout.roles.size(), 3U);
  EXPECT_EQ(layout.roles[0].name, "w");
  EXPECT_THAT(layout.roles[0].sites, ElementsAre(0, 2));
  EXPECT_EQ(layout.roles[1].name, "x");
  EXPECT_THAT(layout.roles[1].sites, ElementsAre(1, 4));
  EXPECT_THAT(layout.roles[2].sites, ElementsAre(3));
  const SiteLayout large = SiteLayout::of(std::vector<std::string>(481, "x"));
  EXPECT_EQ(large.roles[0].chunks(), 3U);
  EXPECT_EQ(large.roles[0].chunk_size(0), 240U);
  EXPECT_EQ(large.roles[0].chunk_size(2), 1U);
}

// From 96 sites on, 3 KiB of eight samples, a complete group becomes one row.
TEST_F(ReadExact, GroupsOfLargeRowsShareOne) {
  const auto rows = [&](std::size_t sites, std::uint64_t samples) {
    fs::remove(store_);
    record_samples(one_site(sites), samples);
    return sql(store_, "SELECT count(*) FROM numerics WHERE level=0");
  };
  EXPECT_EQ(rows(95, 9), "9");
  EXPECT_EQ(rows(96, 7), "7");
  EXPECT_EQ(rows(96, 9), "2");
  EXPECT_EQ(sql(store_, "SELECT length(data) FROM numerics WHERE level=0 AND bin=0"), "3072");
  EXPECT_EQ(sql(store_, "SELECT count(*) FROM numerics WHERE level=1"), "1");
}

TEST_F(ReadExact, AViewOfOneColumnAndRowIsTheWorstOfAll) {
  record_samples(one_site(5), 20);
  const StoreReader reader(store_);
  for (const std::size_t size : {0UL, 1UL}) {
    const NumericsView view = reader.numerics("a", {.statistic = "amax", .role = "x", .columns = size, .rows = size});
    EXPECT_THAT(view.values, ElementsAre(20));
    EXPECT_THAT(view.steps, ElementsAre(1));
    EXPECT_EQ(view.last_step, 20U);
    EXPECT_EQ(view.samples_per_column, 20U);
    EXPECT_EQ(view.layers_per_row, 5U);
  }
  const NumericsView view = reader.numerics("a", {.statistic = "amax", .role = "x", .columns = 5, .rows = 2});
  EXPECT_THAT(view.steps, ElementsAre(1, 5, 9, 13, 17));
  ASSERT_EQ(view.rows.size(), 2U);
  EXPECT_EQ(view.rows[1].layer, "3");
  EXPECT_EQ(view.rows[1].first, 3U);
  EXPECT_EQ(view.rows[1].count, 2U);
  EXPECT_THAT(view.values, ElementsAre(4, 8, 12, 16, 20, 4, 8, 12, 16, 20));
  const SiteHistory history = reader.history("a", "4/x", 5);
  EXPECT_EQ(history.samples_per_point, 4U);
  EXPECT_THAT(history.statistics[0].second, ElementsAre(4, 8, 12, 16, 20));
  EXPECT_THAT(reader.history("a", "4/x", 0).statistics[0].second, ElementsAre(20));
}

// What a rewind removes is gone at every level: samples that follow without a figure show none.
TEST_F(ReadExact, RewoundFiguresDoNotComeBack) {
  const RunDescription run = one_site();
  const auto recorder = recorder_of(run);
  const auto record = [&](std::uint64_t from, std::uint64_t to, float value) {
    for (std::uint64_t step = from; step <= to; ++step) recorder->numerics(step, std::vector<float>{value});
  };
  record(1, 4, nan_value);
  record(5, 8, 9);
  ASSERT_TRUE(recorder->flush());
  EXPECT_EQ(sql(store_, "SELECT count(*) FROM numerics"), "5") << "four samples and the group's worst";
  recorder->rewind(7);
  record(8, 8, nan_value);
  ASSERT_TRUE(recorder->flush());
  EXPECT_TRUE(std::isnan(StoreReader(store_).history("a", "0/x").statistics[0].second.at(7)));
  EXPECT_EQ(StoreReader(store_).history("a", "0/x").statistics[0].second.at(6), 9);
  recorder->rewind(4);
  record(5, 8, nan_value);
  ASSERT_TRUE(recorder->flush());
  EXPECT_EQ(sql(store_, "SELECT count(*) FROM numerics"), "0");
  EXPECT_EQ(StoreReader(store_).history("a", "0/x").step.size(), 8U);
}

TEST_F(ReadExact, AStoreIsLookedAtAnewWhenItIsReplaced) {
  record_metric(*recorder_of(small_run("old")), 1, 2);
  const StoreReader reader(store_);
  reader.data_version();
  // In the midst of an answer: the connection to the old file must not answer the next question.
  reader.visit_metrics("old", [&](std::uint64_t, std::span<const MetricValue>) {
    fs::rename(store_, folder_ / "away.db");
    recorder_of(small_run("new"));
    EXPECT_EQ(reader.runs().at(0).id, "new");
  });
  EXPECT_EQ(reader.runs().at(0).id, "new");
  const std::uint64_t version = reader.data_version();
  EXPECT_EQ(reader.data_version(), version);
  record_metric(*recorder_of(small_run("new")), 1, 2);
  EXPECT_NE(reader.data_version(), version) << "what is written to the new file is seen";
}

TEST_F(ReadExact, AHistogramOfManySitesIsTheSitesOwn) {
  const RunDescription run = one_site(300);
  {
    const auto recorder = recorder_of(run);
    for (const std::uint64_t step : {10U, 20U}) {
      std::vector<BinadeCounts> counts(300);
      for (std::size_t site = 0; site < 300; ++site) counts[site][site % 64] = 1000 * step + site;
      recorder->numerics(step, std::vector<float>(300, static_cast<float>(step)), std::move(counts));
      ASSERT_TRUE(recorder->flush());
    }
  }
  const StoreReader reader(store_);
  for (const std::size_t site : {0UL, 1UL, 127UL, 128UL, 129UL, 255UL, 256UL, 299UL}) {
    const SiteHistogram found = reader.histogram("a", fmt::format("{}/x", site), 10);
    EXPECT_EQ(found.counts[site % 64], 10000 + site);
    EXPECT_EQ(found.step, 10U);
    EXPECT_EQ(found.statistics.at(0).second, 10);
  }
  EXPECT_EQ(reader.histogram("a", "0/x", 15).step, 10U) << "as near as the other, and earlier";
  EXPECT_EQ(reader.histogram("a", "0/x", 16).step, 20U);
  EXPECT_THAT(reader.damaged_blobs("a"), IsEmpty());
  sql(store_, "UPDATE histograms SET data=CAST(data||x'00' AS BLOB), checksum=NULL WHERE step=10 AND chunk=1");
  sql(store_, "UPDATE histograms SET chunk=3 WHERE step=20 AND chunk=2");
  const auto damaged = reader.damaged_blobs("a");
  ASSERT_EQ(damaged.size(), 2U);
  EXPECT_EQ(damaged[0].table, "histograms");
  EXPECT_EQ(damaged[0].step, 10U) << "bytes behind the last site";
  EXPECT_EQ(damaged[1].step, 20U) << "sites that the run does not have";
}

TEST(CountsExact, AreWrittenInAsFewBytesAsTheyNeed) {
  const auto bytes_of_counts = [](std::initializer_list<std::pair<std::size_t, std::uint64_t>> filled) {
    BinadeCounts counts{};
    for (const auto& [bin, count] : filled) counts[bin] = count;
    std::vector<std::byte> bytes;
    encode_counts(counts, bytes);
    std::span<const std::byte> rest(bytes);
    EXPECT_EQ(decode_counts(rest), counts);
    std::vector<int> numbers;
    for (const std::byte byte : bytes) numbers.push_back(std::to_integer<int>(byte));
    return numbers;
  };
  EXPECT_THAT(bytes_of_counts({}), ElementsAre(0, 0));
  EXPECT_THAT(bytes_of_counts({{5, 1}}), ElementsAre(5, 1, 1));
  EXPECT_THAT(bytes_of_counts({{63, 127}}), ElementsAre(63, 1, 127));
  EXPECT_THAT(bytes_of_counts({{0, 128}, {2, 300}}), ElementsAre(0, 3, 128, 1, 0, 172, 2));
  EXPECT_EQ(bytes_of_counts({{0, UINT64_MAX}}).size(), 12U);
}

TEST_F(ReadExact, DamageIsNamedByTheFirstStepItCosts) {
  const RunDescription run = one_site(96);
  record_samples(run, 24);
  const auto spoil = [&](const char* row) {
    sql(store_, fmt::format("UPDATE numerics SET checksum=checksum+1 WHERE {}", row));
  };
  const auto what = [&](std::uint64_t from, std::uint64_t to) -> std::string {
    try {
      StoreReader(store_).numerics("a", {.statistic = "amax", .role = "x", .from = from, .to = to});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  spoil("level=0 AND bin=8");
  EXPECT_THAT(what(1, 24), HasSubstr("step 9:"));
  EXPECT_THAT(what(12, 24), HasSubstr("step 12:")) << "of the group the part that was asked for";
  EXPECT_THAT(what(16, 16), HasSubstr("step 16:"));
  EXPECT_EQ(what(1, 8), "");
  EXPECT_EQ(what(17, 24), "");
  spoil("level=1 AND bin=2");
  const auto damaged = StoreReader(store_).damaged_blobs("a");
  ASSERT_EQ(damaged.size(), 2U);
  EXPECT_EQ(damaged[0].step, 9U);
  EXPECT_EQ(damaged[1].step, 17U);
}

TEST_F(ReadExact, RowsThatCannotBeAreDamage) {
  record_samples(one_site(96), 16);
  sql(store_, "UPDATE numerics SET bin=9 WHERE level=0 AND bin=8");
  const auto damaged = StoreReader(store_).damaged_blobs("a");
  ASSERT_EQ(damaged.size(), 1U) << "eight bins from the second of a group on";
  EXPECT_EQ(damaged[0].step, 10U);
  EXPECT_THROW(StoreReader(store_).history("a", "3/x"), StoreFailure);
}

TEST_F(ReadExact, SamplesAreNumberedWithoutGaps) {
  record_samples(one_site(), 6);
  sql(store_, "UPDATE numerics_steps SET sample=sample+1 WHERE step>=5");
  const StoreReader reader(store_);
  EXPECT_THROW(reader.history("a", "0/x"), StoreFailure);
  EXPECT_NO_THROW(reader.numerics("a", {.statistic = "amax", .role = "x", .from = 1, .to = 4}));
}

TEST_F(ReadExact, OnlyStoresOfKnownVersionsAreRead) {
  recorder_of(small_run("a"));
  EXPECT_EQ(sql(store_, "PRAGMA user_version"), "3");
  EXPECT_EQ(sql(store_, "PRAGMA application_id"), std::to_string(0x51765201));
  EXPECT_EQ(sql(store_, "PRAGMA journal_mode"), "wal");
  for (const char* version : {"0", "4", "-1"}) {
    sql(store_, fmt::format("PRAGMA user_version={}", version));
    EXPECT_THROW(StoreReader{store_}, StoreFailure) << version;
    warnings_.clear();
    EXPECT_FALSE(recorder_of(small_run("a"))->recording()) << version;
    EXPECT_EQ(warnings_.size(), 1U);
    EXPECT_EQ(sql(store_, "PRAGMA user_version"), version) << "left alone";
  }
  sql(store_, "PRAGMA user_version=3");
  EXPECT_NO_THROW(StoreReader{store_});
  sql(store_, "PRAGMA application_id=7");
  EXPECT_THROW(StoreReader{store_}, StoreFailure);
}

TEST_F(ReadExact, AStatusIsRunningUntilAMinuteWithoutASign) {
  recorder_of(small_run("a"));
  const auto status_after = [&](int seconds) {
    sql(store_, fmt::format("UPDATE runs SET status='running', heartbeat=strftime('%s','now')-{}", seconds));
    return StoreReader(store_).run("a").summary.status;
  };
  EXPECT_EQ(status_after(50), RunStatus::running);
  EXPECT_EQ(status_after(62), RunStatus::lost);
  sql(store_, "UPDATE runs SET status='no such status', heartbeat=0");
  EXPECT_EQ(StoreReader(store_).run("a").summary.status, RunStatus::lost);
}

}  // namespace
}  // namespace quaver::test
