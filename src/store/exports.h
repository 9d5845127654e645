// Runs of a store as files for other programs: JSON lines, CSV, TensorBoard event files. One folder per run,
// each file written whole and then renamed into place.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "store/reader.h"

namespace quaver {

enum class ExportFormat : std::uint8_t {
  jsonl,        // metrics.jsonl: one object per step; numerics.jsonl: one object per site and step
  csv,          // metrics.csv: one row per step; numerics.csv: step, site, statistic, value
  tensorboard,  // events.out.tfevents.*: metrics by name, numerics as numerics/<statistic>/<site>
};

struct ExportOptions {
  ExportFormat format = ExportFormat::jsonl;
  // Numerics of these statistics only. Empty: all of them as JSON lines and CSV, none for TensorBoard, which keeps a
  // series per site and statistic in memory.
  std::vector<std::string> statistics;
};

// Writes the run, given by its id, into <folder>/<name>/ and returns the files; into <folder>/<id>/ where another run
// has that name too, or it is no name for a folder. An empty list of runs stands for all of the store that are not
// deleted.
std::vector<std::filesystem::path> export_run(const StoreReader& store, const std::string& run,
                                              const std::filesystem::path& folder, const ExportOptions& options);
std::vector<std::filesystem::path> export_runs(const StoreReader& store, std::span<const std::string> runs,
                                               const std::filesystem::path& folder, const ExportOptions& options);

}  // namespace quaver
