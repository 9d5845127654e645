// GEMMs on the CPU: operands decoded to FP32, which holds them exactly, and multiplied in FP32 by OpenBLAS.
#pragma once

#include "engine/cpu/workspace.h"
#include "engine/operations.h"

namespace quaver {

void cpu_gemm(Workspace& workspace, const Gemm& op);

// What a GEMM accumulates in. Operands that Hopper's tensor cores read as FP8 use fast accumulation, or split
// accumulation where blocks have scales of their own; all others accumulate in FP32.
Accumulator accumulator_of(const Gemm& op);

// Whether each row of the result is a row of a times b by itself, b decoded a few rows at a time.
bool multiplies_rows_apart(const Gemm& op);

struct DecodedOperand {
  const float* values;
  int least_exponent;  // of the format, which its subnormal values have too
};

// out = alpha · a · b with partial sums kept in fewer bits, to measure the error of such accumulators. Slow. a is [M ×
// K] and b [K × N], both decoded and contiguous.
struct LowPrecisionGemm {
  Accumulator accumulator;
  DecodedOperand a;
  DecodedOperand b;
  Size m;
  Size n;
  Size k;
  float alpha;
  float* out;
};
void low_precision_gemm(const LowPrecisionGemm& op);

inline constexpr int no_exponent = -1024;  // less than that of any float

}  // namespace quaver
