// A blockwise FP8 GEMM for Hopper: out[M × N] (+)= alpha · a[M × K] · b[N × K]ᵀ (+ bias), E4M3 by E4M3, a with scales
// of 1 × 128 blocks. Each slice of 128 products is summed by tensor cores and promoted to FP32 with its scales. The
// order of every sum is fixed, so the same input gives the same bits.
#pragma once

#include "engine/cuda/gemm/block_gemm_schedule.h"
#include "engine/cuda/gemm/gemm_kernels.h"

namespace quaver::cuda {

// Of b: one scale per 128 × 128 block, [N / 128 × K / 128], or per 1 × 128 block and transposed, [K / 128 × N], from an
// address that is a multiple of 16.
enum class BScales : std::uint8_t { blocks, columns };

struct BlockGemm {
  Size m = 0;
  Size n = 0;  // a multiple of 8
  Size k = 0;  // a multiple of 16
  const void* a = nullptr;
  const void* b = nullptr;
  const float* a_scales = nullptr;  // [M × K / 128]
  const float* b_scales = nullptr;
  BScales b_scaling = BScales::blocks;
  void* out = nullptr;
  Format out_format = Format::bf16;  // or f32
  const float* bias = nullptr;       // [N], or null
  float alpha = 1;
  Store store = Store::replace;    // add: into f32 only
  std::uint32_t* turns = nullptr;  // block_gemm_turns(schedule) bytes, where there are any
};

// The schedule is block_gemm_schedule's. a, b and out begin at multiples of 16 bytes.
void run_block_gemm(const BlockGemm& op, const BlockGemmSchedule& schedule, cudaStream_t stream);

}  // namespace quaver::cuda
