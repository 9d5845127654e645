// How long a step takes, from a benchmark (train/benchmark.h) instead of a probe: whole steps that it measured, changed
// by what it measured of layers and phases where the run's depth, micro-batch or recipes differ.
#pragma once

#include "config/config.h"
#include "study/estimate.h"
#include "train/benchmark.h"

namespace quaver {

// To other depths and micro-batches. Costs that do not grow with them make that less sure than a few steps of the run's
// own model, where those can be made here.
enum class StepScaling : std::uint8_t { refused, allowed };

// `config` resolved. Throws Error, saying why, where the benchmark does not tell.
TimeEstimate time_from_bench(const Config& config, const Bench& bench, StepScaling scaling = StepScaling::allowed);

}  // namespace quaver
