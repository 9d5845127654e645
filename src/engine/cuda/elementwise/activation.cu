#include <algorithm>
#include <type_traits>

#include "engine/cuda/cast/code_tile.cuh"
#include "engine/cuda/cast/column_sums.h"
#include "engine/cuda/cast/fp8_cast.cuh"
#include "engine/cuda/device/packed.cuh"
#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/elementwise/activation.h"
#include "engine/cuda/elementwise/activation_device.cuh"

namespace quaver::cuda {

namespace {

// A block computes a vertical strip of tiles of 64 rows × 64 columns: eight threads share a row.
constexpr int threads = 128;
constexpr int tile_rows_count = 64;
constexpr int tile_cols = 64;
constexpr int threads_across = tile_cols / 8;
constexpr int rows_at_once = threads / threads_across;
constexpr int passes = tile_rows_count / rows_at_once;
using Tile = CodeTile<tile_rows_count>;

// The operands of two tiles in shared memory: the next tile's are being copied while this one is computed. Every thread
// reads only what it copied itself, so no barrier is needed.
template <class T, int kOperands>
struct OperandsAhead {
  static constexpr int stage_length = kOperands * passes * threads;
  static constexpr int bytes = 2 * stage_length * static_cast<int>(sizeof(Packed8<T>));

  Packed8<T>* next;  // the thread's first operand of the tile to be copied
  Packed8<T>* now;   // of the one to be computed

  __device__ explicit OperandsAhead(std::uint8_t* place)
      : next(reinterpret_cast<Packed8<T>*>(place) + threadIdx.x), now(next + stage_length) {}

  __device__ const Packed8<T>& at(int operand, int pass) const { return now[(operand * passes + pass) * threads]; }
  __device__ void fetch(int operand, int pass, const T* from, int valid, bool aligned) const {
    fetch_packed(from, valid, aligned, next[(operand * passes + pass) * threads]);
  }
  template <class Fetch>
  __device__ void begin(const Fetch& fetch_tile) {
    fetch_tile(static_cast<int>(blockIdx.y));
    end_copies();
  }
  // Starts the copy of the tile after t and waits for t.
  template <class Fetch>
  __device__ void advance(const Fetch& fetch_tile, int t) {
    Packed8<T>* const asked_for = next;
    next = now;
    now = asked_for;
    fetch_tile(t + static_cast<int>(gridDim.y));
    end_copies();
    wait_for_copies<1>();
  }
};

// The operands of one tile in registers: enough where nothing is cast.
template <class T, int kOperands>
struct OperandsNow {
  static constexpr int bytes = 0;

  Packed8<T> held[kOperands][passes];

  __device__ explicit OperandsNow(std::uint8_t*) {}
  __device__ const Packed8<T>& at(int operand, int pass) const { return held[operand][pass]; }
  __device__ void fetch(int operand, int pass, const T* from, int valid, bool aligned) {
    held[operand][pass] = load_packed(from, valid, aligned);
  }
  template <class Fetch>
  __device__ void begin(const Fetch&) {}
  template <class Fetch>
  __device__ void advance(const Fetch& fetch_tile, int t) {
    fetch_tile(t);
  }
};

template <class T, int kOperands, bool kFp8>
using Operands = std::conditional_t<kFp8, OperandsAhead<T, kOperands>, OperandsNow<T, kOperands>>;

template <class T>
struct Map {
  const T* x;  // swiglu: [gate | up]
  const T* dy;
  float forward;  // factor of the forward pass
  float factor;
  float limit;
  int rows;
  int cols;   // of out and dy
  int width;  // of x, or from row to row
  bool aligned;
  FusedTarget out;          // of width `cols` forward, `width` backward
  FusedTarget requantized;  // backward only
  float* partials;          // [strips × width]: column sums of out; null: not wanted
};

// A block's strip of tiles, and where a thread stands in each of them: eight columns of one row. What lies beyond the
// last column or row is loaded as zero and stays zero.
struct Strip {
  int across;
  int down;
  int col0;  // of the tiles
  int col;   // of the thread
  int cols;
  int valid;  // columns from the thread's first on
  int rows;
  int tiles;
  bool aligned;

