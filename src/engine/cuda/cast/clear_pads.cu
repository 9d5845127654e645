#include "engine/cuda/cast/clear_pads.h"

namespace quaver::cuda {

namespace {

constexpr int threads = 256;

// One row per thread. Pads are shorter than 16 bytes and end at multiples of them.
__global__ void __launch_bounds__(threads) clear_kernel(std::byte* codes, Size rows, Size used, Size stride) {
  const Size row = static_cast<Size>(blockIdx.x) * threads + threadIdx.x;
  if (row >= rows) return;
  std::byte* const end = codes + (row + 1) * stride;
  std::byte* pad = codes + row * stride + used;
  while (reinterpret_cast<std::uintptr_t>(pad) % 8 != 0) *pad++ = std::byte{0};
  for (; pad < end; pad += 8) *reinterpret_cast<std::uint64_t*>(pad) = 0;
}

}  // namespace

void clear_pads(Gpu& gpu, const CodeMatrix& matrix) {
  const Size used = matrix.cols * info(matrix.spec.format).storage_bits / 8;
  if (matrix.codes == nullptr || matrix.rows == 0 || matrix.stride <= used) return;
  clear_kernel<<<static_cast<unsigned>(ceil_div(matrix.rows, threads)), threads, 0, gpu.stream()>>>(
      matrix.codes, matrix.rows, used, matrix.stride);
  check_launch("clear_pads");
}

void clear_pads(Gpu& gpu, const QuantizedTensor& tensor) {
  if (tensor.is_own_codes()) return;
  clear_pads(gpu, tensor.rows_matrix());
  clear_pads(gpu, tensor.columns_matrix());
}

}  // namespace quaver::cuda
