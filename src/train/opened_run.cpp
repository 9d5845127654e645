// A trained model as eval, sample, inspect and the studies open it.
#include "quaver/error.h"
#include "train/engine_choice.h"
#include "train/run.h"

namespace quaver {

namespace fs = std::filesystem;

std::unique_ptr<OpenedRun> open_run(const fs::path& directory, const std::vector<std::string>& flags,
                                    std::optional<Size> step, const Notice& notice) {
  const CheckpointStore store = CheckpointStore::read_only(directory);
  auto run = std::make_unique<OpenedRun>();
  run->config = load_run_config(directory, flags);
  const auto checkpoint =
      step ? std::optional(store.load(static_cast<std::uint64_t>(*step))) : newest_usable(store, notice);
  if (!checkpoint) throw Error(directory.string() + " has no usable checkpoint", "train it first");
  run->data = open_training_data(run->config.data, run->config.train.seed, run->config.train.context);
  run->engine = make_engine(run->config, notice);
  run->trainer = std::make_unique<Trainer>(run->config, run->data, *run->engine, notice);
  run->provenance = provenance_of(*checkpoint, directory, run->trainer->config());
  run->trainer->restore(*checkpoint);
  run->trainer->change_plan_from(run->provenance.config, "looked at with ");
  return run;
}

}  // namespace quaver
