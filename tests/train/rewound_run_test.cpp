// A run that goes astray once and recovers: what it reports, logs and records afterwards has every step once, and its
// alarms know nothing of the steps that were taken back.
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "data/loader.h"
#include "store/reader.h"
#include "train/support.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t context = 8;
constexpr std::int64_t batch = 4;
constexpr std::size_t windows = 400;
constexpr Size steps = 40;
constexpr Size first_bad = 21;  // steps 21 to 23 train on noise

void write_shard(const fs::path& path, const std::vector<std::int32_t>& ids) {
  fs::remove(path);
  ShardWriter writer(path, ShardFormat::quaver, static_cast<int>(windows), 7);
  writer.append(ids);
  writer.finish();
}

// The windows that some steps of a run read, seen in a shard whose windows are numbered.
std::set<std::size_t> windows_read_by(const fs::path& path, std::uint64_t seed, Size from, Size to) {
  std::vector<std::int32_t> numbered(windows * context + 1);
  for (std::size_t i = 0; i < numbered.size(); ++i) {
    numbered[i] = static_cast<std::int32_t>(std::min<std::size_t>(i / context, windows - 1));
  }
  write_shard(path, numbered);
  const std::vector<fs::path> paths{path};
  const ShardSource source(paths, {.order = WindowOrder::shuffled, .seed = seed, .vocab_size = 0});
  std::set<std::size_t> found;
  std::vector<std::int32_t> inputs(batch * context), targets(batch * context);
  for (Size step = from; step <= to; ++step) {
    source.fill(static_cast<std::uint64_t>(step - 1), batch, context, inputs.data(), targets.data());
    for (std::int64_t row = 0; row < batch; ++row) {
      found.insert(static_cast<std::size_t>(inputs[static_cast<std::size_t>(row * context)]));
    }
  }
  return found;
}

// A text of one token, which is soon learnt, with noise in what three steps in a row read.
class AstrayOnce : public testing::Test {
 protected:
  void SetUp() override {
    config_ = small_config("fp32", folder_.path() / "run");
    config_.model.context = context;
    config_.train.batch = batch;
    config_.train.accumulation = 1;
    config_.train.steps = steps;
    config_.train.eval_every = 7;
    config_.train.checkpoint_every = 10;
    config_.optim.learning_rate = 1e-2;
    config_.optim.schedule = ScheduleShape::constant;
    config_.optim.warmup = 0;
    config_.guard.patience = 3;
    config_.guard.divergence = 1.01;
    config_.guard.max_rewinds = 1;
    config_.data.kind = DataKind::dataset;
    const fs::path shard = folder_.path() / "text.qv";
    config_.data.path = shard.string();
    const std::set<std::size_t> noisy = windows_read_by(shard, config_.train.seed, first_bad, first_bad + 2);
    std::vector<std::int32_t> ids(windows * context + 1, 5);
    std::mt19937 random(3);
    for (const std::size_t window : noisy) {
      for (std::size_t i = 1; i < context; ++i) {
        ids[window * context + i] = 32 + static_cast<std::int32_t>(random() % 300);
      }
    }
    write_shard(shard, ids);
    adjust();
    write_shard(folder_.path() / "valid.qv", std::vector<std::int32_t>(10 * context + 1, 5));
    config_.data.valid_path = (folder_.path() / "valid.qv").string();
    RunOptions options;
    options.observer.warning = [this](const std::string& text) {
      rewinds_ += text.starts_with("the loss diverged at step 23 ") && text.ends_with(
                                                                           "back to step 20, past the "
                                                                           "batches that led there")
                      ? 1
                      : 0;
    };
    result_ = run_training(config_, options);
  }

  virtual void adjust() {}

  static std::vector<Size> every_step() {
    std::vector<Size> all(static_cast<std::size_t>(steps));
    std::iota(all.begin(), all.end(), 1);
    return all;
  }

  TemporaryFolder folder_;
  Config config_;
  RunResult result_;
  int rewinds_ = 0;
};

TEST_F(AstrayOnce, HasEveryStepOnceInResultLogAndStore) {
  ASSERT_EQ(rewinds_, 1);
  std::vector<Size> reported;
  for (const LossPoint& point : result_.losses) reported.push_back(point.step);
  EXPECT_EQ(reported, every_step());
  for (const LossPoint& point : result_.losses) {
    if (point.step <= 20) continue;
    EXPECT_LT(point.loss, 1) << point.step << ": of the text after the noise";
  }

  std::vector<Size> validated;
  for (const ValidationPoint& point : result_.validation) validated.push_back(point.step);
  EXPECT_EQ(validated, (std::vector<Size>{7, 14, 21, 28, 35, 40})) << "step 21 was taken back and done again";

  std::vector<Size> logged;
  std::istringstream log(contents(folder_.path() / "run" / "metrics.jsonl"));
  for (std::string line; std::getline(log, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (!entry.contains("event")) logged.push_back(entry.at("step").get<Size>());
  }
  EXPECT_EQ(logged, every_step());

  const StoreReader store(folder_.path() / store_file_name);
  const RunSummary run = store.runs().at(0);
  EXPECT_EQ(run.status, RunStatus::finished);
  EXPECT_EQ(run.step, static_cast<std::uint64_t>(steps));
  const auto series = store.metrics(run.id, {});
  EXPECT_EQ(std::vector<Size>(series.at("loss").step.begin(), series.at("loss").step.end()), every_step());
}

// A reading of the loss a step: what the alarms had seen of the steps that were taken back is forgotten with them.
TEST_F(AstrayOnce, TheAlarmsHaveSeenEveryStepOnce) {
  ASSERT_EQ(rewinds_, 1);
  const std::map<std::string, double> kept = watch_numbers(folder_.path() / "run");
  EXPECT_EQ(kept.at("alarms|run||loss_count"), static_cast<double>(steps));
  EXPECT_EQ(kept.at("alarms|run||gradient_count"), static_cast<double>(steps));
  EXPECT_EQ(kept.at("guard.seen"), static_cast<double>(steps));
  EXPECT_EQ(kept.at("guard.rewinds"), 1.0);
}

// One operand overflows in every step.
class AstrayOnceAndOverflowing : public AstrayOnce {
 protected:
  void adjust() override {
    config_.precision.layers = {{"blocks.0.mlp.up/x", "fp8-static"}};
    config_.precision.static_activation_scale = 1e6;
    config_.precision.recalibrate_every = 0;
    config_.guard.widen_after = 1000;
  }
};

TEST_F(AstrayOnceAndOverflowing, CountsTheOverflowsOfTheStepsThatStand) {
  ASSERT_EQ(rewinds_, 1);
  std::uint64_t logged = 0;
  std::istringstream log(contents(folder_.path() / "run" / "metrics.jsonl"));
  for (std::string line; std::getline(log, line);) logged += nlohmann::json::parse(line).value("overflows", 0U);
  EXPECT_EQ(logged, static_cast<std::uint64_t>(steps)) << "one in each step";
  EXPECT_EQ(result_.overflows, static_cast<std::uint64_t>(steps));
  EXPECT_EQ(result_.skipped, 0);
}

}  // namespace
}  // namespace quaver::test
