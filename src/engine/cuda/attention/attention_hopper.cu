// The launch of attention_hopper.cuh and the kernels around it: row statistics of each query before, sums over grouped
// heads after.
#include <algorithm>

#include "engine/cuda/attention/attention_hopper.cuh"
#include "engine/cuda/attention/attention_hopper.h"
#include "engine/cuda/runtime/tensor_map.h"
#include "quaver/error.h"

namespace quaver::cuda {

namespace {

using namespace hopper;

// ---- row statistics of each query ---------------------------------------------------------------------------------

constexpr int row_statistics_threads = 256;
template <int E>
constexpr int row_statistics_rows = row_statistics_threads / (E / 8);  // a thread reads eight elements

template <class Value>
__device__ float dot(uint4 a, uint4 b) {
  const std::uint32_t x[] = {a.x, a.y, a.z, a.w};
  const std::uint32_t y[] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = fmaf(low_of<Value>(x[i]), low_of<Value>(y[i]), sum);
    sum = fmaf(high_of<Value>(x[i]), high_of<Value>(y[i]), sum);
  }
  return sum;
}

template <class Value, int E>
__global__ void __launch_bounds__(row_statistics_threads)
    row_statistics_kernel(const Element* result, const Element* result_gradient, const float* log_sum, Work work,
                          float* row_statistics) {
  constexpr int threads = E / 8;  // of a row
  const int h = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.x) * row_statistics_rows<E> + static_cast<int>(threadIdx.x) / threads;
  const Size item = Size{blockIdx.z} * work.heads + h;
  const int piece = static_cast<int>(threadIdx.x) % threads;
  float log_2 = INFINITY;  // past the sequence: no score is above zero
  float sum = 0;
  if (row < work.sequence) {
    const Size at = ((Size{blockIdx.z} * work.sequence + row) * work.heads + h) * E + piece * 8;
    sum =
        dot<Value>(*reinterpret_cast<const uint4*>(result + at), *reinterpret_cast<const uint4*>(result_gradient + at));
    if (piece == 0) log_2 = log_sum[item * work.sequence + row] * log2_e;
  }
  for (int offset = threads / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0U, sum, offset);
  constexpr int tile = Tiles<E>::query_rows;
  if (piece != 0 || row >= work.query_tiles * tile) return;
  float* to = row_statistics + (item * work.query_tiles + row / tile) * Tiles<E>::row_statistics_count + row % tile;
  to[0] = log_2;
  to[tile] = sum;
}

// ---- grouped heads ------------------------------------------------------------------------------------------------

constexpr int sum_threads = 256;

struct GroupedHeads {
  int heads;  // of queries
  int group;  // query heads that share one of keys
  int head;   // elements
};

// The gradients of keys, or values, of one head for each of queries, summed over those that share one.
template <class Value>
__global__ void __launch_bounds__(sum_threads)
    sum_groups_kernel(const Element* by_query_head, Element* to, Size to_stride, Size tokens, GroupedHeads shape) {
  const auto [heads, group, head] = shape;
  const int kv_width = heads / group * head;
  const Size index = (Size{blockIdx.x} * sum_threads + threadIdx.x) * 8;
  const Size token = index / (2 * kv_width);
  if (token >= tokens) return;
  const int column = static_cast<int>(index % (2 * kv_width));
  const bool values = column >= kv_width;
  const int kv = column % kv_width / head;
  const Element* from =
      by_query_head + token * 2 * heads * head + (values ? heads * head : 0) + kv * group * head + column % head;
  float sums[8] = {};
  for (int h = 0; h < group; ++h) {
    const uint4 x = *reinterpret_cast<const uint4*>(from + h * head);
    const std::uint32_t pairs[] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[2 * i] += low_of<Value>(pairs[i]);
      sums[2 * i + 1] += high_of<Value>(pairs[i]);
    }
  }
  *reinterpret_cast<uint4*>(to + token * to_stride + column) =
      uint4{pack_pair<Value>(sums[0], sums[1]), pack_pair<Value>(sums[2], sums[3]), pack_pair<Value>(sums[4], sums[5]),
            pack_pair<Value>(sums[6], sums[7])};
}

// ---- launching ----------------------------------------------------------------------------------------------------

// [batch × sequence × width], read in boxes of 64 positions and 64 elements.
CUtensorMap map_of(const View& matrix, const HeadLayout& layout) {
  const Size width = matrix.cols;
  const CUtensorMapDataType type =
      matrix.format == Format::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(layout.sequence),
                                static_cast<cuuint64_t>(layout.batch)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(width) * 2,
                                static_cast<cuuint64_t>(width * layout.sequence) * 2};
  const cuuint32_t box[] = {part, 64, 1};
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status = tensor_map_encoder()(&map, type, 3, matrix.data, extents, strides, box, steps,
                                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error("attention: CUDA cannot describe " + std::to_string(layout.batch) + " × " +
                    std::to_string(layout.sequence) + " × " + std::to_string(width) + " (error " +
                    std::to_string(static_cast<int>(status)) + ")",
                "QUAVER_ATTENTION=cudnn computes attention without this kernel");
  }
  return map;
}

