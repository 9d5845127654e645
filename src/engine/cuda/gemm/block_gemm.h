// A blockwise FP8 GEMM for Hopper: out[M × N] (+)= alpha · a[M × K] · b[N × K]ᵀ (+ bias), E4M3 by E4M3, a with scales
// of 1 × 128 blocks and b of 128 × 128: fprop and dgrad, and wgrad where x's columnwise codes have such scales. Each
// slice of 128 products is summed by tensor cores and promoted to FP32 with its scales. The order of every sum is
// fixed, so the same input gives the same bits.
#pragma once

#include "engine/cuda/gemm/block_gemm_schedule.h"
#include "engine/cuda/gemm/gemm_kernels.h"

namespace quaver::cuda {

struct BlockGemm {
  BlockGemmShape shape;  // with a bias n is a multiple of 8
  const void* a = nullptr;
  const void* b = nullptr;
  Size a_stride = 0;  // bytes from row to row: multiples of 16
  Size b_stride = 0;
  const float* a_scales = nullptr;  // [M × K / 128]
  const float* b_scales = nullptr;  // [N / 128 × K / 128]
  void* out = nullptr;
  Format out_format = Format::bf16;  // or f32
  Size out_stride = 0;               // elements from row to row: multiples of 16 bytes; what lies between is undefined
  const float* bias = nullptr;       // [N], or null
  float alpha = 1;
  Store store = Store::replace;  // add: to f32 only
  float* partials = nullptr;     // block_gemm_partial_bytes(schedule) bytes, where there are any
};

// a, b and out begin at multiples of 16 bytes.
void run_block_gemm(const BlockGemm& op, int multiprocessors, cudaStream_t stream);

}  // namespace quaver::cuda
