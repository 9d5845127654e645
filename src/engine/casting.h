// What operations have in common: the kind that their time is counted under, and how they cast.
#pragma once

#include <cstdint>

#include "tensor/quantized_tensor.h"
#include "tensor/view.h"

namespace quaver {

// Where time goes, as `bench` reports it.
enum class OperationKind : std::uint8_t {
  gemm_fprop,
  gemm_dgrad,
  gemm_wgrad,
  attention,
  norm,
  activation,
  cast,  // those that are not fused into another operation
  loss,  // with the head's GEMMs
  embedding,
  heads,
  optimizer,
  copy,  // transfers, clearing, sums of high-precision matrices
};

// How this micro-step casts: random streams of stochastic rounding, and what statistics it gathers.
struct Casting {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;                     // of the random streams
  const std::uint32_t* micro_step = nullptr;  // in device memory, added to step: what differs between replays
  Detail detail = Detail::counts;             // what statistics to gather
  bool observe = true;                        // false (evaluation): sites record neither amax nor counts

  Casting unobserved() const {
    Casting same = *this;
    same.observe = false;
    return same;
  }
};

}  // namespace quaver