  template <class T>
  __device__ explicit Strip(const Map<T>& op)
      : across(static_cast<int>(threadIdx.x) % threads_across),
        down(static_cast<int>(threadIdx.x) / threads_across),
        col0(static_cast<int>(blockIdx.x) * tile_cols),
        col(col0 + across * 8),
        cols(min(tile_cols, op.cols - col0)),
        valid(cols - across * 8),
        rows(op.rows),
        tiles((op.rows + tile_rows_count - 1) / tile_rows_count),
        aligned(op.aligned) {}

  __device__ int rows_of(int t) const { return min(tile_rows_count, rows - t * tile_rows_count); }
  __device__ bool is_whole(int t) const { return aligned && cols == tile_cols && (t + 1) * tile_rows_count <= rows; }

  // Calls fetch(pass, row, valid, aligned) for the thread's rows of tile t, if there is one.
  template <class Fetch>
  __device__ void for_rows(int t, const Fetch& fetch) const {
    if (t >= tiles) return;
    const int row = t * tile_rows_count + down;
    if (is_whole(t)) {
#pragma unroll
      for (int i = 0; i < passes; ++i) fetch(i, row + i * rows_at_once, 8, true);
    } else {
#pragma unroll
      for (int i = 0; i < passes; ++i) {
        const int at = row + i * rows_at_once;
        fetch(i, at, at < rows ? valid : 0, aligned);
      }
    }
  }
  // Calls work(pass, row within the tile, whether the tile is whole) for those that tile t has. Nearly all tiles are
  // whole, and nothing is compared there. Casts are long: unrolled, they would not stay in the instruction cache.
  template <bool kFp8, class Work>
  __device__ void for_tile(int t, const Work& work) const {
    constexpr int unrolled = kFp8 ? 1 : passes;
    if (is_whole(t)) {
#pragma unroll unrolled
      for (int i = 0; i < passes; ++i) work(i, down + i * rows_at_once, std::true_type{});
    } else {
#pragma unroll unrolled
      for (int i = 0; i < passes; ++i) {
        const int r = down + i * rows_at_once;
        if (r < rows_of(t) && valid > 0) work(i, r, std::false_type{});
      }
    }
  }
  __device__ void write_columns(const Tile& tile, const FusedTarget& out, int t, int first_col) const {
    tile.write_columns(out.columns, out.column_bytes, t * tile_rows_count, first_col, rows_of(t), cols);
  }
};

struct TileTarget {
  const FusedTarget& out;
  const Fp8Caster& caster;
  const Tile& tile;
};

// Writes eight results to row r of the tile and to `at` elements from the start of the matrix.
template <class T, bool kFp8, bool kWhole>
__device__ void put(const TileTarget& target, const Strip& strip, int r, Size at, const float (&v)[8],
                    CastCounts& counts) {
  const FusedTarget& out = target.out;
  const Tile& tile = target.tile;
  const bool aligned = kWhole || strip.aligned;
  const int valid = kWhole ? 8 : strip.valid;
  if constexpr (kFp8) {
    target.caster.with_format([&](const auto& to_format) {
      const uint2 codes = to_format.cast(v, counts);
      if (out.rows != nullptr) store_codes(out.rows + at, 0, valid, aligned, codes);
      if (out.columns != nullptr) tile.put(tile.offset(r, strip.across * 8), codes);
    });
  } else if (out.rows != nullptr) {
    store_packed(pack_as<T>(out.format, v), reinterpret_cast<T*>(out.rows) + at, valid, aligned);
  }
}

__device__ inline void add_to(float (&sums)[8], const float (&v)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) sums[j] += v[j];
}

// Adds up what the threads of a column saw, in order, and leaves it as this strip's partial sums.
__device__ inline void leave_sums(const float (&sums)[8], const Strip& strip, int width, float* scratch, float* out) {
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 8; ++j) scratch[strip.down * tile_cols + strip.across * 8 + j] = sums[j];
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c < tile_cols && strip.col0 + c < width) {
    float total = 0;
    for (int i = 0; i < rows_at_once; ++i) total += scratch[i * tile_cols + c];
    out[strip.col0 + c] = total;
  }
}

