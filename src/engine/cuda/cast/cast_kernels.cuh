// The kernels of a cast: a tile of the source in shared memory becomes codes along rows and columns, with their scales,
// the counts of what was seen, and partial sums of the columns.
#pragma once

#include <type_traits>

#include "engine/cuda/cast/cast_lines.cuh"
#include "engine/cuda/cast/cast_tile.cuh"
#include "engine/cuda/runtime/site_table.h"

namespace quaver::cuda::casts {

struct CastJob {
  Source x;
  SideJob rows;
  SideJob columns;
  bool has_2d_blocks = false;
  SiteStatistics* statistics = nullptr;
  float* partial_sums = nullptr;  // [tiles down × cols]
};

// amaxes of the tile's 16 × 16 blocks, row by row, and that of the whole tile.
constexpr int square_count = lane_groups * lane_groups;
struct BlockAmaxes {
  Bits amax[square_count + 1];

  __device__ void clear() {
    if (threadIdx.x <= square_count) amax[threadIdx.x] = 0;
  }
  __device__ void raise(const GroupPlace& at, Bits value) {
    atomicMax(&amax[at.line / group_size * lane_groups + at.group], value);
    value = warp_largest(value);
    if (threadIdx.x % 32 == 0) atomicMax(&amax[square_count], value);
  }
  template <Side S>
  __device__ Bits of(const GroupPlace& at, int block_cols) const {
    if (block_cols == tile_size) return amax[square_count];
    const int line_block = at.line / group_size;
    return S == Side::rows ? amax[line_block * lane_groups + at.group] : amax[at.group * lane_groups + line_block];
  }
};

template <class T>
__device__ void find_block_amaxes(const Source& x, const TilePlace& place, const T* tile, BlockAmaxes& block_amaxes) {
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<Side::rows>(x, place, pass);
    float v[group_size];
    read_group<T, Side::rows>(tile, at, x.factor, v);
    Bits amax = largest_magnitude(v);
    if (!is_finite(amax)) amax = finite_amax(v);
    block_amaxes.raise(at, amax);
  }
}

// What the tile's 16 × 16 blocks lose under either scale of four over six.
struct BlockErrors {
  Bits six[square_count];
  Bits four[square_count];
};

template <Format F>
struct TileBlocks {
  BlockAmaxes amaxes;
};

template <>
struct TileBlocks<Format::e2m1> {
  BlockAmaxes amaxes;
  BlockErrors errors;
};

template <class T, Side S>
__device__ void find_block_errors(const CastJob& job, const SideJob& side, const TilePlace& place, const T* tile,
                                  float tensor_scale, const BlockAmaxes& block_amaxes, BlockErrors& errors) {
  __syncthreads();  // the other side's have been read
  if (threadIdx.x < square_count) errors.six[threadIdx.x] = errors.four[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<S>(job.x, place, pass);
    float v[group_size];
    read_group<T, S>(tile, at, job.x.factor, v);
    FourOverSix scales(side.rule, tensor_scale, block_amaxes.of<S>(at, side.block_cols));
    scales.add(side.rounding, side.rule, tensor_scale, v);
    const int block = at.line / group_size * lane_groups + at.group;
    atomicAdd(&errors.six[block], scales.six_error);
    atomicAdd(&errors.four[block], scales.four_error);
  }
  __syncthreads();
}

// The factor for a block with this scale, which is stored by the thread that has the block's first group.
__device__ inline float store_block_scale(const SideJob& side, const GroupPlace& at, float tensor_scale, float stored) {
  const bool first_line = (at.line & ((1 << side.block_rows_shift) - 1)) == 0;
  const bool first_group =
      side.block_cols == 0 ? at.out_first == 0 : ((at.group * group_size) & (side.block_cols - 1)) == 0;
  if (at.count > 0 && first_line && first_group) side.block_scales[side.scale_index(at)] = stored;
  return block_factor(side.rule, tensor_scale, stored);
}

// The same for a block with this amax.
__device__ inline float block_factor_for(const SideJob& side, const GroupPlace& at, float tensor_scale, Bits amax) {
  return store_block_scale(side, at, tensor_scale, stored_block_scale(side.rule, tensor_scale, amax));
}

