// Attention on tensor cores. A warp owns 16 rows and everything that belongs to them: its logits become, in registers,
// the left operand of the next MMA, so only the tiles of heads that it iterates over go through shared memory. Those
// are copied ahead in two stages.
#include <algorithm>

#include "engine/cuda/attention/attention_mma.cuh"

namespace quaver::cuda {

namespace {

using namespace mma;

// ---- documents ----------------------------------------------------------------------------------------------------

// Where the columns begin or end that this thread's two rows belong to: queries end behind a key, keys begin before a
// query. Columns within `all` belong to each of the warp's rows.
struct DocumentBounds {
  int row[2];
  int all;
};

template <Packing P, Side S, class T>
__device__ DocumentBounds document_bounds(const AttentionArguments<T>& a, int sequence_index, int first_row) {
  if constexpr (P == Packing::none) return {};
  const auto bound = [&](int row) {
    return S == Side::keys ? end_of_queries<P>(a, sequence_index, row) : first_key<P>(a, sequence_index, row);
  };
  return {{bound(first_row + lane_row()), bound(first_row + lane_row() + 8)},
          bound(S == Side::keys ? first_row : first_row + rows_of_warp - 1)};
}

// ---- forward ------------------------------------------------------------------------------------------------------

constexpr int forward_warps = 8;
constexpr int forward_threads = forward_warps * 32;
constexpr int forward_rows = forward_warps * rows_of_warp;
constexpr int forward_columns = 64;

template <class T, int E>
constexpr int forward_bytes = 4 * forward_columns* tile_stride<T, E>* static_cast<int>(sizeof(T));

// The running maximum and sum of a thread's two rows; logits in units of log 2.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  // of this thread's columns

  // Logits become weights relative to the maximum; `keep` is what earlier ones must be multiplied by.
  template <Packing P, int Blocks>
  __device__ void add(float (&logits)[Blocks][4], float (&keep)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = -INFINITY;
#pragma unroll
      for (int n = 0; n < Blocks; ++n) largest = fmaxf(largest, fmaxf(logits[n][2 * half], logits[n][2 * half + 1]));
      const float before = top[half];
      float next = fmaxf(before, row_max(largest));  // finite: every row sees column 0, in the first tile
      top[half] = next;
      if (P == Packing::documents && next == -INFINITY) next = 0;  // unless its document begins later
      keep[half] = exp2_fast(before - next);
      sum[half] *= keep[half];
#pragma unroll
      for (int n = 0; n < Blocks; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          logits[n][i] = exp2_fast(logits[n][i] - next);
          sum[half] += logits[n][i];
        }
      }
    }
  }
};

// Scales logits, and hides from each row the columns behind it and before its document.
template <int Columns, Packing P>
__device__ void scale_and_mask(float (&logits)[Columns / 8][4], float scale, int first_row, int first_column,
                               const DocumentBounds& bounds) {
  bool whole = first_column + Columns - 1 <= first_row;
  if constexpr (P == Packing::documents) whole = whole && first_column >= bounds.all;
#pragma unroll
  for (int n = 0; n < Columns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + lane_row() + i / 2 * 8;
      const int column = first_column + n * 8 + lane_column() + i % 2;
      bool seen = whole || column <= row;
      if constexpr (P == Packing::documents) seen = seen && (whole || column >= bounds.row[i / 2]);
      logits[n][i] = seen ? logits[n][i] * scale : -INFINITY;
    }
  }
}

