// A run that is stopped halfway and resumed must end as one that is not: in the same bytes.
#pragma once

#include <atomic>
#include <gtest/gtest.h>

#include "train/support.h"

namespace quaver::test {

// config_in(name) is the config of a run of six steps in that folder. Leaves the checkpoints of "straight" and
// "halted".
template <class ConfigIn>
void expect_resumed_bytes(const TemporaryFolder& folder, const ConfigIn& config_in) {
  run_training(config_in("straight"), {});
  std::atomic<bool> stop{false};
  RunOptions halting;
  halting.stop = &stop;
  halting.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step == 3; };
  EXPECT_EQ(run_training(config_in("halted"), halting).end, RunEnd::interrupted);
  RunOptions resuming;
  resuming.start = RunStart::resume;
  run_training(config_in("halted"), resuming);
  for (const char* part : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::filesystem::path file = std::filesystem::path("checkpoints") / "step-000006" / part;
    EXPECT_EQ(contents(folder.path() / "straight" / file), contents(folder.path() / "halted" / file)) << part;
  }
}

}  // namespace quaver::test
