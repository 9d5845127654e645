// The survey: what must be known of a whole tensor before any of it can be cast, the amaxes of the tensor, its rows and
// its columns, after the rotation where there is one.
#pragma once

#include "engine/cuda/cast/cast_tile.cuh"
#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda {

namespace casts {

// One walk over the matrix, along rows or columns.
struct AmaxVisit {
  bool wanted = false;
  Rotation rotation = Rotation::none;
  Bits signs = 0;
  Bits* tensor_amax = nullptr;
  Bits* line_amax = nullptr;
};

struct AmaxJob {
  Source x;
  AmaxVisit rows;
  AmaxVisit columns;
};

}  // namespace casts

// Raises the amaxes, which the caller has cleared.
void run_amax_pass(Gpu& gpu, const casts::AmaxJob& survey);

}  // namespace quaver::cuda
