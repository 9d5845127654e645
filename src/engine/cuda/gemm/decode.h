// Decodes code matrices to high precision: decode(code) · block_scale, without the tensor multiplier, for GEMMs whose
// operands tensor cores do not support as stored.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "formats/quantize.h"

namespace quaver::cuda {

// out is [rows × cols], contiguous, of format `as`: bf16 or f32.
void decode_matrix(Gpu& gpu, const CodeMatrix& matrix, Format as, void* out);

}  // namespace quaver::cuda
