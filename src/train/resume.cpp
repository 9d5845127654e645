#include "train/resume.h"

#include <fmt/format.h>

#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

void keep_earlier(const fs::path& directory, const std::string& name, const RunLog& log) {
  const fs::path path = directory / name;
  if (!fs::exists(path)) return;
  fs::path kept;
  for (int i = 1; kept.empty() || fs::exists(kept); ++i) kept = directory / fmt::format("{}.before-{}", name, i);
  fs::rename(path, kept);
  log.warn(fmt::format("{} of the earlier start is kept as {}", name, kept.string()));
}

}  // namespace

void start_over(const fs::path& directory, const CheckpointStore& store, const RunLog& log) {
  const std::vector<std::uint64_t> steps = store.steps();
  if (!steps.empty()) {
    throw Error(fmt::format("{} holds {} checkpoint{}, the newest of step {}, and none can be used",
                            store.directory().string(), steps.size(), steps.size() == 1 ? "" : "s", steps.back()),
                fmt::format("restore them from a copy, or check their permissions; to start over on purpose, move {} "
                            "away and resume again",
                            store.directory().string()));
  }
  log.warn(directory.string() + " has no checkpoint: the run starts over");
  if (!has_trained(directory / "metrics.jsonl")) return;
  keep_earlier(directory, "metrics.jsonl", log);
  keep_earlier(directory, "run_id", log);  // the store keeps what it recorded under the earlier one
}

void refuse_to_go_back(const Config& config, Size step) {
  const Size steps = config.train.steps;
  if (steps >= step) return;
  throw Error(fmt::format("the run has reached step {}: train.steps = {} lies behind it", step, steps),
              fmt::format("choose {} or more; `quaver eval --step` and `quaver sample --step` look at earlier "
                          "checkpoints",
                          step));
}

std::vector<SettingChange> changes_on_resume(const ResumeQuestion& question) {
  const DataIdentity& before = question.trained.data;
  std::vector<SettingChange> changes = setting_changes(question.trained.config, question.config, question.step);
  const bool known = !before.train_hash.empty();
  const std::string difference = known ? describe_difference(before, question.data) : "";
  if (difference.empty()) return changes;
  if (question.other_data == OtherData::refuse) {
    throw Error(fmt::format("{} was trained on other data: {}", question.directory.string(), difference),
                "set data.path to the data it was trained on, or add --allow-other-data to go on with this; the "
                "run will record it");
  }
  changes.push_back(
      {question.step, "data", before.train_hash, fmt::format("{} ({})", question.data.train_hash, difference)});
  return changes;
}

std::string known_id(const fs::path& directory, const std::string& trained, const RunLog& log) {
  const fs::path path = directory / "run_id";
  try {
    if (trained.empty() || (fs::exists(path) && parse_run_id(read_file(path, 4096)) == trained)) {
      return run_id(directory);
    }
  } catch (const Error&) {  // not a file any more
  }
  log.warn(fmt::format("{} does not hold the run's id {}: it is written again", path.string(), trained));
  return trained;
}

}  // namespace quaver
