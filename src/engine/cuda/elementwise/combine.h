// out = keep · x + add · y: the sum of two high-precision matrices that no other operation could absorb.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

void combine(Gpu& gpu, const Combine& op);

}  // namespace quaver::cuda
