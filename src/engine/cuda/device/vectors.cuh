// What kernels share: FP32, BF16 or FP16 elements in groups of eight, read and written as 16-byte vectors where they
// are aligned and one by one where not, and sums and maxima over a warp or a block. All arithmetic is in float.
#pragma once

#include <cuda_runtime.h>
#include <string>

#include "engine/cuda/device/primitives.cuh"
#include "quaver/error.h"
#include "tensor/view.h"

namespace quaver::cuda {

inline constexpr int group_size = 8;
inline constexpr int warp_size = 32;

__host__ __device__ inline bool aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// Every group of eight that starts a row, or follows another in it, is aligned.
inline bool rows_aligned(const View& x) {
  return aligned16(x.data) && x.cols * info(x.format).storage_bits / 8 % 16 == 0;
}

// Calls work with a value of the element type that the format names: of weights, which are not stored in FP16.
template <class Work>
void with_f32_or_bf16(Format format, Work work) {
  switch (format) {
    case Format::f32:
      return work(float{});
    case Format::bf16:
      return work(__nv_bfloat16{});
    default:
      throw Error("a matrix in " + std::string(info(format).name) + " where high precision is needed",
                  "this is a defect: weights are stored in FP32 or BF16, other high-precision matrices in FP16 too");
  }
}

// The same of all other high-precision matrices.
template <class Work>
void with_high_precision(Format format, Work work) {
  if (format == Format::f16) return work(__half{});
  with_f32_or_bf16(format, work);
}

// Eight elements as stored: loads can be in flight before anything is computed from them.
template <class T>
struct Group {
  static constexpr int parts = group_size * sizeof(T) / sizeof(uint4);
  uint4 part[parts];
};

template <class T>
__device__ inline Group<T> load_group(const T* p) {
  Group<T> group;
#pragma unroll
  for (int i = 0; i < Group<T>::parts; ++i) group.part[i] = reinterpret_cast<const uint4*>(p)[i];
  return group;
}

template <class T>
__device__ inline void store_group(T* p, const Group<T>& group) {
#pragma unroll
  for (int i = 0; i < Group<T>::parts; ++i) reinterpret_cast<uint4*>(p)[i] = group.part[i];
}

__device__ inline void unpack(const Group<float>& group, float (&v)[group_size]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    v[4 * i] = __uint_as_float(group.part[i].x);
    v[4 * i + 1] = __uint_as_float(group.part[i].y);
    v[4 * i + 2] = __uint_as_float(group.part[i].z);
    v[4 * i + 3] = __uint_as_float(group.part[i].w);
  }
}

template <class T>
__device__ inline void unpack(const Group<T>& group, float (&v)[group_size]) {
  const unsigned words[4] = {group.part[0].x, group.part[0].y, group.part[0].z, group.part[0].w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = low_of<T>(words[i]);
    v[2 * i + 1] = high_of<T>(words[i]);
  }
}

template <class T>
__device__ inline Group<T> pack(const float (&v)[group_size]) {
  if constexpr (sizeof(T) == sizeof(float)) {
    const auto part = [&](int i) {
      return make_uint4(__float_as_uint(v[i]), __float_as_uint(v[i + 1]), __float_as_uint(v[i + 2]),
                        __float_as_uint(v[i + 3]));
    };
    return {{part(0), part(4)}};
  } else {
    return {{make_uint4(pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]),
                        pack_pair<T>(v[6], v[7]))}};
  }
}

// The first `valid` elements from p, the rest zero.
template <class T>
__device__ inline Group<T> load_group(const T* p, int valid, bool aligned) {
  if (aligned && valid >= group_size) return load_group(p);
  float v[group_size];
#pragma unroll
  for (int i = 0; i < group_size; ++i) v[i] = i < valid ? to_float(p[i]) : 0.0F;
  return pack<T>(v);
}

template <class T>
__device__ inline void load8(const T* p, int valid, bool aligned, float (&v)[group_size]) {
  unpack(load_group(p, valid, aligned), v);
}

template <class T>
__device__ inline void store8(T* p, int valid, bool aligned, const float (&v)[group_size]) {
  if (aligned && valid >= group_size) return store_group(p, pack<T>(v));
#pragma unroll
  for (int i = 0; i < group_size; ++i) {
    if (i < valid) p[i] = from_float<T>(v[i]);
  }
}

// Sums over neighboring lanes, `lanes` of them (a power of two); every lane gets the same bits.
template <class T>
__device__ inline T lanes_sum(T x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  return x;
}

template <class T>
__device__ inline T warp_sum(T x) {
#pragma unroll
  for (int step = warp_size / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = warp_size / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, step));
  return x;
}

// The sum over a block of `threads` threads, all of which call it and get the same bits.
template <int threads, class T>
__device__ inline T block_sum(T x) {
  constexpr int warps = threads / warp_size;
  static_assert(threads % warp_size == 0 && warps <= warp_size);
  __shared__ T of_warp[warps];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  x = warp_sum(x);
  __syncthreads();  // an earlier call may still be reading
  if (lane == 0) of_warp[threadIdx.x / warp_size] = x;
  __syncthreads();
  return warp_sum(lane < warps ? of_warp[lane] : T{});
}

}  // namespace quaver::cuda
