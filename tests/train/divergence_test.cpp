// What a run does when its loss diverges, step by step: which checkpoint it goes back to, which batches it takes then,
// and which checkpoints are there afterwards. And the guard's own limits, exactly.
#include <fmt/format.h>
#include <map>

#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/guard.h"
#include "train/support.h"

namespace quaver::test {
namespace {

struct Rewind {
  Size diverged = 0;
  Size back = 0;
};

struct DivergedRun {
  std::optional<Rewind> rewind;
  std::map<Size, std::vector<double>> losses;  // of each step, in the order in which they were reported
  std::string end;
};

DivergedRun run_diverging(const Config& config) {
  DivergedRun run;
  RunOptions options;
  options.observer.warning = [&](const std::string& text) {
    long long diverged = 0, back = 0;
    const auto at = text.find("): back to step ");
    if (at == std::string::npos || run.rewind) return;
    if (std::sscanf(text.c_str(), "the loss diverged at step %lld", &diverged) != 1) return;
    if (std::sscanf(text.c_str() + at, "): back to step %lld", &back) == 1) run.rewind = Rewind{diverged, back};
  };
  options.observer.stepped = [&](const StepReport& report, std::optional<double>) {
    run.losses[report.step].push_back(report.loss);
  };
  try {
    run_training(config, options);
  } catch (const Error& error) {
    run.end = error.what();
  }
  return run;
}

// The last good checkpoint is the one before the first bad step, however often checkpoints are due; and what follows
// trains on the batches after those that led to the divergence.
TEST(Divergence, RewindsBeforeTheFirstBadStepAndPastItsBatches) {
  const TemporaryFolder folder;
  const Config config = diverging_config(folder.path() / "run");
  const DivergedRun run = run_diverging(config);
  ASSERT_TRUE(run.rewind.has_value());
  const Size back = run.rewind->back;
  EXPECT_EQ(run.rewind->diverged - back, 3) << "no checkpoint is written while the loss diverges";
  EXPECT_TRUE(run.end.starts_with("the run diverged at step")) << run.end;
  ASSERT_EQ(run.losses.at(back + 1).size(), 2U);

  // Two micro-batches a step: the first step after the rewind takes those that step `diverged` + 1 would have taken.
  const auto restored = open_run(folder.path() / "run", {}, back, [](const std::string&) {});
  const auto loss_at = [&](Size step) {
    double sum = 0;
    for (Size batch = 2 * (step - 1); batch < 2 * step; ++batch) {
      sum += restored->trainer->probe(restored->trainer->specs(), batch, ProbeWhat::loss).loss / 2;
    }
    return sum;
  };
  EXPECT_NEAR(run.losses.at(back + 1)[0], loss_at(back + 1), 1e-9);
  EXPECT_NEAR(run.losses.at(back + 1)[1], loss_at(run.rewind->diverged + 1), 1e-9);
}

TEST(Divergence, GivesUpAfterAsManyRewindsAsTheConfigAllows) {
  const TemporaryFolder folder;
  Config config = diverging_config(folder.path() / "run");
  config.guard.max_rewinds = 0;
  const DivergedRun run = run_diverging(config);
  EXPECT_FALSE(run.rewind.has_value());
  EXPECT_NE(run.end.find("0 rewinds did not help"), std::string::npos) << run.end;
}

RunResult stopped_after(const Config& config, RunStart start, Size steps) {
  std::atomic<bool> stop{steps == 0};
  RunOptions options;
  options.start = start;
  options.stop = &stop;
  options.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step >= steps; };
  return run_training(config, options);
}

// A checkpoint beyond the one that was resumed from belongs to another future of the run.
TEST(Fallback, RemovesTheCheckpointsAfterTheOneResumedFrom) {
  const TemporaryFolder folder;
  const Config config = small_config("fp32", folder.path() / "run");
  stopped_after(config, RunStart::fresh, 4);
  const std::filesystem::path checkpoints = folder.path() / "run" / "checkpoints";
  const auto weights = checkpoints / "step-000004" / "model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  const RunResult result = stopped_after(config, RunStart::resume, 0);
  EXPECT_EQ(result.end, RunEnd::interrupted);
  EXPECT_EQ(result.steps, 3);
  EXPECT_FALSE(std::filesystem::exists(checkpoints / "step-000004"));
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "step-000003"));
}

Guard settled_guard(const GuardConfig& config, double loss) {
  Guard guard(config);
  for (int i = 0; i < 10; ++i) guard.judge(loss, false);
  return guard;
}

TEST(GuardLimits, TheRunningMeanRemembersAboutFiftySteps) {
  Guard guard(GuardConfig{});
  guard.judge(5, false);
  EXPECT_DOUBLE_EQ(guard.running_mean(), 5);
  guard.judge(4, false);
  EXPECT_DOUBLE_EQ(guard.running_mean(), 4.98);
  EXPECT_EQ(guard.state().seen, 2);
}

