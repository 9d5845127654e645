// Attention in FP32 arithmetic. A block of 16 × 16 threads owns a tile of rows and iterates over the columns in tiles
// of the same size. A thread holds every 16th row and column of a tile of logits, and for each of its rows every 16th
// group of elements of the result. Rows of a tile are private to half a warp, so weights go through shared memory
// without a barrier.
#include "engine/cuda/attention/attention_kernels.h"
#include "engine/cuda/device/primitives.cuh"

namespace quaver::cuda {

namespace {

constexpr int threads = 256;
constexpr int side = 16;

__device__ int lane_column() { return static_cast<int>(threadIdx.x) % side; }
__device__ int lane_row() { return static_cast<int>(threadIdx.x) / side; }

// E: elements of a head, padded with zeros; R: rows of a tile that a thread holds.
template <int E, int R>
struct Tiles {
  static constexpr int rows = side * R;
  static constexpr int stride = E + 4;  // rows 16 bytes further in the banks: float4 reads do not collide
  static constexpr int weights_stride = rows + 4;
  static constexpr int elements = E / side;  // of a row's result, that a thread holds
  static constexpr int group = elements < 4 ? elements : 4;
  static constexpr int heads_floats = rows * stride;
  static constexpr int weights_floats = rows * weights_stride;
};

template <int N>
struct alignas(4 * N) Floats {
  float at[N];
};

template <int N>
__device__ Floats<N> load(const float* from) {
  return *reinterpret_cast<const Floats<N>*>(from);
}

template <int E, int R>
__device__ int element_column(int i) {
  constexpr int group = Tiles<E, R>::group;
  return i / group * (side * group) + lane_column() * group + i % group;
}

// Positions [first, first + rows) of a head, zeros outside of it.
template <class T, int E, int R>
__device__ void load_tile(float* tile, const T* head, Size stride, int first, const AttentionArguments<T>& a) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < Tiles<E, R>::rows * E; i += threads) {
    const int row = i / E;
    const int column = i % E;
    const bool inside = first + row < a.sequence && column < a.head_size;
    tile[row * Tiles<E, R>::stride + column] = inside ? to_float(head[(first + row) * stride + column]) : 0.0F;
  }
}

// out = x · yᵀ
template <int E, int R>
__device__ void multiply_rows(const float* x, const float* y, float (&out)[R][R]) {
  constexpr int stride = Tiles<E, R>::stride;
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int j = 0; j < R; ++j) out[i][j] = 0;
  }
#pragma unroll 2
  for (int e = 0; e < E; e += 4) {
    Floats<4> left[R];
    Floats<4> right[R];
#pragma unroll
    for (int i = 0; i < R; ++i) left[i] = load<4>(x + (lane_row() + side * i) * stride + e);
#pragma unroll
    for (int j = 0; j < R; ++j) right[j] = load<4>(y + (lane_column() + side * j) * stride + e);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < R; ++j) out[i][j] = fmaf(left[i].at[k], right[j].at[k], out[i][j]);
      }
    }
  }
}

template <int E, int R>
__device__ void put_weights(float* weights, const float (&values)[R][R]) {
  __syncwarp();  // the half warp has read the old contents
#pragma unroll
  for (int i = 0; i < R; ++i) {
#pragma unroll
    for (int j = 0; j < R; ++j) {
      weights[(lane_row() + side * i) * Tiles<E, R>::weights_stride + lane_column() + side * j] = values[i][j];
    }
  }
  __syncwarp();
}

// sums += weights · y
template <int E, int R>
__device__ void accumulate(const float* weights, const float* y, float (&sums)[R][E / side]) {
  using Tile = Tiles<E, R>;
#pragma unroll 2
  for (int n = 0; n < Tile::rows; n += 4) {
    Floats<4> weight[R];
#pragma unroll
    for (int i = 0; i < R; ++i) weight[i] = load<4>(weights + (lane_row() + side * i) * Tile::weights_stride + n);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int c = 0; c < Tile::elements; c += Tile::group) {
        const auto values = load<Tile::group>(y + (n + k) * Tile::stride + element_column<E, R>(c));
#pragma unroll
        for (int i = 0; i < R; ++i) {
#pragma unroll
          for (int v = 0; v < Tile::group; ++v) {
            sums[i][c + v] = fmaf(weight[i].at[k], values.at[v], sums[i][c + v]);
          }
        }
      }
    }
  }
}