// What all kernels are told; units are heads.
template <int E>
Work work_of(const AttentionBackward& op, const HopperAttentionMemory& sizes, std::byte* memory) {
  const HeadLayout& layout = op.layout;
  const Size heads_width = layout.heads * E;
  auto* gradient = static_cast<Element*>(op.qkv_gradient.data);
  auto* by_query_head = reinterpret_cast<Element*>(memory + sizes.row_statistics + sizes.partial);
  const bool grouped = layout.heads != layout.kv_heads;

  Work work{};
  work.heads = static_cast<int>(layout.heads);
  work.group = static_cast<int>(layout.heads / layout.kv_heads);
  work.sequence = static_cast<int>(layout.sequence);
  work.key_tiles = static_cast<int>(hopper_key_tiles(layout));
  work.query_tiles = static_cast<int>(hopper_query_tiles(layout));
  work.items = static_cast<int>(layout.batch * layout.heads);
  work.units = work.items;
  work.scale = op.scale;
  work.row_statistics = reinterpret_cast<const float*>(memory);
  work.partial = reinterpret_cast<float4*>(memory + sizes.row_statistics);
  work.query_gradient = gradient;
  work.query_stride = layout.width();
  work.key_gradient = grouped ? by_query_head : gradient + heads_width;
  work.value_gradient = work.key_gradient + heads_width;
  work.key_stride = grouped ? 2 * heads_width : layout.width();
  return work;
}

template <class Value, int E>
void compute_row_statistics(Gpu& gpu, const AttentionBackward& op, const Work& work, std::byte* memory) {
  const Size rows = Size{work.query_tiles} * Tiles<E>::query_rows;
  const dim3 grid(static_cast<unsigned int>(ceil_div(rows, row_statistics_rows<E>)),
                  static_cast<unsigned int>(work.heads), static_cast<unsigned int>(op.layout.batch));
  row_statistics_kernel<Value, E><<<grid, row_statistics_threads, 0, gpu.stream()>>>(
      static_cast<const Element*>(op.result.data), static_cast<const Element*>(op.result_gradient.data),
      static_cast<const float*>(op.log_sum.data), work, reinterpret_cast<float*>(memory));
  check_launch("attention, row statistics of queries");
}

template <class Value, int E, AttentionUnit Unit>
void compute_gradients(Gpu& gpu, const AttentionBackward& op, const Work& work) {
  const char* name = "attention, gradients";
  constexpr int shared_bytes = Tiles<E>::shared_bytes;
  auto* kernel = gradients_kernel<Value, E, Unit>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), name);
  const int blocks = std::min(work.units, gpu.multiprocessors());
  kernel<<<static_cast<unsigned int>(blocks), block_threads, shared_bytes, gpu.stream()>>>(
      map_of(op.qkv, op.layout), map_of(op.result_gradient, op.layout), work);
  check_launch(name);
}

template <class Value>
void sum_groups(Gpu& gpu, const AttentionBackward& op, const Work& work) {
  const HeadLayout& layout = op.layout;
  const Size pieces = layout.tokens() * 2 * layout.kv_heads * layout.head_size / 8;
  auto* to = static_cast<Element*>(op.qkv_gradient.data) + layout.heads * layout.head_size;
  sum_groups_kernel<Value><<<static_cast<unsigned int>(ceil_div(pieces, sum_threads)), sum_threads, 0, gpu.stream()>>>(
      work.key_gradient, to, layout.width(), layout.tokens(),
      GroupedHeads{work.heads, work.group, static_cast<int>(layout.head_size)});
  check_launch("attention, sums over groups of heads");
}

// Heads whose tiles of keys are at work at the same time. With fewer, the tiles of a head wait for each other; with
// more, less of what they share is still in the cache.
constexpr int heads_together = 32;

template <class Value, int E>
void run(Gpu& gpu, const AttentionBackward& op) {
  const HopperAttentionMemory sizes(op.layout, gpu.multiprocessors());
  std::byte* memory = gpu.workspace(Slot::large, static_cast<std::size_t>(sizes.total()));
  Work work = work_of<E>(op, sizes, memory);
  compute_row_statistics<Value, E>(gpu, op, work, memory);
  if (hopper_attention_unit(op.layout) == AttentionUnit::head) {
    compute_gradients<Value, E, AttentionUnit::head>(gpu, op, work);
  } else {
    std::byte* counters = memory + sizes.total() - sizes.counters;
    check(cudaMemsetAsync(counters, 0, static_cast<std::size_t>(sizes.counters), gpu.stream()), "attention, turns");
    work.units = work.items * work.key_tiles;
    work.together = heads_together;
    work.tickets = reinterpret_cast<std::uint32_t*>(counters);
    work.turns = work.tickets + 1;
    compute_gradients<Value, E, AttentionUnit::key_tile>(gpu, op, work);
  }
  if (work.group > 1) sum_groups<Value>(gpu, op, work);
}

}  // namespace

void hopper_attention_backward(Gpu& gpu, const AttentionBackward& op) {
  const auto run_in = [&]<class Value>(Value) {
    op.layout.head_size == 64 ? run<Value, 64>(gpu, op) : run<Value, 128>(gpu, op);
  };
  op.qkv.format == Format::f16 ? run_in(__half{}) : run_in(__nv_bfloat16{});
}

}  // namespace quaver::cuda
