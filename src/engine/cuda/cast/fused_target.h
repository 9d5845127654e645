// Where a fused kernel writes its result: a high-precision matrix, in FP32 or rounded to TF32 as well, FP8 codes with a
// scale that is known before the kernel starts, or, in norms, E4M3 codes in blocks of a row. What needs an amax of more
// elements than a row has is cast by whole_tiles.h; everything else (other formats, full statistics) is staged in high
// precision and cast by cast.h.
#pragma once

#include "engine/cuda/runtime/site_table.h"
#include "tensor/quantized_tensor.h"

namespace quaver::cuda {

// Scales that the kernel finds itself, one per 128 elements of a row.
struct RowBlocks {
  float* scales = nullptr;  // null: one scale for the tensor
  int cols = 0;             // scales of a row
  float limit = 1;          // what a block's amax is scaled to
  std::uint32_t kept = 0;   // bits of a scale that stay
};

struct FusedTarget {
  Format format = Format::f32;   // high precision, tf32, e4m3 or e5m2
  std::byte* rows = nullptr;     // [rows × cols], or null
  std::byte* columns = nullptr;  // [cols × rows], FP8 only, or null
  int row_bytes = 0;             // of FP8 codes, from row to row
  int column_bytes = 0;          // the same of the columnwise codes
  float* rows_scale = nullptr;   // where the tensor's multiplier is stored
  float* columns_scale = nullptr;
  const float* scale = nullptr;          // s; null: 1
  RowBlocks blocks;                      // of the rows; columns are not written then
  unsigned* amax = nullptr;              // norms: raised to the amax of the result in BF16, as bits; null: not wanted
  SiteStatistics* statistics = nullptr;  // null: not observed
  float* column_sums = nullptr;          // FP32 [cols], added to; null: not wanted

  constexpr bool is_fp8() const { return is_low_precision(format); }
  constexpr explicit operator bool() const { return rows != nullptr || columns != nullptr; }
};

}  // namespace quaver::cuda