// The same for one of NVFP4's blocks, whose values in the group these are.
template <Side S>
__device__ float four_over_six_factor(const SideJob& side, const GroupPlace& at, const TileBlocks<Format::e2m1>& blocks,
                                      float tensor_scale, Bits amax, const float (&v)[group_size]) {
  const bool is_2d = side.block_rows_shift > 0;
  FourOverSix scales(side.rule, tensor_scale, is_2d ? blocks.amaxes.of<S>(at, side.block_cols) : amax);
  if (is_2d) {
    const int block = at.line / group_size * lane_groups + at.group;
    scales.six_error = blocks.errors.six[block];
    scales.four_error = blocks.errors.four[block];
  } else {
    scales.add(side.rounding, side.rule, tensor_scale, v);
  }
  return store_block_scale(side, at, tensor_scale, scales.better());
}

// The factor of the block of the group with these values; amax is the group's own.
template <Format F, Side S>
__device__ float group_factor(const SideJob& side, const GroupPlace& at, const TileBlocks<F>& blocks,
                              float tensor_scale, Bits amax, const float (&v)[group_size]) {
  if constexpr (F == Format::e2m1) {
    if (side.rule.format == ScaleFormat::e4m3_4over6) {
      return four_over_six_factor<S>(side, at, blocks, tensor_scale, amax, v);
    }
  }
  if (side.block_rows_shift > 0) {
    amax = blocks.amaxes.template of<S>(at, side.block_cols);
  } else if (side.block_cols == 0) {
    amax = at.count > 0 ? side.line_amax[at.out_line] : 0;
  } else {
    for (int step = 1; step * group_size < side.block_cols; step *= 2) {
      amax = lane::larger(amax, __shfl_xor_sync(~0U, amax, step));
    }
  }
  return block_factor_for(side, at, tensor_scale, amax);
}

// The first `count` codes, one by one: for rows that are not aligned to vectors.
template <Format F>
__device__ void store_codes(std::byte* to, Packed<F>& packed, int count) {
  constexpr int width = lane::layout(F).width;
  constexpr int bits = width < 8 ? 8 : width;
  using Unit = std::conditional_t<bits == 8, std::uint8_t, std::conditional_t<bits == 16, std::uint16_t, Bits>>;
  const int units = (count * width + bits - 1) / bits;
#pragma unroll
  for (int i = 0; i < group_size * width / bits; ++i) {
    Bits unit = packed[i * bits / 32] >> (i * bits % 32);
    if (width < 8 && 2 * i + 1 == count) unit &= 0xFU;  // the other half of a last odd code is zero
    if (i < units) reinterpret_cast<Unit*>(to)[i] = static_cast<Unit>(unit);
  }
}

// A last group of fewer goes whole into a row with room for it: its other elements are zeros, and so are their codes.
template <Format F>
__device__ void store_group(const SideJob& side, const GroupPlace& at, Packed<F>& packed) {
  constexpr int width = lane::layout(F).width;
  std::byte* to = side.codes + at.out_line * side.row_bytes + at.out_first * width / 8;
  if (!side.aligned || (at.out_first + group_size) * width / 8 > side.row_bytes) {
    store_codes<F>(to, packed, at.count);
  } else if constexpr (packed_words<F> == 2) {
    *reinterpret_cast<uint2*>(to) = uint2{packed[0], packed[1]};
  } else {
#pragma unroll
    for (int w = 0; w < packed_words<F>; w += 4) {
      reinterpret_cast<uint4*>(to)[w / 4] = uint4{packed[w], packed[w + 1], packed[w + 2], packed[w + 3]};
    }
  }
}

// What a thread keeps of a side from group to group.
struct SideState {
  float tensor_scale;
  float tensor_factor;
  RandomKey key;
  bool counting;

  __device__ explicit SideState(const SideJob& side, bool counts = false) : key(side.random_key()), counting(counts) {
    const float amax = side.tensor_amax != nullptr ? lane::value(*side.tensor_amax) : 0.0F;
    tensor_scale =
        stored_tensor_scale(side.rule, amax, side.rule.tensor == TensorScale::given ? *side.given_scale : 1.0F);
    tensor_factor = factor_from_stored(tensor_scale);
    if (blockIdx.x == 0 && threadIdx.x == 0) *side.tensor_scale = tensor_scale;
  }
};

