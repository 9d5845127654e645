// What a record hands to the store of a trainer that does nothing: metrics that are made up come back where they
// belong.
#include "train/run_record.h"

#include <gmock/gmock.h>

#include "precision/recipe.h"
#include "store/reader.h"
#include "train/own_text.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;

Config recorded_config(const std::filesystem::path& directory) {
  Config config = small_config("fp8-delayed", directory);
  config.model.context = 8;
  config.train.batch = 2;
  return config;
}

class RunRecordTest : public testing::Test {
 protected:
  RunRecordTest() { std::filesystem::create_directories(directory_); }

  std::unique_ptr<RunRecord> record() {
    return std::make_unique<RunRecord>(own_.trainer, directory_, "{}", [](const std::string&) {});
  }
  StoreReader store() const { return StoreReader(folder_.path() / store_file_name); }
  std::string id() const { return run_id(directory_); }

  TemporaryFolder folder_;
  std::filesystem::path directory_ = folder_.path() / "run";
  OwnTrainer own_{recorded_config(directory_)};
};

TEST_F(RunRecordTest, AStepHasTheFiguresThatItHas) {
  {
    const auto recorder = record();
    recorder->step(made_up_report(1), {});
    StepReport report = made_up_report(2);
    report.skipped = true;
    report.sampled = true;
    report.loss_scale = 16;
    report.gradient_snr = 1.5;
    report.communication = CommunicationTimes{.least = 0.5, .most = 0.75, .slowest_rank = 2};
    StepExtras extras;
    extras.validation_loss = 2.25;
    extras.evaluation_seconds = 10;
    extras.shadow_seconds = 11;
    extras.statistics_seconds = 12;
    extras.shadow = GradientAgreement{.cosine = 0.75, .error = 0.5};
    recorder->step(report, extras);
    recorder->checkpoint_time(2, 13);
    StepReport unknown = made_up_report(3);
    unknown.sampled = true;
    StepExtras none;
    none.shadow = GradientAgreement{};
    recorder->step(unknown, none);
  }
  const auto metrics = store().metrics(id(), {});
  const auto expect = [&](const char* name, const std::vector<std::uint64_t>& steps,
                          const std::vector<double>& values) {
    ASSERT_TRUE(metrics.contains(name)) << name;
    EXPECT_EQ(metrics.at(name).step, steps) << name;
    EXPECT_EQ(metrics.at(name).value, values) << name;
  };
  expect("loss", {1, 2, 3}, {2.5, 2.5, 2.5});
  expect("learning_rate", {1, 2, 3}, {0.125, 0.125, 0.125});
  expect("gradient_norm", {1, 2, 3}, {3, 3, 3});
  expect("seconds", {1, 2, 3}, {4, 4, 4});
  expect("tokens_per_second", {1, 2, 3}, {25, 25, 25});
  expect("saturated", {1, 2, 3}, {5, 5, 5});
  expect("underflowed", {1, 2, 3}, {6, 6, 6});
  expect("overflows", {1, 2, 3}, {7, 7, 7});
  expect("update_ratio", {1, 2, 3}, {0.5, 0.5, 0.5});
  expect("unmoved_percent", {1, 2, 3}, {8, 8, 8});
  expect("max_logit", {1, 2, 3}, {9, 9, 9});
  expect("phase.data", {1, 2, 3}, {0.25, 0.25, 0.25});
  expect("phase.forward_backward", {1, 2, 3}, {2, 2, 2});
  expect("phase.optimizer", {1, 2, 3}, {1, 1, 1});
  expect("validation_loss", {2}, {2.25});
  expect("loss_scale", {2}, {16});
  expect("skipped", {2}, {1});
  expect("gradient_snr", {2}, {1.5});
  expect("communication_seconds", {2}, {0.75});
  expect("communication_least_seconds", {2}, {0.5});
  expect("slowest_rank", {2}, {2});
  expect("phase.evaluation", {2}, {10});
  expect("phase.shadow", {2}, {11});
  expect("phase.statistics", {2}, {12});
  expect("phase.checkpoint", {2}, {13});
  expect("statistics_seconds", {2, 3}, {12, 0});
  expect("shadow_cosine", {2}, {0.75});
  expect("shadow_error", {2}, {0.5});
  const double narrow = low_precision_share(own_.trainer.format_shares());
  expect("narrow_share", {2, 3}, {narrow, narrow});
  EXPECT_GT(narrow, 0.5);
  const MetricSeries& time = metrics.at("time");
  EXPECT_EQ(time.step.size(), 3U);
  const auto now = static_cast<double>(std::time(nullptr));
  for (const double seconds : time.value) EXPECT_NEAR(seconds, now, 600) << "since 1970";
}

