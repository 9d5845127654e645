// What a run says of its steps: the result, the lines of metrics.jsonl and the store's metrics, against the reports of
// the steps themselves.
#include <nlohmann/json.hpp>

#include "store/reader.h"
#include "train/run_record.h"
#include "train/support.h"

namespace quaver::test {
namespace {

struct Watched {
  RunResult result;
  std::vector<StepReport> reports;
  std::vector<std::optional<double>> validation;
};

Watched watched_run(const Config& config) {
  Watched run;
  RunOptions options;
  options.observer.stepped = [&](const StepReport& report, std::optional<double> validation) {
    run.reports.push_back(report);
    run.validation.push_back(validation);
  };
  run.result = run_training(config, options);
  return run;
}

TEST(RunResult, IsThatOfItsSteps) {
  const TemporaryFolder folder;
  Config config = small_config("bf16", folder.path() / "run");
  config.train.steps = 40;
  config.train.checkpoint_every = 0;
  config.train.eval_every = 15;
  const Watched run = watched_run(config);
  ASSERT_EQ(run.reports.size(), 40U);
  EXPECT_EQ(run.result.steps, 40);
  ASSERT_EQ(run.result.losses.size(), 40U);
  EXPECT_EQ(run.result.tokens_per_step, 2 * 4 * 32);
  double elapsed = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(run.result.losses[i].step, static_cast<Size>(i + 1));
    EXPECT_EQ(run.result.losses[i].loss, run.reports[i].loss);
    elapsed += run.reports[i].seconds;
    EXPECT_DOUBLE_EQ(run.result.losses[i].seconds, elapsed);
  }
  EXPECT_DOUBLE_EQ(run.result.final_train_loss.value(), (run.reports[38].loss + run.reports[39].loss) / 2)
      << "a twentieth of forty";
  std::vector<Size> validated;
  for (const ValidationPoint& point : run.result.validation) validated.push_back(point.step);
  EXPECT_EQ(validated, (std::vector<Size>{15, 30, 40}));
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(run.validation[i].has_value(), i + 1 == 15 || i + 1 == 30 || i + 1 == 40) << i;
  }
  EXPECT_EQ(run.result.final_validation_loss, run.validation.back());
  std::vector<double> seconds;
  for (const StepReport& report : run.reports) seconds.push_back(report.seconds);
  std::sort(seconds.begin(), seconds.end());
  EXPECT_GE(run.result.seconds_per_step, seconds[19]);
  EXPECT_LE(run.result.seconds_per_step, seconds[20]);
  EXPECT_NEAR(run.result.tokens_per_second * run.result.seconds_per_step, 2 * 4 * 32, 1e-6);
  EXPECT_EQ(run.result.skipped, 0);
  EXPECT_EQ(run.result.directory, folder.path() / "run");
}

TEST(RunResult, CountsSkippedStepsAndOverflows) {
  const TemporaryFolder folder;
  Config skipping = small_config("fp16", folder.path() / "skipping");
  skipping.precision.loss_scale_log2 = 32;
  skipping.train.steps = 3;
  const Watched skipped = watched_run(skipping);
  EXPECT_EQ(skipped.result.skipped, 3);
  EXPECT_TRUE(skipped.result.losses.empty()) << "a skipped step teaches nothing";
  Config overflowing = small_config("fp8-static", folder.path() / "overflowing");
  overflowing.precision.static_activation_scale = 1e6;
  overflowing.train.steps = 3;
  const Watched overflowed = watched_run(overflowing);
  std::uint64_t sum = 0;
  for (const StepReport& report : overflowed.reports) {
    EXPECT_GT(report.overflows, 0U);
    sum += report.overflows;
  }
  EXPECT_EQ(overflowed.result.overflows, sum);
}

TEST(RunDirectory, IsNamedAfterModelRecipeAndSeed) {
  Config config;
  config.preset = "small";
  config.precision.recipe = "mxfp8";
  config.train.seed = 4;
  EXPECT_EQ(run_directory(config), "runs/small-mxfp8-4");
  config.run.name = "mine";
  EXPECT_EQ(run_directory(config), "runs/mine");
  config.run.dir = "/elsewhere";
  EXPECT_EQ(run_directory(config), "/elsewhere");
}

TEST(Checkpoints, AreWrittenWhenDueAndTheNewestKept) {
  const TemporaryFolder folder;
  Config config = small_config("bf16", folder.path() / "run");
  config.train.steps = 7;
  config.train.checkpoint_every = 2;
  config.train.keep = 2;
  run_training(config, {});
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "run" / "checkpoints")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"step-000006", "step-000007"}));
}

std::vector<nlohmann::json> step_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object.contains("loss")) lines.push_back(object);
  }
  return lines;
}

