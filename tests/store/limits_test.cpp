// Limits of the store, exactly: how long a run has left, which records a list has, which tags are taken, which
// histograms are kept, and what a rewind leaves.
#include <gmock/gmock.h>

#include "store/exports.h"
#include "store/histograms.h"
#include "store/run_edits.h"
#include "store/store_fixture.h"

namespace quaver::test {
namespace {

using testing::ElementsAre;

class StoreLimits : public StoreTest {
 protected:
  RunSummary summary() const { return StoreReader(store_).run("a").summary; }
};

void record_speed(RunRecorder& recorder, std::uint64_t step, double tokens_per_second) {
  const MetricValue values[] = {{"tokens_per_second", tokens_per_second}};
  recorder.metrics(step, values);
}

// 2048 tokens a step, 100 steps.
TEST_F(StoreLimits, ARunThatDoesNotRunHasNoTimeLeft) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  record_speed(recorder, 50, 0);
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(summary().eta_seconds, std::nullopt) << "at no speed";
  record_speed(recorder, 51, 1024);
  ASSERT_TRUE(recorder.flush());
  EXPECT_DOUBLE_EQ(summary().eta_seconds.value(), 98);
  for (const RunStatus status : {RunStatus::finished, RunStatus::interrupted, RunStatus::failed}) {
    recorder.status(status);
    ASSERT_TRUE(recorder.flush());
    EXPECT_EQ(summary().status, status);
    EXPECT_EQ(summary().eta_seconds, std::nullopt) << name_of(status);
  }
  sql(store_, "UPDATE runs SET status='running', heartbeat=heartbeat-61");
  EXPECT_EQ(summary().status, RunStatus::lost);
  EXPECT_EQ(summary().eta_seconds, std::nullopt);
}

AlertRecord alert_at(std::uint64_t step) {
  AlertRecord alert;
  alert.step = alert.last_step = step;
  alert.rule = "rule";
  alert.severity = "warning";
  return alert;
}

template <typename List>
std::vector<std::uint64_t> steps_of(const List& list) {
  std::vector<std::uint64_t> steps;
  for (const auto& record : list) {
    if constexpr (requires { record.alert; }) {
      steps.push_back(record.alert.step);
    } else {
      steps.push_back(record.step);
    }
  }
  return steps;
}

// A limit takes the newest. Changes and alerts come newest first, events and samples in the order they happened.
TEST_F(StoreLimits, ListsHaveTheNewest) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  for (std::uint64_t step = 1; step <= 5; ++step) {
    recorder.event(step, "tick", "tock");
    recorder.sample(step, "text");
    recorder.alert(alert_at(step));
    recorder.scale_change({step, "blocks.0.up/x", "why", 1, 2, "a", "b"});
  }
  ASSERT_TRUE(recorder.flush());
  const StoreReader reader(store_);
  EXPECT_THAT(steps_of(reader.events("a", 3)), ElementsAre(3, 4, 5));
  EXPECT_THAT(steps_of(reader.samples("a", 3)), ElementsAre(3, 4, 5));
  EXPECT_THAT(steps_of(reader.alerts("a", 3)), ElementsAre(5, 4, 3));
  EXPECT_THAT(steps_of(reader.alerts(3)), ElementsAre(5, 4, 3));
  EXPECT_THAT(steps_of(reader.changes("a", 3)), ElementsAre(5, 4, 3));
  EXPECT_THAT(steps_of(reader.events("a")), ElementsAre(1, 2, 3, 4, 5));
}

// What a rewind leaves: everything up to its step and nothing after it, within one batch of records as well.
TEST_F(StoreLimits, ARewindLeavesWhatItsStepCovers) {
  RunRecorder recorder(store_, small_run("a"), 0, collect());  // slow transactions: all of it in one batch
  for (std::uint64_t step = 1; step <= 5; ++step) {
    record_metric(recorder, step, 2);
    recorder.event(step, "tick", "tock");
    recorder.sample(step, "text");
    recorder.alert(alert_at(step));
    recorder.scale_change({step, "blocks.0.up/x", "why", 1, 2, "a", "b"});
  }
  recorder.document("settings", "[]");
  AlertRecord lasting = alert_at(2);
  lasting.rule = "lasting";
  lasting.last_step = 5;
  recorder.alert(lasting);
  recorder.rewind(3);
  ASSERT_TRUE(recorder.flush());
  const StoreReader reader(store_);
  EXPECT_EQ(reader.run("a").summary.step, 3U);
  EXPECT_THAT(reader.metrics("a", {}).at("loss").step, ElementsAre(1, 2, 3));
  EXPECT_THAT(steps_of(reader.events("a")), ElementsAre(1, 2, 3));
  EXPECT_THAT(steps_of(reader.samples("a")), ElementsAre(1, 2, 3));
  EXPECT_THAT(steps_of(reader.changes("a")), ElementsAre(3, 2, 1));
  EXPECT_THAT(steps_of(reader.alerts("a")), ElementsAre(3, 2, 2, 1));
  for (const RunAlert& alert : reader.alerts("a")) {
    EXPECT_EQ(alert.alert.last_step, alert.alert.rule == "lasting" ? 3 : alert.alert.step);
  }
  EXPECT_EQ(reader.document("a", "settings"), "[]");
}