TEST_F(RunRecordTest, AnAlertKeepsWhatWasDoneAboutIt) {
  Alert alert{.rule = AlertRule::nonfinite,
              .severity = Severity::critical,
              .step = 5,
              .last_step = 5,
              .count = 1,
              .site = "blocks.0.mlp.up/x",
              .value = 30,
              .threshold = 10,
              .text = "it happened"};
  Alert other = alert;
  other.site = "blocks.1.mlp.up/x";
  other.step = other.last_step = 6;
  Alert of_the_run = alert;
  of_the_run.site.clear();
  of_the_run.step = of_the_run.last_step = 7;
  {
    const auto recorder = record();
    recorder->alert(alert, "widened");
    recorder->alert(other, std::nullopt);
    recorder->alert(of_the_run, std::nullopt);
    alert.last_step = 9;
    alert.count = 4;
    alert.value = 40;
    recorder->alert(alert, std::nullopt);
  }
  const auto alerts = store().alerts(id());
  ASSERT_EQ(alerts.size(), 3U) << "the same alert again replaces itself";
  const auto with_step = [&](std::uint64_t step) {
    return std::find_if(alerts.begin(), alerts.end(), [&](const RunAlert& one) { return one.alert.step == step; })
        ->alert;
  };
  const AlertRecord first = with_step(5);
  EXPECT_EQ(first.last_step, 9U);
  EXPECT_EQ(first.count, 4U);
  EXPECT_EQ(first.rule, info(AlertRule::nonfinite).name);
  EXPECT_EQ(first.severity, "critical");
  EXPECT_EQ(first.site, "blocks.0.mlp.up/x");
  EXPECT_EQ(first.value, 40);
  EXPECT_EQ(first.threshold, 10);
  EXPECT_EQ(first.text, "it happened");
  EXPECT_EQ(first.meaning, info(AlertRule::nonfinite).meaning);
  EXPECT_EQ(first.remedy, remedy_of(AlertRule::nonfinite, nullptr));
  EXPECT_EQ(first.act, "widened") << "also when it is recorded again";
  EXPECT_EQ(with_step(6).act, std::nullopt) << "of another site";
  EXPECT_EQ(with_step(6).last_step, 6U);
  EXPECT_EQ(with_step(7).site, std::nullopt);
}

