// What a run does beside its steps: alerts and acts, samples of text, the notes that travel with its checkpoints, and
// how it ends.
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "data/shard.h"
#include "precision/recipe.h"
#include "quaver/error.h"
#include "store/reader.h"
#include "train/run_record.h"
#include "train/support.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ActingRun : public testing::Test {
 protected:
  ActingRun() { use("fp8-current"); }

  void use(const std::string& recipe) {
    config_ = miniature_config(recipe, run_);
    config_.train.eval_every = 0;
    config_.train.checkpoint_every = 0;
    config_.train.steps = 3;
  }

  RunResult train(RunStart start = RunStart::fresh, Size until = 1000) {
    std::atomic<bool> stop{false};
    RunOptions options;
    options.start = start;
    options.stop = &stop;
    options.observer.warning = [this](const std::string& text) { warnings_.push_back(text); };
    options.observer.message = [this](const std::string& text) { messages_.push_back(text); };
    options.observer.started = [this](const Trainer&, Size first) { started_at_.push_back(first); };
    options.observer.stepped = [&](const StepReport& report, std::optional<double>) {
      reports_.push_back(report);
      stop = report.step >= until;
    };
    return run_training(config_, options);
  }

  StoreReader store() const { return StoreReader(folder_.path() / store_file_name); }
  std::string id() const { return run_id(run_); }
  std::map<std::string, double> notes() const { return watch_numbers(run_); }
  std::vector<nlohmann::json> lines() const {
    std::istringstream log(contents(run_ / "metrics.jsonl"));
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(log, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "run";
  Config config_;
  std::vector<std::string> warnings_;
  std::vector<std::string> messages_;
  std::vector<Size> started_at_;
  std::vector<StepReport> reports_;
};

// Activations far beyond the format: every block's four are told of in one line, and the store has each.
class SaturatedRun : public ActingRun {
 protected:
  SaturatedRun() {
    use("fp8-static");
    config_.precision.static_activation_scale = 1e6;
    config_.train.steps = 4;
    config_.train.statistics_every = 1;
    config_.precision.recalibrate_every = 0;
    config_.guard.widen_after = 1000;
    config_.alerts.steps = 1;
  }
  // What a norm gives is large from the first step on; the outputs of attention and activation are not yet.
  static std::uint64_t first_step(const std::string& site) {
    return site.ends_with(".qkv/x") || site.ends_with(".up/x") ? 1 : 2;
  }
  std::vector<AlertRecord> saturation() const {
    std::vector<AlertRecord> found;
    for (const RunAlert& one : store().alerts(id())) {
      if (one.alert.rule == info(AlertRule::saturation).name) found.push_back(one.alert);
    }
    return found;
  }
};

TEST_F(SaturatedRun, AlertsOfOneKindAreToldOnceAndRecordedEach) {
  train();
  const auto told = std::count_if(warnings_.begin(), warnings_.end(), [](const std::string& text) {
    return text.starts_with("step 1: ") && text.find("saturat") != std::string::npos &&
           text.find(" (and 3 more). To try: ") != std::string::npos;
  });
  EXPECT_EQ(told, 1);
  const auto alerts = saturation();
  ASSERT_EQ(alerts.size(), 8U) << "two blocks of four activations";
  for (const AlertRecord& alert : alerts) {
    EXPECT_EQ(alert.step, first_step(*alert.site)) << *alert.site;
    EXPECT_EQ(alert.last_step, 4U) << "it goes on, and the store says so";
    EXPECT_EQ(alert.count, 5 - alert.step);
    EXPECT_EQ(alert.act, std::nullopt) << "nobody asked for it";
    EXPECT_GT(alert.value, alert.threshold);
  }
  EXPECT_THAT(store().changes(id()), IsEmpty());
  const auto logged = lines();
  EXPECT_EQ(logged[0].at("event"), "alert");
  EXPECT_EQ(logged[0].at("step"), 1);
  EXPECT_EQ(store().events(id()).at(0).kind, "alert");
  EXPECT_EQ(store().events(id()).at(0).text, logged[0].at("text"));
}

TEST_F(SaturatedRun, ActsWhereTheConfigAsksForIt) {
  config_.guard.act_on_alerts = true;
  train();
  for (const AlertRecord& alert : saturation()) {
    EXPECT_EQ(alert.act, "stored in bf16 from now on");
    EXPECT_EQ(alert.step, first_step(*alert.site)) << *alert.site;
    EXPECT_EQ(alert.last_step, alert.step) << "and that helped";
  }
  const auto changes = store().changes(id());
  ASSERT_EQ(changes.size(), 8U) << "each once";
  for (const ScaleChangeRecord& change : changes) {
    EXPECT_EQ(change.reason, "alert saturation");
    EXPECT_EQ(change.step, first_step(change.site));
    EXPECT_EQ(change.format_after, "bf16");
  }
  EXPECT_THAT(warnings_, Contains("step 1: blocks.0.attn.qkv/x: stored in bf16 from now on (alert saturation)"));
  const auto shares = store().metrics(id(), {}).at("narrow_share").value;
  ASSERT_EQ(shares.size(), 4U);
  EXPECT_LT(shares[3], shares[0]) << "of three products a layer the one that reads no activation is left";
}

TEST_F(SaturatedRun, AnAlertRecalibratesStaticScales) {
  config_.precision.recalibrate_every = 1000;
  train();
  for (const AlertRecord& alert : saturation()) {
    EXPECT_THAT(alert.act.value_or(""), HasSubstr("its static scale is ")) << *alert.site;
    EXPECT_EQ(alert.last_step, alert.step) << "and that helped";
  }
  std::map<std::string, int> times;
  for (const ScaleChangeRecord& change : store().changes(id())) {
    EXPECT_EQ(change.format_after, "e4m3");
    EXPECT_LT(change.scale_after, change.scale_before);
    ++times[change.site];
  }
  EXPECT_EQ(times.size(), 8U) << "two blocks of four activations";
  for (const auto& [site, count] : times) EXPECT_EQ(count, 1) << site << " by all its alerts together";
}

TEST_F(SaturatedRun, TheGuardRecalibratesBeforeItWidens) {
  config_.precision.recalibrate_every = 1000;
  config_.alerts.enabled = false;
  config_.guard.widen_after = 1;
  train();
  EXPECT_THAT(warnings_, Contains(HasSubstr("overflowed 1 steps in a row and its static scale is ")));
  for (const SiteDescription& site : store().run(id()).sites) {
    if (site.role == "x" && site.name.starts_with("blocks")) EXPECT_EQ(site.state.rows, "e4m3") << site.name;
  }
}

// Gradients in e4m3 of which some vanish: e5m2 reaches further down, in both copies of a site.
TEST_F(ActingRun, GradientsThatVanishAreStoredInE5m2) {
  use("fp8-static");
  config_.precision.gradient_format = GradientFormat::e4m3;
  config_.precision.static_gradient_scale = 64;
  config_.precision.recalibrate_every = 0;
  config_.train.steps = 1;
  config_.alerts.underflow_dy = 1e-6;  // any at all, however little noise it makes
  config_.alerts.harmless_sqnr = 1000;
  config_.train.statistics_every = 1;
  config_.guard.act_on_alerts = true;
  config_.alerts.samples = 1;
  train();
  std::size_t changed = 0;
  for (const ScaleChangeRecord& change : store().changes(id())) {
    if (change.reason != "alert underflow" || !change.site.ends_with("/dy")) continue;
    EXPECT_EQ(change.format_before, "e4m3") << change.site;
    EXPECT_EQ(change.format_after, "e5m2") << change.site;
    ++changed;
  }
  EXPECT_GT(changed, 0U);
  std::size_t stored = 0;
  for (const SiteDescription& site : store().run(id()).sites) {
    if (site.role != "dy" || site.state.rows != "e5m2") continue;
    EXPECT_EQ(site.state.columns, "e5m2") << site.name;
    ++stored;
  }
  EXPECT_EQ(stored, changed);
  EXPECT_THAT(warnings_, Contains(HasSubstr("/dy: stored in e5m2 from now on (alert underflow)")));
}

TEST_F(ActingRun, TheAlarmsSeeTheFiguresOfTheStep) {
  config_.alerts.max_logit = 1e-12;
  config_.alerts.steps = 1;
  train();
  double logs = 0;
  bool found = false;
  for (const RunAlert& one : store().alerts(id())) {
    if (one.alert.rule != info(AlertRule::attention_logits).name) continue;
    found = true;
    EXPECT_EQ(one.alert.site, std::nullopt);
    for (const StepReport& report : reports_) {
      if (static_cast<std::uint64_t>(report.step) != one.alert.last_step) continue;
      EXPECT_EQ(one.alert.value, report.max_logit);
    }
  }
  EXPECT_TRUE(found);
  for (const StepReport& report : reports_) logs += std::log(report.gradient_norm);
  const auto kept = notes();
  EXPECT_EQ(kept.at("alarms|run||gradient_count"), 3);
  EXPECT_LT(std::abs(kept.at("alarms|run||gradient_mean") - logs / 3), 1) << "of the norm's logarithm";
  EXPECT_GT(std::abs(kept.at("alarms|run||gradient_mean") - std::log(reports_[0].loss)), 1e-6);
  EXPECT_FALSE(kept.contains("alarms|run||skipped"));
}

TEST_F(ActingRun, SkippedStepsAreCountedByGuardAndAlarms) {
  use("fp16");
  config_.precision.loss_scale_log2 = 32;
  config_.alerts.skipped_steps = 2;
  const RunResult result = train();
  EXPECT_EQ(result.skipped, 3);
  const auto kept = notes();
  EXPECT_EQ(kept.at("guard.skipped_steps"), 3);
  EXPECT_EQ(kept.at("guard.bad_steps"), 0);
  EXPECT_EQ(kept.at("guard.seen"), 0);
  EXPECT_EQ(kept.at("alarms|run||skipped"), 3);
  EXPECT_EQ(kept.at("alarms|run||highest_loss_scale"), 0x1p32);
  const auto alerts = store().alerts(id());
  ASSERT_EQ(alerts.size(), 1U);
  EXPECT_EQ(alerts[0].alert.rule, info(AlertRule::skipped_steps).name);
  EXPECT_EQ(alerts[0].alert.step, 2U);
}

TEST_F(ActingRun, GuardAndAlarmsGoOnWhereTheyStoppedWhenItIsResumed) {
  config_.train.steps = 5;
  EXPECT_EQ(train(RunStart::fresh, 2).end, RunEnd::interrupted);
  EXPECT_THAT(warnings_, Contains("stopped at step 2: continue with --resume"));
  EXPECT_EQ(notes().at("guard.seen"), 2);
  EXPECT_EQ(store().run(id()).summary.status, RunStatus::interrupted);
  EXPECT_EQ(train(RunStart::resume).end, RunEnd::finished);
  EXPECT_THAT(messages_, ElementsAre("resumed at step 2"));
  EXPECT_THAT(started_at_, ElementsAre(0, 2));
  const auto kept = notes();
  EXPECT_EQ(kept.at("guard.seen"), 5);
  EXPECT_EQ(kept.at("alarms|run||loss_count"), 5);
  EXPECT_EQ(kept.at("alarms|run||gradient_count"), 5);
  double mean = reports_[0].loss;
  for (std::size_t i = 1; i < 5; ++i) mean = 0.98 * mean + 0.02 * reports_[i].loss;
  EXPECT_NEAR(kept.at("guard.mean"), mean, 1e-12);
  const auto metrics = store().metrics(id(), {});
  EXPECT_EQ(metrics.at("loss").step, (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
}

TEST_F(ActingRun, AResumedRunHasEachChangeOfAScaleOnce) {
  use("fp8-delayed");
  config_.train.steps = 4;
  train(RunStart::fresh, 2);
  const auto before = store().changes(id()).size();
  train(RunStart::resume);
  std::size_t in_book = 0;
  const auto opened = open_run(run_, {}, std::nullopt, [](const std::string&) {});
  for (const auto& entry : opened->trainer->book().entries()) in_book += entry->changes.size();
  EXPECT_GE(store().changes(id()).size(), before);
  EXPECT_EQ(store().changes(id()).size(), in_book);
}

TEST_F(ActingRun, ACompleteRunThatIsResumedIsEvaluatedAndStays) {
  train();
  config_.train.eval_batches = 2;
  RunOptions again;
  again.start = RunStart::resume;
  const RunResult same = run_training(config_, again);
  EXPECT_EQ(same.end, RunEnd::finished);
  EXPECT_THAT(same.losses, IsEmpty());
  EXPECT_EQ(same.steps, 3);
  EXPECT_EQ(same.final_train_loss, std::nullopt);
}

TEST_F(ActingRun, TheResultHasTheLossOfAPerfectModelAndOfAllValidationBatches) {
  config_.train.eval_batches = 3;
  const RunResult result = train();
  const auto opened = open_run(run_, {}, std::nullopt, [](const std::string&) {});
  EXPECT_EQ(result.best_loss, opened->data.best_loss);
  ASSERT_TRUE(result.final_validation_loss.has_value()) << "evaluated at the end though never due";
  EXPECT_NEAR(*result.final_validation_loss, opened->trainer->evaluate(3).value(), 1e-9);
  EXPECT_GT(std::abs(*result.final_validation_loss - opened->trainer->evaluate(1).value()), 1e-9);
  EXPECT_EQ(contents(run_ / "scales.json"), opened->trainer->book().to_json());
  EXPECT_EQ(open_run(run_, {}, 0, [](const std::string&) {})->trainer->steps_done(), 0) << "the first checkpoint";
}

TEST_F(ActingRun, ARunThatDivergesIsRecordedAsFailedWithItsLastStep) {
  use("fp32");
  config_.train.steps = 80;
  config_.optim.clip = ClipMode::none;
  config_.optim.schedule = ScheduleShape::constant;
  config_.optim.warmup = 0.2;
  config_.optim.learning_rate = 30;
  config_.guard.patience = 1;
  config_.guard.divergence = 1.1;
  config_.guard.max_rewinds = 0;
  std::string what;
  try {
    train();
  } catch (const Error& error) {
    what = error.what();
  }
  const Size last = lines().back().at("step").get<Size>();
  EXPECT_THAT(what, HasSubstr(fmt::format("the run diverged at step {} (loss ", last)));
  EXPECT_THAT(what, HasSubstr(" and 0 rewinds did not help"));
  EXPECT_EQ(reports_.back().step + 1, last) << "the step that ended it is in the log";
  EXPECT_EQ(store().run(id()).summary.status, RunStatus::failed);
}

TEST_F(ActingRun, TextIsSampledWhenDueAndAtTheEnd) {
  std::vector<std::int32_t> ids(400);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>('a' + i % 20);
  ShardWriter writer(folder_.path() / "text.qv", ShardFormat::quaver, 257, make_byte_tokenizer()->hash());
  writer.append(ids);
  writer.finish();
  config_.data.kind = DataKind::dataset;
  config_.data.path = (folder_.path() / "text.qv").string();
  config_.data.tokenizer = "bytes";
  config_.train.sample_every = 2;
  config_.train.eval_every = 1;
  config_.train.sample_prompt = "once";
  config_.train.steps = 5;
  const RunResult result = train();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run_ / "samples")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names, ElementsAre("step-000002.txt", "step-000004.txt", "step-000005.txt"));
  EXPECT_EQ(contents(run_ / "samples" / "step-000005.txt"), result.sample + "\n");
  EXPECT_TRUE(result.sample.starts_with("once")) << result.sample;
  const auto samples = store().samples(id());
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[0].step, 2U);
  EXPECT_EQ(samples[2].step, 5U);
  EXPECT_EQ(samples[2].text, result.sample);
  EXPECT_THAT(result.validation, IsEmpty()) << "there is no text to validate on";
}