TEST(Metrics, AreThoseOfTheSteps) {
  const TemporaryFolder folder;
  Config config = small_config("fp8-delayed", folder.path() / "run");
  config.train.statistics_every = 2;
  config.precision.loss_scaling = LossScaling::fixed;
  config.precision.loss_scale_log2 = 3;
  const Watched run = watched_run(config);
  const auto lines = step_lines(folder.path() / "run" / "metrics.jsonl");
  ASSERT_EQ(lines.size(), run.reports.size());
  const StoreReader store(folder.path() / "quaver.db");
  const std::string id = run_id(folder.path() / "run");
  const auto metrics = store.metrics(id, {});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const StepReport& report = run.reports[i];
    const auto& line = lines[i];
    EXPECT_EQ(line["step"], report.step);
    EXPECT_EQ(line["loss"], report.loss);
    EXPECT_EQ(line["learning_rate"], report.learning_rate);
    EXPECT_EQ(line["gradient_norm"], report.gradient_norm);
    EXPECT_EQ(line["seconds"], report.seconds);
    EXPECT_EQ(line["tokens"], 256);
    EXPECT_EQ(line["saturated"], report.saturated);
    EXPECT_EQ(line["underflowed"], report.underflowed);
    EXPECT_EQ(line["overflows"], report.overflows);
    EXPECT_EQ(line["update_ratio"], report.update_ratio);
    EXPECT_EQ(line["loss_scale"], 8.0);
    EXPECT_EQ(line.contains("validation_loss"), report.step % 2 == 0);
    const auto stored = [&](const char* name) { return metrics.at(name).value.at(i); };
    EXPECT_EQ(metrics.at("loss").step.at(i), static_cast<std::uint64_t>(report.step));
    EXPECT_EQ(stored("loss"), report.loss);
    EXPECT_EQ(stored("learning_rate"), report.learning_rate);
    EXPECT_EQ(stored("gradient_norm"), report.gradient_norm);
    EXPECT_EQ(stored("loss_scale"), 8);
    EXPECT_EQ(stored("seconds"), report.seconds);
    EXPECT_DOUBLE_EQ(stored("tokens_per_second"), 256 / report.seconds);
    EXPECT_EQ(stored("underflowed"), static_cast<double>(report.underflowed));
    EXPECT_EQ(stored("unmoved_percent"), report.unmoved_percent);
    EXPECT_EQ(stored("max_logit"), report.max_logit);
    EXPECT_EQ(stored("phase.data"), report.data_seconds);
    EXPECT_EQ(stored("phase.forward_backward"), report.micro_steps_seconds);
    EXPECT_EQ(stored("phase.optimizer"), report.optimizer_seconds);
    EXPECT_LE(report.data_seconds + report.micro_steps_seconds + report.optimizer_seconds, report.seconds * 1.001);
  }
  EXPECT_EQ(metrics.at("validation_loss").step, (std::vector<std::uint64_t>{2, 4, 6}));
  EXPECT_EQ(metrics.at("validation_loss").value.back(), run.result.final_validation_loss);
  EXPECT_EQ(metrics.at("gradient_snr").step, (std::vector<std::uint64_t>{1, 3, 5})) << "of sampled steps";
  EXPECT_FALSE(metrics.contains("skipped"));
  const RunDetails details = store.run(id);
  EXPECT_EQ(details.summary.status, RunStatus::finished);
  EXPECT_EQ(details.summary.steps, 6U);
  EXPECT_EQ(details.summary.step, 6U);
  EXPECT_EQ(details.summary.tokens_per_step, 256U);
  EXPECT_EQ(details.summary.recipe, "fp8-delayed");
  std::uint64_t bytes = 0;
  for (const auto& [name, size] : details.memory) bytes += size;
  EXPECT_EQ(bytes, static_cast<std::uint64_t>(run.result.memory.total()));
}

TEST(Metrics, TheStatusIsHowTheRunEnded) {
  const TemporaryFolder folder;
  const Config config = small_config("bf16", folder.path() / "run");
  const std::atomic<bool> stop{true};
  RunOptions options;
  options.stop = &stop;
  EXPECT_EQ(run_training(config, options).end, RunEnd::interrupted);
  EXPECT_EQ(StoreReader(folder.path() / "quaver.db").run(run_id(folder.path() / "run")).summary.status,
            RunStatus::interrupted);
}

// Runs that differ in seed and name only belong together.
TEST(Metrics, RunsOfOneGroupDifferInTheirSeedOnly) {
  const TemporaryFolder folder;
  const auto group_of = [&](const char* name, std::uint64_t seed, double learning_rate) {
    Config config = small_config("bf16", folder.path() / name);
    config.train.steps = 1;
    config.train.seed = seed;
    config.optim.learning_rate = learning_rate;
    run_training(config, {});
    return StoreReader(folder.path() / "quaver.db").run(run_id(folder.path() / name)).summary.group;
  };
  const std::string first = group_of("a", 1, 1e-3);
  EXPECT_EQ(group_of("b", 2, 1e-3), first);
  EXPECT_NE(group_of("c", 1, 2e-3), first);
}

}  // namespace
}  // namespace quaver::test
