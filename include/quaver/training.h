// Training runs: from a config to a run folder, with a callback per step; evaluation and export of what was trained.
// The same as the program's verbs train, eval and export.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "quaver/quant_spec.h"

namespace quaver {

// default < preset < files < toml < settings.
struct TrainingConfig {
  std::vector<std::string> files = {};     // paths of TOML files
  std::string toml = {};                   // text
  std::vector<std::string> settings = {};  // "train.steps=100"
};

struct TrainingStep {
  Size step = 0;   // the one just finished, from 1
  Size steps = 0;  // planned
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  double loss_scale = 1;
  bool skipped = false;  // gradients or loss were not finite: the weights did not move
  double seconds = 0;
  Size tokens = 0;
  std::uint64_t saturated = 0;  // elements, over all casts
  std::uint64_t underflowed = 0;
  std::uint64_t overflows = 0;  // sites that overflowed
  std::optional<double> validation_loss;
  std::optional<double> validation_accuracy;
};

enum class AfterStep : std::uint8_t { proceed, stop };  // stop: a checkpoint is written and the run ends

// Every function may be left empty. They are called by the thread that trains, and should return soon.
struct TrainingCallbacks {
  std::function<AfterStep(const TrainingStep&)> step = {};
  std::function<void(const std::string&)> message = {};
  std::function<void(const std::string&)> warning = {};
};

enum class TrainingEnd : std::uint8_t { finished, stopped };

struct TrainingResult {
  TrainingEnd end = TrainingEnd::finished;
  std::string directory;  // of the run: checkpoints, metrics.jsonl, config.toml
  Size steps = 0;
  std::optional<double> train_loss;  // mean over the last twentieth of the steps
  std::optional<double> validation_loss;
  double seconds_per_step = 0;  // median
  double tokens_per_second = 0;
};

// Throws Error where the config is wrong or training fails. A directory that holds a run is refused: resume it.
TrainingResult train(const TrainingConfig& config, const TrainingCallbacks& callbacks = {});
TrainingResult resume(const std::string& directory, const std::vector<std::string>& settings = {},
                      const TrainingCallbacks& callbacks = {});

struct EvaluationResult {
  Size step = 0;  // of the checkpoint
  double loss = 0;
  Size rows = 0;                   // tokens or images that had a loss
  std::optional<double> accuracy;  // of a classifier
};

// The validation loss of a run's newest checkpoint, over `batches` (0: as many as the run validates with). Throws Error
// where the run has no checkpoint or its data has no validation part.
EvaluationResult evaluate(const std::string& directory, const std::vector<std::string>& settings = {},
                          Size batches = 0);

// Writes the newest checkpoint as a Hugging Face model folder, which must be empty or not exist.
void export_model(const std::string& directory, const std::string& folder);

}  // namespace quaver
