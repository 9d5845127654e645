// The guard: skipped steps, widened sites, rewinds, and the end of a run that cannot be saved.
#include "train/guard.h"

#include <algorithm>
#include <cmath>

#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/support.h"

namespace quaver::test {
namespace {

TEST(Guard, CarriesOnWhileTheLossFalls) {
  Guard guard(GuardConfig{});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(guard.judge(5.0 - 0.01 * i, false), Guard::Verdict::carry_on);
}

TEST(Guard, RewindsOnlyAfterPatienceAndGivesUpInTheEnd) {
  GuardConfig config;
  config.patience = 3;
  config.max_rewinds = 1;
  Guard guard(config);
  for (int i = 0; i < 50; ++i) guard.judge(2.0, false);
  EXPECT_EQ(guard.judge(9.0, false), Guard::Verdict::carry_on);
  EXPECT_EQ(guard.judge(2.0, false), Guard::Verdict::carry_on);  // a single spike is forgiven
  EXPECT_EQ(guard.judge(9.0, false), Guard::Verdict::carry_on);
  EXPECT_EQ(guard.judge(9.0, false), Guard::Verdict::carry_on);
  EXPECT_EQ(guard.judge(9.0, false), Guard::Verdict::rewind);
  guard.rewound();
  guard.judge(9.0, false);
  guard.judge(9.0, false);
  EXPECT_EQ(guard.judge(9.0, false), Guard::Verdict::give_up);
}

TEST(Guard, ADisabledGuardNeverActs) {
  GuardConfig config;
  config.enabled = false;
  Guard guard(config);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(guard.judge(i < 20 ? 1.0 : 1e9, false), Guard::Verdict::carry_on);
}

TEST(GuardInARun, ASiteThatKeepsSaturatingIsWidenedAndNamed) {
  const TemporaryFolder folder;
  Config config = small_config("fp8-static", folder.path() / "run");
  config.precision.static_activation_scale = 1e6;  // every activation beyond the format
  config.precision.recalibrate_every = 0;
  config.train.steps = 12;
  config.guard.widen_after = 4;
  std::vector<std::string> warnings;
  RunOptions options;
  options.observer.warning = [&](const std::string& text) { warnings.push_back(text); };
  run_training(config, options);
  const auto names = [&](const std::string& word) {
    return std::any_of(warnings.begin(), warnings.end(),
                       [&](const std::string& text) { return text.find(word) != std::string::npos; });
  };
  EXPECT_TRUE(names("blocks.0.attn.qkv/x"));
  EXPECT_FALSE(names("blocks.0.attn.qkv/w"));
  const auto run = open_run(folder.path() / "run", {}, std::nullopt, [](const std::string&) {});
  const ScaleEntry& entry = run->trainer->book().entry("blocks.0.attn.qkv/x");
  EXPECT_EQ(entry.site.spec.rows.format, Format::bf16);
  EXPECT_NE(entry.changes.back().reason.find("overflowed"), std::string::npos);
}

TEST(GuardInARun, NonFiniteGradientsSkipTheStepAndHalveTheLossScale) {
  const TemporaryFolder folder;
  Config config = small_config("fp16", folder.path() / "run");
  config.precision.loss_scale_log2 = 32;  // far too large for FP16 gradients
  config.train.steps = 3;
  std::vector<StepReport> reports;
  RunOptions options;
  options.observer.stepped = [&](const StepReport& report, std::optional<double>) { reports.push_back(report); };
  const RunResult result = run_training(config, options);
  EXPECT_EQ(result.end, RunEnd::finished);
  ASSERT_EQ(reports.size(), 3U);
  for (const StepReport& report : reports) {
    EXPECT_TRUE(report.skipped) << report.step;
    EXPECT_TRUE(std::isfinite(report.loss));
  }
  EXPECT_EQ(reports[1].loss_scale, reports[0].loss_scale / 2);
  EXPECT_EQ(reports[2].loss_scale, reports[1].loss_scale / 2);
  EXPECT_EQ(reports[2].update_ratio, 0);  // the weights did not move
}

TEST(GuardInARun, DivergenceRewindsToTheLastGoodCheckpoint) {
  const TemporaryFolder folder;
  Config config = small_config("fp32", folder.path() / "run");
  config.train.steps = 60;
  config.train.accumulation = 1;
  config.train.checkpoint_every = 10;
  config.train.eval_every = 0;
  config.optim.clip = ClipMode::none;
  config.optim.schedule = ScheduleShape::constant;
  config.optim.warmup = 0.6;        // the learning rate grows …
  config.optim.learning_rate = 30;  // … until the model breaks
  config.guard.patience = 2;
  config.guard.divergence = 1.2;
  std::vector<std::string> warnings;
  RunOptions options;
  options.observer.warning = [&](const std::string& text) { warnings.push_back(text); };
  EXPECT_THROW(run_training(config, options), Error);
  int rewinds = 0;
  for (const std::string& text : warnings) rewinds += text.find("back to step") != std::string::npos ? 1 : 0;
  EXPECT_EQ(rewinds, config.guard.max_rewinds);
}

TEST(BadSurroundings, AModelThatDoesNotFitSaysByHowMuch) {
  const TemporaryFolder folder;
  Config config = small_config("bf16", folder.path() / "run");
  config.train.memory_limit_mb = 8;
  config.train.batch = 256;
  try {
    run_training(config, {});
    FAIL() << "it fitted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("too much"), std::string::npos) << error.what();
    EXPECT_NE(error.remedy().find("train.batch"), std::string::npos) << error.remedy();
  }
}

TEST(BadSurroundings, ARunDirectoryThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "not a folder";
  const Config config = small_config("bf16", folder.path() / "file" / "run");
  try {
    run_training(config, {});
    FAIL() << "it ran";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("file"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quaver::test
