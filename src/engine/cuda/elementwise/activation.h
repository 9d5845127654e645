// Activation functions, their derivatives, and the plain cast, from high precision into high precision or FP8 codes.
#pragma once

#include "engine/cuda/cast/fused_target.h"
#include "engine/engine.h"

namespace quaver::cuda {

// out ← factor · x
void cast_fused(Gpu& gpu, View x, float factor, const FusedTarget& out);

void activation(Gpu& gpu, const Activation& op, const FusedTarget& out);

// out, where given, is the forward pass's result requantized, columnwise only.
void activation_backward(Gpu& gpu, const ActivationBackward& op, const FusedTarget& in_gradient,
                         const FusedTarget& out);

}  // namespace quaver::cuda
