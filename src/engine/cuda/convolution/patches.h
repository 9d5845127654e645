// Patches of feature maps and their gradients, and the mean over an image's pixels.
#pragma once

#include "engine/cuda/cast/fused_target.h"
#include "engine/cuda/runtime/gpu.h"
#include "engine/operations.h"

namespace quaver::cuda {

// `high` is the engine's high precision.
void patches(Gpu& gpu, const Patches& op, Format high, const FusedTarget& out);
void patches_backward(Gpu& gpu, const PatchesBackward& op);
void average_pool(Gpu& gpu, const AveragePool& op, const FusedTarget& out);
void average_pool_backward(Gpu& gpu, const AveragePoolBackward& op);

}  // namespace quaver::cuda
