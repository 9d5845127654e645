#include "cli/interrupt.h"
#include "cli/launcher.h"
#include "cli/log_command.h"
#include "cli/narrator.h"
#include "cli/ranks.h"
#include "cli/tensorboard_log.h"
#include "cli/verbs.h"
#include "comm/agreement.h"
#include "config/load.h"
#include "quaver/error.h"
#include "train/metrics.h"
#include "train/run.h"

namespace quaver {

Config config_of(const TrainArguments& arguments) {
  if (arguments.resume.empty()) {
    return load_config({.files = arguments.config.files, .texts = {}, .flags = arguments.config.settings});
  }
  Config config = load_run_config(arguments.resume, arguments.config.settings);
  config.run.dir = arguments.resume;
  return config;
}

namespace {

// What reads the metrics of every step beside the run's own log.
struct Followers {
  Followers(const TrainArguments& arguments, const std::function<void(const std::string&)>& warning) {
    if (!arguments.tensorboard.empty()) tensorboard.emplace(arguments.tensorboard, warning);
    if (!arguments.log_to.empty()) command.emplace(arguments.log_to, warning);
  }

  void follow(RunObserver& observer) {
    if (!command && !tensorboard) return;
    observer.stepped = [this, told = observer.stepped](const StepReport& report, std::optional<double> validation) {
      if (told) told(report, validation);
      const std::string line = metrics_line(report, validation);
      if (tensorboard) tensorboard->send(line);
      if (command) command->send(line);
    };
  }

  std::optional<TensorboardLog> tensorboard;
  std::optional<LogCommand> command;
};

int train_as(Communicator& ranks, const Launch& launch, const TrainArguments& arguments) {
  Config config;
  on_all_ranks(ranks, [&] { config = config_of(arguments); });
  const Interrupt interrupt;
  std::optional<Narrator> narrator;  // of the first rank
  RunOptions options;
  options.start = arguments.resume.empty() ? RunStart::fresh : RunStart::resume;
  options.take_back = arguments.take_back;
  options.other_data = arguments.other_data;
  options.stop = interrupt.flag();
  options.ranks = &ranks;
  options.launch = launch;
  if (ranks.is_first()) options.observer = narrator.emplace(config, arguments.output).observer();
  std::optional<Followers> followers;  // of the first rank
  on_all_ranks(ranks, [&] {
    if (!ranks.is_first()) return;
    followers.emplace(arguments, [&](const std::string& text) { narrator->warn(text); });
    followers->follow(options.observer);
  });
  const RunResult result = run_training(config, options);
  followers.reset();
  if (narrator) {
    narrator->conclude(result);
    if (!result.sample.empty() && arguments.output == Output::human) narrator->say("\n" + result.sample);
  }
  return result.end == RunEnd::interrupted ? 130 : 0;
}

}  // namespace

int train_verb(const TrainArguments& arguments) {
  if (arguments.resume.empty() && !arguments.take_back.empty()) {
    throw Error("a fresh run has no changes to take back", "add --resume with the run's folder");
  }
  if (arguments.ranks > 0) return launch_ranks(arguments);
  if (arguments.restarts > 0) {
    throw Error("--restarts needs ranks that this program starts itself",
                "add --gpus or --ranks; what mpirun or a cluster started, they have to restart");
  }
  return on_ranks([&](Communicator& ranks, const Launch& launch) { return train_as(ranks, launch, arguments); });
}

}  // namespace quaver
