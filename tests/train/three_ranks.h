// Trainers of one model on three ranks, which are threads, and what they must have in common with one process.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include "support/thread_ranks.h"

#include "engine/engine.h"
#include "train/own_text.h"

namespace quaver::test {

// A trainer on each of three ranks.
inline void on_three(const Config& config, const std::function<void(Trainer&, Communicator&)>& work) {
  ThreadRanks(3).run([&](Communicator& ranks) {
    const auto engine = make_cpu_engine(1);
    const TrainingData data = OwnTrainer::text(0);
    Trainer trainer(
        config, data, *engine, [](const std::string&) {}, ranks);
    work(trainer, ranks);
  });
}

// Three steps, whatever is sharded.
inline void expect_the_steps_of_one_process(Config config) {
  config.train.accumulation = config.train.reduction_groups = 3;
  config.train.statistics_every = 2;
  for (const ShardMode mode : {ShardMode::none, ShardMode::optimizer, ShardMode::gradients, ShardMode::weights}) {
    config.train.shard = mode;
    OwnTrainer alone(config);
    std::vector<StepReport> want;
    for (int i = 0; i < 3; ++i) want.push_back(alone.trainer.step());
    on_three(config, [&](Trainer& trainer, Communicator&) {
      for (const StepReport& step : want) {
        const StepReport report = trainer.step();
        EXPECT_EQ(report.loss, step.loss);
        EXPECT_EQ(report.gradient_norm, step.gradient_norm);
        EXPECT_EQ(report.update_ratio, step.update_ratio);
      }
    });
  }
}

}  // namespace quaver::test
