// What tiles of a blockwise cast are computed from: a matrix as it is, an activation, the gradient of an activation's
// input, a norm of known statistics. Results are rounded to BF16, as a staged matrix would be.
#pragma once

#include "engine/cuda/cast/whole_tile_kernels.cuh"
#include "engine/cuda/elementwise/activation_device.cuh"
#include "engine/cuda/norm/norm_device.cuh"
#include "engine/engine.h"

namespace quaver::cuda::casts {

struct Nothing {};  // to know of a row or of columns

inline TileOperand tile_operand(const View& x) {
  return {static_cast<const __nv_bfloat16*>(x.data), static_cast<int>(x.row_stride())};
}

struct MatrixTiles {
  static constexpr int operands = 1;
  static constexpr int results = 1;
  static constexpr int own_results = 1;
  static constexpr int blocks_at_once = 3;  // on a multiprocessor: while some load, others compute
  static constexpr bool computes = false;
  using Row = Nothing;
  using Columns = Nothing;

  TileOperand sources[operands];

  explicit MatrixTiles(const View& x) : sources{tile_operand(x)} {}

  __device__ Row row(int) const { return {}; }
  __device__ Columns columns(int) const { return {}; }
  __device__ void make(Row, Columns, const Eight (&in)[operands], Eight (&out)[results]) const { out[0] = in[0]; }
};

template <Function F>
struct ActivationTiles {
  static constexpr int operands = F == Function::swiglu ? 2 : 1;
  static constexpr int results = 1;
  static constexpr int own_results = 1;
  static constexpr int blocks_at_once =
      F == Function::swiglu ? 3 : 4;  // on a multiprocessor: while some load, others compute
  static constexpr bool computes = true;
  using Row = Nothing;
  using Columns = Nothing;

  TileOperand sources[operands];
  float factor;
  float limit;

  explicit ActivationTiles(const Activation& op) : factor(op.factor), limit(op.limit) {
    sources[0] = tile_operand(op.x);
    if constexpr (F == Function::swiglu) sources[1] = {sources[0].data + op.x.cols / 2, sources[0].stride};
  }

  __device__ Row row(int) const { return {}; }
  __device__ Columns columns(int) const { return {}; }
  __device__ void make(Row, Columns, const Eight (&in)[operands], Eight (&out)[results]) const {
    float v[8];
    float up[8] = {};
    in[0].unpack(v);
    if constexpr (F == Function::swiglu) in[1].unpack(up);
    activate<F>(v, up, factor, limit);
    out[0] = Eight::pack(v);
  }
};

// The gradient of x, for swiglu of its two halves; then the activation's own result, which may be requantized.
template <Function F>
struct GradientTiles {
  static constexpr int operands = F == Function::swiglu ? 3 : 2;
  static constexpr int results = operands;
  static constexpr int own_results = results - 1;
  static constexpr int blocks_at_once =
      F == Function::swiglu ? 2 : 3;  // on a multiprocessor: while some load, others compute
  static constexpr bool computes = true;
  using Row = Nothing;
  using Columns = Nothing;

  TileOperand sources[operands];
  BackwardFactors factors;

  explicit GradientTiles(const ActivationBackward& op) : factors{op.forward_factor, op.factor, op.limit} {
    sources[0] = tile_operand(op.x);
    if constexpr (F == Function::swiglu) sources[1] = {sources[0].data + op.x.cols / 2, sources[0].stride};
    sources[operands - 1] = tile_operand(op.out_gradient);
  }

  __device__ Row row(int) const { return {}; }
  __device__ Columns columns(int) const { return {}; }
  __device__ void make(Row, Columns, const Eight (&in)[operands], Eight (&out)[results]) const {
    float v[8];
    float up[8] = {};
    float d[8];
    float dup[8];
    in[0].unpack(v);
    if constexpr (F == Function::swiglu) in[1].unpack(up);
    in[operands - 1].unpack(d);
    activate_backward<F>(v, up, factors, d, dup);
    out[0] = Eight::pack(d);
    if constexpr (F == Function::swiglu) out[1] = Eight::pack(dup);
    scale_and_clip(v, factors.forward, factors.limit);
    out[own_results] = Eight::pack(v);
  }
};

// The norm of a matrix whose rows have been measured.
struct NormTiles {
  static constexpr int operands = 1;
  static constexpr int results = 1;
  static constexpr int own_results = 1;
  static constexpr int blocks_at_once = 4;
  static constexpr bool computes = true;
  using Row = NormRow;
  struct Columns {
    float gain[8];
    float shift[8];
  };

  TileOperand sources[operands];
  const float2* stats;
  const float* gain;
  const float* shift;  // null: none

  NormTiles(const View& x, const View& statistics, const NormParameters& norm)
      : sources{tile_operand(x)},
        stats(static_cast<const float2*>(statistics.data)),
        gain(norm.gain.f32()),
        shift(norm.shift.empty() ? nullptr : norm.shift.f32()) {}

  __device__ Row row(int row) const {
    const float2 measured = stats[row];
    return {measured.x, measured.y};
  }
  __device__ Columns columns(int col) const {
    Columns of{};
    load_floats(gain + col, 8, true, of.gain);
    if (shift != nullptr) load_floats(shift + col, 8, true, of.shift);
    return of;
  }
  __device__ void make(const Row& row, const Columns& of, const Eight (&in)[operands], Eight (&out)[results]) const {
    float v[8];
    in[0].unpack(v);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = scaled_and_shifted(row.normal(v[i]), of.gain[i], of.shift[i]);
    out[0] = Eight::pack(v);
  }
};

}  // namespace quaver::cuda::casts
