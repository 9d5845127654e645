// Tiles of a matrix in shared memory, read along rows or columns in groups of sixteen: what every kernel of a cast is
// built on. A tile is 128 × 128, so that every block that is not a whole row or tensor lies inside one.
#pragma once

#include <cuda_fp16.h>

#include "engine/cuda/cast/cast_device.cuh"

namespace quaver::cuda::casts {

inline constexpr int tile_size = 128;
inline constexpr int tile_threads = 256;
inline constexpr int tile_passes = 4;                       // each of the threads has a group of four lines
inline constexpr int lane_groups = tile_size / group_size;  // neighboring lanes that share a line

// The matrix that is cast. Element types of tiles are float and __nv_bfloat16; f16 becomes float on its way in.
struct Source {
  const void* data = nullptr;
  Format format = Format::f32;
  Size rows = 0;
  Size cols = 0;
  float factor = 1;
  bool aligned = false;  // every row starts on 16 bytes, and zeros follow it where it does not end there
  Size stride = 0;       // elements from row to row

  __host__ __device__ Size tiles_across() const { return (cols + tile_size - 1) / tile_size; }
  __host__ __device__ Size tiles_down() const { return (rows + tile_size - 1) / tile_size; }
};

struct TilePlace {
  Size row;  // of the tile's first element
  Size col;
};

__device__ inline TilePlace tile_place(const Source& x) {
  const Size across = x.tiles_across() > 0 ? x.tiles_across() : 1;
  const auto tile = static_cast<Size>(blockIdx.x);
  return {tile / across * tile_size, tile % across * tile_size};
}

// The swizzled offset of an element in the tile: neither rows nor columns have bank conflicts. FP32: sixteen rows on,
// the same column lies four banks further: eight lanes reading down a column, sixteen rows apart, and their neighbors
// in three more columns have no bank conflict. BF16: the 16-byte chunks of a row are swizzled, by different amounts for
// the eight rows that are sixteen apart, for the two neighbors of four such rows (as ldmatrix reads them), and for even
// chunks of two neighboring rows.
template <class T>
inline constexpr int tile_skew = sizeof(T) == 4 ? 4 : 0;

template <class T>
inline constexpr int tile_bytes = (tile_size * tile_size + lane_groups * tile_skew<T>)*sizeof(T);

QUAVER_DEVICE int tile_turn(int row) { return (row / group_size) ^ (row % 2 * 5); }

template <class T>
QUAVER_DEVICE int tile_offset(int row, int col) {
  if constexpr (sizeof(T) == 2) return row * tile_size + ((col / 8) ^ tile_turn(row)) * 8 + col % 8;
  return row * tile_size + (row / group_size) * tile_skew<T> + col;
}

__device__ inline void copy16_async(void* shared, const void* global) {
#ifdef __CUDA_ARCH__
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}

__device__ inline void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
#endif
}

// A NaN keeps its payload, which the conversion alone would not.
__device__ inline float half_value(__half x) {
  const Bits code = __half_as_ushort(x);
  if ((code & 0x7FFFU) <= 0x7C00U) return __half2float(x);
  return lane::value(((code & 0x8000U) << 16) | lane::infinity_bits | ((code & 0x3FFU) << 13));
}

template <class T>
__device__ inline T source_element(const Source& x, Size at) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (x.format == Format::f16) return half_value(static_cast<const __half*>(x.data)[at]);
  }
  return static_cast<const T*>(x.data)[at];
}

// The tile of an aligned matrix in FP16.
__device__ inline void load_half_tile(const Source& x, const TilePlace& place, float* tile) {
  constexpr int width = 8;
  constexpr int chunks = tile_size / width;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < tile_size * chunks; i += tile_threads) {
    const int row = i / chunks;
    const int col = i % chunks * width;
    alignas(16) __half part[width] = {};
    if (place.row + row < x.rows && place.col + col < x.cols) {
      const __half* from = static_cast<const __half*>(x.data) + (place.row + row) * x.stride + place.col + col;
      *reinterpret_cast<uint4*>(part) = *reinterpret_cast<const uint4*>(from);
    }
    auto* to = reinterpret_cast<float4*>(tile + tile_offset<float>(row, col));
    to[0] = {half_value(part[0]), half_value(part[1]), half_value(part[2]), half_value(part[3])};
    to[1] = {half_value(part[4]), half_value(part[5]), half_value(part[6]), half_value(part[7])};
  }
}

// Zeros beyond the matrix. A barrier must follow.
template <class T>
__device__ void load_tile(const Source& x, const TilePlace& place, T* tile) {
  const int thread = static_cast<int>(threadIdx.x);
  if (x.aligned) {
    if constexpr (sizeof(T) == sizeof(float)) {
      if (x.format == Format::f16) return load_half_tile(x, place, tile);
    }
    constexpr int width = 16 / sizeof(T);
    constexpr int chunks = tile_size / width;
#pragma unroll
    for (int i = 0; i < tile_size * chunks / tile_threads; ++i) {
      const int row = (i * tile_threads + thread) / chunks;
      const int col = (i * tile_threads + thread) % chunks * width;
      T* to = tile + tile_offset<T>(row, col);
      if (place.row + row < x.rows && place.col + col < x.cols) {
        copy16_async(to, static_cast<const T*>(x.data) + (place.row + row) * x.stride + place.col + col);
      } else {
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
      }
    }
    wait_for_copies();
    return;
  }
#pragma unroll 8
  for (int i = thread; i < tile_size * tile_size; i += tile_threads) {
    const int row = i / tile_size;
    const int col = i % tile_size;
    const bool inside = place.row + row < x.rows && place.col + col < x.cols;
    tile[tile_offset<T>(row, col)] =
        inside ? source_element<T>(x, (place.row + row) * x.stride + place.col + col) : static_cast<T>(0.0F);
  }
}