template <class T, int E, Packing P>
__global__ void __launch_bounds__(forward_threads, E <= 64 ? 2 : 1) forward_kernel(AttentionArguments<T> a) {
  constexpr int tile = forward_columns * tile_stride<T, E>;
  extern __shared__ uint4 memory[];
  auto* stages = reinterpret_cast<T*>(memory);  // twice keys and values
  const int tiles = (a.sequence + forward_rows - 1) / forward_rows;
  const int head = static_cast<int>(blockIdx.x / tiles) % a.heads;
  const int sequence_index = static_cast<int>(blockIdx.x / tiles) / a.heads;
  const int first = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * forward_rows;  // the longest first
  const HeadPlace place = locate_head(a, sequence_index, head);
  const int seen = min(a.sequence, first + forward_rows);
  const int begin = first_key<P>(a, sequence_index, first) / forward_columns * forward_columns;
  const int count = (seen - begin + forward_columns - 1) / forward_columns;
  const auto copy_stage = [&](int n) {
    T* keys = stages + n % 2 * 2 * tile;
    const int column = begin + n * forward_columns;
    copy_tile<E, forward_columns, forward_threads>(keys, a.qkv + place.key, place.qkv_stride, column, a);
    copy_tile<E, forward_columns, forward_threads>(keys + tile, a.qkv + place.value, place.qkv_stride, column, a);
  };

  // Queries pass through the memory of the second stage into registers.
  T* queries = stages + 2 * tile;
  copy_tile<E, forward_rows, forward_threads>(queries, a.qkv + place.query, place.qkv_stride, first, a);
  end_copies();
  copy_stage(0);
  end_copies();
  wait_for_copies<1>();
  round_tile<E, forward_rows, forward_threads>(queries);
  __syncthreads();
  std::uint32_t query[E / depth<T>][4];
#pragma unroll
  for (int k = 0; k < E / depth<T>; ++k) left_factor<E>(query[k], queries, k);
  __syncthreads();

  const int first_row = first + warp() * rows_of_warp;
  const DocumentBounds bounds = document_bounds<P, Side::queries>(a, sequence_index, first_row);
  Softmax softmax;
  float sums[E / 8][4] = {};
  for (int n = 0; n < count; ++n) {
    if (n + 1 < count) copy_stage(n + 1);
    end_copies();
    wait_for_copies<1>();
    T* keys = stages + n % 2 * 2 * tile;
    round_tile<E, forward_columns, forward_threads>(keys);
    round_tile<E, forward_columns, forward_threads>(keys + tile);
    __syncthreads();
    float logits[forward_columns / 8][4] = {};
#pragma unroll
    for (int k = 0; k < E / depth<T>; ++k) multiply_rows<E, forward_columns>(logits, query[k], keys, k);
    scale_and_mask<forward_columns, P>(logits, a.scale * log2_e, first_row, begin + n * forward_columns, bounds);
    float keep[2];
    softmax.add<P>(logits, keep);
#pragma unroll
    for (auto& block : sums) {
#pragma unroll
      for (int i = 0; i < 4; ++i) block[i] *= keep[i / 2];
    }
    accumulate<E, forward_columns>(sums, logits, keys + tile);
    __syncthreads();
  }

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = row_sum(softmax.sum[half]);
    inverse[half] = 1.0F / sum;
    const int row = first_row + lane_row() + half * 8;
    if (lane() % 4 == 0 && row < a.sequence) {
      a.log_sum[place.row + row] = softmax.top[half] / log2_e + logf(sum);
    }
  }
  write_rows<E>(a.result + place.result, place.result_stride, first, a, sums, inverse);
}

// ---- backward -----------------------------------------------------------------------------------------------------

constexpr int backward_warps = 4;
constexpr int backward_threads = backward_warps * 32;
constexpr int backward_rows = backward_warps * rows_of_warp;

template <int E>
constexpr int backward_columns = E <= 64 ? 64 : 32;

// A stage of the streamed operands: two tiles, and for each column its log_sum and its row_dot (read where columns are
// queries).
template <class T, int E>
constexpr int stage_elements = 2 * backward_columns<E>*(tile_stride<T, E> + static_cast<int>(4 / sizeof(T)));

template <class T, int E>
constexpr int backward_bytes = (2 * backward_rows * tile_stride<T, E> +
                                2 * stage_elements<T, E>)*static_cast<int>(sizeof(T));