template <Format F, Side S>
__device__ void cast_group(const SideJob& side, const SideState& state, const GroupPlace& at,
                           const TileBlocks<F>& blocks, float (&v)[group_size], GroupCounts& counts) {
  if (side.rotation == Rotation::hadamard && at.count == group_size) rotate_group(v, side.signs);
  const Bits largest = largest_magnitude(v);
  const Bits amax = is_finite(largest) ? largest : finite_amax(v);
  float factor = state.tensor_factor;
  if (side.has_blocks) factor = group_factor<F, S>(side, at, blocks, state.tensor_scale, amax, v);
  Packed<F> packed;
  if (F != Format::f32 && side.rounding == Rounding::stochastic) {
    const auto index = static_cast<std::uint64_t>(at.out_line * side.length + at.out_first);
    encode_group<F, Rounding::stochastic>(v, factor, state.key, index, packed);
  } else {
    encode_group<F, Rounding::nearest_even>(v, factor, state.key, 0, packed);
  }
  if (!is_finite(largest)) patch_nonfinite<F>(v, packed);
  if (S == Side::rows && state.counting) count_group<F>(v, packed, factor, largest, amax, counts);
  if (at.count > 0) store_group<F>(side, at, packed);
}

// A column's sum over the tile, from the parts that kLanes neighboring lanes have of it; the one with the column's
// first group stores it.
template <int kLanes>
__device__ void add_column(const Source& x, const GroupPlace& at, float sum, float* sums) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) sum += __shfl_xor_sync(~0U, sum, step);
  if (at.group == 0 && at.count > 0) sums[at.out_first / tile_size * x.cols + at.out_line] = sum;
}

__device__ inline float sum_of(const float (&v)[group_size]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < group_size; ++i) sum += v[i];
  return sum;
}

// Before a side is cast whose scales need more than amaxes.
template <class T, Format F, Side S>
__device__ void prepare_blocks(const CastJob& job, const SideJob& side, const TilePlace& place, const T* tile,
                               float tensor_scale, TileBlocks<F>& blocks) {
  if constexpr (F == Format::e2m1) {
    if (side.rule.format != ScaleFormat::e4m3_4over6 || side.block_rows_shift == 0) return;
    find_block_errors<T, S>(job, side, place, tile, tensor_scale, blocks.amaxes, blocks.errors);
  }
}

template <class T, Format F>
__device__ void cast_rows(const CastJob& job, const TilePlace& place, const T* tile, TileBlocks<F>& blocks,
                          GroupCounts& counts) {
  const SideState state(job.rows, job.statistics != nullptr);
  prepare_blocks<T, F, Side::rows>(job, job.rows, place, tile, state.tensor_scale, blocks);
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<Side::rows>(job.x, place, pass);
    float v[group_size];
    read_group<T, Side::rows, F == Format::f32 ? Payload::kept : Payload::any>(tile, at, job.x.factor, v);
    cast_group<F, Side::rows>(job.rows, state, at, blocks, v, counts);
  }
}

template <class T, Format F>
__device__ void cast_columns(const CastJob& job, const TilePlace& place, const T* tile, TileBlocks<F>& blocks) {
  const SideState state(job.columns);
  prepare_blocks<T, F, Side::columns>(job, job.columns, place, tile, state.tensor_scale, blocks);
  GroupCounts ignored;  // the same elements, already counted
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<Side::columns>(job.x, place, pass);
    float v[group_size];
    read_group<T, Side::columns, F == Format::f32 ? Payload::kept : Payload::any>(tile, at, job.x.factor, v);
    if (job.partial_sums != nullptr) add_column<lane_groups>(job.x, at, sum_of(v), job.partial_sums);
    cast_group<F, Side::columns>(job.columns, state, at, blocks, v, ignored);
  }
}

template <class T>
__device__ void sum_columns(const CastJob& job, const TilePlace& place, const T* tile) {
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<Side::columns>(job.x, place, pass);
    float v[group_size];
    read_group<T, Side::columns>(tile, at, job.x.factor, v);
    add_column<lane_groups>(job.x, at, sum_of(v), job.partial_sums);
  }
}

// ---- whole lines: FP8 from BF16 as stored, rounded to nearest, with one scale per tensor, per row or per 128 elements

// The factor of the line's elements; amax is that of the thread's own.
__device__ inline float line_factor(const SideJob& side, const SideState& state, const GroupPlace& at, Bits amax) {
  if (!side.has_blocks) return state.tensor_factor;
  if (side.block_cols == 0) {
    amax = at.count > 0 ? side.line_amax[at.out_line] : 0;
  } else {
    amax = line_largest(amax);
  }
  return block_factor_for(side, at, state.tensor_scale, amax);
}

