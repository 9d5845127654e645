// What a run is: the settings and the data it was trained with, and every change of them with its step. Each checkpoint
// carries it (run.json), so that a resume compares with what was trained and not with a file that may have been edited.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "data/identity.h"

namespace quaver {

// From the step after `step` on. The key "data" stands for the data's content.
struct SettingChange {
  Size step = 0;
  std::string key;
  std::string before;
  std::string after;
  bool operator==(const SettingChange&) const = default;
};

struct Provenance {
  std::string id;  // under which the store knows the run
  Config config;   // as resolved
  DataIdentity data;
  std::vector<SettingChange> changes;  // in the order of their steps
};

std::string to_json(const Provenance& provenance);

// Throws Error, naming the source, on anything that to_json does not write.
Provenance parse_provenance(std::string_view text, std::string_view source);

// The keys that differ, but for those of [run], which say where a run is kept and not what it is.
std::vector<SettingChange> setting_changes(const Config& before, const Config& after, Size step);

// The changes alone, as an array of objects, for the store.
std::string changes_json(const std::vector<SettingChange>& changes);

// Throws Error where config.toml in the run's folder disagrees with what the checkpoint was trained with and with what
// is asked for now: somebody has edited it, and a run does not become another by that.
void refuse_edited_config(const Config& file, const Provenance& trained, const Config& asked, Size step,
                          const std::string& path);

}  // namespace quaver
