// The model that eval and sample look at: a run's, or that of a Hugging Face folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/run.h"

namespace quaver {

struct NamedModel {
  const std::string& run;  // folder; empty: the settings name a model folder by model.from
  std::optional<Size> step;
  const std::vector<std::string>& settings;
  Launch launch = {};  // of several ranks the first tells notices
};

// Notices go to standard error.
std::unique_ptr<OpenedRun> open_named(const NamedModel& model);

// Its folder, for messages.
std::string name_of(const OpenedRun& model);

}  // namespace quaver
