#include <algorithm>
#include <cfloat>

#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/vocabulary/loss.h"

namespace quaver::cuda {

namespace {

constexpr int batch = 4;  // groups in flight

// A row of logits as groups of eight, which begin at multiples of 16 bytes. The last may reach beyond the vocabulary:
// into what lies between rows.
template <class T>
struct Row {
  T* data;
  int cols;
  int groups;

  __device__ Row(T* start, int count) : data(start), cols(count), groups((count + group_size - 1) / group_size) {}

  // Elements that are not the row's come as −inf, which no sum of exponentials sees.
  __device__ Group<T> load(int group) const {
    const int c = group * group_size;
    if (c + group_size <= cols) return load_group(data + c);
    float v[group_size];
#pragma unroll
    for (int i = 0; i < group_size; ++i) v[i] = c + i < cols ? to_float(data[c + i]) : -INFINITY;
    return pack<T>(v);
  }
  // Zeros beyond the row, whatever v has there.
  __device__ void store(int group, const float (&v)[group_size]) const {
    const int c = group * group_size;
    if (c + group_size <= cols) return store_group(data + c, pack<T>(v));
    float kept[group_size];
#pragma unroll
    for (int i = 0; i < group_size; ++i) kept[i] = c + i < cols ? v[i] : 0.0F;
    store_group(data + c, pack<T>(kept));
  }
};

// Σ exp(x − top) over what was seen, with top the largest of it.
struct RunningSum {
  float top = -FLT_MAX;  // finite: −inf less −inf is no number
  float sum = 0;

  __device__ void add(const float (&v)[group_size]) {
    float largest = v[0];
#pragma unroll
    for (int i = 1; i < group_size; ++i) largest = fmaxf(largest, v[i]);
    if (largest > top) raise(largest);
#pragma unroll
    for (int i = 0; i < group_size; ++i) sum += __expf(v[i] - top);
  }
  __device__ void raise(float to) {
    sum *= __expf(top - to);
    top = to;
  }
};

struct Softmax {
  float top;      // the largest logit
  float log_sum;  // log Σ exp
};

// Over the block's sums.
template <int threads>
__device__ Softmax softmax_of(RunningSum seen) {
  __shared__ float tops[threads / warp_size];
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const float top_of_warp = warp_max(seen.top);
  if (lane == 0) tops[threadIdx.x / warp_size] = top_of_warp;
  __syncthreads();
  const float top = warp_max(tops[lane % (threads / warp_size)]);
  seen.raise(top);
  return {top, top + logf(block_sum<threads>(seen.sum))};
}

struct LossRows {
  int vocab;
  Size stride;  // elements from row to row: a multiple of the group
  const std::int32_t* targets;
  float gradient_factor;
  const float* gradient_scale;
  float z_loss;
  int cached;      // leading groups of a row that stay in shared memory between the passes
  double* losses;  // one per row
  unsigned long long* correct;
};

// Reads the row once: the sum of its exponentials, and its leading groups into the cache.
template <int threads, class T>
__device__ RunningSum first_pass(const Row<T>& row, Group<T>* cache, int cached) {
  RunningSum seen;
  for (int base = threadIdx.x; base < row.groups; base += threads * batch) {
    Group<T> loaded[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int group = base + i * threads;
      if (group < row.groups) loaded[i] = row.load(group);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int group = base + i * threads;
      if (group >= row.groups) break;
      if (group < cached) cache[group] = loaded[i];
      float v[group_size];
      unpack(loaded[i], v);
      seen.add(v);
    }
  }
  return seen;
}

struct RowGradient {
  float log_sum;
  float factor;  // of the softmax
  float target_factor;
  int target;
};

template <class T>
__device__ void store_gradient(const Row<T>& row, int group, const Group<T>& logits, const RowGradient& gradient) {
  float v[group_size];
  unpack(logits, v);
#pragma unroll
  for (int i = 0; i < group_size; ++i) v[i] = gradient.factor * __expf(v[i] - gradient.log_sum);
  const int at = gradient.target - group * group_size;
  if (at >= 0 && at < group_size) {
#pragma unroll
    for (int i = 0; i < group_size; ++i) v[i] -= i == at ? gradient.target_factor : 0.0F;
  }
  row.store(group, v);
}

// Every thread visits the groups it visited in the first pass, so none waits for another. What shared memory could not
// hold goes first: it was read last and is still in L2.
template <int threads, class T>
__device__ void second_pass(const Row<T>& row, const Group<T>* cache, int cached, const RowGradient& gradient) {
  int uncached = threadIdx.x;
  if (uncached < cached) uncached += (cached - uncached + threads - 1) / threads * threads;
#pragma unroll 2
  for (int group = uncached; group < row.groups; group += threads) {
    store_gradient(row, group, row.load(group), gradient);
  }
#pragma unroll 2
  for (int group = threadIdx.x; group < min(cached, row.groups); group += threads) {
    store_gradient(row, group, cache[group], gradient);
  }
}

// Whether a logit before the target's is as large as the largest: then that one is the first of them.
template <int threads, class T>
__device__ bool any_earlier(const Row<T>& row, int target, float top) {
  bool found = false;
  for (int c = threadIdx.x; c < target; c += threads) found = found || to_float(row.data[c]) == top;
  return __syncthreads_or(found ? 1 : 0) != 0;
}

template <int threads, class T>
__device__ void clear(const Row<T>& row) {
  const float zero[group_size] = {};
  for (int group = threadIdx.x; group < row.groups; group += threads) row.store(group, zero);
}

// One block per row.
template <int threads, LossGradient gradient, class T>
__global__ void __launch_bounds__(threads, 1024 / threads) loss_kernel(LossRows rows, T* logits) {
  extern __shared__ uint4 shared[];
  auto* cache = reinterpret_cast<Group<T>*>(shared);
  const Row<T> row(logits + static_cast<Size>(blockIdx.x) * rows.stride, rows.vocab);
  const int target = rows.targets[blockIdx.x];
  if (target < 0) {
    if (threadIdx.x == 0) rows.losses[blockIdx.x] = 0;
    if constexpr (gradient == LossGradient::in_place) clear<threads>(row);
    return;
  }
  const float of_target = to_float(row.data[target]);
  const auto [top, log_sum] = softmax_of<threads>(first_pass<threads>(row, cache, rows.cached));
  if (rows.correct != nullptr && of_target == top && !any_earlier<threads>(row, target, top) && threadIdx.x == 0) {
    atomicAdd(rows.correct, 1ULL);  // of integers: the order does not matter
  }
  if (threadIdx.x == 0) {
    const double l = log_sum;
    rows.losses[blockIdx.x] = l - of_target + rows.z_loss * l * l;
  }
  if constexpr (gradient == LossGradient::in_place) {
    const float g = rows.gradient_factor * (rows.gradient_scale != nullptr ? *rows.gradient_scale : 1.0F);
    second_pass<threads>(row, cache, rows.cached, RowGradient{log_sum, g * (1 + 2 * rows.z_loss * log_sum), g, target});
  }
}

constexpr int sum_threads = 1024;

__global__ void __launch_bounds__(sum_threads) sum_losses_kernel(const double* losses, Size rows, double* loss_sum) {
  double sum = 0;
  for (Size r = threadIdx.x; r < rows; r += sum_threads) sum += losses[r];
  sum = block_sum<sum_threads>(sum);
  if (threadIdx.x == 0) *loss_sum += sum;
}

// Shared memory per block, and how many such blocks fit on a multiprocessor.
struct SharedMemory {
  Size per_block;
  Size per_multiprocessor;
};

Size attribute(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  check(cudaGetDevice(&device), "asking which GPU is in use");
  check(cudaDeviceGetAttribute(&value, which, device), "asking for the GPU's shared memory");
  return value;
}

SharedMemory shared_memory() {
  static const SharedMemory memory{attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
                                   attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor)};
  return memory;
}

constexpr Size reserved = 2048;  // of shared memory: the system's share of a block, and the kernel's own sums

template <int threads, LossGradient gradient, class T>
void launch(Gpu& gpu, LossRows rows, Size count, Size cached, T* logits) {
  const auto bytes = static_cast<std::size_t>(cached) * sizeof(Group<T>);
  rows.cached = static_cast<int>(cached);
  auto* kernel = loss_kernel<threads, gradient, T>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "reserving shared memory for logits");
  kernel<<<static_cast<unsigned>(count), threads, bytes, gpu.stream()>>>(rows, logits);
  check_launch("softmax_loss");
}

