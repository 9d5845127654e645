// Kernels around a GEMM: its scalars, its scales in cuBLASLt's layout, its bias.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "tensor/view.h"

namespace quaver::cuda {

// Whether a result overwrites out or is added to it.
enum class Store : std::uint8_t { replace, add };

// out[0] = alpha · (*a_scale · *b_scale), out[1] = beta
void write_scalars(Gpu& gpu, float alpha, const float* a_scale, const float* b_scale, float beta, float* out);

// out[cols × rows] = inᵀ
void transpose_scales(Gpu& gpu, const float* in, Size rows, Size cols, float* out);

// Rows `pitch` apart instead of `cols`, zeros between.
void pad_scales(Gpu& gpu, const float* in, Size rows, Size cols, Size pitch, float* out);

void round_bias(Gpu& gpu, View bias, Format format, void* out);

// Every row of out = bias (+ out): which the GEMM then adds to.
void fill_with_bias(Gpu& gpu, View bias, View out, Store store);

// out = result (+ bias) (+ out), summed in FP32 and rounded once; bias may be empty.
void round_result(Gpu& gpu, const float* product, View bias, View out, Store store);

}  // namespace quaver::cuda
