// Code matrices back to wide values: decode(code) · block_scale, without the tensor multiplier, as products that no
// tensor core takes as they are read them.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "formats/quantize.h"

namespace quaver::cuda {

// out is [rows × cols], contiguous, of format `as`: bf16 or f32.
void decode_matrix(Gpu& gpu, const CodeMatrix& matrix, Format as, void* out);

}  // namespace quaver::cuda
