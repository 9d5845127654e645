// The general cast: any high-precision matrix into any spec, either side or both, bit for bit what the CPU engine
// stores, with the statistics and column sums gathered on the way. Fused kernels cover the frequent specs; everything
// else comes here.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/cuda/runtime/site_table.h"
#include "engine/engine.h"
#include "formats/quantize.h"
#include "tensor/view.h"

namespace quaver::cuda {

// All pointers are on the device.
struct CastTarget {
  CodeMatrix rows;     // codes null: no rowwise copy
  CodeMatrix columns;  // the transpose
  SiteSlot slot;
  float host_scale = 0;  // the site's scale as the host knows it; 0 makes a delayed or fixed policy current this once
  RandomKey key;
  const std::uint32_t* micro_step = nullptr;  // added to key.step; may be null
  Detail detail = Detail::counts;
  float* column_sums = nullptr;  // FP32 [cols], added to; null: none
};

// target ← factor · x. x is f32, bf16 or f16. Statistics are those of the rows side; without one none are gathered.
void cast(Gpu& gpu, View x, float factor, const CastTarget& target);

// The same for an activation's result, or the gradient of its input, which is cast as it is made instead of being
// staged in high precision first: the same codes, with less traffic. Possible where a tile of 128 × 128 knows all its
// scales, for BF16 and FP8. dy is empty for the forward pass.
bool can_cast_activation(const View& x, const View& dy, const CastTarget& target);
void cast_activation(Gpu& gpu, const Activation& op, const CastTarget& target);
void cast_activation_backward(Gpu& gpu, const ActivationBackward& op, const CastTarget& target);

}  // namespace quaver::cuda
