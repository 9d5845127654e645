// A whole optimizer step stays on the device: the scales it computes are the scale book's, it is waited for once, and a
// step that must be skipped leaves nothing behind.
#include "gpu/compare.h"

#include "engine/timed_engine.h"
#include "train/engine_choice.h"
#include "train/support.h"
#include "train/trainer.h"

namespace quaver::test {
namespace {

const Size steps = is_brief() ? 4 : 12;

// The same engine, but the host computes every scale before the weights are cast with it.
class HostScales final : public RunsEach<HostScales, Engine> {
 public:
  explicit HostScales(Engine& engine) : engine_(engine) {}
  std::string name() const override { return engine_.name(); }
  Device& device() override { return engine_.device(); }
  Support support(const QuantSpec& a, const QuantSpec& b) override { return engine_.support(a, b); }
  Format high_precision() const override { return engine_.high_precision(); }
  Sharing sharing() const override { return engine_.sharing(); }
  Accumulators accumulators() const override { return engine_.accumulators(); }
  void upload_scales(std::span<Site* const> sites) override { engine_.upload_scales(sites); }
  void fetch_statistics(std::span<Site* const> sites, const std::function<void()>& then) override {
    engine_.fetch_statistics(sites, then);
  }
  void peek_statistics(std::span<Site* const> sites, const std::function<void()>& then) override {
    engine_.peek_statistics(sites, then);
  }
  template <class Operation>
  void each(const Operation& op) {
    engine_.run(op);
  }

 private:
  Engine& engine_;
};

Config config_of(const std::string& recipe) {
  Config config = small_config(recipe, "unused");
  config.train.steps = steps;
  config.train.accumulation = 2;
  config.train.eval_every = 0;
  config.train.statistics_every = 3;
  return config;
}

std::unique_ptr<Engine> engine_for(const Config& config) { return make_tested_engine(gpu_options(config.precision)); }

struct End {
  std::vector<double> losses;
  Size skipped = 0;
  std::vector<std::vector<std::byte>> weights;
  std::string state;
};

End train(const Config& config, Engine& engine) {
  const TrainingData data = open_training_data(config.data, config.train.seed, config.model.context);
  Trainer trainer(config, data, engine, [](const std::string&) {});
  End end;
  for (Size i = 0; i < steps; ++i) {
    const StepReport report = trainer.step();
    end.losses.push_back(report.loss);
    end.skipped += report.skipped ? 1 : 0;
  }
  const CheckpointContent content = trainer.snapshot();
  for (const TensorEntry& tensor : content.model) end.weights.emplace_back(tensor.data.begin(), tensor.data.end());
  for (const TensorEntry& tensor : content.optimizer) end.weights.emplace_back(tensor.data.begin(), tensor.data.end());
  end.state = content.state;
  return end;
}

void expect_same_with_scales_of_the_host(const Config& config, const std::string& what) {
  const auto engine = engine_for(config);
  const End device = train(config, *engine);
  const auto other = engine_for(config);
  HostScales host_scales(*other);
  const End host = train(config, host_scales);
  EXPECT_EQ(device.losses, host.losses) << what;
  EXPECT_EQ(device.skipped, host.skipped) << what;
  EXPECT_TRUE(device.weights == host.weights) << what << ": other weights or moments";
  EXPECT_EQ(device.state, host.state) << what << ": other scales, histories or counters";
}

class StepOnDevice : public GpuTest {};

TEST_F(StepOnDevice, ItsScalesAreThoseOfTheScaleBook) {
  for (const std::string recipe : {"bf16", "fp16", "tf32", "fp8-delayed", "fp8-static", "fp8-block", "nvfp4"}) {
    expect_same_with_scales_of_the_host(config_of(recipe), recipe);
  }
  Config latest = config_of("fp8-delayed");
  latest.precision.history = 2;
  expect_same_with_scales_of_the_host(latest, "a history of two steps");
  latest.precision.history_rule = HistoryRule::most_recent;
  expect_same_with_scales_of_the_host(latest, "the latest amax");
}

TEST_F(StepOnDevice, ASkippedStepLeavesNothingBehind) {
  Config config = config_of("fp16");
  config.precision.loss_scaling = LossScaling::adaptive;
  config.precision.loss_scale_log2 = 30;
  expect_same_with_scales_of_the_host(config, "fp16");
  const auto engine = engine_for(config);
  EXPECT_GT(train(config, *engine).skipped, 0) << "nothing was skipped: this test proves nothing";
}

// A shadow check casts the weights otherwise and back: graphs captured before it must still find them.
TEST_F(StepOnDevice, IsTheSameAfterAShadowCheck) {
  for (const std::string recipe : {"fp8-delayed", "nvfp4"}) {
    const Config config = config_of(recipe);
    const auto run = [&](bool shadow_checks) {
      const auto engine = engine_for(config);
      const TrainingData data = open_training_data(config.data, config.train.seed, config.model.context);
      Trainer trainer(config, data, *engine, [](const std::string&) {});
      std::vector<double> losses;
      for (Size i = 0; i < steps; ++i) {
        if (shadow_checks && i % 4 == 3) trainer.shadow_check();
        losses.push_back(trainer.step().loss);
      }
      return losses;
    };
    EXPECT_EQ(run(true), run(false)) << recipe;
  }
}

TEST_F(StepOnDevice, IsWaitedForOnce) {
  if (is_rehearsal()) GTEST_SKIP() << "the CPU engine leaves the scales to the host, which waits for their statistics";
  for (const std::string recipe : {"bf16", "fp8-delayed", "fp8-block"}) {
    const Config config = config_of(recipe);
    const auto engine = engine_for(config);
    TimedEngine counted(*engine);
    const TrainingData data = open_training_data(config.data, config.train.seed, config.model.context);
    Trainer trainer(config, data, counted, [](const std::string&) {});
    trainer.step();  // weights have no delayed scale before it
    for (Size i = 1; i < steps; ++i) {
      const Size before = counted.waits();
      const StepReport report = trainer.step();
      EXPECT_EQ(counted.waits() - before, 1) << recipe << ", step " << report.step;
    }
  }
}

}  // namespace
}  // namespace quaver::test
