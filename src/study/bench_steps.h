// Whole optimizer steps of a model under a recipe: their time, energy and memory, where the time goes, and whether they
// learn as bf16's do.
#pragma once

#include "study/bench.h"

namespace quaver {

struct StepBench {
  std::vector<Measurement> measurements;  // the step, then its phases
  std::vector<double> losses;
  Size peak_memory = 0;
};

// seconds: for the timed steps. The engine ends with it, and its memory is free again.
StepBench measure_steps(Config config, const std::string& recipe, double seconds);

// The losses' falls, where bf16's is clear of noise; else 0.
double share_of_fall(const std::vector<double>& losses, const std::vector<double>& reference);

}  // namespace quaver
