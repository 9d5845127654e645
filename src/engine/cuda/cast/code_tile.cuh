// A tile of FP8 codes in shared memory on its way to the transposed copy: rows are put in as they are made, columns are
// written out so that four neighboring threads fill whole memory sectors.
//
// ldmatrix.trans transposes 8 × 8 matrices of 16 bits, here two codes of one row. Rows are ordered in shared memory so
// that what a thread receives from matrix after matrix are the next two rows of the tile: a run of kRows / 4 codes of a
// column, after the two columns of each pair have been told apart.
#pragma once

#include <cstdint>

#include "engine/cuda/device/ldmatrix.cuh"
#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda {

template <int kRows>
struct CodeTile {
  static_assert(kRows == 32 || kRows == 64);
  static constexpr int kMatrices = kRows / 8;
  static constexpr int kRun = kRows / 4;  // rows of a column that one thread writes

  std::uint8_t* memory;
  int pitch;  // bytes of a row: 64, or a multiple of 128

  __host__ __device__ static constexpr int pitch_for(int cols) { return cols <= 64 ? 64 : (cols + 127) / 128 * 128; }
  __host__ __device__ static constexpr int bytes_for(int cols) { return kRows * pitch_for(cols); }

  // Where eight codes of columns col … col + 7 lie; col is a multiple of 8. Tiles of one width have them in one place.
  __device__ unsigned offset(int row, int col) const {
    const auto r = static_cast<unsigned>(row);
    const unsigned place = r % kRun / 2 * 8 + r / kRun * 2 + r % 2;
    return chunk_offset(place, static_cast<unsigned>(col) / 16) + static_cast<unsigned>(col) % 16;
  }
  __device__ void put(unsigned at, uint2 codes) const { *reinterpret_cast<uint2*>(memory + at) = codes; }

  // Writes columns [0, cols) of the tile, whose first row and column are (row0, col0) of the source, into
  // out, where a column of the source takes `column_bytes`. All threads of the block call it between two barriers.
  __device__ void write_columns(std::byte* out, int column_bytes, int row0, int col0, int rows, int cols) const {
    const unsigned lane = threadIdx.x % 32;
    const int first_row = static_cast<int>(lane % 4) * kRun;
    const bool whole = first_row + kRun <= rows && column_bytes % kRun == 0;
    auto* const first = reinterpret_cast<std::uint8_t*>(out) + row0 + first_row;
    for (unsigned chunk = threadIdx.x / 32; static_cast<int>(chunk * 16) < cols; chunk += blockDim.x / 32) {
      unsigned pairs[kMatrices];
#pragma unroll
      for (unsigned m = 0; m < kMatrices; m += 4)
        load_transposed(memory + chunk_offset(m * 8 + lane, chunk), pairs + m);
      const int col = static_cast<int>(chunk * 16 + lane / 4 * 2);
      std::uint8_t* to = first + offset_of(col0 + col, column_bytes);
      unsigned words[kRun / 4];
#pragma unroll
      for (int w = 0; w < kRun / 4; ++w) words[w] = __byte_perm(pairs[2 * w], pairs[2 * w + 1], 0x6420);
      if (col < cols) store(to, words, whole, rows - first_row);
#pragma unroll
      for (int w = 0; w < kRun / 4; ++w) words[w] = __byte_perm(pairs[2 * w], pairs[2 * w + 1], 0x7531);
      if (col + 1 < cols) store(to + column_bytes, words, whole, rows - first_row);
    }
  }

 private:
  // Chunks of 16 codes are swizzled from row to row, so that eight rows of a chunk spread over all banks.
  __device__ unsigned chunk_offset(unsigned place, unsigned chunk) const {
    const unsigned swizzle = pitch == 64 ? place / 2 % 4 : place % 8;
    return place * static_cast<unsigned>(pitch) + (chunk ^ swizzle) * 16;
  }

  __device__ static void store(std::uint8_t* to, const unsigned (&words)[kRun / 4], bool whole, int valid) {
    if (whole) {
      if constexpr (kRun == 16) *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
      if constexpr (kRun == 8) *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
      return;
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (i < valid) to[i] = static_cast<std::uint8_t>(words[i / 4] >> (8 * (i % 4)));
    }
  }
};

}  // namespace quaver::cuda
