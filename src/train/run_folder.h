// The folder of a run: where it is, the files that say what it is, and where a checkpoint goes that it does not take.
//   <dir>/config.toml  env.json  plan.toml  run_id  metrics.jsonl  scales.json  checkpoints/  samples/  pretrained/
//         tokenizer/
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "train/checkpoint_store.h"
#include "train/provenance.h"

namespace quaver {

// Files of the folder that the model comes from, which an export of the run needs.
inline constexpr const char* pretrained_folder = "pretrained";

// The data's tokenizer for an export, where the model does not come with it.
inline constexpr const char* tokenizer_folder = "tokenizer";

// The preset, or the folder that the model comes from.
std::string model_name(const Config& config);

// runs/<model>-<recipe>-<seed> unless the config says otherwise.
std::filesystem::path run_directory(const Config& config);

// What a run was trained with: its newest checkpoint's settings, or config.toml where there is none; then the flags.
Config load_run_config(const std::filesystem::path& directory, const std::vector<std::string>& flags);

// config.toml itself, for comparison with that.
Config load_config_file(const std::filesystem::path& directory);

// The files that make one folder per run, beside its checkpoints.
struct RunFiles {
  std::string config;       // TOML
  std::string plan;         // TOML
  std::string environment;  // JSON
  std::string id;
};
void write_run_files(const std::filesystem::path& directory, const RunFiles& files);

// The newest checkpoint that verifies and makes sense; the others are told of.
std::optional<Checkpoint> newest_usable(const CheckpointStore& store,
                                        const std::function<void(const std::string&)>& warning);

// What the checkpoint was trained with. Error where config.toml disagrees with that and with what is asked for now; of
// a checkpoint that an earlier version wrote, config.toml is all that is known, and the data's identity is empty.
Provenance provenance_of(const Checkpoint& checkpoint, const std::filesystem::path& directory, const Config& asked);

// Where the last checkpoint goes when the run's own folder does not take it: run.fallback, or a folder of the system's
// temporary ones that this user alone can enter. Made if need be; Error where it is someone else's.
std::filesystem::path make_fallback_folder(const Config& config, const std::filesystem::path& directory,
                                           const std::string& id);

}  // namespace quaver
