// Tells a training run on the terminal: what it is at the start, its progress, what happened on the way, how it ended.
#pragma once

#include <memory>

#include "cli/progress.h"
#include "cli/verbs.h"
#include "train/run.h"

namespace quaver {

class Narrator {
 public:
  Narrator(const Config& config, Output output);

  RunObserver observer();
  void conclude(const RunResult& result);
  void say(const std::string& text) { progress_.message(text); }
  void warn(const std::string& text) { progress_.warning(text); }  // also when the trainer is gone

 private:
  void introduce(const Trainer& trainer, Size first_step);
  void step(const StepReport& report, std::optional<double> validation_loss);

  Output output_;
  std::string unit_;  // what a step has so many of
  Progress progress_;
  ProgressLine line_;
  const Trainer* trainer_ = nullptr;
  double flops_per_token_ = 0;
};

}  // namespace quaver
