// Layer norm and RMS norm with the residual stream's additions around them, forward and backward, cast on the way.
#pragma once

#include "engine/cuda/cast/fused_target.h"
#include "engine/engine.h"

namespace quaver::cuda {

// Whether the fused kernels can write this many columns transposed on the way: their tile must fit in shared memory.
bool norm_can_write_columns(const Gpu& gpu, Size width, int targets);

void add_norm(Gpu& gpu, const AddNorm& op, const FusedTarget& out);

// branch_gradient and out may be empty.
void add_norm_backward(Gpu& gpu, const AddNormBackward& op, const FusedTarget& branch_gradient, const FusedTarget& out);

}  // namespace quaver::cuda
