// A tile of FP8 codes in shared memory on its way to the transposed copy: rows are put in as they are made, columns are
// written out sixteen codes at a time, so that each store fills its share of a memory sector.
#pragma once

#include <cstdint>

#include "engine/cuda/gpu.h"

namespace quaver::cuda {

template <int kRows>
struct CodeTile {
  static_assert(kRows == 32 || kRows == 64);
  static constexpr int kGroups = kRows / 16;            // of sixteen rows, which a column's threads share
  static constexpr int kGroupColumns = 32 / kGroups;    // words of four columns that a warp reads at once
  static constexpr int kSwizzle = kGroupColumns * 4;    // bytes by which the groups' rows are turned against each other

  std::uint8_t* memory;
  int pitch;  // bytes of a row: a multiple of 128

  __host__ __device__ static constexpr int pitch_for(int cols) { return (cols + 127) / 128 * 128; }
  __host__ __device__ static constexpr int bytes_for(int cols) { return kRows * pitch_for(cols); }

  __device__ int offset(int row, int col) const { return row * pitch + (col ^ (row / 16 * kSwizzle)); }

  // Eight codes of columns col … col + 7; col is a multiple of 8.
  __device__ void put(int row, int col, uint2 codes) const {
    *reinterpret_cast<uint2*>(memory + offset(row, col)) = codes;
  }

  // Writes columns [0, cols) of the tile, whose first row and column are (row0, col0) of the source, into
  // out [source columns × total_rows]. All threads of the block call it between two barriers.
  __device__ void write_columns(std::uint8_t* out, Size total_rows, Size row0, Size col0, int rows, int cols) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int group = lane % kGroups;
    const bool whole = group * 16 + 16 <= rows && total_rows % 16 == 0;
    for (int word = warp * kGroupColumns + lane / kGroups; word * 4 < cols; word += warps * kGroupColumns) {
      unsigned turned[4][4];
#pragma unroll
      for (int quad = 0; quad < 4; ++quad) turn(group * 16 + quad * 4, word * 4, turned, quad);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (word * 4 + c >= cols) break;
        std::uint8_t* to = out + (col0 + word * 4 + c) * total_rows + row0 + group * 16;
        if (whole) {
          *reinterpret_cast<uint4*>(to) = make_uint4(turned[c][0], turned[c][1], turned[c][2], turned[c][3]);
        } else {
          store_part(to, turned[c], rows - group * 16);
        }
      }
    }
  }

 private:
  // Four rows of four codes become four columns of four.
  __device__ void turn(int row, int col, unsigned (&turned)[4][4], int quad) const {
    unsigned w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = *reinterpret_cast<const unsigned*>(memory + offset(row + i, col));
    const unsigned low01 = __byte_perm(w[0], w[1], 0x5140);
    const unsigned low23 = __byte_perm(w[2], w[3], 0x5140);
    const unsigned high01 = __byte_perm(w[0], w[1], 0x7362);
    const unsigned high23 = __byte_perm(w[2], w[3], 0x7362);
    turned[0][quad] = __byte_perm(low01, low23, 0x5410);
    turned[1][quad] = __byte_perm(low01, low23, 0x7632);
    turned[2][quad] = __byte_perm(high01, high23, 0x5410);
    turned[3][quad] = __byte_perm(high01, high23, 0x7632);
  }

  __device__ static void store_part(std::uint8_t* to, const unsigned (&words)[4], int valid) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i < valid) to[i] = static_cast<std::uint8_t>(words[i / 4] >> (8 * (i % 4)));
    }
  }
};

}  // namespace quaver::cuda
