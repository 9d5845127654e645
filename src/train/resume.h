// What is asked of a run before it goes on: is there a checkpoint, what does it differ in from what is asked for now,
// and what is kept of an earlier start.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/provenance.h"
#include "train/run_log.h"

namespace quaver {

// Nothing was saved yet, or somebody moved it away to begin anew: what is there of an earlier training stays, under
// other names. Error where there are checkpoints and none can be used.
void start_over(const std::filesystem::path& directory, const CheckpointStore& store, const RunLog& log);

// Error where the config ends before the step that the run has reached.
void refuse_to_go_back(const Config& config, Size step);

// What is asked for now and was not trained with. Data of another content is an Error unless it is accepted.
struct ResumeQuestion {
  const std::filesystem::path& directory;
  const Provenance& trained;
  const Config& config;  // of this resume
  const DataIdentity& data;
  Size step = 0;
  OtherData other_data = OtherData::refuse;
};
std::vector<SettingChange> changes_on_resume(const ResumeQuestion& question);

// The run's id lies in a file of its own and in every checkpoint: damage to the file does not make it another run.
// `trained` is empty for a run without checkpoints.
std::string known_id(const std::filesystem::path& directory, const std::string& trained, const RunLog& log);

}  // namespace quaver
