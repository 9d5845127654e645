// Casts of a row that lies in registers, eight elements in each lane, where the scale comes from the row itself: a
// block of 128 is sixteen lanes.
#pragma once

#include "engine/cuda/cast/cast_tile.cuh"
#include "engine/cuda/cast/fp8_cast.cuh"
#include "engine/cuda/device/packed.cuh"

namespace quaver::cuda {

// amax over the finite ones of eight elements, as bits.
__device__ inline unsigned finite_amax(const Packed8<__nv_bfloat16>& x) {
  const unsigned words[4] = {x.bits.x, x.bits.y, x.bits.z, x.bits.w};
  unsigned pairs = 0;
#pragma unroll
  for (const unsigned word : words) pairs = __vmaxu2(pairs, word & 0x7FFF7FFFU);
  unsigned amax = max(pairs << 16, pairs & 0xFFFF0000U);
  if (__builtin_expect(casts::is_finite(amax), 1)) return amax;
  amax = 0;
#pragma unroll
  for (const unsigned word : words) {
    const unsigned low = (word & 0x7FFFU) << 16;
    const unsigned high = word & 0x7FFF0000U;
    if (casts::is_finite(low)) amax = max(amax, low);
    if (casts::is_finite(high)) amax = max(amax, high);
  }
  return amax;
}

// The codes of eight elements in BF16, as a staged row has them. All lanes of a block call it; the first stores the
// scale.
__device__ inline uint2 cast_row_block(const Packed8<__nv_bfloat16>& x, const RowBlocks& blocks, float* scale,
                                       CastCounts& counts) {
  constexpr int block_lanes = 16;
  constexpr unsigned saturates_at =
      lane::layout(Format::e4m3).max + 4;  // by which a scale's own rounding may exceed it
  const unsigned lanes = 0xFFFFU << (threadIdx.x & block_lanes);
  unsigned amax = finite_amax(x);
#pragma unroll
  for (int step = 1; step < block_lanes; step *= 2) amax = max(amax, __shfl_xor_sync(lanes, amax, step));
  const casts::BlockScale found = casts::block_scale(blocks.limit, blocks.kept, amax);
  if (threadIdx.x % block_lanes == 0) *scale = found.stored;
  float v[8];
  x.unpack(v);
  return Fp8CasterTo<Format::e4m3>{found.factor, saturates_at}.cast(v, counts);
}

}  // namespace quaver::cuda
