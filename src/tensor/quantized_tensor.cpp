#include "tensor/quantized_tensor.h"

#include <cassert>

namespace quaver {

namespace {

Size side_bytes(const CodeMatrix& matrix) {
  const Size scales = matrix.has_block_scales() ? matrix.scale_rows() * matrix.scale_cols() : 1;
  return matrix.code_bytes() + scales * static_cast<Size>(sizeof(float));
}

}  // namespace

QuantizedTensor::QuantizedTensor(Site& site, View matrix, float* one)
    : site_(&site), own_codes_(true), rows_count_(matrix.rows), cols_count_(matrix.cols) {
  rows_ = {site.spec.rows,
           matrix.rows,
           matrix.cols,
           static_cast<std::byte*>(matrix.data),
           nullptr,
           one,
           matrix.stride * info(matrix.format).storage_bits / 8};
}

Size QuantizedTensor::bytes() const {
  return (has_rows() ? side_bytes(rows_) : 0) + (has_own_columns() ? side_bytes(columns_) : 0);
}

CodeMatrix slice_rows(const CodeMatrix& matrix, Size first, Size count) {
  CodeMatrix slice = matrix;
  slice.rows = count;
  slice.codes += first * matrix.row_bytes();
  if (matrix.has_block_scales() && matrix.spec.block.rows > 0) {
    assert(first % matrix.spec.block.rows == 0);
    slice.block_scales += first / matrix.spec.block.rows * matrix.scale_cols();
  }
  return slice;
}

}  // namespace quaver
