// An operand of a linear layer in the pass that runs: where its codes are stored, and which GEMMs can read them yet.
// Producers cast into it and GEMMs read it by side; debug builds assert that they come in this order.
#pragma once

#include <cassert>
#include <cstdint>

#include "tensor/quantized_tensor.h"

namespace quaver {

// When the columns are cast: together with the rows, by the producer's backward pass (the operand is requantized), or
// not at all, because no GEMM of the pass reads them.
enum class ColumnsCast : std::uint8_t { with_rows, requantized, never };

class PassOperand {
 public:
  // A new pass: where the producer casts into. What the operand was before is forgotten.
  QuantizedTensor& place(const QuantizedTensor& tensor, ColumnsCast columns) {
    tensor_ = tensor;
    state_ = columns == ColumnsCast::with_rows     ? State::both
             : columns == ColumnsCast::requantized ? State::rows_until_requantized
                                                   : State::rows;
    return tensor_;
  }

  // Frees the rowwise codes but not the columnwise ones (a copy that is both stays).
  void drop_rows() {
    state_ = state_ == State::both || state_ == State::columns ? State::columns
             : awaits_requantization()                         ? State::until_requantized
                                                               : State::empty;
  }

  bool awaits_requantization() const {
    return state_ == State::rows_until_requantized || state_ == State::until_requantized;
  }

  // Where the producer's backward pass casts the columns. No GEMM reads the rows from then on.
  QuantizedTensor& requantize(const QuantizedTensor& columns) {
    assert(awaits_requantization());
    tensor_ = columns;
    state_ = State::columns;
    return tensor_;
  }

  const QuantizedTensor& tensor() const {
    assert(state_ != State::empty);
    return tensor_;
  }
  Operand rows() const {
    assert(state_ == State::rows || state_ == State::rows_until_requantized || state_ == State::both);
    return tensor_.rows();
  }
  Operand columns() const {
    assert(state_ == State::both || state_ == State::columns);
    return tensor_.columns();
  }

  // The last GEMM of the pass has read it.
  void release() { state_ = State::empty; }

 private:
  enum class State : std::uint8_t { empty, rows, rows_until_requantized, until_requantized, both, columns };

  QuantizedTensor tensor_;
  State state_ = State::empty;
};

}  // namespace quaver
