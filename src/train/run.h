// A training run on disk: its metrics, checkpoints, validation, samples, guard, and the way it ends.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/agreement.h"
#include "comm/launch.h"
#include "config/config.h"
#include "quaver/error.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace quaver {

// What a run tells whoever watches it. Every function may be left empty.
struct RunObserver {
  std::function<void(const Trainer&, Size first_step)> started;
  std::function<void(const StepReport&, std::optional<double> validation_loss)> stepped;
  std::function<void(const std::string&)> message;
  std::function<void(const std::string&)> warning;
  std::function<void(const std::string&)> critical;  // an alert that is; empty: told as a warning
};

enum class RunStart : std::uint8_t { fresh, resume };

// What a resume does where the data is not what the run was trained on.
enum class OtherData : std::uint8_t { refuse, accept };

struct RunOptions {
  RunStart start = RunStart::fresh;
  OtherData other_data = OtherData::refuse;
  std::vector<std::string> take_back;       // on resuming: patterns of sites whose latest change is undone
  const std::atomic<bool>* stop = nullptr;  // set by Ctrl-C: write a checkpoint and end
  RunObserver observer;                     // of the first rank; the others' hears nothing
  Communicator* ranks = nullptr;            // that train together; null: this process alone
  Launch launch;                            // how they were started
};

struct ValidationPoint {
  Size step = 0;
  Validation found;
};

enum class RunEnd : std::uint8_t { finished, interrupted };

// How many of the last steps a run's final training loss is a mean of: a twentieth, one at the least.
constexpr Size final_steps(Size steps) { return steps < 20 ? 1 : steps / 20; }

struct RunResult {
  RunEnd end = RunEnd::finished;
  std::filesystem::path directory;
  Size steps = 0;
  Size tokens_per_step = 0;  // or images
  // Mean over the run's last steps, `final_steps` of them, without those that were skipped: what every
  // place calls the final training loss. Absent where none of them trained.
  std::optional<double> final_train_loss;
  std::optional<double> final_validation_loss;
  std::optional<double> final_validation_accuracy;  // of a classifier
  std::optional<double> best_loss;                  // of a perfect model, where it is known
  std::optional<double> best_accuracy;
  std::vector<LossPoint> losses;            // of all the run's steps but those that were skipped
  std::vector<ValidationPoint> validation;  // of this session
  double seconds_per_step = 0;              // median, of this session
  double tokens_per_second = 0;
  Size skipped = 0;             // steps; like losses, without those that a rewind took back
  std::uint64_t overflows = 0;  // sites that overflowed, summed over steps
  MemoryUse memory;
  std::map<std::string, double> format_shares;
  std::string sample;  // of text, where there is a tokenizer
};

// The guard gave up: the loss diverged and rewinds did not help. Of several ranks all of them throw it.
class RunDiverged : public AgreedError {
 public:
  using AgreedError::AgreedError;
};

// Trains as the config says. A fresh start refuses a directory that holds a run. A resume needs a usable checkpoint and
// is refused where there are only damaged ones; it starts over where none had been written yet. Settings that differ
// from those of the checkpoint are recorded as changes, in the run's folder and its store.
RunResult run_training(const Config& config, const RunOptions& options);

// A trainer restored from the newest good checkpoint of a run, or from a given step, for eval, sample and inspect.
struct OpenedRun {
  Config config;
  TrainingData data;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Trainer> trainer;
  Provenance provenance;
};
std::unique_ptr<OpenedRun> open_run(const std::filesystem::path& directory, const std::vector<std::string>& flags,
                                    std::optional<Size> step, const Notice& notice, const Launch& launch = {});

// A model of a Hugging Face folder as such a trainer: the one that the flags name by model.from. Text is read by
// data.tokenizer or the folder's own where no data is named. Sequences are at most 1024 tokens unless train.context
// says otherwise.
std::unique_ptr<OpenedRun> open_pretrained(const std::vector<std::string>& flags, const Notice& notice,
                                           const Launch& launch = {});

}  // namespace quaver
