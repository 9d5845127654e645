// What a warp needs to multiply tiles of heads on tensor cores (mma.sync, any GPU since Ampere): the instructions,
// tiles in shared memory, and MMAs of a warp's 16 rows with them. Elements are BF16, FP16, or FP32, which is rounded to
// TF32 on its way. For device code only.
#pragma once

#include "engine/cuda/attention/attention_kernels.h"
#include "engine/cuda/device/primitives.cuh"

namespace quaver::cuda::mma {

constexpr int rows_of_warp = 16;

template <class T>
constexpr int chunk = 16 / static_cast<int>(sizeof(T));  // elements of 16 bytes: copied, and loaded for an MMA, at once
template <class T>
constexpr int depth = 2 * chunk<T>;  // elements that an MMA sums over

// ---- instructions -------------------------------------------------------------------------------------------------

// Copies 16 bytes, or clears them where not `inside`.
inline __device__ void copy16(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
inline __device__ void copy4(float* to, const float* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 4 : 0)
               : "memory");
}

// Four 8 × 8 matrices; lane l gives the address of row l mod 8 of matrix l / 8.
inline __device__ void load_matrices(std::uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}
inline __device__ void load_matrices_transposed(std::uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

inline __device__ std::uint32_t tf32_of(float x) {
  std::uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(rounded) : "f"(x));
  return rounded;
}

// sums[16 × 8] += a[16 × depth] · b[depth × 8]
template <class T>
inline __device__ void multiply(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#define QUAVER_MULTIPLY(types)                                                                                \
  asm("mma.sync.aligned.m16n8" types ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n" \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                            \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<T, __half>) {
    QUAVER_MULTIPLY("k16.row.col.f32.f16.f16");
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    QUAVER_MULTIPLY("k16.row.col.f32.bf16.bf16");
  } else {
    QUAVER_MULTIPLY("k8.row.col.f32.tf32.tf32");
  }
#undef QUAVER_MULTIPLY
}

// ---- tiles --------------------------------------------------------------------------------------------------------

// A thread holds rows g and g + 8 of its warp's 16, and of each 8 columns the two from 2·t on.
inline __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
inline __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
inline __device__ int lane_row() { return lane() / 4; }
inline __device__ int lane_column() { return lane() % 4 * 2; }

template <class T, int E>
constexpr int tile_stride = E + chunk<T>;  // rows 16 bytes further in the banks: matrix loads do not collide

// Calls work(place, row, column) for this thread's share of the chunks of a tile.
template <int E, int Rows, int Threads, class T, class Work>
inline __device__ void for_own_chunks(T* tile, const Work& work) {
  constexpr int chunks = E / chunk<T>;
  static_assert(Rows * chunks % Threads == 0);
#pragma unroll
  for (int n = 0; n < Rows * chunks / Threads; ++n) {
    const int i = n * Threads + static_cast<int>(threadIdx.x);
    const int row = i / chunks;
    const int column = i % chunks * chunk<T>;
    work(tile + row * tile_stride<T, E> + column, row, column);
  }
}

// Positions [first, first + Rows) of a head; zeros outside of it and past the head's own elements.
template <int E, int Rows, int Threads, class T>
inline __device__ void copy_tile(T* tile, const T* head, Size stride, int first, const AttentionArguments<T>& a) {
  for_own_chunks<E, Rows, Threads>(tile, [&](T* to, int row, int column) {
    const bool inside = first + row < a.sequence && column < a.head_size;
    copy16(to, inside ? head + (first + row) * stride + column : head, inside);
  });
}

// FP32 becomes TF32: what this thread has copied, once that is there and before the barrier that shows it to others.
template <int E, int Rows, int Threads, class T>
inline __device__ void round_tile(T* tile) {
  if constexpr (sizeof(T) == 4) {
    for_own_chunks<E, Rows, Threads>(tile, [](float* to, int, int) {
      const float4 x = *reinterpret_cast<const float4*>(to);
      *reinterpret_cast<uint4*>(to) = {tf32_of(x.x), tf32_of(x.y), tf32_of(x.z), tf32_of(x.w)};
    });
  }
}

// The warp's rows of a tile as the left operand of an MMA, the k-th `depth` of their columns.
template <int E, class T>
inline __device__ void left_factor(std::uint32_t (&out)[4], const T* tile, int k) {
  const int row = warp() * rows_of_warp + lane() % 16;
  load_matrices(out, tile + row * tile_stride<T, E> + (2 * k + lane() / 16) * chunk<T>);
}

// out[16 × Columns] += left · columnsᵀ, over the k-th `depth` of their elements
template <int E, int Columns, class T>
inline __device__ void multiply_rows(float (&out)[Columns / 8][4], const std::uint32_t (&left)[4], const T* columns,
                                     int k) {
#pragma unroll
  for (int n = 0; n < Columns / 16; ++n) {
    std::uint32_t right[4];
    const int row = n * 16 + lane() % 8 + lane() / 16 * 8;
    load_matrices(right, columns + row * tile_stride<T, E> + (2 * k + lane() / 8 % 2) * chunk<T>);
    multiply<T>(out[2 * n], left, right[0], right[1]);
    multiply<T>(out[2 * n + 1], left, right[2], right[3]);
  }
}