TEST_F(ActingRun, OneCheckpointIsKeptWhereOneIsAskedFor) {
  config_.train.keep = 1;
  config_.train.checkpoint_every = 1;
  train();
  EXPECT_THAT(CheckpointStore::read_only(run_).steps(), ElementsAre(3));
}

TEST_F(ActingRun, StartsOverWithAnIdOfItsOwnWhereTheCheckpointsWereMovedAway) {
  train();
  const std::string first = id();
  fs::remove_all(run_ / "checkpoints");
  train(RunStart::resume);
  EXPECT_NE(id(), first);
  EXPECT_EQ(contents(run_ / "run_id.before-1"), first + "\n");
  EXPECT_TRUE(fs::exists(run_ / "metrics.jsonl.before-1"));
  const std::string second = id();
  fs::remove_all(run_ / "checkpoints");
  train(RunStart::resume);
  EXPECT_EQ(contents(run_ / "run_id.before-2"), second + "\n");
  EXPECT_EQ(store().runs().size(), 3U);
}

TEST_F(ActingRun, AnIdOfAnotherRunInItsFolderIsNotTaken) {
  config_.train.steps = 2;
  train(RunStart::fresh, 1);
  const std::string first = id();
  std::ofstream(run_ / "run_id") << "00112233aabbccdd\n";
  train(RunStart::resume);
  EXPECT_EQ(id(), first);
  EXPECT_THAT(warnings_, Contains(HasSubstr("run_id does not hold the run's id " + first)));
}

}  // namespace
}  // namespace quaver::test
