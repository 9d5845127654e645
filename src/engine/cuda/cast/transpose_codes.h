// Columnwise codes from the rowwise ones, where the two are transposes of each other.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

void transpose_codes(Gpu& gpu, const TransposeCodes& op);

}  // namespace quaver::cuda