// log_sum and row_dots of the queries that this thread's logits belong to, where rows are queries.
struct RowStatistics {
  float log_sum[2];
  float dot[2];
};

// A warp's rows of logits and the columns of a tile.
struct LogitPlace {
  int first_row;
  int first_column;
  DocumentBounds bounds;
};

template <class T>
__device__ RowStatistics row_row_statistics(const AttentionArguments<T>& a, const HeadPlace& place, int first_row) {
  RowStatistics row_statistics;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + lane_row() + half * 8;
    row_statistics.log_sum[half] = row < a.sequence ? a.log_sum[place.row + row] * log2_e : 0.0F;
    row_statistics.dot[half] = row < a.sequence ? a.row_dots[place.row + row] : 0.0F;
  }
  return row_statistics;
}

// As in attention_fp32.cu: rows are keys or queries, columns the other. Logits become probabilities.
template <int Columns, Side S, Packing P, class T>
__device__ void probabilities(float (&p)[Columns / 8][4], const AttentionArguments<T>& a, const LogitPlace& place,
                              const RowStatistics& rows, const float* column_log_sums) {
  constexpr bool keys = S == Side::keys;
  const int first_row = place.first_row;
  const int first_column = place.first_column;
  const float scale = a.scale * log2_e;
  const int last_row = first_row + rows_of_warp - 1;
  const int last_column = first_column + Columns - 1;
  bool whole =
      keys ? last_row <= first_column && last_column < a.sequence : last_column <= first_row && last_row < a.sequence;
  if constexpr (P == Packing::documents) {
    whole = whole && (keys ? last_column < place.bounds.all : first_column >= place.bounds.all);
  }
#pragma unroll
  for (int n = 0; n < Columns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + lane_row() + i / 2 * 8;
      const int column = n * 8 + lane_column() + i % 2;
      const int query = keys ? first_column + column : row;
      const int key = keys ? row : first_column + column;
      const float log_sum = keys ? column_log_sums[column] * log2_e : rows.log_sum[i / 2];
      bool seen = whole || (key <= query && query < a.sequence);
      if constexpr (P == Packing::documents) {
        const int bound = place.bounds.row[i / 2];
        seen = seen && (whole || (keys ? query < bound : key >= bound));
      }
      p[n][i] = seen ? exp2_fast(p[n][i] * scale - log_sum) : 0.0F;
    }
  }
}

// Gradients of the logits, from those of the probabilities.
template <int Columns, Side S>
__device__ void logit_gradients(float (&gradient)[Columns / 8][4], const float (&p)[Columns / 8][4],
                                const RowStatistics& rows, const float* column_dots) {
#pragma unroll
  for (int n = 0; n < Columns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float dot = S == Side::keys ? column_dots[n * 8 + lane_column() + i % 2] : rows.dot[i / 2];
      gradient[n][i] = p[n][i] * (gradient[n][i] - dot);
    }
  }
}

