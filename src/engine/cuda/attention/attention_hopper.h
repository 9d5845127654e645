// The backward pass of attention on Hopper's own instructions, in BF16 or FP16, for heads of 64 and 128: grouped or
// not, any sequence.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

void hopper_attention_backward(Gpu& gpu, const AttentionBackward& op);

}  // namespace quaver::cuda
