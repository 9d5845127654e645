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

}  // namespace quaver::cuda
