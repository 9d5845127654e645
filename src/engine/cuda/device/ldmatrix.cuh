// ldmatrix.trans, which transposes 8 × 8 matrices of 16 bits on their way from shared memory.
#pragma once

#include "engine/cuda/device/primitives.cuh"

namespace quaver::cuda {

// Four matrices; lanes 8m … 8m + 7 give the addresses of the rows of matrix m, 16 bytes each. A thread receives of each
// the two elements in rows 2 · (lane % 4) and the next, of column lane / 4: the first in the low half.
__device__ inline void load_transposed(const void* row, unsigned* pairs) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(shared_address(row)));
}

}  // namespace quaver::cuda
