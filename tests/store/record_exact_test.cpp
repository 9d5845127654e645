// What the recorder keeps, at which step and of which run, and what its queue weighs.
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <limits>

#include "store/histograms.h"
#include "store/store_fixture.h"

namespace quaver::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RecordExact : public StoreTest {
 protected:
  std::unique_ptr<RunRecorder> recorder_of(const RunDescription& run, std::uint64_t last_step = 0,
                                           const RecorderLimits& limits = quick()) {
    return std::make_unique<RunRecorder>(store_, run, last_step, collect(), limits);
  }
  StoreReader reader() const { return StoreReader(store_); }
  // Kinds whose revisions a write counts up.
  std::vector<std::string> touched_by(RunRecorder& recorder, const std::function<void()>& write) const {
    EXPECT_TRUE(recorder.flush());
    const auto before = reader().revisions().at(0).revisions;
    write();
    EXPECT_TRUE(recorder.flush());
    std::vector<std::string> kinds;
    const auto after = reader().revisions().at(0).revisions;
    for (const auto& [kind, count] : after) {
      const auto old = before.find(kind);
      if (old == before.end() || count != old->second) kinds.push_back(kind);
    }
    return kinds;
  }
};

AlertRecord plain_alert(std::uint64_t step, const std::string& rule = "rule") {
  AlertRecord alert;
  alert.step = alert.last_step = step;
  alert.rule = rule;
  return alert;
}

void record_one(RunRecorder& recorder, std::uint64_t step, const char* name, double value) {
  const MetricValue metric{name, value};
  recorder.metrics(step, {&metric, 1});
}

// A record that weighs as much as the queue holds is taken; one byte less room, and it is dropped.
TEST_F(RecordExact, EachKindOfRecordHasItsWeight) {
  const RunDescription run = small_run("a");
  const std::pair<std::size_t, std::function<void(RunRecorder&)>> kinds[] = {
      {64 + 2 * 64, [](RunRecorder& recorder) { record_metric(recorder, 1, 2); }},
      {64, [](RunRecorder& recorder) { recorder.metrics(1, {}); }},
      {256 + 5,
       [](RunRecorder& recorder) {
         recorder.scale_change({1, "site", "12345", 1, 2, "a", "b"});
       }},
      {256 + 3,
       [](RunRecorder& recorder) {
         recorder.site_state(1, "s", {"", "", "", "", "", "123"});
       }},
      {128 + 4, [](RunRecorder& recorder) { recorder.event(1, "kind", "1234"); }},
      {64 + 6, [](RunRecorder& recorder) { recorder.sample(1, "123456"); }},
      {64 + 2, [](RunRecorder& recorder) { recorder.document("kind", "{}"); }},
      {512 + 1 + 2 + 3,
       [](RunRecorder& recorder) {
         AlertRecord alert = plain_alert(1);
         alert.text = "1";
         alert.meaning = "12";
         alert.remedy = "123";
         recorder.alert(alert);
       }},
  };
  for (const auto& [weight, record] : kinds) {
    for (const bool fits : {true, false}) {
      RecorderLimits limits = quick();
      limits.other_bytes = fits ? weight : weight - 1;
      const auto recorder = recorder_of(run, 0, limits);
      record(*recorder);
      EXPECT_EQ(recorder->dropped(), fits ? 0U : 1U) << weight;
    }
  }
}

// What was written makes room again, record by record.
TEST_F(RecordExact, TheQueueIsEmptyAgainOnceItIsWritten) {
  RecorderLimits limits = quick();
  limits.other_bytes = 192;
  limits.numerics_bytes = 4;
  const RunDescription run = small_run("a");
  const auto recorder = recorder_of(run, 0, limits);
  for (std::uint64_t step = 1; step <= 4; ++step) {
    record_metric(*recorder, step, 2);
    recorder->numerics(step, values_of(run, step));
    ASSERT_TRUE(recorder->flush());
  }
  EXPECT_EQ(recorder->dropped(), 0U);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(reader().metrics("a", {}).at("loss").step.size(), 4U);
}