// out[16 × Columns] = rows · columnsᵀ, over all elements
template <int E, int Columns, class T>
inline __device__ void multiply_tiles(float (&out)[Columns / 8][4], const T* rows, const T* columns) {
#pragma unroll
  for (auto& block : out) {
#pragma unroll
    for (float& x : block) x = 0;
  }
#pragma unroll
  for (int k = 0; k < E / depth<T>; ++k) {
    std::uint32_t left[4];
    left_factor<E>(left, rows, k);
    multiply_rows<E, Columns>(out, left, columns, k);
  }
}

// sums[16 × E] += weights[16 × Columns] · tile[Columns × E]. Of 16 bits a thread's sums are of the columns that any MMA
// leaves it. TF32 has no transposing load: it reads four columns of a row at once, and gives one to each of four MMAs.
// So of each 32 columns it sums the eight from 8·t on, four in the first and four in the second element of those MMAs.
// Its weights are, as they lie, the left operands of a sum over the rows in another order: 0, 2, 4, 6, 1, 3, 5, 7.
template <int E, int Columns, class T>
inline __device__ void accumulate(float (&sums)[E / 8][4], const float (&weights)[Columns / 8][4], const T* tile) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int k = 0; k < Columns / 16; ++k) {
      const float(&low)[4] = weights[2 * k];
      const float(&high)[4] = weights[2 * k + 1];
      const std::uint32_t left[4] = {pack_pair<T>(low[0], low[1]), pack_pair<T>(low[2], low[3]),
                                     pack_pair<T>(high[0], high[1]), pack_pair<T>(high[2], high[3])};
#pragma unroll
      for (int n = 0; n < E / 16; ++n) {
        std::uint32_t right[4];
        const int row = k * 16 + lane() % 16;
        load_matrices_transposed(right, tile + row * tile_stride<T, E> + n * 16 + lane() / 16 * 8);
        multiply<T>(sums[2 * n], left, right[0], right[1]);
        multiply<T>(sums[2 * n + 1], left, right[2], right[3]);
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < Columns / 8; ++k) {
      const float(&w)[4] = weights[k];
      const std::uint32_t left[4] = {tf32_of(w[0]), tf32_of(w[2]), tf32_of(w[1]), tf32_of(w[3])};
      const T* rows = tile + (k * 8 + lane_column()) * tile_stride<T, E> + lane_row() * 4;
#pragma unroll
      for (int n = 0; n < E / 8; n += 4) {
        const uint4 even = *reinterpret_cast<const uint4*>(rows + n * 8);
        const uint4 odd = *reinterpret_cast<const uint4*>(rows + tile_stride<T, E> + n * 8);
        multiply<T>(sums[n], left, even.x, odd.x);
        multiply<T>(sums[n + 1], left, even.y, odd.y);
        multiply<T>(sums[n + 2], left, even.z, odd.z);
        multiply<T>(sums[n + 3], left, even.w, odd.w);
      }
    }
  }
}

// One of a thread's two rows of sums; `to` is the row's first element.
template <int E>
inline __device__ void write_row(float* to, int head_size, const float (&sums)[E / 8][4], int half, float factor) {
#pragma unroll
  for (int n = 0; n < E / 8; n += 4) {
    const int column = n * 8 + lane_column() * 4;
    if (column >= head_size) continue;
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      *reinterpret_cast<float4*>(to + column + i % 2 * 4) = {sums[n][i] * factor, sums[n + 1][i] * factor,
                                                             sums[n + 2][i] * factor, sums[n + 3][i] * factor};
    }
  }
}
template <int E, class T>
inline __device__ void write_row(T* to, int head_size, const float (&sums)[E / 8][4], int half, float factor) {
#pragma unroll
  for (int n = 0; n < E / 8; ++n) {
    const int column = n * 8 + lane_column();
    if (column >= head_size) continue;
    *reinterpret_cast<std::uint32_t*>(to + column) =
        pack_pair<T>(sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor);
  }
}

template <int E, class T>
inline __device__ void write_rows(T* head, Size stride, int first, const AttentionArguments<T>& a,
                                  const float (&sums)[E / 8][4], const float (&factors)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + warp() * rows_of_warp + lane_row() + half * 8;
    if (row < a.sequence) write_row<E>(head + row * stride, a.head_size, sums, half, factors[half]);
  }
}

// Over the four threads that share rows.
inline __device__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0U, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0U, x, 2));
}
inline __device__ float row_sum(float x) {
  x += __shfl_xor_sync(~0U, x, 1);
  return x + __shfl_xor_sync(~0U, x, 2);
}

}  // namespace quaver::cuda::mma
