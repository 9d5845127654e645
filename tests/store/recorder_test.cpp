#include "store/recorder.h"

#include <gmock/gmock.h>
#include <thread>

#include "store/store_fixture.h"

namespace quaver {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Recorder : public StoreTest {};

BinadeCounts counts_of(std::uint64_t step, std::size_t site) {
  BinadeCounts counts{};
  for (std::size_t i = 10; i < 30; ++i) counts[i] = step * i + site;
  return counts;
}

std::vector<BinadeCounts> all_counts(const RunDescription& run, std::uint64_t step) {
  std::vector<BinadeCounts> counts;
  for (std::size_t site = 0; site < run.sites.size(); ++site) counts.push_back(counts_of(step, site));
  return counts;
}

AlertRecord alert_at(std::uint64_t step, const std::string& rule) {
  AlertRecord alert;
  alert.step = alert.last_step = step;
  alert.rule = rule;
  alert.severity = "warning";
  alert.site = "blocks.0.up/x";
  alert.value = 3.5;
  alert.threshold = 1;
  alert.text = "underflow";
  alert.meaning = "too small";
  alert.remedy = "scale";
  return alert;
}

TEST_F(Recorder, TheDescriptionOfARunComesBack) {
  const RunDescription run = small_run("a-1");
  {
    RunRecorder recorder(store_, run, 0, collect(), quick());
    ASSERT_TRUE(recorder.recording());
    recorder.status(RunStatus::finished);
  }
  const RunDetails found = StoreReader(store_).run("a-1");
  EXPECT_EQ(found.summary.id, run.id);
  EXPECT_EQ(found.summary.name, run.name);
  EXPECT_EQ(found.summary.model, run.model);
  EXPECT_EQ(found.summary.recipe, run.recipe);
  EXPECT_EQ(found.summary.group, run.group);
  EXPECT_EQ(found.summary.seed, run.seed);
  EXPECT_EQ(found.summary.status, RunStatus::finished);
  EXPECT_EQ(found.summary.steps, run.steps);
  EXPECT_EQ(found.summary.tokens_per_step, run.tokens_per_step);
  EXPECT_EQ(found.summary.directory, run.directory);
  EXPECT_EQ(found.config_toml, run.config_toml);
  EXPECT_EQ(found.config, run.config);
  EXPECT_EQ(found.environment_json, run.environment_json);
  EXPECT_EQ(found.memory, run.memory);
  EXPECT_EQ(found.shares, run.shares);
  EXPECT_THAT(found.roles, ElementsAre("x", "w", "dy"));
  ASSERT_EQ(found.sites.size(), run.sites.size());
  for (std::size_t i = 0; i < run.sites.size(); ++i) {
    EXPECT_EQ(found.sites[i].name, run.sites[i].name);
    EXPECT_EQ(found.sites[i].layer, run.sites[i].layer);
    EXPECT_EQ(found.sites[i].role, run.sites[i].role);
    EXPECT_EQ(found.sites[i].state, run.sites[i].state);
  }
  ASSERT_EQ(found.statistics.size(), run.statistics.size());
  for (std::size_t i = 0; i < run.statistics.size(); ++i) {
    EXPECT_EQ(found.statistics[i].name, run.statistics[i].name);
    EXPECT_EQ(found.statistics[i].unit, run.statistics[i].unit);
    EXPECT_EQ(found.statistics[i].doc, run.statistics[i].doc);
    EXPECT_EQ(found.statistics[i].worse, run.statistics[i].worse);
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(Recorder, WhatWasRecordedComesBack) {
  const RunDescription run = small_run("a");
  RunRecorder recorder(store_, run, 0, collect(), quick());
  const double infinity = std::numeric_limits<double>::infinity();
  const MetricValue first[] = {{"loss", 2.5}, {"gradient_norm", infinity}};
  const MetricValue second[] = {
      {"loss", std::nan("")}, {"validation_loss", 2.0}, {"validation_accuracy", 0.75}, {"tokens_per_second", 100}};
  recorder.metrics(1, first);
  recorder.metrics(2, second);
  recorder.numerics(1, values_of(run, 1), all_counts(run, 1));
  recorder.scale_change({2, "blocks.1.up/w", "amax grew", 1.5, 0.75, "e4m3", "e5m2"});
  SiteState bf16 = run.sites[4].state;
  bf16.rows = "bf16";
  recorder.site_state(2, "blocks.1.up/w", bf16);
  recorder.alert(alert_at(1, "underflow"));
  recorder.event(2, "notice", "it's \"quoted\"; DROP TABLE runs; --");
  recorder.sample(2, "Once upon a time");
  recorder.document("localization", R"({"sites":[]})");
  ASSERT_TRUE(recorder.flush());

  const StoreReader reader(store_);
  const auto metrics = reader.metrics("a", {});
  EXPECT_THAT(metrics.at("loss").step, ElementsAre(1, 2));
  EXPECT_EQ(metrics.at("loss").value[0], 2.5);
  EXPECT_TRUE(std::isnan(metrics.at("loss").value[1]));
  EXPECT_EQ(metrics.at("gradient_norm").value[0], infinity);
  const RunDetails details = reader.run("a");
  EXPECT_EQ(details.summary.step, 2U);
  EXPECT_TRUE(std::isnan(*details.summary.loss));
  EXPECT_EQ(details.summary.validation_loss, 2.0);
  EXPECT_EQ(details.summary.validation_accuracy, 0.75);
  EXPECT_EQ(details.summary.unit, "tokens");
  EXPECT_DOUBLE_EQ(*details.summary.eta_seconds, 98 * 2048 / 100.0);
  EXPECT_EQ(details.summary.alerts, 1U);
  EXPECT_EQ(details.sites[4].state, bf16);
  EXPECT_EQ(details.sites[3].state, run.sites[3].state);
  const auto changes = reader.changes("a");
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].site, "blocks.1.up/w");
  EXPECT_EQ(changes[0].scale_after, 0.75);
  EXPECT_EQ(changes[0].format_after, "e5m2");
  const auto alerts = reader.alerts();
  ASSERT_EQ(alerts.size(), 1U);
  EXPECT_EQ(alerts[0].run, "a");
  EXPECT_EQ(alerts[0].run_name, "run a");
  EXPECT_EQ(alerts[0].alert.site, "blocks.0.up/x");
  EXPECT_EQ(alerts[0].alert.act, std::nullopt);
  EXPECT_EQ(reader.events("a").at(0).text, "it's \"quoted\"; DROP TABLE runs; --");
  EXPECT_EQ(reader.samples("a").at(0).text, "Once upon a time");
  EXPECT_EQ(reader.document("a", "localization"), R"({"sites":[]})");
  EXPECT_EQ(reader.document("a", "calibration"), std::nullopt);
  const SiteHistogram histogram = reader.histogram("a", "blocks.1.up/w");
  EXPECT_EQ(histogram.counts, counts_of(1, 4));
  EXPECT_EQ(histogram.state, run.sites[4].state);  // as it was at step 1
  for (std::size_t i = 0; i < run.statistics.size(); ++i) {
    EXPECT_EQ(histogram.statistics[i].first, run.statistics[i].name);
    EXPECT_TRUE(same(histogram.statistics[i].second, figure(1, 4, i)));
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(Recorder, AnAlertThatGoesOnReplacesItself) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  AlertRecord alert = alert_at(3, "underflow");
  recorder.alert(alert);
  alert.last_step = 9;
  alert.count = 7;
  recorder.alert(alert);
  alert.site = std::nullopt;  // another one
  recorder.alert(alert);
  recorder.alert(alert);
  ASSERT_TRUE(recorder.flush());
  const auto alerts = StoreReader(store_).alerts("a");
  ASSERT_EQ(alerts.size(), 2U);
  EXPECT_EQ(alerts[1].alert.last_step, 9U);
  EXPECT_EQ(alerts[1].alert.count, 7U);
}

void record_steps(RunRecorder& recorder, const RunDescription& run, std::uint64_t from, std::uint64_t to) {
  for (std::uint64_t step = from; step <= to; ++step) {
    record_metric(recorder, step, static_cast<double>(step));
    recorder.numerics(step, values_of(run, step), all_counts(run, step));
    recorder.event(step, "tick", std::to_string(step));
    recorder.sample(step, std::to_string(step));
    recorder.alert(alert_at(step, "rule"));
    recorder.scale_change({step, run.sites[0].name, "why", 1, 2, "a", "b"});
  }
}

void expect_exactly(const StoreReader& reader, const RunDescription& run, std::uint64_t last) {
  const auto metrics = reader.metrics(run.id, {}, 0, 100000);
  EXPECT_EQ(metrics.at("loss").step.size(), last);
  EXPECT_EQ(metrics.at("loss").step.back(), last);
  EXPECT_EQ(reader.run(run.id).summary.step, last);
  EXPECT_EQ(reader.events(run.id).size(), last);
  EXPECT_EQ(reader.samples(run.id).back().step, last);
  EXPECT_EQ(reader.alerts(run.id).size(), last);
  EXPECT_EQ(reader.changes(run.id).size(), last);
  EXPECT_EQ(reader.histogram(run.id, run.sites[0].name).step, last);
  std::uint64_t samples = 0;
  const std::string names[] = {"amax", "sqnr_db", "mean"};
  reader.visit_numerics(run.id, names, [&](std::uint64_t step, std::span<const float> figures) {
    EXPECT_EQ(step, ++samples);
    const std::vector<float> expected = values_of(run, step);
    EXPECT_TRUE(std::equal(figures.begin(), figures.end(), expected.begin(), expected.end(), same));
  });
  EXPECT_EQ(samples, last);
}

TEST_F(Recorder, ResumingRemovesWhatCameAfterTheCheckpoint) {
  const RunDescription run = small_run("a");
  {
    RunRecorder recorder(store_, run, 0, collect(), quick());
    record_steps(recorder, run, 1, 75);
    SiteState bf16 = run.sites[0].state;
    bf16.rows = "bf16";
    recorder.site_state(70, run.sites[0].name, bf16);
  }
  expect_exactly(StoreReader(store_), run, 75);
  RunDescription changed = run;
  changed.name = "renamed";
  changed.steps = 200;
  RunRecorder recorder(store_, changed, 65, collect(), quick());
  const StoreReader reader(store_);
  expect_exactly(reader, run, 65);
  EXPECT_EQ(reader.run("a").summary.name, "renamed");
  EXPECT_EQ(reader.run("a").summary.steps, 200U);
  EXPECT_EQ(reader.run("a").sites[0].state, run.sites[0].state);
  EXPECT_EQ(reader.runs().size(), 1U);
  record_steps(recorder, run, 66, 140);
  ASSERT_TRUE(recorder.flush());
  expect_exactly(reader, run, 140);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(Recorder, RewindingRemovesInOrderWithWhatIsRecorded) {
  const RunDescription run = small_run("a");
  RunRecorder recorder(store_, run, 0, collect());  // slow transactions: all of it in one batch
  record_steps(recorder, run, 1, 20);
  recorder.rewind(9);
  record_steps(recorder, run, 10, 12);
  ASSERT_TRUE(recorder.flush());
  expect_exactly(StoreReader(store_), run, 12);
  AlertRecord alert = alert_at(5, "long");
  alert.last_step = 12;
  recorder.alert(alert);
  recorder.rewind(7);
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(StoreReader(store_).alerts("a").size(), 8U);
  for (const RunAlert& kept : StoreReader(store_).alerts("a")) EXPECT_LE(kept.alert.last_step, 7U);
}

TEST_F(Recorder, ARunThatStartsOverHasNothingOfItsFirstTraining) {
  const RunDescription run = small_run("a");
  {
    RunRecorder recorder(store_, run, 0, collect(), quick());
    recorder.event(0, "notice", "before the first step");
    recorder.document("localization", "{}");
    record_steps(recorder, run, 1, 10);
  }
  const RunRecorder recorder(store_, run, 0, collect(), quick());
  const StoreReader reader(store_);
  EXPECT_THAT(reader.metrics("a", {}), IsEmpty());
  EXPECT_THAT(reader.events("a"), IsEmpty());
  EXPECT_EQ(reader.document("a", "localization"), std::nullopt);
  EXPECT_THAT(reader.numerics("a", {.statistic = "amax", .role = "x"}).steps, IsEmpty());
}

TEST_F(Recorder, AStatisticThatANewerProgramAddsJoinsTheOthers) {
  RunDescription run = small_run("a");
  {
    RunRecorder recorder(store_, run, 0, collect(), quick());
    recorder.numerics(1, values_of(run, 1));
  }
  std::swap(run.statistics[0], run.statistics[2]);
  run.statistics.insert(run.statistics.begin(), {"kurtosis", "", "", WorseWay::higher});
  RunRecorder recorder(store_, run, 1, collect(), quick());
  recorder.numerics(2, values_of(run, 2));
  ASSERT_TRUE(recorder.flush());
  const StoreReader reader(store_);
  const SiteHistory history = reader.history("a", run.sites[0].name);
  const auto of = [&](const std::string& name) {
    for (const auto& [statistic, values] : history.statistics) {
      if (statistic == name) return values;
    }
    return std::vector<float>();
  };
  EXPECT_TRUE(same(of("amax")[0], figure(1, 0, 0)));
  EXPECT_TRUE(same(of("amax")[1], figure(2, 0, 3)));
  EXPECT_TRUE(same(of("kurtosis")[0], nan_value));
  EXPECT_TRUE(same(of("kurtosis")[1], figure(2, 0, 0)));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(Recorder, OtherSitesThanBeforeTakeThePlaceOfTheOldNumericsWithAWarning) {
  {
    RunRecorder recorder(store_, small_run("a", 3), 0, collect(), quick());
    recorder.numerics(1, values_of(small_run("a", 3), 1));
  }
  const RunDescription larger = small_run("a", 4);
  RunRecorder recorder(store_, larger, 1, collect(), quick());
  recorder.numerics(2, values_of(larger, 2));
  ASSERT_TRUE(recorder.flush());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("sites")));
  EXPECT_THAT(StoreReader(store_).numerics("a", {.statistic = "amax", .role = "x"}).steps, ElementsAre(2));
}

TEST_F(Recorder, ASampleOfTheWrongSizeIsTheCallersError) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  EXPECT_THROW(recorder.numerics(1, std::vector<float>(5)), Error);
}

TEST_F(Recorder, SeveralRunsAreRecordedAtOnceFromTheVeryFirstMoment) {
  constexpr std::uint64_t steps = 200;
  std::vector<std::thread> trainers;
  std::vector<std::vector<std::string>> warnings(4);
  for (int t = 0; t < 4; ++t) {
    trainers.emplace_back([&, t] {
      const RunDescription run = small_run(fmt::format("run-{}", t));
      RunRecorder recorder(
          store_, run, 0, [&, t](const std::string& text) { warnings[t].push_back(text); }, quick());
      for (std::uint64_t step = 1; step <= steps; ++step) {
        record_metric(recorder, step, t);
        recorder.numerics(step, values_of(run, step));
        if (step % 20 == 0) recorder.flush();
      }
      recorder.status(RunStatus::finished);
      EXPECT_TRUE(recorder.flush());
    });
  }
  for (std::thread& trainer : trainers) trainer.join();
  const StoreReader reader(store_);
  EXPECT_EQ(reader.runs().size(), 4U);
  for (int t = 0; t < 4; ++t) {
    EXPECT_THAT(warnings[t], IsEmpty());
    const auto loss = reader.metrics(fmt::format("run-{}", t), {}).at("loss");
    EXPECT_EQ(loss.step.size(), steps);
    EXPECT_EQ(loss.value.back(), t);
  }
  EXPECT_EQ(sql(store_, "PRAGMA integrity_check"), "ok");
}

TEST_F(Recorder, ADocumentCanBeAddedToARunAfterwards) {
  { const RunRecorder recorder(store_, small_run("a"), 0, collect(), quick()); }
  store_document(store_, "a", "calibration", "{\"a\":1}");
  EXPECT_EQ(StoreReader(store_).document("a", "calibration"), "{\"a\":1}");
  EXPECT_THROW(store_document(store_, "b", "calibration", "{}"), Error);
  EXPECT_THROW(store_document(folder_ / "none.db", "a", "calibration", "{}"), Error);
}

}  // namespace
}  // namespace quaver
