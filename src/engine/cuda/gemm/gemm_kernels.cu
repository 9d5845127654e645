#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/gemm/gemm_kernels.h"

namespace quaver::cuda {
namespace {

constexpr int threads = 256;
constexpr int tile = 32;

unsigned blocks_for(Size count) { return static_cast<unsigned>(ceil_div(count, threads)); }

__device__ Size element() { return static_cast<Size>(blockIdx.x) * threads + threadIdx.x; }

__global__ void scalars_kernel(float alpha, const float* a_scale, const float* b_scale, float beta, float* out) {
  out[0] = alpha * ((a_scale == nullptr ? 1.0F : *a_scale) * (b_scale == nullptr ? 1.0F : *b_scale));
  out[1] = beta;
}

// Tiles run along the grid's x, where neither extent meets the limit of the other two.
__global__ void __launch_bounds__(threads)
    transpose_kernel(const float* __restrict__ in, Size rows, Size cols, Size tile_cols, float* __restrict__ out) {
  __shared__ float part[tile][tile + 1];
  const Size tile_row = blockIdx.x / tile_cols;
  const Size first_row = tile_row * tile;
  const Size first_col = (blockIdx.x - tile_row * tile_cols) * tile;
  const int x = threadIdx.x % tile;
  for (int y = threadIdx.x / tile; y < tile; y += threads / tile) {
    if (first_row + y < rows && first_col + x < cols) part[y][x] = in[(first_row + y) * cols + first_col + x];
  }
  __syncthreads();
  for (int y = threadIdx.x / tile; y < tile; y += threads / tile) {
    if (first_col + y < cols && first_row + x < rows) out[(first_col + y) * rows + first_row + x] = part[x][y];
  }
}

__global__ void __launch_bounds__(threads)
    pad_kernel(const float* __restrict__ in, Size rows, Size cols, Size pitch, float* __restrict__ out) {
  const Size index = element();
  if (index >= rows * pitch) return;
  const Size row = index / pitch;
  const Size col = index - row * pitch;
  out[index] = col < cols ? in[row * cols + col] : 0.0F;
}

template <class Out>
__global__ void __launch_bounds__(threads)
    bias_kernel(const float* __restrict__ bias, Size count, Out* __restrict__ out) {
  const Size index = element();
  if (index < count) out[index] = from_float<Out>(bias[index]);
}

struct RowShape {
  Size cols;
  Size stride;
};

template <class T, int width>
struct alignas(sizeof(T) * width) Pack {
  T value[width];
};

// out = (result) (+ bias) (+ out); result may be null, and is contiguous. cols is a multiple of width.
template <class Out, int width, Store store>
__global__ void __launch_bounds__(threads) sum_kernel(const float* __restrict__ product, const float* __restrict__ bias,
                                                      Size count, RowShape shape, Out* out) {
  const Size index = element() * width;
  if (index >= count) return;
  const Size row = index / shape.cols;
  const Size col = index - row * shape.cols;
  float sum[width] = {};
  if (product != nullptr) {
    const auto part = *reinterpret_cast<const Pack<float, width>*>(product + index);
    for (int i = 0; i < width; ++i) sum[i] = part.value[i];
  }
  if (bias != nullptr) {
    for (int i = 0; i < width; ++i) sum[i] += bias[col + i];
  }
  auto* place = reinterpret_cast<Pack<Out, width>*>(out + row * shape.stride + col);
  Pack<Out, width> result;
  if constexpr (store == Store::add) {
    result = *place;
    for (int i = 0; i < width; ++i) sum[i] += to_float(result.value[i]);
  }
  for (int i = 0; i < width; ++i) result.value[i] = from_float<Out>(sum[i]);
  *place = result;
}

template <class Out, int width>
void launch_sum(Gpu& gpu, const float* product, const float* bias, View out, Store store) {
  const unsigned blocks = blocks_for(ceil_div(out.count(), width));
  const RowShape shape{out.cols, out.row_stride()};
  auto* data = static_cast<Out*>(out.data);
  if (store == Store::add) {
    sum_kernel<Out, width, Store::add><<<blocks, threads, 0, gpu.stream()>>>(product, bias, out.count(), shape, data);
  } else {
    sum_kernel<Out, width, Store::replace>
        <<<blocks, threads, 0, gpu.stream()>>>(product, bias, out.count(), shape, data);
  }
  check_launch("adding a bias");
}

template <class Out>
void sum_into(Gpu& gpu, const float* product, const float* bias, View out, Store store) {
  if (out.count() == 0) return;
  const bool aligned = reinterpret_cast<std::uintptr_t>(out.data) % (4 * sizeof(Out)) == 0 &&
                       reinterpret_cast<std::uintptr_t>(product) % 16 == 0;
  if (aligned && out.cols % 4 == 0 && out.row_stride() % 4 == 0)
    return launch_sum<Out, 4>(gpu, product, bias, out, store);
  launch_sum<Out, 1>(gpu, product, bias, out, store);
}

}  // namespace

void write_scalars(Gpu& gpu, float alpha, const float* a_scale, const float* b_scale, float beta, float* out) {
  scalars_kernel<<<1, 1, 0, gpu.stream()>>>(alpha, a_scale, b_scale, beta, out);
  check_launch("writing a product's scalars");
}

void transpose_scales(Gpu& gpu, const float* in, Size rows, Size cols, float* out) {
  const Size tile_cols = ceil_div(cols, tile);
  const Size tiles = ceil_div(rows, tile) * tile_cols;
  if (tiles == 0) return;
  transpose_kernel<<<static_cast<unsigned>(tiles), threads, 0, gpu.stream()>>>(in, rows, cols, tile_cols, out);
  check_launch("transposing scales");
}

void pad_scales(Gpu& gpu, const float* in, Size rows, Size cols, Size pitch, float* out) {
  pad_kernel<<<blocks_for(rows * pitch), threads, 0, gpu.stream()>>>(in, rows, cols, pitch, out);
  check_launch("padding scales");
}

void round_bias(Gpu& gpu, View bias, Format format, void* out) {
  with_high_precision(format, [&]<class Out>(Out) {
    bias_kernel<<<blocks_for(bias.cols), threads, 0, gpu.stream()>>>(bias.f32(), bias.cols, static_cast<Out*>(out));
  });
  check_launch("rounding a bias");
}

void fill_with_bias(Gpu& gpu, View bias, View out, Store store) {
  with_high_precision(out.format, [&]<class Out>(Out) { sum_into<Out>(gpu, nullptr, bias.f32(), out, store); });
}

void round_result(Gpu& gpu, const float* product, View bias, View out, Store store) {
  const float* added = bias.empty() ? nullptr : bias.f32();
  with_high_precision(out.format, [&]<class Out>(Out) { sum_into<Out>(gpu, product, added, out, store); });
}

}  // namespace quaver::cuda
