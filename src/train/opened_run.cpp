// A trained model as eval, sample, inspect and the studies open it.
#include <algorithm>

#include "config/load.h"
#include "data/dataset.h"
#include "quaver/error.h"
#include "train/engine_choice.h"
#include "train/run.h"
#include "train/run_folder.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

// Without data to train or validate on there is still text to read and write.
TrainingData data_of(const Config& config) {
  if (config.data.kind != DataKind::dataset || !config.data.path.empty()) {
    return open_training_data(config.data, config.train.seed, config.train.context);
  }
  TrainingData data = stand_in_data(config, config.model.vocab);
  const fs::path own = fs::path(config.model.from) / "tokenizer.json";
  if (!config.data.tokenizer.empty()) {
    data.tokenizer = load_tokenizer(config.data.tokenizer);
  } else if (fs::exists(own)) {
    data.tokenizer = load_tokenizer(own.string());
  }
  if (data.tokenizer != nullptr && data.tokenizer->vocab_size() > data.vocab) {
    throw Error("the tokenizer has more tokens than " + config.model.from, "name the model's own with data.tokenizer");
  }
  return data;
}

// The one that the model came with, for data that does not name its own; null where there is none, or where the data
// was made with another one.
std::shared_ptr<const Tokenizer> tokenizer_of_model(const fs::path& directory, const OpenedRun& run,
                                                    const Notice& notice) {
  const fs::path kept = directory / pretrained_folder / tokenizer_file_name;
  const TrainingData& data = run.data;
  if (data.train == nullptr || data.train->shards().empty() || !fs::exists(kept)) return nullptr;
  try {
    std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(kept);
    const std::uint64_t recorded = data.train->shards().front().info().tokenizer_hash;
    const bool fits = tokenizer->vocab_size() <= run.config.model.vocab;
    return fits && (recorded == 0 || recorded == tokenizer->hash()) ? tokenizer : nullptr;
  } catch (const Error& error) {  // of a kind that is not read: text has no meaning, as without one
    notice(std::string("the model's tokenizer is left out: ") + error.what());
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<OpenedRun> open_pretrained(const std::vector<std::string>& flags, const Notice& notice,
                                           const Launch& launch) {
  constexpr Size longest = 1024;
  const ConfigText one_sequence{"open_pretrained", "[train]\nbatch = 1\n"};
  auto run = std::make_unique<OpenedRun>();
  run->config = load_config({.files = {}, .texts = {one_sequence}, .flags = flags});
  Config& config = run->config;
  if (config.model.from.empty()) {
    throw Error("no model is named", "name the folder of a run, or set --model.from to a Hugging Face model folder");
  }
  if (config.train.context == 0) config.train.context = std::min(config.model.context, longest);
  run->data = data_of(config);
  run->engine = make_engine(config, notice, launch);
  run->trainer = std::make_unique<Trainer>(config, run->data, *run->engine, notice);
  run->trainer->load_pretrained();
  return run;
}

std::unique_ptr<OpenedRun> open_run(const fs::path& directory, const std::vector<std::string>& flags,
                                    std::optional<Size> step, const Notice& notice, const Launch& launch) {
  const CheckpointStore store = CheckpointStore::read_only(directory);
  auto run = std::make_unique<OpenedRun>();
  run->config = load_run_config(directory, flags);
  const auto checkpoint =
      step ? std::optional(store.load(static_cast<std::uint64_t>(*step))) : newest_usable(store, notice);
  if (!checkpoint) throw Error(directory.string() + " has no usable checkpoint", "train it first");
  run->data = open_training_data(run->config.data, run->config.train.seed, run->config.train.context);
  if (run->data.tokenizer == nullptr) run->data.tokenizer = tokenizer_of_model(directory, *run, notice);
  run->engine = make_engine(run->config, notice, launch);
  run->trainer = std::make_unique<Trainer>(run->config, run->data, *run->engine, notice);
  run->provenance = provenance_of(*checkpoint, directory, run->trainer->config());
  run->trainer->restore(*checkpoint);
  run->trainer->change_plan_from(run->provenance.config, "looked at with ");
  return run;
}

}  // namespace quaver