// Over the 16 threads that share rows.
__device__ float row_max(float x) {
  for (int offset = side / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, offset));
  return x;
}
__device__ float row_sum(float x) {
  for (int offset = side / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0U, x, offset);
  return x;
}

template <class T, int E, int R>
__device__ void write_rows(T* head, Size stride, int first, const AttentionArguments<T>& a,
                           const float (&values)[R][E / side], const float (&factors)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int row = first + lane_row() + side * i;
    if (row >= a.sequence) continue;
#pragma unroll
    for (int c = 0; c < E / side; ++c) {
      const int column = element_column<E, R>(c);
      if (column < a.head_size) head[row * stride + column] = from_float<T>(values[i][c] * factors[i]);
    }
  }
}

// Which tile of rows of which head this block owns: tiles of a head side by side, so that they share what they read.
struct Share {
  int tile;
  int head;
  int sequence_index;
};

__device__ Share share_of_block(int tiles, int heads) {
  const int tile = static_cast<int>(blockIdx.x % tiles);
  const int rest = static_cast<int>(blockIdx.x / tiles);
  return {tile, rest % heads, rest / heads};
}

// The running maximum and sum of rows of logits, which become weights relative to the maximum.
template <int R>
struct Softmax {
  float top[R];
  float sum[R];  // of this thread's columns

  __device__ Softmax() {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      top[i] = -INFINITY;
      sum[i] = 0;
    }
  }

  // Returns in `keep` what earlier weights must be multiplied by. first_keys of the rows: see first_key().
  template <Packing P>
  __device__ void add(float (&logits)[R][R], float scale, int first_row, int first_column, const int (&first_keys)[R],
                      float (&keep)[R]) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int row = first_row + lane_row() + side * i;
      const float before = top[i];
      float largest = -INFINITY;
#pragma unroll
      for (int j = 0; j < R; ++j) {
        const int column = first_column + lane_column() + side * j;
        const bool seen = column <= row && (P == Packing::none || column >= first_keys[i]);
        logits[i][j] = seen ? logits[i][j] * scale : -INFINITY;
        largest = fmaxf(largest, logits[i][j]);
      }
      float next = fmaxf(top[i], row_max(largest));  // finite: the first tile holds column 0, which all rows see
      top[i] = next;
      if (P == Packing::documents && next == -INFINITY) next = 0;  // unless their document begins later
      keep[i] = expf(before - next);
      sum[i] *= keep[i];
#pragma unroll
      for (int j = 0; j < R; ++j) {
        logits[i][j] = expf(logits[i][j] - next);
        sum[i] += logits[i][j];
      }
    }
  }
};

template <class T, int E, int R, Packing P>
__global__ void __launch_bounds__(threads) forward_kernel(AttentionArguments<T> a) {
  using Tile = Tiles<E, R>;
  extern __shared__ float4 memory[];
  auto* queries = reinterpret_cast<float*>(memory);
  float* others = queries + Tile::heads_floats;  // keys, then values
  float* weights = others + Tile::heads_floats;
  const int tiles = (a.sequence + Tile::rows - 1) / Tile::rows;
  const Share share = share_of_block(tiles, a.heads);
  const int first = (tiles - 1 - share.tile) * Tile::rows;  // the longest first
  const HeadPlace place = locate_head(a, share.sequence_index, share.head);

  load_tile<T, E, R>(queries, a.qkv + place.query, place.qkv_stride, first, a);
  Softmax<R> softmax;
  float sums[R][E / side] = {};
  int first_keys[R];
#pragma unroll
  for (int i = 0; i < R; ++i) first_keys[i] = first_key<P>(a, share.sequence_index, first + lane_row() + side * i);
  const int begin = first_key<P>(a, share.sequence_index, first) / Tile::rows * Tile::rows;
  for (int column = begin; column <= first; column += Tile::rows) {
    __syncthreads();
    load_tile<T, E, R>(others, a.qkv + place.key, place.qkv_stride, column, a);
    __syncthreads();
    float logits[R][R];
    float keep[R];
    multiply_rows<E, R>(queries, others, logits);
    softmax.template add<P>(logits, a.scale, first, column, first_keys, keep);
    put_weights<E, R>(weights, logits);
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int c = 0; c < E / side; ++c) sums[i][c] *= keep[i];
    }
    __syncthreads();
    load_tile<T, E, R>(others, a.qkv + place.value, place.qkv_stride, column, a);
    __syncthreads();
    accumulate<E, R>(weights, others, sums);
  }

  float inverse[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const float sum = row_sum(softmax.sum[i]);
    inverse[i] = 1.0F / sum;
    const int row = first + lane_row() + side * i;
    if (lane_column() == 0 && row < a.sequence) a.log_sum[place.row + row] = softmax.top[i] + logf(sum);
  }
  write_rows<T, E, R>(a.result + place.result, place.result_stride, first, a, sums, inverse);
}

