#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/vocabulary/embedding.h"

namespace quaver::cuda {

namespace {

constexpr int embed_warps = 8;
constexpr int embed_threads = embed_warps * warp_size;

struct EmbedShape {
  const std::int32_t* document_starts;  // null: a row is one document
  Size count;                           // tokens
  Size sequence;
  Size cols;
  float factor;
  bool aligned;
  const std::int32_t* first;  // position of each sequence's first token; null: 0
};

// One warp per token.
template <class Table, class Position, class Out>
__global__ void __launch_bounds__(embed_threads)
    embed_kernel(const std::int32_t* tokens, EmbedShape shape, const Table* __restrict__ table,
                 const Position* __restrict__ positions, Out* __restrict__ out) {
  const auto [starts, count, sequence, cols, factor, aligned, first] = shape;
  const Size t = static_cast<Size>(blockIdx.x) * embed_warps + threadIdx.x / warp_size;
  if (t >= count) return;
  const Table* row = table + tokens[t] * cols;
  const Size start = starts == nullptr ? 0 : starts[t];
  const Size place = t % sequence - start + (first == nullptr ? 0 : first[t / sequence]);
  const Position* position = positions == nullptr ? nullptr : positions + place * cols;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll 4
  for (Size c = lane * group_size; c < cols; c += warp_size * group_size) {
    const int valid = static_cast<int>(min(cols - c, static_cast<Size>(group_size)));
    float v[group_size];
    float p[group_size] = {};
    load8(row + c, valid, aligned, v);
    if (position != nullptr) load8(position + c, valid, aligned, p);
#pragma unroll
    for (int i = 0; i < group_size; ++i) v[i] = factor * (v[i] + p[i]);
    store8(out + t * cols + c, valid, aligned, v);
  }
}

// A run is the sorted positions of one token. Blocks take tiles of sorted positions; a run that lies within a tile is
// finished there, one that crosses its edges leaves a part for each tile, which join_runs_kernel adds in order.
constexpr int tile = static_cast<int>(embedding_tile);
constexpr int batch = 4;  // rows in flight
constexpr int backward_threads = 128;
constexpr Size columns_per_block = backward_threads * group_size;

struct SortedTokens {
  const std::uint32_t* tokens;  // ascending
  const std::int32_t* positions;
  Size count;
};

// What tiles leave of runs that cross their edges, [tiles × cols] each: `continued` of the run that began before the
// tile, `begun` of the one that begins in it and goes on behind it.
struct RunParts {
  float* continued;
  float* begun;
};

__device__ void add_to_row(float* row, int valid, bool aligned, float factor, const float (&sum)[group_size]) {
  float v[group_size];
  load8(row, valid, aligned, v);
#pragma unroll
  for (int i = 0; i < group_size; ++i) v[i] += factor * sum[i];
  store8(row, valid, aligned, v);
}

template <class T>
__device__ void add_group(const Group<T>& group, float (&sum)[group_size]) {
  float v[group_size];
  unpack(group, v);
#pragma unroll
  for (int i = 0; i < group_size; ++i) sum[i] += v[i];
}

// Adds `rows` groups, `stride` elements apart, in order.
template <class T>
__device__ void add_column(const T* first, Size stride, Size rows, int valid, bool aligned, float (&sum)[group_size]) {
  for (Size row = 0; row < rows; row += batch) {
    Group<T> loaded[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int present = row + i < rows ? valid : 0;
      loaded[i] = load_group(first + (row + i) * stride, present, aligned);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) add_group(loaded[i], sum);
  }
}

struct SumShape {
  Size cols;
  float factor;
  bool gradient_aligned;
  bool table_aligned;
};

template <class T>
__global__ void __launch_bounds__(backward_threads)
    sum_runs_kernel(SortedTokens sorted, const T* __restrict__ gradient, SumShape shape, RunParts parts,
                    float* __restrict__ table_gradient) {
  const auto [cols, factor, gradient_aligned, table_aligned] = shape;
  __shared__ std::uint32_t tokens[tile + 1];  // and the first of the next tile
  __shared__ std::int32_t positions[tile];
  const Size base = static_cast<Size>(blockIdx.x) * tile;
  const int rows = static_cast<int>(min(sorted.count - base, static_cast<Size>(tile)));
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < rows) positions[thread] = sorted.positions[base + thread];
  if (thread <= rows && base + thread < sorted.count) tokens[thread] = sorted.tokens[base + thread];
  __syncthreads();
  const Size c = static_cast<Size>(blockIdx.y) * columns_per_block + thread * group_size;
  if (c >= cols) return;
  const int valid = static_cast<int>(min(cols - c, static_cast<Size>(group_size)));
  bool continued = base > 0 && sorted.tokens[base - 1] == tokens[0];
  const bool goes_on = base + rows < sorted.count && tokens[rows] == tokens[rows - 1];
  float sum[group_size] = {};
  for (int first = 0; first < rows; first += batch) {
    Group<T> loaded[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int row = min(first + i, rows - 1);
      loaded[i] = load_group(gradient + positions[row] * cols + c, valid, gradient_aligned);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int row = first + i;
      if (row >= rows) break;
      add_group(loaded[i], sum);
      const bool last = row + 1 == rows;
      if (!last && tokens[row + 1] == tokens[row]) continue;
      if (continued) {
        store8(parts.continued + blockIdx.x * cols + c, valid, table_aligned, sum);
      } else if (last && goes_on) {
        store8(parts.begun + blockIdx.x * cols + c, valid, table_aligned, sum);
      } else {
        add_to_row(table_gradient + tokens[row] * cols + c, valid, table_aligned, factor, sum);
      }
      continued = false;
#pragma unroll
      for (int k = 0; k < group_size; ++k) sum[k] = 0;
    }
  }
}

// The first sorted position behind the token's run, which holds position `from`.
__device__ Size end_of_run(const SortedTokens& sorted, Size from, std::uint32_t token) {
  Size inside = from;
  Size behind = sorted.count;
  while (behind - inside > 1) {
    const Size middle = inside + (behind - inside) / 2;
    if (sorted.tokens[middle] == token) {
      inside = middle;
    } else {
      behind = middle;
    }
  }
  return behind;
}

// Finishes the run that begins in the block's tile and goes on behind it, where there is one.
__global__ void __launch_bounds__(backward_threads)
    join_runs_kernel(SortedTokens sorted, Size cols, float factor, bool aligned, RunParts parts,
                     float* __restrict__ table_gradient) {
  const Size base = static_cast<Size>(blockIdx.x) * tile;
  const Size next = base + tile;
  if (next >= sorted.count) return;
  const std::uint32_t token = sorted.tokens[next];
  if (sorted.tokens[next - 1] != token) return;
  if (base > 0 && sorted.tokens[base - 1] == token) return;
  const Size c = static_cast<Size>(blockIdx.y) * columns_per_block + threadIdx.x * group_size;
  if (c >= cols) return;
  const int valid = static_cast<int>(min(cols - c, static_cast<Size>(group_size)));
  const Size last_tile = (end_of_run(sorted, next, token) - 1) / tile;
  float sum[group_size];
  load8(parts.begun + blockIdx.x * cols + c, valid, aligned, sum);
  const Size next_tile = static_cast<Size>(blockIdx.x) + 1;
  add_column(parts.continued + next_tile * cols + c, cols, last_tile - next_tile + 1, valid, aligned, sum);
  add_to_row(table_gradient + token * cols + c, valid, aligned, factor, sum);
}

// One thread for eight columns of a position: the sum over the batch, in order.
template <class T>
__global__ void __launch_bounds__(backward_threads)
    sum_positions_kernel(const T* __restrict__ gradient, Size count, Size sequence, SumShape shape,
                         float* __restrict__ positions_gradient) {
  const auto [cols, factor, gradient_aligned, table_aligned] = shape;
  const Size position = blockIdx.x;
  const Size c = static_cast<Size>(blockIdx.y) * columns_per_block + threadIdx.x * group_size;
  if (c >= cols) return;
  const int valid = static_cast<int>(min(cols - c, static_cast<Size>(group_size)));
  float sum[group_size] = {};
  const Size rows = (count - position + sequence - 1) / sequence;
  add_column(gradient + position * cols + c, sequence * cols, rows, valid, gradient_aligned, sum);
  add_to_row(positions_gradient + position * cols + c, valid, table_aligned, factor, sum);
}

// The same where rows hold documents: each that is long enough has one token at the position.
template <class T>
__global__ void __launch_bounds__(backward_threads)
    sum_document_positions_kernel(const T* __restrict__ gradient, DocumentStarts starts, Size sequence, SumShape shape,
                                  float* __restrict__ positions_gradient) {
  const auto [cols, factor, gradient_aligned, table_aligned] = shape;
  const Size position = blockIdx.x;
  const Size c = static_cast<Size>(blockIdx.y) * columns_per_block + threadIdx.x * group_size;
  if (c >= cols) return;
  const int valid = static_cast<int>(min(cols - c, static_cast<Size>(group_size)));
  float sum[group_size] = {};
  const auto count = static_cast<Size>(starts.size());
  for (Size row = 0; row < count; row += sequence) {
    const Size end = min(row + sequence, count);
    for (Size t = row + position; t < end; ++t) {
      if (t - row - starts.data()[t] != position) continue;
      add_group(load_group(gradient + t * cols + c, valid, gradient_aligned), sum);
    }
  }
  add_to_row(positions_gradient + position * cols + c, valid, table_aligned, factor, sum);
}

__global__ void count_up_kernel(std::int32_t* out, Size count) {
  const Size i = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = static_cast<std::int32_t>(i);
}

// Stable, so the positions of a token stay in order.
SortedTokens sort_tokens(Gpu& gpu, const std::int32_t* tokens, Size count, Size vocab) {
  const auto* keys = reinterpret_cast<const std::uint32_t*>(tokens);
  const int bits = std::bit_width(static_cast<std::uint64_t>(vocab - 1));
  const auto sort = [&](void* temporary, std::size_t& bytes, std::uint32_t* sorted, const std::int32_t* from,
                        std::int32_t* to) {
    check(cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, sorted, from, to, static_cast<int>(count), 0,
                                          bits > 0 ? bits : 1, gpu.stream()),
          "sorting tokens");
  };
  std::size_t temporary_bytes = 0;
  sort(nullptr, temporary_bytes, nullptr, nullptr, nullptr);
  const Size array = sorted_tokens_bytes(count);
  const auto needed = static_cast<std::size_t>(3 * array) + temporary_bytes;
  std::byte* memory = gpu.workspace(Slot::sorting, std::max(needed, static_cast<std::size_t>(sorting_bytes(count))));
  auto* from = reinterpret_cast<std::int32_t*>(memory);
  auto* to = reinterpret_cast<std::int32_t*>(memory + array);
  auto* sorted = reinterpret_cast<std::uint32_t*>(memory + 2 * array);
  constexpr int threads = 256;
  count_up_kernel<<<static_cast<unsigned>(ceil_div(count, threads)), threads, 0, gpu.stream()>>>(from, count);
  check_launch("numbering tokens");
  sort(memory + 3 * array, temporary_bytes, sorted, from, to);
  return {sorted, to, count};
}

