// A tensor stored for GEMMs: rowwise codes, columnwise codes, their scales, and the site it belongs to: one
// value. GEMMs read one side of it and never a loose scale.
#pragma once

#include "tensor/arena.h"
#include "tensor/site.h"

namespace quaver {

// An operand as a GEMM reads it. `transposed` says that the reduction runs along the matrix's rows, which is
// how one copy of the codes is enough for both sides where that is exact.
struct Operand {
  CodeMatrix matrix;
  bool transposed = false;

  Size extent() const { return transposed ? matrix.cols : matrix.rows; }     // the dimension that survives
  Size reduction() const { return transposed ? matrix.rows : matrix.cols; }  // the dimension summed over
};

// Rows [first, first + count) of a code matrix; first must be a multiple of the block's rows.
CodeMatrix slice_rows(const CodeMatrix& matrix, Size first, Size count);

// Which GEMMs will read it: forward only (evaluation), backward only (requantized), or all.
enum class Copies : std::uint8_t { rows_only, columns_only, both };

// Whether both sides may share one copy of the codes. apart: low-precision codes are stored for each side, as tensor
// cores read them: rows of FP8 codes begin at multiples of 16 bytes, with zeros between them, so that a GEMM may sum
// over whole multiples.
enum class Sharing : std::uint8_t { where_exact, apart };

inline constexpr Size fp8_row_multiple = 16;

// Bytes from row to row where sides are stored apart; 0: as many as the codes take.
inline Size apart_stride(Format format, Size cols) {
  const bool pads = is_fp8(format) && cols % fp8_row_multiple != 0;
  return pads ? (cols + fp8_row_multiple - 1) / fp8_row_multiple * fp8_row_multiple : 0;
}

inline bool stores_columns_apart(const SiteSpec& spec, Sharing sharing) {
  if (!columns_share_rows(spec.rows, spec.columns)) return true;
  return sharing == Sharing::apart && is_low_precision(spec.columns.format);
}

// Where the rowwise and the columnwise codes get their memory: each is called with a number of bytes.
template <class TakeRows, class TakeColumns>
struct MemoryBySide {
  TakeRows rows;
  TakeColumns columns;
};
template <class TakeRows, class TakeColumns>
MemoryBySide(TakeRows, TakeColumns) -> MemoryBySide<TakeRows, TakeColumns>;

class QuantizedTensor {
 public:
  QuantizedTensor() = default;

  // Lays out a [rows × cols] tensor of the site over memory that `take(bytes)` provides.
  template <class Take>
  QuantizedTensor(Site& site, Size rows, Size cols, Copies copies, Sharing sharing, Take take)
      : QuantizedTensor(site, rows, cols, copies, sharing, MemoryBySide{take, take}) {}

  // The same with memory of its own for the columnwise codes.
  template <class TakeRows, class TakeColumns>
  QuantizedTensor(Site& site, Size rows, Size cols, Copies copies, Sharing sharing,
                  MemoryBySide<TakeRows, TakeColumns> take)
      : site_(&site), rows_count_(rows), cols_count_(cols) {
    const bool apart = stores_columns_apart(site.spec, sharing);
    if (copies != Copies::columns_only || !apart)
      rows_ = place(matrix_of(site.spec.rows, rows, cols, sharing), take.rows);
    if (copies != Copies::rows_only && apart) {
      columns_ = place(matrix_of(site.spec.columns, cols, rows, sharing), take.columns);
    }
  }

  // A tensor whose codes are an existing matrix in high precision: no cast, no copy. Casting that matrix into it does
  // nothing.
  QuantizedTensor(Site& site, View matrix, float* one);

  bool valid() const { return site_ != nullptr; }
  bool is_own_codes() const { return own_codes_; }
  Size rows_count() const { return rows_count_; }
  Size cols_count() const { return cols_count_; }
  Site& site() const { return *site_; }

  bool has_rows() const { return rows_.codes != nullptr; }
  // True where a transposed copy exists.
  bool has_own_columns() const { return columns_.codes != nullptr; }
  const CodeMatrix& rows_matrix() const { return rows_; }
  const CodeMatrix& columns_matrix() const { return columns_; }

  Operand rows() const { return {rows_, false}; }
  Operand columns() const { return has_own_columns() ? Operand{columns_, false} : Operand{rows_, true}; }

  // Where the producer adds up the columns of what it writes: the bias gradient of the layer behind a dy site.
  View column_sums;

  // Bytes it occupies: codes and scales.
  Size bytes() const;

 private:
  static CodeMatrix matrix_of(const QuantSpec& spec, Size rows, Size cols, Sharing sharing) {
    const Size stride = sharing == Sharing::apart ? apart_stride(spec.format, cols) : 0;
    return {.spec = spec, .rows = rows, .cols = cols, .stride = stride};
  }

  template <class Take>
  static CodeMatrix place(CodeMatrix matrix, Take take) {
    matrix.codes = take(static_cast<std::size_t>(matrix.code_bytes()));
    const Size scales = matrix.has_block_scales() ? matrix.scale_rows() * matrix.scale_cols() : 0;
    auto* floats = reinterpret_cast<float*>(take(static_cast<std::size_t>(scales + 4) * sizeof(float)));
    matrix.tensor_scale = floats;
    matrix.block_scales = scales > 0 ? floats + 4 : nullptr;
    return matrix;
  }

  Site* site_ = nullptr;
  bool own_codes_ = false;
  Size rows_count_ = 0;
  Size cols_count_ = 0;
  CodeMatrix rows_;
  CodeMatrix columns_;
};

}  // namespace quaver
