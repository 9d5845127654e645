// How long a step takes: a model of one layer and one of two are trained for a moment on the engine that would train
// the whole, and the difference is what a layer costs.
#pragma once

#include "config/config.h"
#include "engine/engine.h"
#include "study/estimate.h"

namespace quaver {

// Tokens of a micro-batch on the processors, at most, unless one sequence is longer.
inline constexpr Size probe_tokens = 1024;

TimeEstimate measure_time(const Config& config, Engine& engine);

// From the GPU's peak and the share of it that training is assumed to reach.
TimeEstimate assume_time(const Estimate& estimate, const GpuModel& gpu);

}  // namespace quaver
