// Writes the checkpoints of a run. A disk that refuses one costs no training: it is tried again, the next one is, and
// the last one goes elsewhere if need be. Ranks write together, each what it owns: all that saves is collective.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/checkpoint_store.h"
#include "train/run_folder.h"
#include "train/run_log.h"
#include "train/run_watch.h"

namespace quaver {

class CheckpointWriter {
 public:
  // Makes the run's folder, on the first rank.
  CheckpointWriter(Trainer& trainer, const RunWatch& watch, RunLog& log, const std::filesystem::path& directory);

  // Once, before the first checkpoint: what each of them says about the run, and the files beside them.
  void describe_run(const Provenance& provenance, RunFiles files);

  void save();

  // A checkpoint that cannot be written loses nothing yet: the older ones stay good and the next one is tried. None is
  // written of a run that may be diverging.
  void save_or_warn();

  // The last one: in the run's folder, or in the fallback, or not before run.patience is over. Throws the Error that
  // says where it is, unless it is in the run's folder.
  void save_surely();

  // The newest checkpoint that verifies and makes sense, the same one on every rank. Collective.
  std::optional<Checkpoint> newest_usable();

  CheckpointStore& store() { return *store_; }  // of the first rank
  const RunFiles& files() const { return files_; }

 private:
  bool writes() const { return store_.has_value(); }
  CheckpointContent content();
  void save_to(CheckpointStore* store);
  void save_or_repair();
  void repair();
  void save_to_fallback(const Error& cause);

  Trainer& trainer_;
  const RunWatch& watch_;
  RunLog& log_;
  std::filesystem::path directory_;
  std::optional<CheckpointStore> store_;
  std::string provenance_;  // JSON
  RunFiles files_;
};

}  // namespace quaver
