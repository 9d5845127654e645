// Attention of one new token per sequence to a cache of keys and values, in FP32 sums of a fixed order.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

void store_key_values(Gpu& gpu, const StoreKeyValues& op);
void attention_decode(Gpu& gpu, const AttentionDecode& op);

}  // namespace quaver::cuda