// Records that were left out are told of at the end, at the latest step that was seen and not rewound.
TEST_F(RecordExact, WhatWasLeftOutIsAnEventOfTheLatestStep) {
  for (const bool rewound : {false, true}) {
    RecorderLimits limits = quick();
    limits.other_bytes = 400;
    const std::string id = rewound ? "b" : "a";
    {
      const auto recorder = recorder_of(small_run(id), 0, limits);
      recorder->event(3, "kind", std::string(1000, 'x'));
      EXPECT_EQ(recorder->dropped(), 1U);
      record_one(*recorder, 9, "loss", 1);
      ASSERT_TRUE(recorder->flush());
      record_one(*recorder, 7, "loss", 1);
      ASSERT_TRUE(recorder->flush());
      if (rewound) recorder->rewind(5);
    }
    const auto events = reader().events(id);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].step, rewound ? 5U : 9U);
    EXPECT_EQ(events[0].kind, "store");
    EXPECT_EQ(events[0].text, "1 records were left out of the store");
  }
  EXPECT_EQ(warnings_.size(), 2U) << "one a run";
}

TEST_F(RecordExact, NothingLeftOutIsNoEvent) {
  record_metric(*recorder_of(small_run("a")), 1, 2);
  EXPECT_THAT(reader().events("a"), IsEmpty());
}

TEST_F(RecordExact, SamplesHaveTheSizeOfTheDescription) {
  const RunDescription run = small_run("a");
  const auto recorder = recorder_of(run);
  const std::vector<float> good(27, 1);
  EXPECT_THROW(recorder->numerics(1, std::vector<float>(26, 1)), Error);
  EXPECT_THROW(recorder->numerics(1, std::vector<float>(28, 1)), Error);
  EXPECT_THROW(recorder->numerics(1, good, std::vector<BinadeCounts>(8)), Error);
  EXPECT_THROW(recorder->numerics(1, good, std::vector<BinadeCounts>(10)), Error);
  EXPECT_NO_THROW(recorder->numerics(1, good, std::vector<BinadeCounts>(9)));
  EXPECT_NO_THROW(recorder->numerics(2, good));
  ASSERT_TRUE(recorder->flush());
  EXPECT_THAT(reader().histogram("a", run.sites[0].name).steps, ElementsAre(1)) << "step 2 had no histograms";
}

TEST_F(RecordExact, StepsBeyondWhatSqliteCountsAreItsLargest) {
  const auto recorder = recorder_of(small_run("a"));
  record_one(*recorder, UINT64_MAX, "loss", 1);
  recorder->event(UINT64_MAX, "kind", "text");
  ASSERT_TRUE(recorder->flush());
  EXPECT_EQ(reader().run("a").summary.step, static_cast<std::uint64_t>(INT64_MAX));
  EXPECT_EQ(reader().events("a").at(0).step, static_cast<std::uint64_t>(INT64_MAX));
}

TEST_F(RecordExact, AStoreThatFailsForGoodIsRecordedNoMore) {
  const auto recorder = recorder_of(small_run("a"));
  ASSERT_TRUE(recorder->flush());
  EXPECT_TRUE(recorder->recording());
  sql(store_, "DROP TABLE events");
  recorder->event(1, "kind", "text");
  EXPECT_FALSE(recorder->flush());
  EXPECT_FALSE(recorder->recording());
  recorder->event(2, "kind", "text");
  EXPECT_FALSE(recorder->flush());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("not recorded any more")));
  EXPECT_EQ(recorder->dropped(), 0U);
}

TEST_F(RecordExact, TheTimeOfTheStartIsThatOfTheFirstStep) {
  recorder_of(small_run("a"));
  sql(store_, "UPDATE runs SET started=5");
  recorder_of(small_run("a"), 3);
  EXPECT_EQ(reader().run("a").summary.started, 5) << "resumed";
  recorder_of(small_run("a"), 0);
  EXPECT_GT(reader().run("a").summary.started, 1e9) << "started over";
}

TEST_F(RecordExact, ARunThatResumesAtItsFirstStepKeepsWhatCameBefore) {
  {
    const auto recorder = recorder_of(small_run("a"));
    recorder->event(0, "notice", "before the first step");
    recorder->document("settings", "[]");
    recorder->scale_change({1, "s", "r", 1, 2, "a", "b"});
    ASSERT_TRUE(recorder->flush());
  }
  recorder_of(small_run("a"), 1);
  EXPECT_EQ(reader().events("a").size(), 1U);
  EXPECT_EQ(reader().changes("a").size(), 1U);
  EXPECT_EQ(reader().document("a", "settings"), "[]");
  recorder_of(small_run("a"), 0);
  EXPECT_THAT(reader().events("a"), IsEmpty());
  EXPECT_THAT(reader().changes("a"), IsEmpty());
  EXPECT_EQ(reader().document("a", "settings"), std::nullopt);
}