// Rows are keys or queries, columns the other. Resident: keys and values, or queries and result gradients; streamed:
// the other two. With P the probabilities and dP = result_gradient · valuesᵀ, the gradient of the logits is P · (dP −
// row_dots); keys sum over all heads of their group.
template <class T, int E, int R, Side S, Packing P>
__global__ void __launch_bounds__(threads) backward_kernel(AttentionArguments<T> a) {
  using Tile = Tiles<E, R>;
  constexpr bool keys = S == Side::keys;
  extern __shared__ float4 memory[];
  auto* own_logits = reinterpret_cast<float*>(memory);  // the rows' factor of the logits, and of dP
  float* own_other = own_logits + Tile::heads_floats;
  float* passing_logits = own_other + Tile::heads_floats;
  float* passing_other = passing_logits + Tile::heads_floats;
  float* weights = passing_other + Tile::heads_floats;
  const int tiles = (a.sequence + Tile::rows - 1) / Tile::rows;
  const Share share = share_of_block(tiles, keys ? a.kv_heads : a.heads);
  const int group = keys ? a.heads / a.kv_heads : 1;
  const int first = (keys ? share.tile : tiles - 1 - share.tile) * Tile::rows;
  const HeadPlace own = locate_head(a, share.sequence_index, share.head * group);

  load_tile<T, E, R>(own_logits, a.qkv + (keys ? own.key : own.query), own.qkv_stride, first, a);
  if constexpr (keys) {
    load_tile<T, E, R>(own_other, a.qkv + own.value, own.qkv_stride, first, a);
  } else {
    load_tile<T, E, R>(own_other, a.result_gradient + own.result, own.result_stride, first, a);
  }
  // Where the columns begin or end that a row belongs to: queries end behind a key, keys begin before a query.
  int bounds[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int row = first + lane_row() + side * i;
    bounds[i] = keys ? end_of_queries<P>(a, share.sequence_index, row) : first_key<P>(a, share.sequence_index, row);
  }
  const int begin = keys ? first : first_key<P>(a, share.sequence_index, first) / Tile::rows * Tile::rows;
  const int last = keys ? end_of_queries<P>(a, share.sequence_index, first + Tile::rows - 1) - 1 : first;
  float value_sums[R][E / side] = {};
  float sums[R][E / side] = {};
  for (int member = 0; member < group; ++member) {
    const HeadPlace place = locate_head(a, share.sequence_index, share.head * group + member);
    for (int column = begin; column <= last; column += Tile::rows) {
      __syncthreads();
      load_tile<T, E, R>(passing_logits, a.qkv + (keys ? place.query : place.key), place.qkv_stride, column, a);
      if constexpr (keys) {
        load_tile<T, E, R>(passing_other, a.result_gradient + place.result, place.result_stride, column, a);
      } else {
        load_tile<T, E, R>(passing_other, a.qkv + place.value, place.qkv_stride, column, a);
      }
      __syncthreads();

      float log_sums[R];
      float dots[R];
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const int query = keys ? column + lane_column() + side * i : first + lane_row() + side * i;
        log_sums[i] = query < a.sequence ? a.log_sum[place.row + query] : 0.0F;
        dots[i] = query < a.sequence ? a.row_dots[place.row + query] : 0.0F;
      }
      float p[R][R];
      multiply_rows<E, R>(own_logits, passing_logits, p);
#pragma unroll
      for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < R; ++j) {
          const int row = first + lane_row() + side * i;
          const int other = column + lane_column() + side * j;
          const int query = keys ? other : row;
          const int key = keys ? row : other;
          bool seen = key <= query && query < a.sequence;
          if constexpr (P == Packing::documents) seen = seen && (keys ? query < bounds[i] : key >= bounds[i]);
          p[i][j] = seen ? expf(p[i][j] * a.scale - log_sums[keys ? j : i]) : 0.0F;
        }
      }
      if constexpr (keys) {
        put_weights<E, R>(weights, p);
        accumulate<E, R>(weights, passing_other, value_sums);
      }
      float ds[R][R];
      multiply_rows<E, R>(own_other, passing_other, ds);
