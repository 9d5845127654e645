// Ranks that share out optimizer state, gradients and weights, as threads of one process. scripts/ranks-test compares
// whole runs of processes.
#include <mutex>

#include "support/late_engine.h"

#include "comm/agreement.h"
#include "train/three_ranks.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;

constexpr ShardMode modes[] = {ShardMode::none, ShardMode::optimizer, ShardMode::gradients, ShardMode::weights};

Config config_of(ShardMode mode) {
  Config config = miniature_config("fp8-delayed");
  config.train.accumulation = config.train.reduction_groups = 6;
  config.train.shard = mode;
  return config;
}

TEST(Sharding, ChangesNoLossOfTrainingOrValidation) {
  std::vector<double> want;
  OwnTrainer alone(config_of(ShardMode::none));
  for (int i = 0; i < 3; ++i) want.push_back(alone.trainer.step().loss);
  want.push_back(*alone.trainer.evaluate(4));
  for (const ShardMode mode : modes) {
    on_three(config_of(mode), [&](Trainer& trainer, Communicator&) {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(trainer.step().loss, want[static_cast<std::size_t>(i)]);
      EXPECT_EQ(*trainer.evaluate(4), want[3]) << "4 batches on 3 ranks";
    });
  }
}

TEST(Sharding, TellsWhichRankTheOthersWaitFor) {
  on_three(config_of(ShardMode::optimizer), [](Trainer& trainer, Communicator& ranks) {
    trainer.step();
    if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto times = trainer.step().communication;
    ASSERT_TRUE(times.has_value());
    EXPECT_EQ(times->slowest_rank, 1);
    EXPECT_GT(times->most, times->least + 0.1);
  });
  OwnTrainer alone(config_of(ShardMode::none));
  EXPECT_FALSE(alone.trainer.step().communication.has_value());
}

// Gradients leave and weights arrive while a pass runs: nobody may touch them before it is waited for.
TEST(Sharding, WaitsForWhatIsPutAside) {
  for (const Size groups : {Size{6}, Size{3}}) {
    for (const ShardMode mode : modes) {
      if (groups < 6 && mode >= ShardMode::gradients) continue;  // they take a group per micro-batch
      Config config = config_of(mode);
      config.train.reduction_groups = groups;
      config.train.statistics_every = 2;
      Config by_itself = config;
      by_itself.train.shard = ShardMode::none;
      OwnTrainer alone(by_itself);
      std::vector<StepReport> want;
      for (int i = 0; i < 4; ++i) want.push_back(alone.trainer.step());
      const double validation = *alone.trainer.evaluate(4);
      ThreadRanks(3).run([&](Communicator& ranks) {
        LateEngine engine;
        const TrainingData data = OwnTrainer::text(0);
        Trainer trainer(
            config, data, engine, [](const std::string&) {}, ranks);
        for (const StepReport& step : want) {
          const StepReport report = trainer.step();
          EXPECT_EQ(report.loss, step.loss);
          EXPECT_EQ(report.gradient_norm, step.gradient_norm);
          if (report.sampled) {
            EXPECT_EQ(report.gradient_snr, step.gradient_snr);
          }
        }
        EXPECT_EQ(*trainer.evaluate(4), validation);
        EXPECT_GE(engine.device().most(), 2U) << "nothing waited beside a pass";
      });
    }
  }
}

TEST(Sharding, EveryRankHasTheMemoryThatWasPlanned) {
  const auto hardware = make_cpu_engine(1)->device().hardware();
  for (const ShardMode mode : modes) {
    on_three(config_of(mode), [&](Trainer& trainer, Communicator& ranks) {
      const MemoryUse use = trainer.memory();
      const MemoryPlan plan = plan_memory(trainer.config(), hardware, model_of, {mode, ranks.rank(), ranks.size()});
      EXPECT_EQ(use.weights, plan.weights);
      EXPECT_NEAR(static_cast<double>(use.optimizer), static_cast<double>(plan.optimizer), 8192) << "with statistics";
      EXPECT_EQ(use.quantized_weights, plan.quantized_weights);
      EXPECT_NEAR(static_cast<double>(use.gradients), static_cast<double>(plan.gradients), 16384);
    });
  }
}

TEST(Sharding, ARankWhoseWeightsDifferIsNamed) {
  for (const ShardMode mode : modes) {
    const auto check = [&](bool damaged) {
      on_three(config_of(mode), [&](Trainer& trainer, Communicator& ranks) {
        trainer.step();
        trainer.evaluate(1);                                                 // the weights are where passes read them
        Parameter& norm = trainer.model().parameters().find("norm.weight");  // every rank reads it
        if (damaged && ranks.rank() == 2) norm.weight.f32()[3] = std::nextafter(norm.weight.f32()[3], 9.0F);
        trainer.require_same_weights();
      });
    };
    EXPECT_NO_THROW(check(false));
    try {
      check(true);
      FAIL() << "nobody noticed";
    } catch (const AgreedError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2 has another checksum of the weights than rank 0"));
    }
  }
}

// Of a batch that cannot be read on one rank all of them hear, and their trainers are as they were before the step.
TEST(Sharding, DataThatOneRankCannotReadFailsOnAll) {
  class Unreadable final : public OwnText {
   public:
    using OwnText::OwnText;
    void fill(std::uint64_t, Size, Size, std::int32_t*, std::int32_t*) const override {
      throw Error("a disk is gone", "bring it back");
    }
  };
  for (const ShardMode mode : modes) {
    std::mutex counting;
    int failures = 0;
    ThreadRanks(3).run([&](Communicator& ranks) {
      const auto engine = make_cpu_engine(1);
      TrainingData data = OwnTrainer::text(0);
      if (ranks.rank() == 1) data.train = std::make_unique<Unreadable>(1, 0);
      Trainer trainer(
          config_of(mode), data, *engine, [](const std::string&) {}, ranks);
      try {
        trainer.step();
      } catch (const AgreedError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1: a disk is gone"));
        EXPECT_EQ(trainer.steps_done(), 0);
        const std::lock_guard lock(counting);
        ++failures;
      }
    });
    EXPECT_EQ(failures, 3);
  }
}

}  // namespace
}  // namespace quaver::test