TEST_F(RunRecordTest, AChangeIsRecordedOnceWithBothSides) {
  const std::string site = "blocks.0.mlp.up/x";
  own_.trainer.book().set_scale(site, 4, 1, "before the record");
  const double narrow = low_precision_share(own_.trainer.format_shares());
  {
    const auto recorder = record();
    recorder->changes(own_.trainer.book());
    own_.trainer.book().set_scale(site, 16, 2, "a larger scale");
    recorder->changes(own_.trainer.book());
    own_.trainer.change_site(site, make_recipe("bf16", {}).of(Role::x), "widened here");
    recorder->changes(own_.trainer.book());
    recorder->changes(own_.trainer.book());
    StepReport report = made_up_report(3);
    report.sampled = true;
    recorder->step(report, {});
  }
  auto changes = store().changes(id());
  ASSERT_EQ(changes.size(), 2U) << "what was there before, and nothing twice";
  std::sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) { return a.reason < b.reason; });
  EXPECT_EQ(changes[0].reason, "a larger scale");
  EXPECT_EQ(changes[0].step, 2U);
  EXPECT_EQ(changes[0].site, site);
  EXPECT_EQ(changes[0].scale_before, 4);
  EXPECT_EQ(changes[0].scale_after, 16);
  EXPECT_EQ(changes[0].format_before, "e4m3");
  EXPECT_EQ(changes[0].format_after, "e4m3");
  EXPECT_EQ(changes[1].reason, "widened here");
  EXPECT_EQ(changes[1].scale_before, 16);
  EXPECT_EQ(changes[1].format_before, "e4m3");
  EXPECT_EQ(changes[1].format_after, "bf16");
  const RunDetails run = store().run(id());
  const auto now = std::find_if(run.sites.begin(), run.sites.end(), [&](const auto& one) { return one.name == site; });
  EXPECT_EQ(now->state.rows, "bf16");
  EXPECT_EQ(now->state.reason, "widened here");
  const auto metrics = store().metrics(id(), {});
  EXPECT_EQ(metrics.at("narrow_share").value.at(0), low_precision_share(own_.trainer.format_shares()));
  EXPECT_LT(metrics.at("narrow_share").value.at(0), narrow);
}

// A resumed run describes a site that was changed by why it was, and one that was not by its plan.
TEST_F(RunRecordTest, ASiteIsDescribedAsItIsNow) {
  const std::string site = "blocks.0.mlp.up/x";
  own_.trainer.change_site(site, make_recipe("bf16", {}).of(Role::x), "widened earlier");
  record();
  const RunDetails run = store().run(id());
  for (const SiteDescription& one : run.sites) {
    const PlanRow& row = own_.trainer.plan().at(one.name);
    EXPECT_EQ(one.state.reason, one.name == site ? "widened earlier" : row.reason) << one.name;
    EXPECT_EQ(one.state.recipe, row.recipe);
    EXPECT_EQ(one.layer, row.layer);
    EXPECT_EQ(one.role, name_of(row.role));
    if (one.name == site) continue;
    EXPECT_EQ(one.state.rows, info(row.spec.rows.format).name);
    EXPECT_EQ(one.state.columns, info(row.spec.columns.format).name);
  }
  ASSERT_EQ(run.statistics.size(), all_statistics().size());
  for (std::size_t i = 0; i < run.statistics.size(); ++i) {
    EXPECT_EQ(run.statistics[i].name, all_statistics()[i].name);
    EXPECT_EQ(run.statistics[i].unit, all_statistics()[i].unit);
    EXPECT_EQ(run.statistics[i].doc, all_statistics()[i].doc);
  }
}

// Columns may be stored in another format than rows.
TEST(RunRecordSites, RowsAndColumnsHaveTheirOwnFormats) {
  const TemporaryFolder folder;
  Config config = recorded_config(folder.path() / "run");
  std::filesystem::create_directories(folder.path() / "run");
  OwnTrainer own(config);
  SiteSpec spec = own.trainer.book().entry("head/x").site.spec;
  spec.rows = make_recipe("fp8-current", {}).x.rows;
  spec.columns = make_recipe("bf16", {}).x.columns;
  own.trainer.change_site("head/x", spec, "two formats");
  {
    const RunRecord record(own.trainer, folder.path() / "run", "{}", [](const std::string&) {});
  }
  const RunDetails run = StoreReader(folder.path() / store_file_name).run(run_id(folder.path() / "run"));
  const auto head =
      std::find_if(run.sites.begin(), run.sites.end(), [](const auto& one) { return one.name == "head/x"; });
  EXPECT_EQ(head->state.rows, "e4m3");
  EXPECT_EQ(head->state.columns, "bf16");
}