#pragma unroll
      for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < R; ++j) ds[i][j] = p[i][j] * (ds[i][j] - dots[keys ? j : i]);
      }
      put_weights<E, R>(weights, ds);
      accumulate<E, R>(weights, passing_logits, sums);
    }
  }

  float ones[R];
  float scales[R];
#pragma unroll
  for (int i = 0; i < R; ++i) {
    ones[i] = 1;
    scales[i] = a.scale;
  }
  write_rows<T, E, R>(a.qkv_gradient + (keys ? own.key : own.query), own.qkv_stride, first, a, sums, scales);
  if constexpr (keys) {
    write_rows<T, E, R>(a.qkv_gradient + own.value, own.qkv_stride, first, a, value_sums, ones);
  }
}

template <class T>
unsigned int blocks_of(const AttentionArguments<T>& a, int rows, int heads) {
  return static_cast<unsigned int>(ceil_div(a.sequence, rows) * heads * a.batch);
}

template <class T, int E, int R, class Kernel>
void launch(Gpu& gpu, Kernel kernel, const AttentionArguments<T>& a, int heads, int head_tiles, const char* name) {
  const auto bytes =
      static_cast<int>(sizeof(float)) * (head_tiles * Tiles<E, R>::heads_floats + Tiles<E, R>::weights_floats);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  kernel<<<blocks_of(a, Tiles<E, R>::rows, heads), threads, static_cast<std::size_t>(bytes), gpu.stream()>>>(a);
  check_launch(name);
}

// Tiles as large as 99 KB of shared memory allow, which every GPU has.
template <class T, int E, Packing P>
void forward_of_size(Gpu& gpu, const AttentionArguments<T>& a) {
  constexpr int rows = E <= 128 ? 4 : 2;
  launch<T, E, rows>(gpu, forward_kernel<T, E, rows, P>, a, a.heads, 2, "attention");
}

template <class T, int E, Packing P>
void backward_of_size(Gpu& gpu, const AttentionArguments<T>& a) {
  constexpr int rows = E <= 64 ? 4 : E <= 128 ? 2 : 1;
  launch<T, E, rows>(gpu, backward_kernel<T, E, rows, Side::keys, P>, a, a.kv_heads, 4, "attention, gradient of keys");
  launch<T, E, rows>(gpu, backward_kernel<T, E, rows, Side::queries, P>, a, a.heads, 4,
                     "attention, gradient of queries");
}

template <class T, Packing P>
void forward_packed(Gpu& gpu, const AttentionArguments<T>& a) {
  if (a.head_size <= 32) return forward_of_size<T, 32, P>(gpu, a);
  if (a.head_size <= 64) return forward_of_size<T, 64, P>(gpu, a);
  if (a.head_size <= 128) return forward_of_size<T, 128, P>(gpu, a);
  forward_of_size<T, 256, P>(gpu, a);
}

template <class T, Packing P>
void backward_packed(Gpu& gpu, const AttentionArguments<T>& a) {
  if (a.head_size <= 32) return backward_of_size<T, 32, P>(gpu, a);
  if (a.head_size <= 64) return backward_of_size<T, 64, P>(gpu, a);
  if (a.head_size <= 128) return backward_of_size<T, 128, P>(gpu, a);
  backward_of_size<T, 256, P>(gpu, a);
}

}  // namespace

template <class T>
void plain_forward(Gpu& gpu, const AttentionArguments<T>& a) {
  a.document_starts == nullptr ? forward_packed<T, Packing::none>(gpu, a)
                               : forward_packed<T, Packing::documents>(gpu, a);
}

template <class T>
void plain_backward(Gpu& gpu, const AttentionArguments<T>& a) {
  a.document_starts == nullptr ? backward_packed<T, Packing::none>(gpu, a)
                               : backward_packed<T, Packing::documents>(gpu, a);
}

template void plain_forward(Gpu& gpu, const AttentionArguments<float>& arguments);
template void plain_forward(Gpu& gpu, const AttentionArguments<__nv_bfloat16>& arguments);
template void plain_forward(Gpu& gpu, const AttentionArguments<__half>& arguments);
template void plain_backward(Gpu& gpu, const AttentionArguments<float>& arguments);
template void plain_backward(Gpu& gpu, const AttentionArguments<__nv_bfloat16>& arguments);
template void plain_backward(Gpu& gpu, const AttentionArguments<__half>& arguments);

}  // namespace quaver::cuda