template <Format F, Side S>
__device__ void cast_lines(const CastJob& job, const SideJob& side, const TilePlace& place, const __nv_bfloat16* tile,
                           GroupCounts& counts) {
  const SideState state(side);
  const bool counting = S == Side::rows && job.statistics != nullptr;
  const bool summing = S == Side::columns && job.partial_sums != nullptr;
  LinePlaces<S> places(job.x, place);
#pragma unroll 1
  for (int pass = 0; pass < line_passes; ++pass) {
    const GroupPlace& first = places.groups[0];
    LinePairs pairs;
    read_line<S>(tile, first.line, pairs);
    const Bits largest = largest_magnitude(pairs);
    const Bits amax = is_finite(largest) ? largest : finite_amax(pairs);
    const float factor = line_factor(side, state, first, amax);
    float sum = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float v[group_size];
      unpack(pairs[half], v);
      Packed<F> packed;
      encode_group<F, Rounding::nearest_even>(v, factor, state.key, 0, packed);
      if (!is_finite(largest)) patch_nonfinite<F>(v, packed);
      if (counting) count_group<F>(v, packed, factor, largest, amax, counts);
      if (places.groups[half].count > 0) store_group<F>(side, places.groups[half], packed);
      if (summing) sum += sum_of(v);
    }
    if (summing) add_column<line_lanes>(job.x, first, sum, job.partial_sums);
    places.next_pass();
  }
}

// One atomic per tile: every tile of a tensor adds to the same few words.
__device__ inline void add_counts(const Source& x, const GroupCounts& counts, SiteStatistics* statistics) {
  __shared__ GroupCounts total;
  if (threadIdx.x == 0) total = {};
  __syncthreads();
  const Bits amax = warp_largest(counts.amax);
  const Bits nonfinite = warp_total(counts.nonfinite);
  const Bits saturated = warp_total(counts.saturated);
  const Bits underflowed = warp_total(counts.underflowed);
  if (threadIdx.x % 32 == 0) {
    atomicMax(&total.amax, amax);
    atomicAdd(&total.nonfinite, nonfinite);
    atomicAdd(&total.saturated, saturated);
    atomicAdd(&total.underflowed, underflowed);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (total.amax > *static_cast<volatile unsigned*>(&statistics->amax)) atomicMax(&statistics->amax, total.amax);
  if (total.nonfinite > 0) atomicAdd(&statistics->nonfinite, static_cast<unsigned long long>(total.nonfinite));
  if (total.saturated > 0) atomicAdd(&statistics->saturated, static_cast<unsigned long long>(total.saturated));
  if (total.underflowed > 0) atomicAdd(&statistics->underflowed, static_cast<unsigned long long>(total.underflowed));
  if (blockIdx.x == 0) atomicAdd(&statistics->count, static_cast<unsigned long long>(x.rows * x.cols));
}

template <class T, Format F>
__global__ void __launch_bounds__(tile_threads, 3) cast_tiles(const __grid_constant__ CastJob job) {
  extern __shared__ uint4 memory[];
  __shared__ TileBlocks<F> blocks;
  T* tile = reinterpret_cast<T*>(memory);
  const TilePlace place = tile_place(job.x);
  blocks.amaxes.clear();
  load_tile(job.x, place, tile);
  __syncthreads();
  if (job.has_2d_blocks) {
    find_block_amaxes(job.x, place, tile, blocks.amaxes);
    __syncthreads();
  }
  GroupCounts counts;
  if (job.rows.codes != nullptr) cast_rows<T, F>(job, place, tile, blocks, counts);
  if (job.columns.codes != nullptr) {
    cast_columns<T, F>(job, place, tile, blocks);
  } else if (job.partial_sums != nullptr) {
    sum_columns(job, place, tile);
  }
  if (job.statistics != nullptr) add_counts(job.x, counts, job.statistics);
}

template <Format F>
__global__ void __launch_bounds__(tile_threads, 3) cast_line_tiles(const __grid_constant__ CastJob job) {
  extern __shared__ uint4 memory[];
  auto* tile = reinterpret_cast<__nv_bfloat16*>(memory);
  const TilePlace place = tile_place(job.x);
  load_tile(job.x, place, tile);
  __syncthreads();
  GroupCounts counts;
  if (job.rows.codes != nullptr) cast_lines<F, Side::rows>(job, job.rows, place, tile, counts);
  if (job.columns.codes != nullptr) {
    cast_lines<F, Side::columns>(job, job.columns, place, tile, counts);
  } else if (job.partial_sums != nullptr) {
    sum_columns(job, place, tile);
  }
  if (job.statistics != nullptr) add_counts(job.x, counts, job.statistics);
}

}  // namespace quaver::cuda::casts
