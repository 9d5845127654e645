// Sums over tokens in a fixed order: kernels leave one row of partial sums for each of their blocks, and these are
// added up here.
#pragma once

#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda {

// out[c] += factor · Σ over parts of partials[part · stride + c]
void add_partial_sums(Gpu& gpu, const float* partials, Size parts, Size stride, Size cols, float factor, float* out);

}  // namespace quaver::cuda
