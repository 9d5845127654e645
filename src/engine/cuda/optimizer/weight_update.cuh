// How the kernels of optimizers divide a weight among warps, store it and its moments, and sum what its update did.
#pragma once

#include <cmath>
#include <string>

#include "engine/cuda/optimizer/optimizer_device.cuh"
#include "engine/cuda/workspace_sizes.h"

namespace quaver::cuda {

inline constexpr int update_threads = 256;
inline constexpr int update_warps = update_threads / warp_size;

// A warp's elements: a block of a low-precision moment.
inline constexpr Size segment_size = warp_size * quad;

struct Segments {
  Size count;  // of elements
  Size segments;
  Size cols;              // of a row, where segments must not cross its end
  unsigned row_segments;  // in a row; 0 where rows do not matter
  bool aligned;           // every thread's four elements, where the matrices begin so

  Size blocks() const {
    constexpr Size most = 2048;
    const Size all = ceil_div(segments, update_warps);
    return all < most ? all : most;
  }
};

// Of a weight whose moments, if it has some, are stored in this format.
inline Segments segments_of(const View& weight, Format moments) {
  const bool blocks = is_low_precision(moments);
  const Size in_row = blocks ? ceil_div(weight.cols, segment_size) : 0;
  return {.count = weight.count(),
          .segments = blocks ? weight.rows * in_row : ceil_div(weight.count(), segment_size),
          .cols = weight.cols,
          .row_segments = static_cast<unsigned>(in_row),
          .aligned = !blocks || weight.cols % quad == 0};
}

__device__ inline QuadPlace place_of(const Segments& segments, Size segment) {
  Size start = segment * segment_size;
  Size end = segments.count;
  if (segments.row_segments != 0) {
    const unsigned row = static_cast<unsigned>(segment) / segments.row_segments;
    start = row * segments.cols + (static_cast<unsigned>(segment) - row * segments.row_segments) * segment_size;
    end = (row + Size{1}) * segments.cols;
  }
  const Size index = start + threadIdx.x % warp_size * quad;
  const Size valid = max(Size{0}, min(Size{quad}, end - index));
  return {index, static_cast<int>(valid), segments.aligned};
}

struct StoredWeight {
  void* data;
  Rounding rounding;
  RandomKey key;
};

// Rounds the weights as they are stored; x becomes what was stored.
template <Format F>
__device__ inline void store_weights(const StoredWeight& weight, const QuadPlace& place, float (&x)[quad]) {
  if (place.valid == 0) return;
  if constexpr (F == Format::f32) {
    store_quad<F>(weight.data, place, floats_of(x));
  } else {
    const Quad<F> codes = encode_quad<F>(x, 1.0F, weight.rounding, weight.key, place);
    store_quad<F>(weight.data, place, codes);
    decode_moment<F>(codes, 1.0F, x);
  }
}

// A moment, the `which`th of a weight with this key.
inline StoredMoment stored_moment(const CodeMatrix& moment, RandomKey key, std::uint32_t which) {
  const QuantSpec& spec = moment.spec;
  const bool high_precision = spec.format == Format::f32 || spec.format == Format::bf16;
  const bool scaled_by_f32 = spec.scale == ScaleFormat::f32 || spec.scale == ScaleFormat::f32_power_of_two;
  const bool blocks = spec.format == Format::e4m3 && spec.block == block::b1x128 && scaled_by_f32 && spec.shrink == 1;
  if (!(high_precision && spec.block == block::tensor) && !blocks) {
    throw Error("moments in " + std::string(info(spec.format).name) + " with these scales",
                "the CUDA engine keeps moments in FP32, BF16, or E4M3 with an FP32 scale for every 128");
  }
  key.stream = key.stream * 31U + which;
  const bool powers = spec.scale == ScaleFormat::f32_power_of_two;
  return {moment.codes,
          moment.block_scales,
          std::ldexp(info(spec.format).max, -spec.margin),
          powers ? lane::infinity_bits : lane::magnitude_mask,
          spec.rounding,
          key};
}

__device__ inline UpdateStatistics sum_over_update_block(const UpdateStatistics& mine) {
  return {block_sum<update_threads>(mine.weight2), block_sum<update_threads>(mine.update2),
          static_cast<std::uint64_t>(block_sum<update_threads>(static_cast<unsigned long long>(mine.unmoved))),
          static_cast<std::uint64_t>(block_sum<update_threads>(static_cast<unsigned long long>(mine.count)))};
}

}  // namespace quaver::cuda
