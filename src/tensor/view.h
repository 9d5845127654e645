// A matrix somewhere in an engine's memory: its address, format and extent. It owns
// nothing.
#pragma once

#include <cassert>

#include "formats/quant_spec.h"

namespace quaver {

struct View {
  void* data = nullptr;
  Format format = Format::f32;
  Size rows = 0;
  Size cols = 0;
  Size stride = 0;  // elements from row to row; 0: cols. Others are the CUDA engine's own: of logits

  Size row_stride() const { return stride != 0 ? stride : cols; }
  bool empty() const { return data == nullptr; }
  Size count() const { return rows * cols; }
  Size bytes() const { return count() * info(format).storage_bits / 8; }

  float* f32() const {
    assert(format == Format::f32);
    return static_cast<float*>(data);
  }
  std::byte* row_data(Size row) const {
    return static_cast<std::byte*>(data) + row * row_stride() * info(format).storage_bits / 8;
  }
  // Rows [first, first + count) of this matrix.
  View row_range(Size first, Size count) const { return {row_data(first), format, count, cols, stride}; }
};

}  // namespace quaver
