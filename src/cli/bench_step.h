// What `bench step` measures, and how it tells it: as a table and as JSON.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_check.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "engine/timed_engine.h"
#include "train/trainer.h"

namespace quaver {

// Static scales that the benchmark found itself: batches measured, and the training steps they were spread over.
struct CalibratedScales {
  Size batches = 0;
  Size steps = 0;
};

struct StepBenchmark {
  Config config;  // as resolved
  std::string engine;
  Format high_precision = Format::f32;
  Size parameters = 0;
  Size tokens_per_step = 0;
  double flops_per_token = 0;
  double low_precision_share = 0;     // of the matrix products' operations, with operands of 8 bits or fewer
  double setup_seconds = 0;           // until the first step can start
  std::vector<double> step_seconds;   // of the timed steps
  std::vector<double> losses;         // of all steps, warm-up first
  Size skipped = 0;                   // steps whose gradients were not finite
  MemoryUse memory;                   // as planned
  Size workspace = 0;                 // taken by operations for themselves
  std::optional<Size> device_memory;  // missing from a GPU's free memory at the worst moment

  std::optional<CalibratedScales> calibrated;
  LearningCheck learning;

  // One whole step with the device waited for around every operation.
  double watched_seconds = 0;
  std::array<OperationTime, operation_kinds> kernels{};

  double median_seconds() const;
  double tokens_per_second(double seconds) const { return static_cast<double>(tokens_per_step) / seconds; }
  double tflops() const { return tokens_per_second(median_seconds()) * flops_per_token / 1e12; }
  Size peak_memory() const { return device_memory.value_or(memory.total() + workspace); }
};

// What to measure: without a config file gpt-350m, fp8-delayed and 64 sequences per micro-batch, unless set otherwise.
Config benchmark_config(const ConfigArguments& arguments);

// Random tokens of the model's vocabulary.
TrainingData benchmark_data(const Config& config);

std::string benchmark_table(const StepBenchmark& benchmark);
std::string benchmark_json(const StepBenchmark& benchmark);

}  // namespace quaver
