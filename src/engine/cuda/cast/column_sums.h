// Sums over tokens in a fixed order: kernels leave one row of partial sums for each of their blocks, and these are
// added up here.
#pragma once

#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda {

// One row of `cols` sums per part, `stride` apart.
struct PartialSums {
  const float* values;
  Size parts;
  Size stride;
  Size cols;
};

// out[c] += factor · Σ over parts of values[part · stride + c]
void add_partial_sums(Gpu& gpu, const PartialSums& sums, float factor, float* out);

}  // namespace quaver::cuda