TEST_F(StoreLimits, TagsAreBoundedInNumberAndLength) {
  const RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  const std::string longest(64, 'x');
  std::string umlauts;
  for (int i = 0; i < 64; ++i) umlauts += "ü";
  std::vector<std::string> most{longest, umlauts};
  while (most.size() < 32) most.push_back(std::to_string(most.size()));
  edit_run(store_, "a", {.tags = most});
  EXPECT_EQ(summary().tags, most);
  const std::vector<std::string> too_long{longest + "x"};
  EXPECT_THROW(edit_run(store_, "a", {.tags = too_long}), Error);
  std::vector<std::string> too_many = most;
  too_many.push_back("one more");
  EXPECT_THROW(edit_run(store_, "a", {.tags = too_many}), Error);
  EXPECT_EQ(summary().tags, most);
}

// 64 are kept, the newest among them: from the 64th on every second, from the 127th on every fourth.
TEST(HistogramStride, DoublesWhenSixtyFourAreKept) {
  EXPECT_EQ(histogram_stride(0), 1U);
  EXPECT_EQ(histogram_stride(62), 1U);
  EXPECT_EQ(histogram_stride(63), 2U);
  EXPECT_EQ(histogram_stride(125), 2U);
  EXPECT_EQ(histogram_stride(126), 4U);
  EXPECT_EQ(histogram_stride(251), 4U);
  EXPECT_EQ(histogram_stride(252), 8U);
}

// The kept step nearest to the one asked for; the newest where none is.
TEST_F(StoreLimits, AHistogramIsThatOfTheNearestStep) {
  const RunDescription run = small_run("a");
  RunRecorder recorder(store_, run, 0, collect(), quick());
  for (const std::uint64_t step : {10U, 20U, 40U}) {
    std::vector<BinadeCounts> counts(run.sites.size());
    for (BinadeCounts& of_site : counts) of_site[3] = step;
    recorder.numerics(step, values_of(run, step), std::move(counts));
  }
  ASSERT_TRUE(recorder.flush());
  const StoreReader reader(store_);
  const auto nearest = [&](std::optional<std::uint64_t> step) {
    const SiteHistogram found = reader.histogram("a", "blocks.1.up/w", step);
    EXPECT_EQ(found.counts[3], found.step);
    return found.step;
  };
  EXPECT_EQ(nearest(std::nullopt), 40U);
  EXPECT_EQ(nearest(0), 10U);
  EXPECT_EQ(nearest(14), 10U);
  EXPECT_EQ(nearest(16), 20U);
  EXPECT_EQ(nearest(29), 20U);
  EXPECT_EQ(nearest(31), 40U);
  EXPECT_EQ(nearest(1000), 40U);
}

// Steps from and to are both part of the view.
TEST_F(StoreLimits, AViewHasBothItsEnds) {
  const RunDescription run = small_run("a");
  RunRecorder recorder(store_, run, 0, collect(), quick());
  for (const std::uint64_t step : {2U, 4U, 6U, 8U}) recorder.numerics(step, values_of(run, step));
  ASSERT_TRUE(recorder.flush());
  const NumericsView view = StoreReader(store_).numerics("a", {.statistic = "amax", .role = "dy", .from = 4, .to = 6});
  EXPECT_THAT(view.steps, ElementsAre(4, 6));
  EXPECT_EQ(view.last_step, 6U);
  ASSERT_EQ(view.values.size(), 6U);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(same(view.values[2 * layer], figure(4, 3 * layer + 2, 0)));
    EXPECT_TRUE(same(view.values[2 * layer + 1], figure(6, 3 * layer + 2, 0)));
  }
}

// RFC 4180: a field with a comma, a quotation mark or the end of a line stands between quotation marks.
TEST_F(StoreLimits, CsvQuotesWhatWouldEndAFieldOrALine) {
  RunDescription run = small_run("a", 2);
  const std::vector<std::string> names{"plain", "a,b", "a\"b", "a\nb", "a\rb", "a b;c"};
  for (std::size_t i = 0; i < names.size(); ++i) run.sites[i].name = names[i];
  RunRecorder recorder(store_, run, 0, collect(), quick());
  recorder.numerics(1, std::vector<float>(run.sites.size() * run.statistics.size(), 1.5F));
  ASSERT_TRUE(recorder.flush());
  export_run(StoreReader(store_), "a", folder_ / "out", {.format = ExportFormat::csv, .statistics = {"amax"}});
  EXPECT_EQ(contents(folder_ / "out/a/numerics.csv"),
            "step,site,statistic,value\n"
            "1,plain,amax,1.5\n"
            "1,\"a,b\",amax,1.5\n"
            "1,\"a\"\"b\",amax,1.5\n"
            "1,\"a\nb\",amax,1.5\n"
            "1,\"a\rb\",amax,1.5\n"
            "1,a b;c,amax,1.5\n");
}

}  // namespace
}  // namespace quaver::test
