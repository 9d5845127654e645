// Fields that come back one by one, and figures that the reader works out.
#include <functional>
#include <gmock/gmock.h>

#include "store/exports.h"
#include "store/store_fixture.h"

namespace quaver {
namespace {

using namespace test;

class ReadBack : public StoreTest {};

TEST_F(ReadBack, EveryFieldOfAnAlert) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  AlertRecord alert;
  alert.step = 3;
  alert.last_step = 9;
  alert.count = 4;
  alert.rule = "saturation";
  alert.severity = "critical";
  alert.site = "blocks.1.up/w";
  alert.value = 12.5;
  alert.threshold = 1.25;
  alert.text = "a text";
  alert.meaning = "a meaning";
  alert.remedy = "a remedy";
  alert.act = "an act";
  recorder.alert(alert);
  ASSERT_TRUE(recorder.flush());
  const auto alerts = StoreReader(store_).alerts("a");
  ASSERT_EQ(alerts.size(), 1U);
  const AlertRecord& found = alerts[0].alert;
  EXPECT_EQ(found.step, 3U);
  EXPECT_EQ(found.last_step, 9U);
  EXPECT_EQ(found.count, 4U);
  EXPECT_EQ(found.rule, "saturation");
  EXPECT_EQ(found.severity, "critical");
  EXPECT_EQ(found.site, "blocks.1.up/w");
  EXPECT_EQ(found.value, 12.5);
  EXPECT_EQ(found.threshold, 1.25);
  EXPECT_EQ(found.text, "a text");
  EXPECT_EQ(found.meaning, "a meaning");
  EXPECT_EQ(found.remedy, "a remedy");
  EXPECT_EQ(found.act, "an act");
}

TEST_F(ReadBack, EveryFieldOfAChange) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  recorder.scale_change({7, "blocks.0.up/dy", "a reason", 2, 0.5, "e4m3", "bf16"});
  recorder.event(8, "kind", "text");
  recorder.sample(9, "sampled");
  ASSERT_TRUE(recorder.flush());
  const StoreReader reader(store_);
  const auto changes = reader.changes("a");
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].step, 7U);
  EXPECT_EQ(changes[0].site, "blocks.0.up/dy");
  EXPECT_EQ(changes[0].reason, "a reason");
  EXPECT_EQ(changes[0].scale_before, 2);
  EXPECT_EQ(changes[0].scale_after, 0.5);
  EXPECT_EQ(changes[0].format_before, "e4m3");
  EXPECT_EQ(changes[0].format_after, "bf16");
  EXPECT_EQ(reader.events("a").at(0).step, 8U);
  EXPECT_EQ(reader.events("a").at(0).kind, "kind");
  EXPECT_EQ(reader.samples("a").at(0).step, 9U);
}

// 100 steps of 2048 tokens.
TEST_F(ReadBack, TheTimeLeftFollowsFromTheRate) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  const auto left_at = [&](std::uint64_t step, double rate) {
    const MetricValue value{"tokens_per_second", rate};
    recorder.metrics(step, {&value, 1});
    EXPECT_TRUE(recorder.flush());
    return StoreReader(store_).run("a").summary.eta_seconds;
  };
  EXPECT_EQ(left_at(1, 0), std::nullopt) << "at this rate never";
  EXPECT_EQ(left_at(2, 2048), 98);
  EXPECT_EQ(left_at(60, 4096), 20);
  EXPECT_EQ(left_at(100, 4096), 0);
  recorder.status(RunStatus::finished);
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(StoreReader(store_).run("a").summary.eta_seconds, std::nullopt);
}

TEST_F(ReadBack, AViewSaysWhichWayIsWorse) {
  const RunDescription run = small_run("a");
  RunRecorder recorder(store_, run, 0, collect(), quick());
  recorder.numerics(1, values_of(run, 1));
  ASSERT_TRUE(recorder.flush());
  const StoreReader reader(store_);
  EXPECT_EQ(reader.numerics("a", {.statistic = "amax", .role = "x"}).worse, WorseWay::higher);
  EXPECT_EQ(reader.numerics("a", {.statistic = "sqnr_db", .role = "x"}).worse, WorseWay::lower);
  const NumericsView mean = reader.numerics("a", {.statistic = "mean", .role = "dy"});
  EXPECT_EQ(mean.worse, WorseWay::larger_magnitude);
  EXPECT_EQ(mean.statistic, "mean");
  EXPECT_EQ(mean.role, "dy");
  EXPECT_EQ(mean.last_step, 1U);
}

// Each kind of record has a count of its own, which grows when something of that kind is written.
TEST_F(ReadBack, RevisionsGrowWithWhatIsWritten) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  ASSERT_TRUE(recorder.flush());
  const StoreReader reader(store_);
  const auto grown = [&](const std::function<void()>& write) {
    const auto before = reader.revisions().at(0).revisions;
    write();
    EXPECT_TRUE(recorder.flush());
    std::vector<std::string> kinds;
    const auto after = reader.revisions().at(0).revisions;
    for (const auto& [kind, count] : after) {
      const auto old = before.find(kind);
      if (old == before.end() || count > old->second) kinds.push_back(kind);
    }
    return kinds;
  };
  EXPECT_THAT(grown([&] { recorder.status(RunStatus::interrupted); }), testing::ElementsAre("status"));
  EXPECT_THAT(grown([&] { recorder.sample(1, "text"); }), testing::ElementsAre("samples"));
  EXPECT_THAT(grown([&] { recorder.document("localization", "{}"); }), testing::ElementsAre("documents"));
  EXPECT_THAT(grown([&] { recorder.event(1, "note", "text"); }), testing::ElementsAre("events"));
  EXPECT_THAT(grown([&] { record_metric(recorder, 1, 2); }), testing::ElementsAre("metrics"));
}

// A step's event holds the figures of that step alone: three samples take three times the room of one.
TEST_F(ReadBack, TensorboardEventsHoldOneStepEach) {
  const auto size_with = [&](const std::string& id, std::uint64_t samples) {
    const RunDescription run = small_run(id);
    {
      RunRecorder recorder(store_, run, 0, collect(), quick());
      const std::vector<float> figures(run.sites.size() * run.statistics.size(), 1.5F);
      for (std::uint64_t step = 1; step <= samples; ++step) recorder.numerics(step, figures);
    }
    const auto files = export_run(StoreReader(store_), id, folder_ / "out",
                                  {.format = ExportFormat::tensorboard, .statistics = {"amax"}});
    std::uint64_t bytes = 0;
    for (const fs::path& file : files) bytes += fs::file_size(file);
    return bytes;
  };
  const std::uint64_t none = size_with("a", 0), one = size_with("b", 1), three = size_with("c", 3);
  EXPECT_GT(one, none);
  EXPECT_EQ(three - none, 3 * (one - none));
}

}  // namespace
}  // namespace quaver
