// What a config leaves open, chosen: as a run of it would.
#pragma once

#include "config/config.h"
#include "engine/engine.h"
#include "nn/step.h"
#include "precision/scale_book.h"

namespace quaver {

// The config with the parametrization that its recipe asks for, where it names none.
Config resolve_parametrization(Config config);

// The config with what follows from the data, parametrization and context chosen.
Config resolve_shape(Config config, const DataShape& data);

// What each GEMM accumulates in: as the config says, or as the engine prefers.
Accumulators accumulators_for(AccumulatorChoice choice, const Engine& engine);

ScaleRules scale_rules(const Config& config);

// What the optimizer keeps the weights in.
Format master_format(const Config& config);

}  // namespace quaver
