#include "quaver/runs.h"

#include <filesystem>
#include <map>

#include "store/reader.h"

namespace quaver {

namespace {

std::filesystem::path store_file(const std::string& store) {
  const std::filesystem::path path = store;
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path / store_file_name : path;
}

}  // namespace

std::vector<RecordedRun> recorded_runs(const std::string& store) {
  std::vector<RecordedRun> runs;
  for (const RunSummary& run : StoreReader(store_file(store)).runs()) {
    if (run.deleted) continue;
    runs.push_back({.id = run.id,
                    .name = run.name,
                    .model = run.model,
                    .recipe = run.recipe,
                    .status = std::string(name_of(run.status)),
                    .directory = run.directory,
                    .seed = run.seed,
                    .step = run.step,
                    .steps = run.steps,
                    .loss = run.loss,
                    .validation_loss = run.validation_loss,
                    .tokens_per_second = run.tokens_per_second});
  }
  return runs;
}

std::vector<MetricColumn> recorded_metrics(const std::string& store, const std::string& id) {
  std::map<std::string, MetricColumn, std::less<>> columns;
  StoreReader(store_file(store)).visit_metrics(id, [&](std::uint64_t step, std::span<const MetricValue> values) {
    for (const MetricValue& value : values) {
      MetricColumn& column = columns[std::string(value.name)];
      column.steps.push_back(step);
      column.values.push_back(value.value);
    }
  });
  std::vector<MetricColumn> table;
  for (auto& [name, column] : columns) {
    column.name = name;
    table.push_back(std::move(column));
  }
  return table;
}

}  // namespace quaver
