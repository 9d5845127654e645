// Products on the CPU: operands decoded to FP32, which holds them exactly, and summed in FP32 by OpenBLAS.
#pragma once

#include "engine/cpu/workspace.h"
#include "engine/engine.h"

namespace quaver {

void cpu_matmul(Workspace& workspace, const Matmul& op);

// What a product is summed in: Hopper's short sums are those of FP8 operands, and others are summed in FP32.
Accumulator accumulator_of(const Matmul& op);

// The same product with partial sums kept in fewer bits: what narrower accumulators cost. Slow. a is [M × K] and b
// [K × N], both decoded and contiguous.
struct Values {
  const float* data;
  int least_exponent;  // of a format, which its subnormal values have too
};
void narrow_matmul(Accumulator accumulator, const Values& a, const Values& b, Size m, Size n, Size k, float alpha,
                   float* out);

}  // namespace quaver
