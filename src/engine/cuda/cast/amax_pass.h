// The amax pass before a cast with current scaling: the amaxes of the whole tensor, its rows and its columns, after the
// rotation where there is one.
#pragma once

#include "engine/cuda/cast/cast_tile.cuh"
#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda {

namespace casts {

// One traversal of the matrix, along rows or columns.
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
void run_amax_pass(Gpu& gpu, const casts::AmaxJob& pass);

}  // namespace quaver::cuda
