// What runs recorded, as tables: the store of a folder of runs, also while they train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quaver {

struct RecordedRun {
  std::string id;
  std::string name;
  std::string model;
  std::string recipe;
  std::string status;  // "running", "finished", "interrupted", "failed", "lost"
  std::string directory;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t steps = 0;  // planned
  std::optional<double> loss;
  std::optional<double> validation_loss;
  std::optional<double> tokens_per_second;
};

// One metric of a run; steps ascend. A value may be NaN.
struct MetricColumn {
  std::string name;
  std::vector<std::uint64_t> steps;
  std::vector<double> values;
};

// `store`: a folder of runs, or its quaver.db. Newest first. Throws Error where there is no store or it cannot be read.
std::vector<RecordedRun> recorded_runs(const std::string& store);

// Every metric of the run with this id, unthinned, by name.
std::vector<MetricColumn> recorded_metrics(const std::string& store, const std::string& id);

}  // namespace quaver
