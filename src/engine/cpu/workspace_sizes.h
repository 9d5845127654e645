// How much workspace the CPU engine's operations need. Each size is computed here, once: the operation allocates it and
// the memory plan (cpu_sizing.cpp) counts it.
#pragma once

#include <algorithm>

#include "engine/operations.h"

namespace quaver {

// Fewer elements than this are done before other threads have woken up.
inline constexpr Size worth_waking = Size{1} << 14;

// An operand decoded to FP32; nothing where it is stored so.
inline Size decoded_floats(const CodeMatrix& matrix) {
  const Format format = matrix.spec.format;
  return format == Format::f32 || format == Format::tf32 ? 0 : matrix.rows * matrix.cols;
}

// Rows of b that a GEMM of rows apart decodes at once, of one thread.
inline constexpr Size decoded_tile_rows = 16;
inline Size decoded_tile_floats(const Gemm& op) {
  return decoded_floats(op.b.matrix) > 0 ? decoded_tile_rows * op.b.matrix.cols : 0;
}

// Copies that emulated accumulation multiplies, a as [M × K] and b as [K × N], and its result.
inline Size emulated_gemm_floats(const Gemm& op) {
  const Size m = op.a.extent();
  const Size n = op.b.extent();
  const Size k = op.a.reduction();
  return m * n + (op.a.transposed ? k * m : 0) + (op.b.transposed ? 0 : n * k);
}

// How a tensor gets into its site: FP32 where it is stored, through a tile per thread, or staged as a whole where a
// scale depends on all of it.
struct SiteWritePlan {
  enum class Mode : std::uint8_t { direct, tile_by_tile, staged };

  SiteWritePlan(const QuantizedTensor& out, int threads)
      : mode(mode_of(out)), sums_floats(out.column_sums.empty() ? 0 : out.cols_count() * threads) {
    if (mode == Mode::staged) floats = out.rows_count() * out.cols_count();
    if (mode == Mode::tile_by_tile) floats = tile_rows * out.cols_count() * threads;
  }

  Mode mode;
  Size floats = 0;
  Size sums_floats;  // column sums, one row per thread

 private:
  static Mode mode_of(const QuantizedTensor& out) {
    const SiteSpec& spec = out.site().spec;
    const float scale = out.site().scale;
    if (out.has_rows() && spec.rows.format == Format::f32 && !out.has_own_columns()) return Mode::direct;
    const bool whole = (out.has_rows() && needs_whole_tensor(resolved(spec.rows, scale), Side::rows)) ||
                       (out.has_own_columns() && needs_whole_tensor(resolved(spec.columns, scale), Side::columns));
    return whole ? Mode::staged : Mode::tile_by_tile;
  }
};

// Logits of a block of queries, of one thread.
inline constexpr Size query_rows = 64;
inline Size attention_block_floats(const HeadLayout& layout) { return query_rows * layout.sequence; }

inline Size rotary_table_rows(const PrepareHeads& op) {
  if (!(op.theta > 0)) return 0;
  return op.first.empty() ? op.layout.sequence : op.layout.tokens();
}
inline Size rotary_table_floats(const PrepareHeads& op) { return rotary_table_rows(op) * op.layout.head_size; }

// Rows of logits that exist at once. A transposed copy of x cannot be cut along its columns: then it is all of them.
inline Size logits_chunk(const CrossEntropy& op) {
  const Size tokens = op.x.rows_count();
  const bool train = op.logits_gradient != nullptr;
  return train && op.x.has_own_columns() ? tokens : std::min<Size>(tokens, 1024);
}

// Codes and scales of a chunk of dlogits: at most four bytes and a scale of four per element, twice.
inline Size logits_codes_bytes(const CrossEntropy& op) {
  return op.logits_gradient != nullptr ? logits_chunk(op) * op.w.rows_count() * 16 + 4096 : 0;
}

// Tiles of one thread: the weight before and after the update, and AdamW's moments. Muon's is decoded before.
inline Size update_tile_floats(const View& weight) { return tile_rows * weight.cols; }
inline constexpr Size adamw_tiles = 4;
inline constexpr Size muon_tiles = 2;

// Of Newton–Schulz: the Gram matrix and a polynomial of it.
inline Size gram_floats(const Orthogonalize& op) { return 2 * op.gram_size() * op.gram_size(); }

}  // namespace quaver