template <class T, int E, Side S, Packing P>
__global__ void __launch_bounds__(backward_threads, 2) backward_kernel(AttentionArguments<T> a) {
  constexpr bool keys = S == Side::keys;
  constexpr int columns = backward_columns<E>;
  constexpr int tile = columns * tile_stride<T, E>;
  extern __shared__ uint4 memory[];
  auto* own_logits = reinterpret_cast<T*>(memory);                // keys or queries
  T* own_other = own_logits + backward_rows * tile_stride<T, E>;  // values or result gradients
  T* stages = own_other + backward_rows * tile_stride<T, E>;
  const int tiles = (a.sequence + backward_rows - 1) / backward_rows;
  const int own_heads = keys ? a.kv_heads : a.heads;
  const int group = keys ? a.heads / a.kv_heads : 1;
  const int head = static_cast<int>(blockIdx.x / tiles) % own_heads * group;
  const int sequence_index = static_cast<int>(blockIdx.x / tiles) / own_heads;
  const int tile_index = static_cast<int>(blockIdx.x % tiles);
  const int first = (keys ? tile_index : tiles - 1 - tile_index) * backward_rows;  // the longest first
  const HeadPlace own = locate_head(a, sequence_index, head);

  // Columns that see these rows, or are seen by them: all in turn for each head of the group.
  const int begin = keys ? first : first_key<P>(a, sequence_index, first) / columns * columns;
  const int end =
      keys ? end_of_queries<P>(a, sequence_index, first + backward_rows - 1) : min(a.sequence, first + backward_rows);
  const int steps = (end - begin + columns - 1) / columns;
  const int count = steps * group;
  const auto copy_stage = [&](int n) {
    const HeadPlace place = locate_head(a, sequence_index, head + n / steps);
    const int column = begin + n % steps * columns;
    T* stage = stages + n % 2 * stage_elements<T, E>;
    copy_tile<E, columns, backward_threads>(stage, a.qkv + (keys ? place.query : place.key), place.qkv_stride, column,
                                            a);
    if constexpr (keys) {
      copy_tile<E, columns, backward_threads>(stage + tile, a.result_gradient + place.result, place.result_stride,
                                              column, a);
      auto* row_statistics = reinterpret_cast<float*>(stage + 2 * tile);
      const int i = static_cast<int>(threadIdx.x);
      const int query = column + i % columns;
      const bool inside = query < a.sequence;
      const float* from = i < columns ? a.log_sum : a.row_dots;
      if (i < 2 * columns) copy4(row_statistics + i, from + place.row + (inside ? query : 0), inside);
    } else {
      copy_tile<E, columns, backward_threads>(stage + tile, a.qkv + place.value, place.qkv_stride, column, a);
    }
  };

  copy_tile<E, backward_rows, backward_threads>(own_logits, a.qkv + (keys ? own.key : own.query), own.qkv_stride, first,
                                                a);
  if constexpr (keys) {
    copy_tile<E, backward_rows, backward_threads>(own_other, a.qkv + own.value, own.qkv_stride, first, a);
  } else {
    copy_tile<E, backward_rows, backward_threads>(own_other, a.result_gradient + own.result, own.result_stride, first,
                                                  a);
  }
  copy_stage(0);
  end_copies();

  const int first_row = first + warp() * rows_of_warp;
  const RowStatistics rows = keys ? RowStatistics{} : row_row_statistics(a, own, first_row);
  const DocumentBounds bounds = document_bounds<P, S>(a, sequence_index, first_row);
  float value_sums[keys ? E / 8 : 1][4] = {};
  float sums[E / 8][4] = {};
  for (int n = 0; n < count; ++n) {
    if (n + 1 < count) copy_stage(n + 1);
    end_copies();
    wait_for_copies<1>();
    T* passing_logits = stages + n % 2 * stage_elements<T, E>;
    T* passing_other = passing_logits + tile;
    if (n == 0) {
      round_tile<E, backward_rows, backward_threads>(own_logits);
      round_tile<E, backward_rows, backward_threads>(own_other);
    }
    round_tile<E, columns, backward_threads>(passing_logits);
    round_tile<E, columns, backward_threads>(passing_other);
    __syncthreads();
    const auto* row_statistics = reinterpret_cast<const float*>(passing_logits + 2 * tile);
    float p[columns / 8][4];
    multiply_tiles<E, columns>(p, own_logits, passing_logits);
    const LogitPlace place{first_row, begin + n % steps * columns, bounds};
    probabilities<columns, S, P>(p, a, place, rows, row_statistics);
    if constexpr (keys) accumulate<E, columns>(value_sums, p, passing_other);
    float gradient[columns / 8][4];
    multiply_tiles<E, columns>(gradient, own_other, passing_other);
    logit_gradients<columns, S>(gradient, p, rows, row_statistics + columns);
    accumulate<E, columns>(sums, gradient, passing_logits);
    __syncthreads();
  }

  const float scales[2] = {a.scale, a.scale};
  const float ones[2] = {1, 1};
  write_rows<E>(a.qkv_gradient + (keys ? own.key : own.query), own.qkv_stride, first, a, sums, scales);
  if constexpr (keys) write_rows<E>(a.qkv_gradient + own.value, own.qkv_stride, first, a, value_sums, ones);
}