template <class T, Function F, bool kFp8>
__global__ __launch_bounds__(threads, 6) void map_kernel(const Map<T> op) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  constexpr int operands = F == Function::swiglu ? 2 : 1;
  const Tile tile{memory, tile_cols};
  Operands<T, operands, kFp8> in(memory + Tile::bytes_for(tile_cols));
  const Fp8Caster caster = Fp8Caster::into(op.out);
  CastCounts counts;
  unsigned long long seen = 0;
  float sums[8] = {};
  const Strip strip(op);
  const auto fetch = [&](int t) {
    strip.for_rows(t, [&](int i, int row, int valid, bool aligned) {
      const T* from = op.x + offset_of(row, op.width) + strip.col;
      in.fetch(0, i, from, valid, aligned);
      if constexpr (operands == 2) in.fetch(1, i, from + op.cols, valid, aligned);
    });
  };
  in.begin(fetch);
  for (int t = static_cast<int>(blockIdx.y); t < strip.tiles; t += static_cast<int>(gridDim.y)) {
    in.advance(fetch, t);
    strip.template for_tile<kFp8>(t, [&]<bool kWhole>(int i, int r, std::bool_constant<kWhole>) {
      float v[8];
      float u[8] = {};
      in.at(0, i).unpack(v);
      if constexpr (operands == 2) in.at(1, i).unpack(u);
      activate<F>(v, u, op.factor, op.limit);
      if (op.partials != nullptr) add_to(sums, v);
      const Size at = offset_of(t * tile_rows_count + r, kFp8 ? op.out.row_bytes : op.cols) + strip.col;
      put<T, kFp8, kWhole>({op.out, caster, tile}, strip, r, at, v, counts);
    });
    if constexpr (kFp8) {
      seen += static_cast<unsigned>(strip.rows_of(t) * strip.cols);
      if (op.out.columns == nullptr) continue;
      __syncthreads();
      strip.write_columns(tile, op.out, t, strip.col0);
      __syncthreads();
    }
  }
  if constexpr (kFp8) add_counts(op.out.statistics, counts, seen);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    store_scales(op.out, kFp8 ? stored_scale(op.out) : 1.0F);
  }
  if (op.partials == nullptr) return;
  leave_sums(sums, strip, op.cols, reinterpret_cast<float*>(memory),
             op.partials + static_cast<Size>(blockIdx.y) * op.cols);
}

