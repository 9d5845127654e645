// Where a fused kernel writes its result: a high-precision matrix, or FP8 codes with a scale that is known before the
// kernel starts. Everything else (current scaling, blocks, other formats, full statistics) is staged in high precision
// and cast by cast.h.
#pragma once

#include "engine/cuda/runtime/site_table.h"
#include "tensor/quantized_tensor.h"

namespace quaver::cuda {

struct FusedTarget {
  Format format = Format::f32;   // high precision, e4m3 or e5m2
  std::byte* rows = nullptr;     // [rows × cols], or null
  std::byte* columns = nullptr;  // [cols × rows], FP8 only, or null
  int row_bytes = 0;             // of FP8 codes, from row to row
  int column_bytes = 0;          // the same of the columnwise codes
  float* rows_scale = nullptr;   // where the tensor's multiplier is stored
  float* columns_scale = nullptr;
  const float* scale = nullptr;          // s; null: 1
  SiteStatistics* statistics = nullptr;  // null: not observed
  float* column_sums = nullptr;          // FP32 [cols], added to; null: not wanted

  constexpr bool is_fp8() const { return is_low_precision(format); }
  constexpr explicit operator bool() const { return rows != nullptr || columns != nullptr; }
};

}  // namespace quaver::cuda
