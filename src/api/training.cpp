#include "quaver/training.h"

#include <atomic>

#include "config/load.h"
#include "interop/hf_export.h"
#include "quaver/error.h"
#include "train/resolved_config.h"
#include "train/run.h"

namespace quaver {

namespace {

TrainingStep metrics_of(const StepReport& report, std::optional<double> validation_loss, Size steps) {
  TrainingStep metrics;
  metrics.step = report.step;
  metrics.steps = steps;
  metrics.loss = report.loss;
  metrics.learning_rate = report.learning_rate;
  metrics.gradient_norm = report.gradient_norm;
  metrics.loss_scale = report.loss_scale;
  metrics.skipped = report.skipped;
  metrics.seconds = report.seconds;
  metrics.tokens = report.tokens;
  metrics.saturated = report.saturated;
  metrics.underflowed = report.underflowed;
  metrics.overflows = report.overflows;
  metrics.validation_loss = validation_loss;
  metrics.validation_accuracy = report.validation_accuracy;
  return metrics;
}

TrainingResult run(const Config& config, const TrainingCallbacks& callbacks, RunStart start) {
  std::atomic<bool> stop = false;
  RunOptions options;
  options.start = start;
  options.stop = &stop;
  options.observer.message = callbacks.message;
  options.observer.warning = callbacks.warning;
  options.observer.stepped = [&](const StepReport& report, std::optional<double> validation_loss) {
    if (!callbacks.step) return;
    const AfterStep then = callbacks.step(metrics_of(report, validation_loss, config.train.steps));
    if (then == AfterStep::stop) stop = true;
  };
  const RunResult result = run_training(config, options);
  return {.end = result.end == RunEnd::finished ? TrainingEnd::finished : TrainingEnd::stopped,
          .directory = result.directory.string(),
          .steps = result.steps,
          .train_loss = result.final_train_loss,
          .validation_loss = result.final_validation_loss,
          .seconds_per_step = result.seconds_per_step,
          .tokens_per_second = result.tokens_per_second};
}

}  // namespace

TrainingResult train(const TrainingConfig& config, const TrainingCallbacks& callbacks) {
  ConfigSources sources{.files = config.files, .texts = {}, .flags = config.settings};
  if (!config.toml.empty()) sources.texts.push_back({"the config's text", config.toml});
  return run(load_config(sources), callbacks, RunStart::fresh);
}

TrainingResult resume(const std::string& directory, const std::vector<std::string>& settings,
                      const TrainingCallbacks& callbacks) {
  Config config = load_run_config(directory, settings);
  config.run.dir = directory;
  return run(config, callbacks, RunStart::resume);
}

EvaluationResult evaluate(const std::string& directory, const std::vector<std::string>& settings, Size batches) {
  if (batches < 0) throw Error("a negative number of batches", "0 evaluates as many as the run validates with");
  const auto opened = open_run(directory, settings, std::nullopt, [](const std::string&) {});
  const Size count = batches > 0 ? batches : opened->trainer->config().train.eval_batches;
  const std::optional<Validation> result = opened->trainer->validate(count);
  if (!result) throw Error(directory + ": the data has no validation part", "set data.valid_path");
  return {opened->trainer->steps_done(), result->loss, result->rows, result->accuracy};
}

void export_model(const std::string& directory, const std::string& folder) {
  const std::filesystem::path run = directory;
  const auto checkpoint = newest_usable(CheckpointStore::read_only(run), [](const std::string&) {});
  if (!checkpoint) throw Error(directory + " has no usable checkpoint", "train it first");
  export_hf({.model = resolved(load_run_config(run, {}).model),
             .weights = checkpoint->model(),
             .original = run / pretrained_folder,
             .tokenizer = run / tokenizer_folder},
            folder);
}

}  // namespace quaver
