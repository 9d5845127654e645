// The learning rate of a step, as a share of the peak: linear warm-up, then the chosen shape down to final_ratio.
#pragma once

#include "formats/quant_spec.h"
#include "optim/optim_config.h"

namespace quaver {

// step counts from 0; the first step already moves the weights.
double schedule_share(const OptimConfig& config, Size step, Size steps);

}  // namespace quaver
