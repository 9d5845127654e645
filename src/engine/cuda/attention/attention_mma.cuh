// What a warp needs to multiply tiles of heads on tensor cores (mma.sync, any GPU since Ampere): the instructions,
// tiles in shared memory, and MMAs of a warp's 16 rows with them. For device code only.
#pragma once

#include "engine/cuda/attention/attention_kernels.h"
#include "engine/cuda/device/primitives.cuh"

namespace quaver::cuda::mma {

using bf16 = __nv_bfloat16;
using Arguments = AttentionArguments<bf16>;

constexpr int rows_of_warp = 16;

// ---- instructions -------------------------------------------------------------------------------------------------

// Copies 16 bytes, or clears them where not `inside`.
inline __device__ void copy16(bf16* to, const bf16* from, bool inside) {
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
inline __device__ void load_matrices(std::uint32_t (&out)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}
inline __device__ void load_matrices_transposed(std::uint32_t (&out)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

// sums[16 × 8] += a[16 × 16] · b[16 × 8]
inline __device__ void multiply(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- tiles --------------------------------------------------------------------------------------------------------

// A thread holds rows g and g + 8 of its warp's 16, and of each 8 columns the two from 2·t on.
inline __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
inline __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
inline __device__ int lane_row() { return lane() / 4; }
inline __device__ int lane_column() { return lane() % 4 * 2; }

template <int E>
constexpr int tile_stride = E + 8;  // rows 16 bytes further in the banks: matrix loads do not collide

// Positions [first, first + Rows) of a head; zeros outside of it and past the head's own elements.
template <int E, int Rows, int Threads>
inline __device__ void copy_tile(bf16* tile, const bf16* head, Size stride, int first, const Arguments& a) {
  constexpr int chunks = E / 8;
  static_assert(Rows * chunks % Threads == 0);
#pragma unroll
  for (int n = 0; n < Rows * chunks / Threads; ++n) {
    const int i = n * Threads + static_cast<int>(threadIdx.x);
    const int row = i / chunks;
    const int column = i % chunks * 8;
    const bool inside = first + row < a.sequence && column < a.head_size;
    copy16(tile + row * tile_stride<E> + column, inside ? head + (first + row) * stride + column : head, inside);
  }
}

// The warp's rows of a tile as the left operand of an MMA, columns [16·k, 16·k + 16).
template <int E>
inline __device__ void left_factor(std::uint32_t (&out)[4], const bf16* tile, int k) {
  const int row = warp() * rows_of_warp + lane() % 16;
  load_matrices(out, tile + row * tile_stride<E> + k * 16 + lane() / 16 * 8);
}

// out[16 × Columns] += left · columnsᵀ, over the elements [16·k, 16·k + 16)
template <int E, int Columns>
inline __device__ void multiply_rows(float (&out)[Columns / 8][4], const std::uint32_t (&left)[4], const bf16* columns,
                                     int k) {
#pragma unroll
  for (int n = 0; n < Columns / 16; ++n) {
    std::uint32_t right[4];
    const int row = n * 16 + lane() % 8 + lane() / 16 * 8;
    load_matrices(right, columns + row * tile_stride<E> + k * 16 + lane() / 8 % 2 * 8);
    multiply(out[2 * n], left, right[0], right[1]);
    multiply(out[2 * n + 1], left, right[2], right[3]);
  }
}

// out[16 × Columns] = rows · columnsᵀ, over all elements
template <int E, int Columns>
inline __device__ void multiply_tiles(float (&out)[Columns / 8][4], const bf16* rows, const bf16* columns) {
#pragma unroll
  for (auto& block : out) {
#pragma unroll
    for (float& x : block) x = 0;
  }
#pragma unroll
  for (int k = 0; k < E / 16; ++k) {
    std::uint32_t left[4];
    left_factor<E>(left, rows, k);
    multiply_rows<E, Columns>(out, left, columns, k);
  }
}

// sums[16 × E] += weights[16 × Columns] · tile[Columns × E]
template <int E, int Columns>
inline __device__ void accumulate(float (&sums)[E / 8][4], const float (&weights)[Columns / 8][4], const bf16* tile) {
#pragma unroll
  for (int k = 0; k < Columns / 16; ++k) {
    const float(&low)[4] = weights[2 * k];
    const float(&high)[4] = weights[2 * k + 1];
    const std::uint32_t left[4] = {pack_pair(low[0], low[1]), pack_pair(low[2], low[3]), pack_pair(high[0], high[1]),
                                   pack_pair(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < E / 16; ++n) {
      std::uint32_t right[4];
      const int row = k * 16 + lane() % 16;
      load_matrices_transposed(right, tile + row * tile_stride<E> + n * 16 + lane() / 16 * 8);
      multiply(sums[2 * n], left, right[0], right[1]);
      multiply(sums[2 * n + 1], left, right[2], right[3]);
    }
  }
}

template <int E>
inline __device__ void write_rows(bf16* head, Size stride, int first, const Arguments& a, const float (&sums)[E / 8][4],
                                  const float (&factors)[2]) {
  const int low = first + warp() * rows_of_warp + lane_row();
  const int high = low + 8;
#pragma unroll
  for (int n = 0; n < E / 8; ++n) {
    const int column = n * 8 + lane_column();
    if (column >= a.head_size) continue;
    bf16* to = head + column;
    if (low < a.sequence) {
      *reinterpret_cast<std::uint32_t*>(to + low * stride) =
          pack_pair(sums[n][0] * factors[0], sums[n][1] * factors[0]);
    }
    if (high < a.sequence) {
      *reinterpret_cast<std::uint32_t*>(to + high * stride) =
          pack_pair(sums[n][2] * factors[1], sums[n][3] * factors[1]);
    }
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
