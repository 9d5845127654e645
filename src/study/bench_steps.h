// Whole optimizer steps of a model under a recipe: their time, energy and memory, where the time goes, and whether they
// learn as bf16's do.
#pragma once

#include "study/bench.h"

namespace quaver {

struct StepBench {
  // The step; then, of steps whose operations are timed one by one, its phases and what a block takes of them; then
  // decoding, where the model is a language model.
  std::vector<Measurement> measurements;
  std::vector<double> losses;
  double recorded_seconds = 0;  // of the step whose phases these are, which is their sum
  Size peak_memory = 0;
  std::vector<MemoryPart> memory;  // by purpose
};

// seconds: for the timed steps. The engine ends with it, and its memory is free again.
StepBench measure_steps(Config config, const std::string& recipe, double seconds);

// The sweep whose step is the median, so that its phases add up; its measurements have the noise of all sweeps.
StepBench middle_of(const std::vector<StepBench>& sweeps);

// Of the whole step, in each sweep.
std::vector<RunTiming> step_times(const std::vector<StepBench>& sweeps);

// Of a recipe's steps over bf16's, which took turns with them.
struct StepSpeed {
  double times = 0;
  double noise = 0;
};
StepSpeed speed_of(const std::vector<RunTiming>& recipe, const std::vector<RunTiming>& bf16);

// The losses' falls, where bf16's is clear of noise; else 0.
double share_of_fall(const std::vector<double>& losses, const std::vector<double>& reference);

}  // namespace quaver