// From the 64th on every second one goes, with all that was stored of it.
TEST_F(RecordExact, HistogramsThatAreNotKeptTakeNoRoom) {
  const RunDescription run = small_run("a", 1);
  const auto recorder = recorder_of(run);
  for (std::uint64_t step = 1; step <= 70; ++step) {
    recorder->numerics(step, std::vector<float>(9, 1), std::vector<BinadeCounts>(3, BinadeCounts{step}));
    ASSERT_TRUE(recorder->flush());
  }
  EXPECT_EQ(sql(store_, "SELECT count(*) FROM histogram_steps"), "36") << "1, 3, … 69 and the newest";
  EXPECT_EQ(sql(store_, "SELECT count(DISTINCT step) FROM histograms"), "36");
}

TEST_F(RecordExact, ListsOfTheDescriptionAreThoseOfTheLatest) {
  RunDescription run = small_run("a");
  recorder_of(run);
  run.config = {{"z", "1"}, {"a", "2"}};
  run.memory = {{"one", 1}, {"zero", 0}, {"much", std::uint64_t{1} << 40U}};
  run.shares = {{"f32", 1}};
  run.recipe = "other";
  run.seed = UINT64_MAX;
  recorder_of(run, 4);
  const RunDetails found = reader().run("a");
  EXPECT_EQ(found.config, run.config);
  EXPECT_EQ(found.memory, run.memory);
  EXPECT_EQ(found.shares, run.shares);
  EXPECT_EQ(found.summary.recipe, "other");
  EXPECT_EQ(found.summary.seed, UINT64_MAX);
}

// By name, wherever a later program lists it: site 0, statistics 1, 2, 3 at the first step, 10 … 13 at the second.
TEST_F(RecordExact, AStatisticKeepsItsFiguresWhenTheOrderChanges) {
  RunDescription run = small_run("a", 1);
  run.sites.resize(1);
  {
    const auto recorder = recorder_of(run);
    recorder->numerics(1, std::vector<float>{1, 2, 3});
  }
  run.statistics = {{"new", "", "", WorseWay::higher}, run.statistics[2], run.statistics[0], run.statistics[1]};
  const auto recorder = recorder_of(run, 1);
  recorder->numerics(2, std::vector<float>{10, 11, 12, 13});
  ASSERT_TRUE(recorder->flush());
  const SiteHistory history = reader().history("a", run.sites[0].name);
  ASSERT_EQ(history.statistics.size(), 4U);
  const auto expect = [&](std::size_t i, const char* name, float first, float second) {
    EXPECT_EQ(history.statistics[i].first, name);
    EXPECT_TRUE(same(history.statistics[i].second.at(0), first)) << name;
    EXPECT_TRUE(same(history.statistics[i].second.at(1), second)) << name;
  };
  expect(0, "amax", 1, 12);
  expect(1, "sqnr_db", 2, 13);
  expect(2, "mean", 3, 11);
  expect(3, "new", nan_value, 10);
}

TEST_F(RecordExact, SitesThatDifferInNameRoleOrNumberAreOthers) {
  const RunDescription run = small_run("a");
  std::vector<RunDescription> others(4, run);
  others[0].sites[4].name = "renamed";
  others[1].sites[4].role = "x";
  others[2].sites.pop_back();
  others[3].sites.push_back({"one/more", "one", "x", {}});
  for (const RunDescription& other : others) {
    warnings_.clear();
    recorder_of(run)->numerics(1, values_of(run, 1), std::vector<BinadeCounts>(9, BinadeCounts{5}));
    EXPECT_THAT(warnings_, testing::AnyOf(IsEmpty(), ElementsAre(HasSubstr("sites"))));
    warnings_.clear();
    recorder_of(other, 1);
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("numerics recorded before are removed")));
    EXPECT_THAT(reader().numerics("a", {.statistic = "amax", .role = "x"}).steps, IsEmpty());
    EXPECT_THROW(reader().histogram("a", other.sites[0].name), NoSuchRecord);
    EXPECT_EQ(sql(store_, "SELECT count(*) FROM numerics"), "0");
    EXPECT_EQ(reader().run("a").sites.size(), other.sites.size());
  }
  warnings_.clear();
  recorder_of(others[3], 1);
  EXPECT_THAT(warnings_, IsEmpty()) << "the same as before";
}

