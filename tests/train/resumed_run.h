// A run that is stopped halfway and resumed must end as one that is not: in the same bytes.
#pragma once

#include <atomic>
#include <gtest/gtest.h>

#include "train/support.h"

namespace quaver::test {

// Stops behind this step, where the run does not end before.
inline RunResult run_until(const Config& config, RunStart start, Size step) {
  std::atomic<bool> stop{false};
  RunOptions options;
  options.start = start;
  options.stop = &stop;
  options.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step >= step; };
  return run_training(config, options);
}

// config_in(name) is the config of a run of six steps in that folder. Leaves the checkpoints of "straight" and
// "halted".
template <class ConfigIn>
void expect_resumed_bytes(const TemporaryFolder& folder, const ConfigIn& config_in) {
  run_training(config_in("straight"), {});
  EXPECT_EQ(run_until(config_in("halted"), RunStart::fresh, 3).end, RunEnd::interrupted);
  EXPECT_EQ(run_until(config_in("halted"), RunStart::resume, 100).end, RunEnd::finished);
  for (const char* part : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::filesystem::path file = std::filesystem::path("checkpoints") / "step-000006" / part;
    EXPECT_EQ(contents(folder.path() / "straight" / file), contents(folder.path() / "halted" / file)) << part;
  }
}

}  // namespace quaver::test
