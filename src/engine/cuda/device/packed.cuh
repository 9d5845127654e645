// Eight FP32, BF16 or FP16 elements as stored: what a thread holds of a row between two passes over it. 16 bits need
// four registers, FP32 eight.
#pragma once

#include "engine/cuda/device/primitives.cuh"
#include "quaver/format.h"

namespace quaver::cuda {

template <class T>  // BF16 or FP16
struct Packed8 {
  uint4 bits;

  __device__ void unpack(float (&v)[8]) const {
    const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = low_of<T>(words[i]);
      v[2 * i + 1] = high_of<T>(words[i]);
    }
  }
  __device__ static Packed8 pack(const float (&v)[8]) {
    return {make_uint4(pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]),
                       pack_pair<T>(v[6], v[7]))};
  }
  __device__ static Packed8 load_whole(const T* p) { return {*reinterpret_cast<const uint4*>(p)}; }
  __device__ void store_whole(T* p) const { *reinterpret_cast<uint4*>(p) = bits; }
};

template <>
struct Packed8<float> {
  float4 low;
  float4 high;

  __device__ void unpack(float (&v)[8]) const {
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
  }
  __device__ static Packed8 pack(const float (&v)[8]) {
    return {make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7])};
  }
  __device__ static Packed8 load_whole(const float* p) {
    return {reinterpret_cast<const float4*>(p)[0], reinterpret_cast<const float4*>(p)[1]};
  }
  __device__ void store_whole(float* p) const {
    reinterpret_cast<float4*>(p)[0] = low;
    reinterpret_cast<float4*>(p)[1] = high;
  }
};

// Elements [0, valid) of the eight at p, zeros for the others. aligned: p is on a 16-byte boundary whenever valid is 8.
template <class T>
__device__ Packed8<T> load_packed(const T* p, int valid, bool aligned) {
  if (aligned && valid >= 8) return Packed8<T>::load_whole(p);
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = i < valid ? to_float(p[i]) : 0.0F;
  return Packed8<T>::pack(v);
}

template <class T>
__device__ void store_packed(const Packed8<T>& packed, T* p, int valid, bool aligned) {
  if (aligned && valid >= 8) return packed.store_whole(p);
  float v[8];
  packed.unpack(v);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < valid) p[i] = from_float<T>(v[i]);
  }
}

// The same into shared memory, on its way when this returns: see end_copies().
template <class T>
__device__ void fetch_packed(const T* p, int valid, bool aligned, Packed8<T>& to) {
  if (!aligned || valid < 8) {
    to = load_packed(p, valid, false);
    return;
  }
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(to)); i += 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&to) + i),
                 "l"(reinterpret_cast<const char*>(p) + i));
  }
}

// FP32 to TF32, to nearest even, what is too large to its maximum: bit for bit the formats module's.
__device__ inline float round_to_tf32(float x) {
  constexpr unsigned most = 0x7F7FE000U;
  constexpr unsigned nan = 0x7FFFE000U;
  if (!isfinite(x)) return isnan(x) ? __uint_as_float(nan) : x;
  const unsigned bits = __float_as_uint(x);
  const unsigned magnitude = min(bits & 0x7FFFFFFFU, most);
  const unsigned rounded = (magnitude + 0xFFFU + ((magnitude >> 13U) & 1U)) & ~0x1FFFU;
  return __uint_as_float(rounded | (bits & 0x80000000U));
}

// As they are to be stored where the format of FP32's matrix is TF32.
template <class T>
__device__ Packed8<T> pack_as(Format format, const float (&v)[8]) {
  if constexpr (std::is_same_v<T, float>) {
    if (format == Format::tf32) {
      float rounded[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) rounded[i] = round_to_tf32(v[i]);
      return Packed8<T>::pack(rounded);
    }
  }
  return Packed8<T>::pack(v);
}

// FP32 parameters beside a row: gains, shifts, biases.
__device__ inline void load_floats(const float* p, int valid, bool aligned, float (&v)[8]) {
  load_packed(p, valid, aligned).unpack(v);
}

}  // namespace quaver::cuda
