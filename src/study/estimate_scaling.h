// The model of many GPUs (scaling.h) applied to a config: sizes of its parameters, a rank's part of the step, and what
// a rank keeps at every stage.
#pragma once

#include "study/estimate.h"

namespace quaver {

// What ranks send of the config's model, as its recipe stores it: the parameters, and gradients in equal shares.
// `config` is resolved.
struct SentSizes {
  std::vector<ParameterSize> parameters;
  Size equal_shares = 0;
};
SentSizes sent_sizes(const Config& config, const Hardware& hardware, int ranks);

// Seconds of a rank's part of the step, by itself.
double rank_seconds(const TimeEstimate& time, Size ranks);

// What the rank that owns the most needs. `config` is resolved.
MemoryPlan plan_heaviest_rank(Config config, const Hardware& hardware, ShardMode mode, int ranks);

// Throws Error, naming the remedy, where the ranks cannot divide the config's micro-batches. options.cluster is set.
ScalingEstimate estimate_scaling(const Estimate& estimate, const Hardware& hardware, const EstimateOptions& options);

}  // namespace quaver