template <class T, Function F, bool kFp8>
__global__ __launch_bounds__(threads, F == Function::swiglu ? 3 : 5) void map_backward_kernel(const Map<T> op) {
  constexpr int results = F == Function::swiglu ? 2 : 1;
  extern __shared__ __align__(128) std::uint8_t memory[];
  constexpr int operands = results + 1;
  Operands<T, operands, kFp8> in(memory + 3 * Tile::bytes_for(tile_cols));
  const Tile tile{memory, tile_cols};
  const Tile up_tile{memory + Tile::bytes_for(tile_cols), tile_cols};
  const Tile requantized_tile{memory + 2 * Tile::bytes_for(tile_cols), tile_cols};
  const Fp8Caster caster = Fp8Caster::into(op.out);
  const Fp8Caster requantized_caster = Fp8Caster::into(op.requantized);
  CastCounts counts;
  unsigned long long seen = 0;
  float sums[8] = {};
  float up_sums[8] = {};
  const Strip strip(op);
  const auto fetch = [&](int t) {
    strip.for_rows(t, [&](int i, int row, int valid, bool aligned) {
      const T* from = op.x + offset_of(row, op.width) + strip.col;
      in.fetch(0, i, from, valid, aligned);
      in.fetch(1, i, op.dy + offset_of(row, op.cols) + strip.col, valid, aligned);
      if constexpr (results == 2) in.fetch(2, i, from + op.cols, valid, aligned);
    });
  };
  in.begin(fetch);
  for (int t = static_cast<int>(blockIdx.y); t < strip.tiles; t += static_cast<int>(gridDim.y)) {
    in.advance(fetch, t);
    strip.template for_tile<kFp8>(t, [&]<bool kWhole>(int i, int r, std::bool_constant<kWhole>) {
      float v[8];
      float u[8] = {};
      float d[8];
      float e[8];
      in.at(0, i).unpack(v);
      in.at(1, i).unpack(d);
      if constexpr (results == 2) in.at(2, i).unpack(u);
      activate_backward<F>(v, u, {op.forward, op.factor, op.limit}, d, e);
      if (op.partials != nullptr) {
        add_to(sums, d);
        if constexpr (results == 2) add_to(up_sums, e);
      }
      if (kFp8 && op.requantized) {
        scale_and_clip(v, op.forward, op.limit);
        requantized_caster.with_format([&](const auto& to_format) {
          requantized_tile.put(requantized_tile.offset(r, strip.across * 8), to_format.cast(v));
        });
      }
      const Size at = offset_of(t * tile_rows_count + r, kFp8 ? op.out.row_bytes : op.width) + strip.col;
      put<T, kFp8, kWhole>({op.out, caster, tile}, strip, r, at, d, counts);
      if constexpr (results == 2) put<T, kFp8, kWhole>({op.out, caster, up_tile}, strip, r, at + op.cols, e, counts);
    });
    if constexpr (kFp8) {
      seen += static_cast<unsigned>(strip.rows_of(t) * strip.cols * results);
      __syncthreads();
      if (op.out.columns != nullptr) {
        strip.write_columns(tile, op.out, t, strip.col0);
        if (results == 2) strip.write_columns(up_tile, op.out, t, strip.col0 + op.cols);
      }
      if (op.requantized) strip.write_columns(requantized_tile, op.requantized, t, strip.col0);
      __syncthreads();
    }
  }
  if constexpr (kFp8) add_counts(op.out.statistics, counts, seen);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    store_scales(op.out, kFp8 ? stored_scale(op.out) : 1.0F);
    if (op.requantized) store_scales(op.requantized, stored_scale(op.requantized));
  }
  if (op.partials == nullptr) return;
  auto* scratch = reinterpret_cast<float*>(memory);
  float* partials = op.partials + static_cast<Size>(blockIdx.y) * op.width;
  leave_sums(sums, strip, op.cols, scratch, partials);
  if constexpr (results == 2) leave_sums(up_sums, strip, op.cols, scratch, partials + op.cols);
}

// Blocks across the columns, and as many strips downwards as fill the GPU.
template <class Operands, int kTiles, class T, class Kernel>
void launch(Gpu& gpu, Kernel kernel, Map<T>& args, Size sums_width, const char* what) {
  constexpr int shared = Operands::bytes + kTiles * Tile::bytes_for(tile_cols);
  const Size across = ceil_div(args.cols, tile_cols);
  const Size tiles = ceil_div(args.rows, tile_rows_count);
  if (shared > 48 * 1024) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), what);
  }
  int per_multiprocessor = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, threads, shared), what);
  const Size fill = ceil_div(2 * static_cast<Size>(per_multiprocessor) * gpu.multiprocessors(), across);
  const Size strips = std::clamp<Size>(std::min(tiles, fill), 1, 65535);
  float* column_sums = args.out.column_sums;
  if (column_sums != nullptr) args.partials = gpu.workspace<float>(Slot::sums, strips * sums_width);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(strips));
  kernel<<<grid, threads, shared, gpu.stream()>>>(args);
  check_launch(what);
  if (column_sums != nullptr) {
    add_partial_sums(gpu, {args.partials, strips, sums_width, sums_width}, 1.0F, column_sums);
  }
}

