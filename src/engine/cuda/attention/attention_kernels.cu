// The choice between kernels on tensor cores and kernels in FP32, and the small kernels around both.
#include <algorithm>
#include <string>

#include "engine/cuda/attention/attention_kernels.h"
#include "engine/cuda/attention/attention_mma.cuh"
#include "engine/cuda/attention/attention_sizes.h"
#include "engine/cuda/device/vectors.cuh"
#include "quaver/error.h"

namespace quaver::cuda {

namespace {

constexpr int threads = 256;

// A gradient as tensor cores multiply it: what these sums are subtracted from is made of it, and where one key has all
// of the weight the difference is zero.
template <class T, Format float_as>
__device__ float as_multiplied(T x) {
  if constexpr (sizeof(T) == sizeof(float) && float_as == Format::tf32) return __uint_as_float(mma::tf32_of(x));
  return to_float(x);
}

// One warp for each row of each head.
template <class T, Format float_as>
__global__ void __launch_bounds__(threads) row_dots_kernel(AttentionArguments<T> a, const T* result, float* dots) {
  const Size index = (Size{blockIdx.x} * threads + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Size tokens = Size{a.batch} * a.sequence;
  if (index >= tokens * a.heads) return;
  const Size token = index / a.heads;
  const Size head = index % a.heads;
  const Size base = index * a.head_size;
  float sum = 0;
  for (int e = lane; e < a.head_size; e += 32) {
    sum = fmaf(to_float(result[base + e]), as_multiplied<T, float_as>(a.result_gradient[base + e]), sum);
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0U, sum, offset);
  const Size sequence_index = token / a.sequence;
  if (lane == 0) dots[(sequence_index * a.heads + head) * a.sequence + token % a.sequence] = sum;
}

__global__ void __launch_bounds__(threads) largest_kernel(const float* x, Size count, float* target) {
  __shared__ float largest_of_warp[threads / 32];
  float largest = -INFINITY;
  for (Size i = Size{blockIdx.x} * threads + threadIdx.x; i < count; i += Size{gridDim.x} * threads) {
    largest = fmaxf(largest, x[i]);
  }
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, offset));
  if (threadIdx.x % 32 == 0) largest_of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const float other : largest_of_warp) largest = fmaxf(largest, other);
  largest += 0.0F;  // −0 becomes +0
  // Bits of floats order as integers where positive, and the other way round, as unsigned ones, where negative.
  if (largest >= 0) {
    atomicMax(reinterpret_cast<int*>(target), __float_as_int(largest));
  } else {
    atomicMin(reinterpret_cast<unsigned int*>(target), __float_as_uint(largest));
  }
}

template <class T>
AttentionArguments<T> arguments_of(const HeadLayout& layout, float scale, View qkv, View log_sum,
                                   DocumentStarts document_starts) {
  if (layout.head_size > 256) {
    throw Error("attention: heads of " + std::to_string(layout.head_size) + " elements are more than the GPU's 256",
                "choose more heads");
  }
  AttentionArguments<T> a;
  a.qkv = static_cast<const T*>(qkv.data);
  a.log_sum = static_cast<float*>(log_sum.data);
  a.document_starts = document_starts.empty() ? nullptr : document_starts.data();
  a.batch = static_cast<int>(layout.batch);
  a.sequence = static_cast<int>(layout.sequence);
  a.heads = static_cast<int>(layout.heads);
  a.kv_heads = static_cast<int>(layout.kv_heads);
  a.head_size = static_cast<int>(layout.head_size);
  a.scale = scale;
  return a;
}

template <class T>
bool takes_tensor_cores(const Gpu& gpu, int head_size, Format float_as) {
  return (sizeof(T) == 2 || float_as == Format::tf32) && tensor_cores_support<T>(gpu, head_size);
}

template <class T>
void run_forward(Gpu& gpu, const Attention& op, Format float_as) {
  auto a = arguments_of<T>(op.layout, op.scale, op.qkv, op.log_sum, op.document_starts);
  a.result = static_cast<T*>(op.result.data);
  if (takes_tensor_cores<T>(gpu, a.head_size, float_as)) return tensor_core_forward(gpu, a);
  plain_forward(gpu, a);
}

template <class T>
void run_backward(Gpu& gpu, const AttentionBackward& op, Format float_as) {
  auto a = arguments_of<T>(op.layout, op.scale, op.qkv, op.log_sum, op.document_starts);
  a.result_gradient = static_cast<const T*>(op.result_gradient.data);
  a.qkv_gradient = static_cast<T*>(op.qkv_gradient.data);
  const Size rows = op.layout.tokens() * op.layout.heads;
  auto* dots =
      reinterpret_cast<float*>(gpu.workspace(Slot::large, static_cast<std::size_t>(row_dots_bytes(op.layout))));
  a.row_dots = dots;
  const bool tensor_cores = takes_tensor_cores<T>(gpu, a.head_size, float_as);
  const auto kernel = tensor_cores ? row_dots_kernel<T, Format::tf32> : row_dots_kernel<T, Format::f32>;
  kernel<<<static_cast<unsigned int>(ceil_div(rows, threads / 32)), threads, 0, gpu.stream()>>>(
      a, static_cast<const T*>(op.result.data), dots);
  check_launch("attention, sums of rows");
  if (tensor_cores) return tensor_core_backward(gpu, a);
  plain_backward(gpu, a);
}

}  // namespace

void own_attention(Gpu& gpu, const Attention& op, Format float_as) {
  if (op.layout.tokens() == 0) return;
  with_high_precision(op.qkv.format, [&]<class T>(T) { run_forward<T>(gpu, op, float_as); });
}

void own_attention_backward(Gpu& gpu, const AttentionBackward& op, Format float_as) {
  if (op.layout.tokens() == 0) return;
  with_high_precision(op.qkv.format, [&]<class T>(T) { run_backward<T>(gpu, op, float_as); });
}

void raise_to_largest(Gpu& gpu, View x, float* target) {
  const Size blocks = std::clamp<Size>(ceil_div(x.count(), Size{threads} * 16), 1, Size{gpu.multiprocessors()} * 4);
  largest_kernel<<<static_cast<unsigned int>(blocks), threads, 0, gpu.stream()>>>(static_cast<const float*>(x.data),
                                                                                  x.count(), target);
  check_launch("attention, largest logit");
}

}  // namespace quaver::cuda
