// Decodes code matrices to high precision: for GEMMs whose operands tensor cores do not support as stored, and for
// programs that want the values.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/operations.h"
#include "formats/quantize.h"

namespace quaver::cuda {

// decode(code) · block_scale, without the tensor's scale. out is [rows × cols], contiguous, of format `as`: bf16 or
// f32.
void decode_matrix(Gpu& gpu, const CodeMatrix& matrix, Format as, void* out);

void dequantize(Gpu& gpu, const Dequantize& op);

}  // namespace quaver::cuda
