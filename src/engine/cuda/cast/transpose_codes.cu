#include "engine/cuda/cast/transpose_codes.h"
#include "quaver/error.h"

namespace quaver::cuda {

namespace {

constexpr int tile = 64;
constexpr int lines = 4;  // of a tile that a block moves at once

template <class T>
struct Rows {
  T* data;
  Size stride;  // elements from row to row
};

// One tile a block, by way of shared memory: both sides are read and written along their rows.
template <class T>
__global__ void __launch_bounds__(tile* lines) transpose_kernel(Rows<const T> from, Size rows, Size cols, Rows<T> to) {
  __shared__ T cells[tile][tile + 4 / sizeof(T)];
  const Size first_row = static_cast<Size>(blockIdx.y) * tile;
  const Size first_col = static_cast<Size>(blockIdx.x) * tile;
  for (int line = static_cast<int>(threadIdx.y); line < tile; line += lines) {
    const Size row = first_row + line;
    const Size col = first_col + threadIdx.x;
    if (row < rows && col < cols) cells[line][threadIdx.x] = from.data[row * from.stride + col];
  }
  __syncthreads();
  for (int line = static_cast<int>(threadIdx.y); line < tile; line += lines) {
    const Size row = first_col + line;
    const Size col = first_row + threadIdx.x;
    if (row < cols && col < rows) to.data[row * to.stride + col] = cells[threadIdx.x][line];
  }
}

template <class T>
void transpose(Gpu& gpu, Rows<const T> from, Size rows, Size cols, Rows<T> to) {
  const dim3 blocks(static_cast<unsigned>((cols + tile - 1) / tile), static_cast<unsigned>((rows + tile - 1) / tile));
  transpose_kernel<<<blocks, dim3(tile, lines), 0, gpu.stream()>>>(from, rows, cols, to);
  check_launch("transpose_codes");
}

}  // namespace

void transpose_codes(Gpu& gpu, const TransposeCodes& op) {
  const CodeMatrix& from = op.from;
  if (info(from.spec.format).storage_bits != 8) {
    throw Error("codes of other than 8 bits are not transposed", "this is a defect: cast both sides");
  }
  transpose<std::uint8_t>(gpu, {reinterpret_cast<const std::uint8_t*>(from.codes), from.row_bytes()}, from.rows,
                          from.cols, {reinterpret_cast<std::uint8_t*>(op.to.codes), op.to.row_bytes()});
  transpose<float>(gpu, {from.tensor_scale, 1}, 1, 1, {op.to.tensor_scale, 1});
  if (!from.has_block_scales()) return;
  transpose<float>(gpu, {from.block_scales, from.scale_cols()}, from.scale_rows(), from.scale_cols(),
                   {op.to.block_scales, from.scale_rows()});
}

}  // namespace quaver::cuda