// Two smaller blocks per multiprocessor where both rows fit, so that one reads while the other writes; else one that
// caches what it can.
template <class T>
void launch_with_gradient(Gpu& gpu, const LossRows& rows, Size count, T* logits) {
  const SharedMemory memory = shared_memory();
  const Size groups = ceil_div(rows.vocab, group_size);
  const Size bytes = groups * static_cast<Size>(sizeof(Group<T>));
  if (bytes <= std::min(memory.per_block, memory.per_multiprocessor / 2) - reserved) {
    return launch<512, LossGradient::in_place>(gpu, rows, count, groups, logits);
  }
  const Size fitting = (memory.per_block - reserved) / static_cast<Size>(sizeof(Group<T>));
  launch<1024, LossGradient::in_place>(gpu, rows, count, std::min(groups, fitting), logits);
}

}  // namespace

void softmax_loss(Gpu& gpu, const LossChunk& chunk) {
  const Size count = chunk.logits.rows;
  if (count == 0) return;
  auto* losses = chunk.row_losses != nullptr ? chunk.row_losses : gpu.workspace<double>(Slot::rows, count);
  const LossRows rows{static_cast<int>(chunk.logits.cols),
                      chunk.logits.row_stride(),
                      chunk.targets,
                      chunk.gradient_factor,
                      chunk.gradient_scale,
                      chunk.z_loss,
                      0,
                      losses,
                      reinterpret_cast<unsigned long long*>(chunk.correct)};
  with_high_precision(chunk.logits.format, [&]<class T>(T) {
    auto* logits = static_cast<T*>(chunk.logits.data);
    if (chunk.gradient == LossGradient::in_place) return launch_with_gradient(gpu, rows, count, logits);
    launch<512, LossGradient::none>(gpu, rows, count, 0, logits);
  });
  sum_losses_kernel<<<1, sum_threads, 0, gpu.stream()>>>(losses, count, chunk.loss_sum);
  check_launch("summing losses");
}

}  // namespace quaver::cuda