TEST(GuardLimits, TenStepsSettleTheMean) {
  Guard young(GuardConfig{});
  for (int i = 0; i < 9; ++i) young.judge(2, false);
  young.judge(100, false);
  EXPECT_EQ(young.state().bad_steps, 0);
  EXPECT_NEAR(young.running_mean(), 0.98 * 2 + 0.02 * 100, 1e-12);
  Guard settled = settled_guard({}, 2);
  settled.judge(100, false);
  EXPECT_EQ(settled.state().bad_steps, 1);
  EXPECT_NEAR(settled.running_mean(), 2, 1e-12) << "a bad step is no part of the mean";
  EXPECT_EQ(settled.state().seen, 10);
}

// Twice the mean and half a nat more.
TEST(GuardLimits, DivergenceBeginsAboveTheMultipleOfTheMean) {
  Guard at = settled_guard({}, 2);
  at.judge(4.5 - 1e-9, false);
  EXPECT_EQ(at.state().bad_steps, 0);
  Guard above = settled_guard({}, 2);
  above.judge(4.5 + 1e-9, false);
  EXPECT_EQ(above.state().bad_steps, 1);
  GuardConfig strict;
  strict.divergence = 1.5;
  Guard closer = settled_guard(strict, 2);
  closer.judge(3.5 + 1e-9, false);
  EXPECT_EQ(closer.state().bad_steps, 1);
}

TEST(GuardLimits, TwentySkippedStepsInARowAreDivergence) {
  Guard guard = settled_guard({}, 2);
  for (int i = 0; i < 19; ++i) ASSERT_EQ(guard.judge(2, true), Guard::Verdict::carry_on) << i;
  EXPECT_EQ(guard.judge(2, true), Guard::Verdict::rewind);
  Guard broken = settled_guard({}, 2);
  for (int i = 0; i < 19; ++i) broken.judge(2, true);
  broken.judge(2, false);
  EXPECT_EQ(broken.judge(2, true), Guard::Verdict::carry_on) << "in a row";
  EXPECT_EQ(broken.state().skipped_steps, 1);
}

TEST(GuardLimits, ASkippedStepNeitherForgivesNorAccuses) {
  Guard guard = settled_guard({}, 2);
  guard.judge(9, false);
  guard.judge(9, true);
  EXPECT_EQ(guard.state().bad_steps, 1);
  EXPECT_NEAR(guard.running_mean(), 2, 1e-12);
}

TEST(GuardLimits, StateComesBackAndRewoundForgets) {
  const Guard::State state{3.5, 2, 4, 1, 77};
  Guard guard(GuardConfig{});
  guard.restore(state);
  EXPECT_EQ(guard.state().mean, 3.5);
  EXPECT_EQ(guard.state().bad_steps, 2);
  EXPECT_EQ(guard.state().skipped_steps, 4);
  EXPECT_EQ(guard.state().rewinds, 1);
  EXPECT_EQ(guard.state().seen, 77);
  guard.rewound();
  EXPECT_EQ(guard.state().mean, 3.5);
  EXPECT_EQ(guard.state().bad_steps, 0);
  EXPECT_EQ(guard.state().skipped_steps, 0);
  EXPECT_EQ(guard.state().rewinds, 2);
}

TEST(GuardLimits, ASiteIsWidenedAfterExactlyItsStepsOfOverflow) {
  ScaleBook book;
  const auto add = [&](const std::string& site, Format format, int streak) {
    const QuantSpec spec{.format = format, .policy = ScalePolicy::delayed};
    book.add({.site = site, .layer = {}, .role = Role::x, .recipe = {}, .reason = {}, .spec = {spec, spec}});
    book.entry(site).overflow_streak = streak;
  };
  GuardConfig config;
  config.widen_after = 8;
  add("below", Format::e4m3, 7);
  add("at", Format::e4m3, 8);
  add("beyond", Format::e5m2, 9);
  add("wide", Format::bf16, 50);
  EXPECT_EQ(Guard(config).sites_to_widen(book), (std::vector<std::string>{"at", "beyond"}));
  config.enabled = false;
  EXPECT_TRUE(Guard(config).sites_to_widen(book).empty());
}

// A site that overflows at every step is stored in bf16 from the step on that completes the streak.
TEST(GuardInARun, WidensAtTheStepThatCompletesTheStreak) {
  const TemporaryFolder folder;
  Config config = small_config("fp8-static", folder.path() / "run");
  config.precision.static_activation_scale = 1e6;
  config.precision.recalibrate_every = 0;
  config.guard.widen_after = 3;
  run_training(config, {});
  const auto run = open_run(folder.path() / "run", {}, std::nullopt, [](const std::string&) {});
  const auto& changes = run->trainer->book().entry("blocks.0.attn.qkv/x").changes;
  EXPECT_EQ(changes.back().step, 3U);
  EXPECT_EQ(changes.back().reason, "overflowed 3 steps in a row");
}

}  // namespace
}  // namespace quaver::test