TEST_F(RecordExact, TheStateOfASiteIsThatOfItsStep) {
  RunDescription run = small_run("a");
  const std::string site = run.sites[0].name;
  SiteState bf16 = run.sites[0].state;
  bf16.rows = "bf16";
  {
    const auto recorder = recorder_of(run);
    for (const std::uint64_t step : {3U, 6U}) {
      recorder->numerics(step, values_of(run, step), std::vector<BinadeCounts>(9));
    }
    recorder->site_state(5, site, bf16);
    recorder->site_state(5, "no such site", bf16);
    ASSERT_TRUE(recorder->flush());
    EXPECT_EQ(reader().histogram("a", site, 3).state, run.sites[0].state);
    EXPECT_EQ(reader().histogram("a", site, 6).state, bf16);
    EXPECT_THAT(touched_by(*recorder, [&] { recorder->site_state(6, site, bf16); }), IsEmpty()) << "as it is already";
    EXPECT_THAT(touched_by(*recorder, [&] { recorder->site_state(6, site, {}); }), ElementsAre("sites"));
    recorder->rewind(5);
    ASSERT_TRUE(recorder->flush());
    EXPECT_EQ(reader().run("a").sites[0].state, bf16) << "what held at the checkpoint stays";
    recorder->rewind(4);
    ASSERT_TRUE(recorder->flush());
    EXPECT_EQ(reader().run("a").sites[0].state, run.sites[0].state);
  }
  run.sites[0].state.policy = "current";
  recorder_of(run, 4);
  EXPECT_EQ(reader().run("a").sites[0].state.policy, "current");
  EXPECT_EQ(reader().histogram("a", site, 3).state.policy, "delayed") << "resumed at 4: before it was another";
}

TEST_F(RecordExact, ARewindCountsAsAChangeOfAllThatHasSteps) {
  const auto recorder = recorder_of(small_run("a"));
  record_metric(*recorder, 5, 2);
  EXPECT_THAT(touched_by(*recorder, [&] { recorder->rewind(3); }),
              ElementsAre("alerts", "changes", "events", "metrics", "numerics", "samples", "sites"));
  EXPECT_THAT(touched_by(*recorder, [&] { recorder->alert(plain_alert(4)); }), ElementsAre("alerts"));
  EXPECT_THAT(touched_by(*recorder,
                         [&] {
                           recorder->scale_change({4, "s", "r", 1, 2, "a", "b"});
                         }),
              ElementsAre("changes"));
  EXPECT_THAT(touched_by(*recorder, [&] { recorder->numerics(4, std::vector<float>(27, 1)); }),
              ElementsAre("numerics"));
  EXPECT_THAT(touched_by(*recorder, [&] { recorder->numerics(4, std::vector<float>(27, 1)); }), IsEmpty())
      << "left out: it does not come after the last";
  EXPECT_THAT(touched_by(*recorder, [&] { recorder_of(small_run("a"), 4); }),
              ElementsAre("alerts", "changes", "events", "metrics", "numerics", "samples", "sites", "status"));
}

TEST_F(RecordExact, RunsOfOneStoreDoNotMix) {
  const RunDescription first = small_run("first"), second = small_run("second");
  {
    const auto one = recorder_of(first), two = recorder_of(second);
    for (const auto& [recorder, value] : {std::pair(one.get(), 1.0), {two.get(), 2.0}}) {
      for (std::uint64_t step = 1; step <= 3; ++step) record_one(*recorder, step, "loss", value);
      recorder->numerics(1, std::vector<float>(27, static_cast<float>(value)),
                         std::vector<BinadeCounts>(9, BinadeCounts{static_cast<std::uint64_t>(value)}));
      recorder->alert(plain_alert(2));
      recorder->event(2, "kind", std::to_string(value));
      recorder->sample(2, std::to_string(value));
      recorder->scale_change({2, "s", std::to_string(value), 1, 2, "a", "b"});
      ASSERT_TRUE(recorder->flush());
    }
    two->alert(plain_alert(3));
    two->status(RunStatus::failed);
    one->rewind(1);
    ASSERT_TRUE(one->flush());
    ASSERT_TRUE(two->flush());
  }
  const StoreReader both(store_);
  EXPECT_EQ(both.run("first").summary.status, RunStatus::running);
  EXPECT_EQ(both.run("second").summary.status, RunStatus::failed);
  EXPECT_EQ(both.run("first").summary.alerts, 0U);
  EXPECT_EQ(both.run("second").summary.alerts, 2U);
  EXPECT_EQ(both.run("first").summary.step, 1U);
  EXPECT_EQ(both.run("second").summary.step, 3U);
  EXPECT_THAT(both.metrics("first", {}).at("loss").value, ElementsAre(1));
  EXPECT_THAT(both.metrics("second", {}).at("loss").value, ElementsAre(2, 2, 2));
  EXPECT_THAT(both.events("first"), IsEmpty());
  EXPECT_EQ(both.events("second").size(), 1U);
  EXPECT_EQ(both.samples("second").size(), 1U);
  EXPECT_EQ(both.changes("second").size(), 1U);
  EXPECT_EQ(both.history("first", first.sites[0].name).statistics[0].second.at(0), 1);
  EXPECT_EQ(both.history("second", first.sites[0].name).statistics[0].second.at(0), 2);
  EXPECT_EQ(both.histogram("second", first.sites[0].name).counts[0], 2U);
  recorder_of(first);
  EXPECT_EQ(both.run("second").summary.alerts, 2U) << "the first starts over, the second stays";
  EXPECT_EQ(both.run("second").config.size(), 2U);
  EXPECT_EQ(both.histogram("second", first.sites[0].name).counts[0], 2U);
}

