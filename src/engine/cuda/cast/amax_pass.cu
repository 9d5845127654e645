#include "engine/cuda/cast/amax_pass.h"
#include "engine/cuda/cast/cast_launch.cuh"
#include "engine/cuda/cast/cast_lines.cuh"

namespace quaver::cuda {

namespace {

using namespace casts;

__device__ void raise_line(const AmaxVisit& visit, const GroupPlace& at, Bits amax) {
  if (at.group == 0 && at.count > 0 && amax > 0) atomicMax(visit.line_amax + at.out_line, amax);
}

template <class T, Side S>
__device__ void amax_side(const Source& x, const AmaxVisit& visit, const TilePlace& place, const T* tile) {
  Bits largest = 0;
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<S>(x, place, pass);
    float v[group_size];
    read_group<T, S>(tile, at, x.factor, v);
    if (visit.rotation == Rotation::hadamard && at.count == group_size) rotate_group(v, visit.signs);
    Bits amax = largest_magnitude(v);
    if (!is_finite(amax)) amax = finite_amax(v);
    largest = lane::larger(largest, amax);
    if (visit.line_amax == nullptr) continue;
    for (int step = 1; step < lane_groups; step *= 2) amax = lane::larger(amax, __shfl_xor_sync(~0U, amax, step));
    raise_line(visit, at, amax);
  }
  if (visit.tensor_amax != nullptr) raise_amax(visit.tensor_amax, largest);
}

// The same for BF16 as stored, in whole lines.
template <Side S>
__device__ void amax_lines(const Source& x, const AmaxVisit& visit, const TilePlace& place, const __nv_bfloat16* tile) {
  Bits largest = 0;
  LinePlaces<S> places(x, place);
#pragma unroll 1
  for (int pass = 0; pass < line_passes; ++pass) {
    const GroupPlace& first = places.groups[0];
    LinePairs pairs;
    read_line<S>(tile, first.line, pairs);
    Bits amax = largest_magnitude(pairs);
    if (!is_finite(amax)) amax = finite_amax(pairs);
    largest = lane::larger(largest, amax);
    if (visit.line_amax != nullptr) raise_line(visit, first, line_largest(amax));
    places.next_pass();
  }
  if (visit.tensor_amax != nullptr) raise_amax(visit.tensor_amax, largest);
}

template <class T, Side S>
__device__ void amax_either(const Source& x, const AmaxVisit& visit, const TilePlace& place, const T* tile) {
  if constexpr (sizeof(T) == 2) {
    if (x.factor == 1 && visit.rotation == Rotation::none) return amax_lines<S>(x, visit, place, tile);
  }
  amax_side<T, S>(x, visit, place, tile);
}

template <class T>
__global__ void __launch_bounds__(tile_threads) amax_tiles(const __grid_constant__ AmaxJob job) {
  extern __shared__ uint4 memory[];
  T* tile = reinterpret_cast<T*>(memory);
  const TilePlace place = tile_place(job.x);
  load_tile(job.x, place, tile);
  __syncthreads();
  if (job.rows.wanted) amax_either<T, Side::rows>(job.x, job.rows, place, tile);
  if (job.columns.wanted) amax_either<T, Side::columns>(job.x, job.columns, place, tile);
}

}  // namespace

void run_amax_pass(Gpu& gpu, const AmaxJob& pass) {
  with_tile_type(pass.x, [&](auto element) {
    using T = decltype(element);
    launch_tiles<T>(gpu, amax_tiles<T>, pass.x, "amax_tiles", pass);
  });
}

}  // namespace quaver::cuda
