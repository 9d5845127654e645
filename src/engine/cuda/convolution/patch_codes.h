// How patches are cast to FP8. Nothing of CUDA is included: memory plans read this rule too.
#pragma once

#include "engine/operations.h"

namespace quaver::cuda {

// Whether patches in FP8 are copies of the pixels' codes, which are cast once: with one scale for all, in whole
// vectors.
inline bool patches_are_codes(const Patches& op) {
  return is_fp8(op.out.site().spec.rows.format) && op.window.channels % fp8_row_multiple == 0 &&
         op.out.cols_count() % fp8_row_multiple == 0;
}
inline Size pixel_codes_bytes(const PatchWindow& window) { return window.pixels() * window.channels; }

}  // namespace quaver::cuda
