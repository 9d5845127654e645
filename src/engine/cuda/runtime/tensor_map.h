// Descriptions of matrices for the unit that copies boxes of them to shared memory (TMA).
#pragma once

#include <cuda.h>

namespace quaver::cuda {

// The driver's cuTensorMapEncodeTiled, found at run time so that the module loads without a driver. Throws Error where
// the driver is too old to have it.
decltype(&cuTensorMapEncodeTiled) tensor_map_encoder();

}  // namespace quaver::cuda
