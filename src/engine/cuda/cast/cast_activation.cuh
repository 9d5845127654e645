// Fills a cast's tiles with an activation's results, rounded to BF16 as a staged matrix would be: every thread computes
// eight neighboring elements at a time. Operands are BF16 and their rows whole vectors.
#pragma once

#include "engine/cuda/cast/cast_tile.cuh"
#include "engine/cuda/device/packed.cuh"
#include "engine/cuda/elementwise/activation_device.cuh"
#include "engine/engine.h"

namespace quaver::cuda::casts {

using Eight = Packed8<__nv_bfloat16>;
inline constexpr int fill_chunks = tile_size / 8;                           // in a row of the tile
inline constexpr int fill_passes = tile_size * fill_chunks / tile_threads;  // of a thread
inline constexpr int fill_rows_a_pass = tile_threads / fill_chunks;

// Calls make(row, col) for every eight elements of the tile inside the matrix, `kAtOnce` of them in flight.
template <int kAtOnce, class Load, class Make>
__device__ void fill_tile(const Source& x, const TilePlace& place, __nv_bfloat16* tile, const Load& load,
                          const Make& make) {
  const int first_row = static_cast<int>(threadIdx.x) / fill_chunks;
  const int col = static_cast<int>(threadIdx.x) % fill_chunks * 8;
  const bool col_inside = place.col + col < x.cols;
#pragma unroll 1
  for (int pass = 0; pass < fill_passes; pass += kAtOnce) {
    decltype(load(Size{}, Size{})) operands[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const Size row = place.row + first_row + (pass + i) * fill_rows_a_pass;
      if (col_inside && row < x.rows) operands[i] = load(row, place.col + col);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = first_row + (pass + i) * fill_rows_a_pass;
      Eight result{make_uint4(0, 0, 0, 0)};
      if (col_inside && place.row + row < x.rows) result = make(operands[i], place.col + col);
      *reinterpret_cast<uint4*>(tile + tile_offset<__nv_bfloat16>(row, col)) = result.bits;
    }
  }
}

struct ActivationOperands {
  Eight x;
  Eight up;
  Eight dy;
};

template <Function F>
struct ActivationFill {
  const __nv_bfloat16* x;
  Size width;  // of x: twice the result's for swiglu
  float factor;
  float limit;

  explicit ActivationFill(const Activation& op)
      : x(static_cast<const __nv_bfloat16*>(op.x.data)), width(op.x.cols), factor(op.factor), limit(op.limit) {}

  __device__ void operator()(const Source& out, const TilePlace& place, __nv_bfloat16* tile) const {
    const auto load = [&](Size row, Size col) {
      ActivationOperands in;
      const __nv_bfloat16* from = x + row * width + col;
      in.x = Eight::load_whole(from);
      if constexpr (F == Function::swiglu) in.up = Eight::load_whole(from + out.cols);
      return in;
    };
    const auto make = [&](const ActivationOperands& in, Size) {
      float v[8];
      float up[8] = {};
      in.x.unpack(v);
      if constexpr (F == Function::swiglu) in.up.unpack(up);
      activate<F>(v, up, factor, limit);
      return Eight::pack(v);
    };
    fill_tile<4>(out, place, tile, load, make);
  }
};

// The gradient of x; for swiglu [gate | up], so that a tile may be in either half or across both.
template <Function F>
struct GradientFill {
  const __nv_bfloat16* x;
  const __nv_bfloat16* dy;
  Size width;  // of x
  Size cols;   // of dy
  float forward;
  float factor;
  float limit;

  explicit GradientFill(const ActivationBackward& op)
      : x(static_cast<const __nv_bfloat16*>(op.x.data)),
        dy(static_cast<const __nv_bfloat16*>(op.out_gradient.data)),
        width(op.x.cols),
        cols(op.out_gradient.cols),
        forward(op.forward_factor),
        factor(op.factor),
        limit(op.limit) {}

  __device__ void operator()(const Source& out, const TilePlace& place, __nv_bfloat16* tile) const {
    const auto load = [&](Size row, Size col) {
      ActivationOperands in;
      const Size at = col < cols ? col : col - cols;
      in.x = Eight::load_whole(x + row * width + at);
      in.dy = Eight::load_whole(dy + row * cols + at);
      if constexpr (F == Function::swiglu) in.up = Eight::load_whole(x + row * width + cols + at);
      return in;
    };
    const auto make = [&](const ActivationOperands& in, Size col) {
      float v[8];
      float up[8] = {};
      float d[8];
      float dup[8] = {};
      in.x.unpack(v);
      in.dy.unpack(d);
      if constexpr (F == Function::swiglu) in.up.unpack(up);
      activate_backward<F>(v, up, {forward, factor, limit}, d, dup);
      return Eight::pack(col < cols ? d : dup);
    };
    fill_tile<4>(out, place, tile, load, make);
  }
};

}  // namespace quaver::cuda::casts
