// The zeros between the rows of codes whose stride is longer than they are: GEMMs sum over them.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "tensor/quantized_tensor.h"

namespace quaver::cuda {

// Of both sides, where they have any. Casts write none, or zeros.
void clear_pads(Gpu& gpu, const QuantizedTensor& tensor);
void clear_pads(Gpu& gpu, const CodeMatrix& matrix);

}  // namespace quaver::cuda