// The book's sites come in the order in which the model made them, the store's in that of the plan.
TEST_F(RunRecordTest, FiguresOfASampleAreThoseOfTheirSites) {
  NumericsSample sample;
  sample.step = 4;
  const auto& entries = own_.trainer.book().entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    SiteSample figures;
    figures.values.fill(static_cast<float>(i));
    sample.sites.push_back(figures);
    Binades binades{};
    binades[3] = 100 + i;
    sample.binades.push_back(binades);
  }
  {
    const auto recorder = record();
    recorder->step(made_up_report(4), {});
    recorder->numerics(sample);
  }
  const StoreReader reader = store();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const SiteHistogram histogram = reader.histogram(id(), entries[i]->site.name);
    EXPECT_EQ(histogram.step, 4U);
    EXPECT_EQ(histogram.counts[3], 100 + i) << entries[i]->site.name;
    ASSERT_EQ(histogram.statistics.size(), statistic_count);
    for (const auto& [name, value] : histogram.statistics) EXPECT_EQ(value, static_cast<float>(i)) << name;
  }
}

TEST_F(RunRecordTest, ARewindForgetsTheChangesThatAreTakenBack) {
  const std::string site = "blocks.0.mlp.up/x";
  own_.trainer.book().set_scale(site, 4, 1, "kept");
  const std::string before = own_.trainer.book().to_json();
  {
    const auto recorder = record();
    own_.trainer.book().set_scale(site, 16, 8, "taken back");
    recorder->changes(own_.trainer.book());
    own_.trainer.book().from_json(before, ScaleBook::Import::everything, 5);
    recorder->rewind(5, own_.trainer.book());
    own_.trainer.book().set_scale(site, 32, 7, "after the rewind");
    recorder->changes(own_.trainer.book());
  }
  std::vector<std::string> reasons;
  for (const ScaleChangeRecord& change : store().changes(id())) reasons.push_back(change.reason);
  EXPECT_THAT(reasons, ElementsAre("after the rewind"));
}

TEST_F(RunRecordTest, DescribesTheRun) {
  record();
  const RunDetails run = store().run(id());
  EXPECT_EQ(run.summary.model, own_.trainer.config().preset);
  EXPECT_EQ(run.summary.tokens_per_step, 2U * 2U * 8U);
  EXPECT_EQ(run.summary.steps, 6U);
  const MemoryUse use = own_.trainer.memory();
  const auto bytes = [](Size size) { return static_cast<std::uint64_t>(size); };
  EXPECT_THAT(run.memory,
              ElementsAre(std::pair("weights", bytes(use.weights)),
                          std::pair("quantized weights", bytes(use.quantized_weights)),
                          std::pair("gradients", bytes(use.gradients)), std::pair("optimizer", bytes(use.optimizer)),
                          std::pair("activations", bytes(use.activations)), std::pair("scratch", bytes(use.scratch))));
  const auto value = [&](const std::string& key) {
    for (const auto& [name, text] : run.config) {
      if (name == key) return text;
    }
    return std::string();
  };
  EXPECT_EQ(value("train.batch"), "2");
  EXPECT_EQ(value("precision.recipe"), "\"fp8-delayed\"");
}

TEST(StoreOf, LiesBesideTheRunUnlessTheConfigSaysOtherwise) {
  Config config;
  EXPECT_EQ(store_of(config, "/runs/a"), "/runs/quaver.db");
  EXPECT_EQ(store_of(config, "/runs/b/../a"), "/runs/quaver.db");
  config.run.store = "/elsewhere/mine.db";
  EXPECT_EQ(store_of(config, "/runs/a"), "/elsewhere/mine.db");
  config.run.store = "none";
  EXPECT_EQ(store_of(config, "/runs/a"), "");
}

TEST(RunId, IsMadeOnceAndStays) {
  const TemporaryFolder folder;
  const std::string id = run_id(folder.path());
  EXPECT_EQ(parse_run_id(id), id) << "one that is read again";
  EXPECT_EQ(contents(folder.path() / "run_id"), id + "\n");
  EXPECT_EQ(run_id(folder.path()), id);
  std::filesystem::remove(folder.path() / "run_id");
  EXPECT_NE(run_id(folder.path()), id);
}

}  // namespace
}  // namespace quaver::test