template <class T>
void add_table_gradient(Gpu& gpu, const EmbedBackward& op) {
  const auto count = static_cast<Size>(op.tokens.size());
  const Size cols = op.gradient.cols;
  const SortedTokens sorted = sort_tokens(gpu, op.tokens.data(), count, op.table_gradient.rows);
  const Size tiles = ceil_div(count, tile);
  auto* memory =
      reinterpret_cast<float*>(gpu.workspace(Slot::sums, static_cast<std::size_t>(embedding_sums_bytes(count, cols))));
  const RunParts parts{memory, memory + tiles * cols};
  const bool table_aligned = rows_aligned(op.table_gradient);
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(ceil_div(cols, columns_per_block)));
  const SumShape shape{cols, op.factor, rows_aligned(op.gradient), table_aligned};
  sum_runs_kernel<<<grid, backward_threads, 0, gpu.stream()>>>(sorted, static_cast<const T*>(op.gradient.data), shape,
                                                               parts, op.table_gradient.f32());
  check_launch("embed_backward");
  join_runs_kernel<<<grid, backward_threads, 0, gpu.stream()>>>(sorted, cols, op.factor, table_aligned, parts,
                                                                op.table_gradient.f32());
  check_launch("embed_backward, joining");
}

template <class T>
void add_positions_gradient(Gpu& gpu, const EmbedBackward& op) {
  const Size cols = op.gradient.cols;
  const auto count = static_cast<Size>(op.tokens.size());
  const dim3 grid(static_cast<unsigned>(std::min(op.sequence, count)),
                  static_cast<unsigned>(ceil_div(cols, columns_per_block)));
  const SumShape shape{cols, op.factor, rows_aligned(op.gradient), rows_aligned(op.positions_gradient)};
  if (!op.document_starts.empty()) {
    sum_document_positions_kernel<<<grid, backward_threads, 0, gpu.stream()>>>(
        static_cast<const T*>(op.gradient.data), op.document_starts, op.sequence, shape, op.positions_gradient.f32());
    return check_launch("embed_backward, positions in documents");
  }
  sum_positions_kernel<<<grid, backward_threads, 0, gpu.stream()>>>(static_cast<const T*>(op.gradient.data), count,
                                                                    op.sequence, shape, op.positions_gradient.f32());
  check_launch("embed_backward, positions");
}