struct LaunchShape {
  int rows;  // of a block's tile
  int heads;
  int threads;
  int bytes;  // of shared memory
};

template <class T>
void launch(Gpu& gpu, void (*kernel)(AttentionArguments<T>), const AttentionArguments<T>& a, const LaunchShape& shape,
            const char* name) {
  const Size blocks = ceil_div(a.sequence, shape.rows) * shape.heads * a.batch;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.bytes), name);
  const auto bytes = static_cast<std::size_t>(shape.bytes);
  kernel<<<static_cast<unsigned int>(blocks), shape.threads, bytes, gpu.stream()>>>(a);
  check_launch(name);
}

template <int E, Packing P, class T>
void forward(Gpu& gpu, const AttentionArguments<T>& a) {
  launch(gpu, forward_kernel<T, E, P>, a, {forward_rows, a.heads, forward_threads, forward_bytes<T, E>}, "attention");
}

template <int E, Packing P, class T>
void backward(Gpu& gpu, const AttentionArguments<T>& a) {
  constexpr int bytes = backward_bytes<T, E>;
  launch(gpu, backward_kernel<T, E, Side::keys, P>, a, {backward_rows, a.kv_heads, backward_threads, bytes},
         "attention, gradient of keys");
  launch(gpu, backward_kernel<T, E, Side::queries, P>, a, {backward_rows, a.heads, backward_threads, bytes},
         "attention, gradient of queries");
}

template <Packing P, class T>
void forward_packed(Gpu& gpu, const AttentionArguments<T>& a) {
  a.head_size <= 64 ? forward<64, P>(gpu, a) : forward<128, P>(gpu, a);
}

template <Packing P, class T>
void backward_packed(Gpu& gpu, const AttentionArguments<T>& a) {
  a.head_size <= 64 ? backward<64, P>(gpu, a) : backward<128, P>(gpu, a);
}

}  // namespace

// Tiles of FP32 are larger than some GPUs' shared memory.
template <class T>
bool tensor_cores_support(const Gpu& gpu, int head_size) {
  const int bytes = head_size <= 64 ? std::max(forward_bytes<T, 64>, backward_bytes<T, 64>)
                                    : std::max(forward_bytes<T, 128>, backward_bytes<T, 128>);
  return head_size % 8 == 0 && head_size <= 128 && bytes <= gpu.shared_memory();
}

template <class T>
void tensor_core_forward(Gpu& gpu, const AttentionArguments<T>& arguments) {
  arguments.document_starts == nullptr ? forward_packed<Packing::none>(gpu, arguments)
                                       : forward_packed<Packing::documents>(gpu, arguments);
}

template <class T>
void tensor_core_backward(Gpu& gpu, const AttentionArguments<T>& arguments) {
  arguments.document_starts == nullptr ? backward_packed<Packing::none>(gpu, arguments)
                                       : backward_packed<Packing::documents>(gpu, arguments);
}

#define QUAVER_FOR_ELEMENT(T)                                                          \
  template bool tensor_cores_support<T>(const Gpu& gpu, int head_size);                \
  template void tensor_core_forward(Gpu& gpu, const AttentionArguments<T>& arguments); \
  template void tensor_core_backward(Gpu& gpu, const AttentionArguments<T>& arguments);
QUAVER_FOR_ELEMENT(__nv_bfloat16)
QUAVER_FOR_ELEMENT(__half)
QUAVER_FOR_ELEMENT(float)
#undef QUAVER_FOR_ELEMENT

}  // namespace quaver::cuda
