// Products on the CPU: operands decoded to FP32, which holds them exactly, and summed in FP32 by OpenBLAS.
#pragma once

#include "engine/cpu/workspace.h"
#include "engine/engine.h"

namespace quaver {

void cpu_matmul(Workspace& workspace, const Matmul& op);

// What a product is summed in. Hopper's short sums are those of operands that its tensor cores take as FP8, and
// promoted where blocks have scales of their own; all else is summed in FP32.
Accumulator accumulator_of(const Matmul& op);

// The same product with partial sums kept in fewer bits: what narrower accumulators cost. Slow. a is [M × K] and b
// [K × N], both decoded and contiguous.
struct DecodedOperand {
  const float* values;
  int least_exponent;  // of the format, which its subnormal values have too
};
void narrow_matmul(Accumulator accumulator, const DecodedOperand& a, const DecodedOperand& b, Size m, Size n, Size k,
                   float alpha, float* out);

inline constexpr int no_exponent = -1024;  // less than that of any float

}  // namespace quaver