template <class Table, class Position, class Out>
void launch_embed(Gpu& gpu, const Embed& op) {
  const auto count = static_cast<Size>(op.tokens.size());
  const bool aligned =
      rows_aligned(op.table) && rows_aligned(op.out) && (op.positions.empty() || rows_aligned(op.positions));
  const std::int32_t* starts = op.document_starts.empty() ? nullptr : op.document_starts.data();
  embed_kernel<<<static_cast<unsigned>(ceil_div(count, embed_warps)), embed_threads, 0, gpu.stream()>>>(
      op.tokens.data(),
      EmbedShape{starts, count, op.sequence, op.out.cols, op.factor, aligned,
                 op.first.empty() ? nullptr : op.first.data()},
      static_cast<const Table*>(op.table.data), static_cast<const Position*>(op.positions.data),
      static_cast<Out*>(op.out.data));
  check_launch("embed");
}

}  // namespace

void embed(Gpu& gpu, const Embed& op) {
  if (op.tokens.empty()) return;
  const Format position_format = op.positions.empty() ? op.table.format : op.positions.format;
  with_f32_or_bf16(op.table.format, [&]<class Table>(Table) {
    with_f32_or_bf16(position_format, [&]<class Position>(Position) {
      with_high_precision(op.out.format, [&]<class Out>(Out) { launch_embed<Table, Position, Out>(gpu, op); });
    });
  });
}

void embed_backward(Gpu& gpu, const EmbedBackward& op) {
  if (op.tokens.empty()) return;
  with_high_precision(op.gradient.format, [&]<class T>(T) {
    if (!op.table_gradient.empty()) add_table_gradient<T>(gpu, op);
    if (!op.positions_gradient.empty()) add_positions_gradient<T>(gpu, op);
  });
}

}  // namespace quaver::cuda