template <class T, Function F>
void forward(Gpu& gpu, View x, Size cols, float factor, float limit, const FusedTarget& out) {
  Map<T> args{};
  args.x = static_cast<const T*>(x.data);
  args.factor = factor;
  args.limit = limit;
  args.rows = to_int(x.rows);
  args.cols = to_int(cols);
  args.width = to_int(x.row_stride());
  const Size written = out.is_fp8() ? out.row_bytes : cols;
  args.aligned = (F == Function::swiglu ? cols : written) % 8 == 0 && args.width % 8 == 0;
  args.out = out;
  constexpr bool has_fp8 = std::is_same_v<T, __nv_bfloat16> || F == Function::identity;
  constexpr int operands = F == Function::swiglu ? 2 : 1;
  if constexpr (has_fp8) {
    if (out.is_fp8())
      return launch<Operands<T, operands, true>, 1>(gpu, map_kernel<T, F, true>, args, cols, "activation");
  }
  launch<Operands<T, operands, false>, 1>(gpu, map_kernel<T, F, false>, args, cols, "activation");
}

template <class T, Function F>
void backward(Gpu& gpu, const ActivationBackward& op, const FusedTarget& in_gradient, const FusedTarget& requantized) {
  Map<T> args{};
  args.x = static_cast<const T*>(op.x.data);
  args.dy = static_cast<const T*>(op.out_gradient.data);
  args.forward = op.forward_factor;
  args.factor = op.factor;
  args.limit = op.limit;
  args.rows = to_int(op.x.rows);
  args.cols = to_int(op.out_gradient.cols);
  args.width = to_int(op.x.cols);
  args.aligned = args.cols % 8 == 0;
  args.out = in_gradient;
  args.requantized = requantized;
  constexpr int operands = F == Function::swiglu ? 3 : 2;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (in_gradient.is_fp8()) {
      return launch<Operands<T, operands, true>, 3>(gpu, map_backward_kernel<T, F, true>, args, args.width,
                                                    "activation_backward");
    }
  }
  launch<Operands<T, operands, false>, 1>(gpu, map_backward_kernel<T, F, false>, args, args.width,
                                          "activation_backward");
}

template <class T>
void forward_of(Gpu& gpu, const Activation& op, const FusedTarget& out) {
  const Size cols = op.out.cols_count();
  switch (op.kind) {
    case ActivationKind::gelu:
      return forward<T, Function::gelu>(gpu, op.x, cols, op.factor, op.limit, out);
    case ActivationKind::relu:
      return forward<T, Function::relu>(gpu, op.x, cols, op.factor, op.limit, out);
    case ActivationKind::swiglu:
      return forward<T, Function::swiglu>(gpu, op.x, cols, op.factor, op.limit, out);
  }
}

template <class T>
void backward_of(Gpu& gpu, const ActivationBackward& op, const FusedTarget& in_gradient,
                 const FusedTarget& requantized) {
  switch (op.kind) {
    case ActivationKind::gelu:
      return backward<T, Function::gelu>(gpu, op, in_gradient, requantized);
    case ActivationKind::relu:
      return backward<T, Function::relu>(gpu, op, in_gradient, requantized);
    case ActivationKind::swiglu:
      return backward<T, Function::swiglu>(gpu, op, in_gradient, requantized);
  }
}

}  // namespace

void cast_fused(Gpu& gpu, View x, float factor, const FusedTarget& out) {
  with_high_precision(x.format, [&]<class T>(T) { forward<T, Function::identity>(gpu, x, x.cols, factor, 0, out); });
}

void activation(Gpu& gpu, const Activation& op, const FusedTarget& out) {
  with_high_precision(op.x.format, [&]<class T>(T) { forward_of<T>(gpu, op, out); });
}

void activation_backward(Gpu& gpu, const ActivationBackward& op, const FusedTarget& in_gradient,
                         const FusedTarget& out) {
  with_high_precision(op.x.format, [&]<class T>(T) { backward_of<T>(gpu, op, in_gradient, out); });
}

}  // namespace quaver::cuda
