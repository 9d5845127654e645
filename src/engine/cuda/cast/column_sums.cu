#include "engine/cuda/cast/column_sums.h"

namespace quaver::cuda {

namespace {

constexpr int lanes_down = 32;

__global__ void add_partial_sums_kernel(PartialSums from, float factor, float* out) {
  __shared__ float sums[lanes_down][33];
  const Size col = static_cast<Size>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (col < from.cols) {
    for (Size part = threadIdx.y; part < from.parts; part += lanes_down) {
      sum += from.values[part * from.stride + col];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= from.cols) return;
  float total = 0;
  for (int i = 0; i < lanes_down; ++i) total += sums[i][threadIdx.x];
  out[col] += factor * total;
}

}  // namespace

void add_partial_sums(Gpu& gpu, const PartialSums& sums, float factor, float* out) {
  const dim3 block(32, lanes_down);
  add_partial_sums_kernel<<<static_cast<unsigned>(ceil_div(sums.cols, 32)), block, 0, gpu.stream()>>>(sums, factor,
                                                                                                      out);
  check_launch("add_partial_sums");
}

}  // namespace quaver::cuda
