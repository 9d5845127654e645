// The keys of a sequence are cut into parts of fixed size: one block attends to one part, so that a long sequence has
// many blocks, and a second kernel joins the parts in their order. Nothing depends on the length but which blocks have
// work: a pass can be captured once and replayed while sequences grow.
#include <algorithm>

#include "engine/cuda/attention/attention_decode.h"
#include "engine/cuda/attention/attention_sizes.h"
#include "engine/cuda/device/vectors.cuh"

namespace quaver::cuda {

namespace {

constexpr int threads = 128;
constexpr int warps = threads / warp_size;
constexpr int part_keys = static_cast<int>(decode_keys);
static_assert(part_keys == threads, "a thread has one key's logit");

template <class T>
struct CacheView {
  T* keys;
  T* values;
  const std::int32_t* slots;
  const std::int32_t* first;
  Size capacity;
  int heads;
  int kv_heads;
  int size;    // of a head
  Size width;  // of a row of qkv

  // Where the keys, and the values, of a sequence's head begin.
  __device__ Size head_begin(int sequence, int kv_head) const {
    return (static_cast<Size>(slots[sequence]) * kv_heads + kv_head) * capacity * size;
  }
};

template <class T>
CacheView<T> cache_view(const HeadLayout& layout, const KeyValues& cache, const CachedSequences& at) {
  return {static_cast<T*>(cache.keys.data),
          static_cast<T*>(cache.values.data),
          at.slots.data(),
          at.first.data(),
          cache.capacity,
          static_cast<int>(layout.heads),
          static_cast<int>(layout.kv_heads),
          static_cast<int>(layout.head_size),
          layout.width()};
}

// One block per token: its keys and values lie side by side.
template <class T>
__global__ void __launch_bounds__(threads) store_kernel(CacheView<T> cache, const T* __restrict__ qkv, int sequence) {
  const int token = static_cast<int>(blockIdx.x);
  const Size position = cache.first[token / sequence] + token % sequence;
  const int columns = cache.kv_heads * cache.size;
  const T* row = qkv + token * cache.width + static_cast<Size>(cache.heads) * cache.size;
  for (int i = static_cast<int>(threadIdx.x); i < columns; i += threads) {
    const Size to = cache.head_begin(token / sequence, i / cache.size) + position * cache.size + i % cache.size;
    cache.keys[to] = row[i];
    cache.values[to] = row[columns + i];
  }
}

// What one block leaves: the largest logit, Σ exp(logit − largest), Σ exp(logit − largest) · value.
__device__ float* partial_of(float* partials, int size, Size head, Size parts, Size part) {
  return partials + (head * parts + part) * (size + 2);
}

__device__ float block_max(float x) {
  __shared__ float of_warp[warps];
  x = warp_max(x);
  if (threadIdx.x % warp_size == 0) of_warp[threadIdx.x / warp_size] = x;
  __syncthreads();
  return warp_max(of_warp[threadIdx.x % warps]);
}

// Logits of the part's keys into shared memory, one warp per key.
template <class T>
__device__ void logits_of(const float* query, const T* keys, int count, int size, float scale, float* logits) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll 4
  for (int j = static_cast<int>(threadIdx.x) / warp_size; j < count; j += warps) {
    float sum = 0;
    for (int i = lane; i < size; i += warp_size)
      sum = fmaf(query[i], to_float(keys[static_cast<Size>(j) * size + i]), sum);
    sum = warp_sum(sum);
    if (lane == 0) logits[j] = scale * sum;
  }
}

// Each thread adds up a column of values; where heads are small, several share a column, each with keys of its own.
template <class T>
__device__ void weighted_values(const float* weights, const T* values, int count, int size, float* sums, float* out) {
  const int sharing = max(1, threads / size);
  for (int item = static_cast<int>(threadIdx.x); item < sharing * size; item += threads) {
    const T* column = values + item % size;
    float sum = 0;
#pragma unroll 8
    for (int j = item / size; j < count; j += sharing) {
      sum = fmaf(weights[j], to_float(column[static_cast<Size>(j) * size]), sum);
    }
    sums[item] = sum;
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < size; column += threads) {
    float sum = 0;
    for (int share = 0; share < sharing; ++share) sum += sums[share * size + column];
    out[column] = sum;
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    part_kernel(CacheView<T> cache, const T* __restrict__ qkv, float scale, float* __restrict__ partials) {
  const int sequence = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const Size begin = static_cast<Size>(blockIdx.x) * part_keys;
  const Size keys = cache.first[sequence] + 1 - begin;
  if (keys <= 0) return;
  const int count = static_cast<int>(min(keys, static_cast<Size>(part_keys)));
  extern __shared__ float query[];  // followed by weights and sums
  float* weights = query + cache.size;
  const T* row = qkv + sequence * cache.width + static_cast<Size>(head) * cache.size;
  for (int i = static_cast<int>(threadIdx.x); i < cache.size; i += threads) query[i] = to_float(row[i]);
  __syncthreads();
  const int kv_head = head / (cache.heads / cache.kv_heads);
  const Size offset = cache.head_begin(sequence, kv_head) + begin * cache.size;
  logits_of(query, cache.keys + offset, count, cache.size, scale, weights);
  __syncthreads();
  const bool mine = static_cast<int>(threadIdx.x) < count;
  const float logit = mine ? weights[threadIdx.x] : -INFINITY;
  const float top = block_max(logit);
  const float weight = mine ? expf(logit - top) : 0.0F;
  weights[threadIdx.x] = weight;
  const float sum = block_sum<threads>(weight);
  float* out =
      partial_of(partials, cache.size, static_cast<Size>(sequence) * cache.heads + head, gridDim.x, blockIdx.x);
  if (threadIdx.x == 0) {
    out[0] = top;
    out[1] = sum;
  }
  __syncthreads();
  weighted_values(weights, cache.values + offset, count, cache.size, weights + threads, out + 2);
}

template <class T>
__global__ void __launch_bounds__(threads)
    join_kernel(CacheView<T> cache, Size parts, const float* __restrict__ partials, T* __restrict__ result) {
  const int sequence = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x);
  const Size row = static_cast<Size>(sequence) * cache.heads + head;
  const Size used = cache.first[sequence] / part_keys + 1;
  const float* first = partials + row * parts * (cache.size + 2);
  float top = -INFINITY;
  for (Size p = 0; p < used; ++p) top = fmaxf(top, first[p * (cache.size + 2)]);
  float total = 0;
  for (Size p = 0; p < used; ++p) total += expf(first[p * (cache.size + 2)] - top) * first[p * (cache.size + 2) + 1];
  for (int column = static_cast<int>(threadIdx.x); column < cache.size; column += threads) {
    float sum = 0;
    for (Size p = 0; p < used; ++p) {
      const float* part = first + p * (cache.size + 2);
      sum += expf(part[0] - top) * part[2 + column];
    }
    result[row * cache.size + column] = from_float<T>(sum / total);
  }
}

}  // namespace

void store_key_values(Gpu& gpu, const StoreKeyValues& op) {
  if (op.layout.tokens() == 0) return;
  with_high_precision(op.qkv.format, [&]<class T>(T) {
    store_kernel<T><<<static_cast<unsigned>(op.layout.tokens()), threads, 0, gpu.stream()>>>(
        cache_view<T>(op.layout, op.cache, op.at), static_cast<const T*>(op.qkv.data),
        static_cast<int>(op.layout.sequence));
    check_launch("store_key_values");
  });
}

void attention_decode(Gpu& gpu, const AttentionDecode& op) {
  const HeadLayout& layout = op.layout;
  if (layout.batch == 0) return;
  const Size parts = decode_parts(op.cache.capacity);
  auto* partials = reinterpret_cast<float*>(
      gpu.workspace(Slot::large, static_cast<std::size_t>(attention_decode_bytes(layout, op.cache.capacity))));
  const auto heads = static_cast<unsigned>(layout.heads);
  const auto batch = static_cast<unsigned>(layout.batch);
  const Size floats = layout.head_size + threads + std::max<Size>(threads, layout.head_size);
  with_high_precision(op.qkv.format, [&]<class T>(T) {
    const auto cache = cache_view<T>(layout, op.cache, op.at);
    part_kernel<T>
        <<<dim3(static_cast<unsigned>(parts), heads, batch), threads, static_cast<std::size_t>(floats) * sizeof(float),
           gpu.stream()>>>(cache, static_cast<const T*>(op.qkv.data), op.scale, partials);
    check_launch("attention_decode");
    join_kernel<T>
        <<<dim3(heads, batch), threads, 0, gpu.stream()>>>(cache, parts, partials, static_cast<T*>(op.result.data));
    check_launch("attention_decode, joining parts");
  });
}

}  // namespace quaver::cuda
