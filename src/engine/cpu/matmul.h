// Products on the CPU: operands decoded to FP32, which holds them exactly, and summed in FP32 by OpenBLAS.
#pragma once

#include "engine/cpu/workspace.h"
#include "engine/engine.h"

namespace quaver {

void cpu_matmul(Workspace& workspace, const Matmul& op);

// The same product with partial sums kept in fewer bits: what narrower accumulators cost. Slow. a is [M × K] and b
// [K × N], both decoded and contiguous.
void narrow_matmul(Accumulator accumulator, const float* a, const float* b, Size m, Size n, Size k, float alpha,
                   float* out, Size out_stride);

}  // namespace quaver
