// Batch norm: moments of each channel by partial sums in a fixed order, and what is done with them.
#pragma once

#include "engine/cuda/cast/fused_target.h"
#include "engine/cuda/runtime/gpu.h"
#include "engine/operations.h"

namespace quaver::cuda {

void batch_norm(Gpu& gpu, const BatchNorm& op);

// The sums over rows come first; they leave the gradients of gain and shift, and two means per channel, which the
// gradient of x is computed with.
const float* batch_norm_backward_means(Gpu& gpu, const BatchNormBackward& op);
void batch_norm_backward(Gpu& gpu, const BatchNormBackward& op, const float* means, const FusedTarget& in_gradient);

void moving_average(Gpu& gpu, const MovingAverage& op);

}  // namespace quaver::cuda