__device__ inline void unpack16(const uint4& chunk, float* v, float) {
  v[0] = lane::value(chunk.x), v[1] = lane::value(chunk.y), v[2] = lane::value(chunk.z), v[3] = lane::value(chunk.w);
}

__device__ inline void unpack16(const uint4& chunk, float* v, __nv_bfloat16) {
  const Bits words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = lane::value(words[i] << 16);
    v[2 * i + 1] = lane::value(words[i] & 0xFFFF0000U);
  }
}

// One group of a line as a thread has it: a line is a row of the side's code matrix.
struct GroupPlace {
  int line;   // in the tile
  int group;  // along the line
  Size out_line;
  Size out_first;  // element of the line that the group starts at
  int count;       // elements inside the matrix
};

template <Side S>
__device__ GroupPlace group_at(const Source& x, const TilePlace& place, int line, int group) {
  const Size lines = S == Side::rows ? x.rows : x.cols;
  const Size length = S == Side::rows ? x.cols : x.rows;
  const Size out_line = (S == Side::rows ? place.row : place.col) + line;
  const Size out_first = (S == Side::rows ? place.col : place.row) + group * group_size;
  const Size left = length - out_first;
  const int inside = left >= group_size ? group_size : (left > 0 ? static_cast<int>(left) : 0);
  return {line, group, out_line, out_first, out_line < lines ? inside : 0};
}

// The thread's group in this pass. Lanes 8k … 8k + 7 have a line together, so that eight times sixteen codes are stored
// side by side.
template <Side S>
__device__ GroupPlace group_place(const Source& x, const TilePlace& place, int pass) {
  const int thread = static_cast<int>(threadIdx.x);
  const int line = pass * (tile_size / tile_passes) + thread / lane_groups;
  return group_at<S>(x, place, line, thread % lane_groups);
}

// factor · x. A NaN keeps its payload as it does on the CPU, which only f32 codes show.
enum class Payload : std::uint8_t { any, kept };
template <Payload P>
QUAVER_DEVICE float scaled_value(float x, float factor) {
  const float v = times(factor, x);
  if constexpr (P == Payload::kept) {
    if (x != x) return lane::value(lane::bits(x) | 0x00400000U);
  }
  return v;
}

template <class T, Side S, Payload P = Payload::any>
__device__ void read_group(const T* tile, const GroupPlace& at, float factor, float (&v)[group_size]) {
  if constexpr (S == Side::rows) {
    constexpr int width = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < group_size; i += width) {
      const T* chunk = tile + tile_offset<T>(at.line, at.group * group_size + i);
      unpack16(*reinterpret_cast<const uint4*>(chunk), v + i, T{});
    }
  } else {
#pragma unroll
    for (int i = 0; i < group_size; ++i) {
      v[i] = static_cast<float>(tile[tile_offset<T>(at.group * group_size + i, at.line)]);
    }
  }
#pragma unroll
  for (int i = 0; i < group_size; ++i) v[i] = scaled_value<P>(v[i], factor);
}

__device__ inline Bits warp_largest(Bits x) { return __reduce_max_sync(~0U, x); }
__device__ inline Bits warp_total(Bits x) { return __reduce_add_sync(~0U, x); }

// All threads of a warp call it. Nearly always a comparison is all that it takes.
__device__ inline void raise_amax(Bits* amax, Bits found) {
  found = warp_largest(found);
  if (threadIdx.x % 32 == 0 && found > *static_cast<volatile Bits*>(amax)) atomicMax(amax, found);
}

// What casting needs to know of one side; plain data for a kernel's arguments.
struct SideJob {
  std::byte* codes = nullptr;
  float* block_scales = nullptr;
  float* tensor_scale = nullptr;
  Size length = 0;  // of a line, in codes
  Size row_bytes = 0;
  Size scale_cols = 0;
  bool has_blocks = false;
  int block_cols = 0;        // 0: a whole row
  int block_rows_shift = 0;  // log2
  int block_cols_shift = 0;
  bool aligned = false;  // whole groups are stored as vectors
  Rounding rounding = Rounding::nearest_even;
  Rotation rotation = Rotation::none;
  Bits signs = 0;
  ScaleRule rule;
  RandomKey key;
  const std::uint32_t* micro_step = nullptr;
  const float* given_scale = nullptr;
  const Bits* tensor_amax = nullptr;  // of the amax pass
  const Bits* line_amax = nullptr;    // of the amax pass, where blocks are whole rows

  QUAVER_DEVICE Size scale_index(const GroupPlace& at) const {
    return (at.out_line >> block_rows_shift) * scale_cols + (block_cols == 0 ? 0 : at.out_first >> block_cols_shift);
  }
  QUAVER_DEVICE RandomKey random_key() const {
    RandomKey resolved = key;
    if (micro_step != nullptr) resolved.step += *micro_step;
    return resolved;
  }
};

}  // namespace quaver::cuda::casts