TEST_F(RecordExact, ALaterRecordOfAStepReplacesTheEarlier) {
  const auto recorder = recorder_of(small_run("a"));
  record_one(*recorder, 2, "loss", 1);
  record_one(*recorder, 2, "loss", 3);
  recorder->sample(2, "first");
  recorder->sample(2, "second");
  recorder->document("settings", "[1]");
  recorder->document("settings", "[2]");
  AlertRecord alert = plain_alert(2);
  alert.site = "a/b";
  recorder->alert(alert);
  alert.severity = "critical";
  alert.value = 5;
  alert.threshold = 6;
  alert.text = "t";
  alert.meaning = "m";
  alert.remedy = "r";
  alert.act = "a";
  recorder->alert(alert);
  alert.site = "a/c";
  recorder->alert(alert);
  ASSERT_TRUE(recorder->flush());
  const StoreReader found(store_);
  EXPECT_THAT(found.metrics("a", {}).at("loss").value, ElementsAre(3));
  ASSERT_EQ(found.samples("a").size(), 1U);
  EXPECT_EQ(found.samples("a")[0].text, "second");
  EXPECT_EQ(found.document("a", "settings"), "[2]");
  store_document(store_, "a", "settings", "[3]");
  EXPECT_EQ(found.document("a", "settings"), "[3]");
  const auto alerts = found.alerts("a");
  ASSERT_EQ(alerts.size(), 2U);
  const AlertRecord& replaced = alerts[1].alert;
  EXPECT_EQ(replaced.site, "a/b");
  EXPECT_EQ(replaced.severity, "critical");
  EXPECT_EQ(replaced.value, 5);
  EXPECT_EQ(replaced.threshold, 6);
  EXPECT_EQ(replaced.text, "t");
  EXPECT_EQ(replaced.meaning, "m");
  EXPECT_EQ(replaced.remedy, "r");
  EXPECT_EQ(replaced.act, "a");
}

TEST(RecorderDefaults, AreTheDocumentedOnes) {
  const RecorderLimits limits;
  EXPECT_EQ(limits.numerics_bytes, 67108864U);
  EXPECT_EQ(limits.other_bytes, 67108864U);
  EXPECT_EQ(limits.transaction_every.count(), 250);
  EXPECT_EQ(limits.busy_timeout.count(), 5000);
  EXPECT_EQ(limits.longest_retry.count(), 30000);
  EXPECT_EQ(limits.heartbeat_every.count(), 10000);
  EXPECT_EQ(AlertRecord{}.count, 1U);
  const NumericsQuery query;
  EXPECT_EQ(query.from, 0U);
  EXPECT_EQ(query.to, UINT64_MAX);
  EXPECT_EQ(query.columns, 1200U);
  EXPECT_EQ(query.rows, 800U);
}

TEST(RecordNames, OfStatusesAndWays) {
  EXPECT_EQ(name_of(RunStatus::running), "running");
  EXPECT_EQ(name_of(RunStatus::finished), "finished");
  EXPECT_EQ(name_of(RunStatus::interrupted), "interrupted");
  EXPECT_EQ(name_of(RunStatus::failed), "failed");
  EXPECT_EQ(name_of(RunStatus::lost), "lost");
  EXPECT_EQ(name_of(WorseWay::higher), "higher");
  EXPECT_EQ(name_of(WorseWay::lower), "lower");
  EXPECT_EQ(name_of(WorseWay::larger_magnitude), "larger_magnitude");
  EXPECT_EQ(store_file_name, "quaver.db");
  EXPECT_EQ(first_binade, -40);
}

}  // namespace
}  // namespace quaver::test
