#include <algorithm>
#include <type_traits>

#include "engine/cuda/activation.h"
#include "engine/cuda/activation_device.cuh"
#include "engine/cuda/code_tile.cuh"
#include "engine/cuda/column_sums.h"
#include "engine/cuda/fp8_cast.cuh"
#include "engine/cuda/packed.cuh"

namespace quaver::cuda {

namespace {

// A block makes tiles of 64 rows × 64 columns, a strip of them downwards: eight threads share a row.
constexpr int threads = 128;
constexpr int tile_rows_count = 64;
constexpr int tile_cols = 64;
constexpr int threads_across = tile_cols / 8;
constexpr int rows_at_once = threads / threads_across;
constexpr int passes = tile_rows_count / rows_at_once;
using Tile = CodeTile<tile_rows_count>;

// The operands of two tiles in shared memory: the next tile's are on their way while this one's are worked on. Every
// thread reads only what it asked for itself, so no barrier is needed.
template <class T, int kOperands>
struct OperandsAhead {
  static constexpr int bytes = 2 * kOperands * passes * threads * static_cast<int>(sizeof(Packed8<T>));

  Packed8<T>* memory;
  int stage = 0;

  __device__ explicit OperandsAhead(std::uint8_t* place) : memory(reinterpret_cast<Packed8<T>*>(place)) {}

  __device__ Packed8<T>& at(int of_stage, int operand, int pass) const {
    return memory[((of_stage * kOperands + operand) * passes + pass) * threads + threadIdx.x];
  }
  __device__ void fetch(int to_stage, int operand, int pass, const T* from, int valid, bool aligned) const {
    Packed8<T>& to = at(to_stage, operand, pass);
    if (!aligned || valid < 8) {
      to = load_packed(from, valid, false);
      return;
    }
    const auto address = shared_address(&to);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(to)); i += 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address + i),
                   "l"(reinterpret_cast<const char*>(from) + i));
    }
  }
  template <class Fetch>
  __device__ void begin(const Fetch& fetch_tile) {
    fetch_tile(blockIdx.y, 0);
    asm volatile("cp.async.commit_group;");
  }
  // Asks for the tile after t and waits for t; returns where that lies.
  template <class Fetch>
  __device__ int advance(const Fetch& fetch_tile, Size t) {
    const int now = stage;
    stage ^= 1;
    fetch_tile(t + gridDim.y, stage);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    return now;
  }
};

// The operands of one tile in registers: enough where nothing is cast.
template <class T, int kOperands>
struct OperandsNow {
  static constexpr int bytes = 0;

  Packed8<T> held[kOperands][passes];

  __device__ explicit OperandsNow(std::uint8_t*) {}
  __device__ const Packed8<T>& at(int, int operand, int pass) const { return held[operand][pass]; }
  __device__ void fetch(int, int operand, int pass, const T* from, int valid, bool aligned) {
    held[operand][pass] = load_packed(from, valid, aligned);
  }
  template <class Fetch>
  __device__ void begin(const Fetch&) {}
  template <class Fetch>
  __device__ int advance(const Fetch& fetch_tile, Size t) {
    fetch_tile(t, 0);
    return 0;
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
  Size rows;
  Size cols;   // of out and dy
  Size width;  // of x
  bool aligned;
  FusedTarget out;    // of width `cols` forward, `width` backward
  FusedTarget again;  // backward only
  float* partials;    // [strips × width]: column sums of out; null: not wanted
};

// Where a thread stands: eight columns of one row. What lies beyond the last is loaded as zero and stays zero.
struct Place {
  Size row;
  Size col;
  int tile_row;
  int tile_col;
  int valid;
};

template <class T, bool kFp8>
__device__ void put(const FusedTarget& out, const Fp8Caster& caster, const Tile& tile, const Place& at, Size col,
                    Size width, bool aligned, const float (&v)[8], CastCounts& counts) {
  if constexpr (kFp8) {
    const uint2 codes = caster.cast(v, counts);
    if (out.rows != nullptr) store_codes(out.rows + at.row * width + col, 0, at.valid, aligned, codes);
    if (out.columns != nullptr) tile.put(at.tile_row, at.tile_col, codes);
  } else if (out.rows != nullptr) {
    store_packed(Packed8<T>::pack(v), reinterpret_cast<T*>(out.rows) + at.row * width + col, at.valid, aligned);
  }
}

// Adds up what the threads of a column saw, in order, and leaves it as this strip's partial sums.
__device__ inline void leave_sums(const float (&sums)[8], int across, int down, Size col, Size width, float* scratch,
                                  float* out) {
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 8; ++j) scratch[down * tile_cols + across * 8 + j] = sums[j];
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c < tile_cols && col + c < width) {
    float total = 0;
    for (int i = 0; i < rows_at_once; ++i) total += scratch[i * tile_cols + c];
    out[col + c] = total;
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
  const int across = static_cast<int>(threadIdx.x) % threads_across;
  const int down = static_cast<int>(threadIdx.x) / threads_across;
  const Size col0 = static_cast<Size>(blockIdx.x) * tile_cols;
  const int cols = static_cast<int>(min(static_cast<Size>(tile_cols), op.cols - col0));
  const int valid = cols - across * 8;
  const Size tiles = (op.rows + tile_rows_count - 1) / tile_rows_count;
  const auto fetch = [&](Size t, int stage) {
    if (t >= tiles) return;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const Size row = t * tile_rows_count + down + i * rows_at_once;
      const int here = row < op.rows ? valid : 0;
      const T* from = op.x + row * op.width + col0 + across * 8;
      in.fetch(stage, 0, i, from, here, op.aligned);
      if constexpr (operands == 2) in.fetch(stage, 1, i, from + op.cols, here, op.aligned);
    }
  };
  in.begin(fetch);
  for (Size t = blockIdx.y; t < tiles; t += gridDim.y) {
    const Size row0 = t * tile_rows_count;
    const int rows = static_cast<int>(min(static_cast<Size>(tile_rows_count), op.rows - row0));
    const int stage = in.advance(fetch, t);
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const int r = down + i * rows_at_once;
      if (r >= rows || valid <= 0) continue;
      float v[8];
      float u[8] = {};
      in.at(stage, 0, i).unpack(v);
      if constexpr (operands == 2) in.at(stage, 1, i).unpack(u);
      activate<F>(v, u, op.factor, op.limit);
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[j] += v[j];
      const Place at{row0 + r, col0 + across * 8, r, across * 8, valid};
      put<T, kFp8>(op.out, caster, tile, at, at.col, op.cols, op.aligned, v, counts);
    }
    if constexpr (kFp8) {
      seen += static_cast<unsigned long long>(rows) * cols;
      if (op.out.columns == nullptr) continue;
      __syncthreads();
      tile.write_columns(reinterpret_cast<std::uint8_t*>(op.out.columns), op.rows, row0, col0, rows, cols);
      __syncthreads();
    }
  }
  if constexpr (kFp8) add_counts(op.out.statistics, counts, seen);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    store_scales(op.out, kFp8 ? Fp8Caster::stored_scale(op.out) : 1.0F);
  }
  if (op.partials == nullptr) return;
  leave_sums(sums, across, down, col0, op.cols, reinterpret_cast<float*>(memory),
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
  const Tile again_tile{memory + 2 * Tile::bytes_for(tile_cols), tile_cols};
  const Fp8Caster caster = Fp8Caster::into(op.out);
  const Fp8Caster again_caster = Fp8Caster::into(op.again);
  CastCounts counts;
  unsigned long long seen = 0;
  float sums[8] = {};
  float up_sums[8] = {};
  const int across = static_cast<int>(threadIdx.x) % threads_across;
  const int down = static_cast<int>(threadIdx.x) / threads_across;
  const Size col0 = static_cast<Size>(blockIdx.x) * tile_cols;
  const int cols = static_cast<int>(min(static_cast<Size>(tile_cols), op.cols - col0));
  const int valid = cols - across * 8;
  const Size tiles = (op.rows + tile_rows_count - 1) / tile_rows_count;
  const auto fetch = [&](Size t, int stage) {
    if (t >= tiles) return;
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const Size row = t * tile_rows_count + down + i * rows_at_once;
      const int here = row < op.rows ? valid : 0;
      const Size col = col0 + across * 8;
      in.fetch(stage, 0, i, op.x + row * op.width + col, here, op.aligned);
      in.fetch(stage, 1, i, op.dy + row * op.cols + col, here, op.aligned);
      if constexpr (results == 2) in.fetch(stage, 2, i, op.x + row * op.width + col + op.cols, here, op.aligned);
    }
  };
  in.begin(fetch);
  for (Size t = blockIdx.y; t < tiles; t += gridDim.y) {
    const Size row0 = t * tile_rows_count;
    const int rows = static_cast<int>(min(static_cast<Size>(tile_rows_count), op.rows - row0));
    const int stage = in.advance(fetch, t);
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const int r = down + i * rows_at_once;
      if (r >= rows || valid <= 0) continue;
      float v[8];
      float u[8] = {};
      float d[8];
      float e[8];
      in.at(stage, 0, i).unpack(v);
      in.at(stage, 1, i).unpack(d);
      if constexpr (results == 2) in.at(stage, 2, i).unpack(u);
      activate_backward<F>(v, u, op.forward, op.factor, op.limit, d, e);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        sums[j] += d[j];
        if constexpr (results == 2) up_sums[j] += e[j];
      }
      const Place at{row0 + r, col0 + across * 8, r, across * 8, valid};
      put<T, kFp8>(op.out, caster, tile, at, at.col, op.width, op.aligned, d, counts);
      if constexpr (results == 2) {
        put<T, kFp8>(op.out, caster, up_tile, at, at.col + op.cols, op.width, op.aligned, e, counts);
      }
      if (kFp8 && op.again) {
        activate<F>(v, u, op.forward, op.limit);
        again_tile.put(r, across * 8, again_caster.cast(v));
      }
    }
    if constexpr (kFp8) {
      seen += static_cast<unsigned long long>(rows) * cols * results;
      __syncthreads();
      if (op.out.columns != nullptr) {
        auto* columns = reinterpret_cast<std::uint8_t*>(op.out.columns);
        tile.write_columns(columns, op.rows, row0, col0, rows, cols);
        if (results == 2) up_tile.write_columns(columns, op.rows, row0, col0 + op.cols, rows, cols);
      }
      if (op.again) {
        again_tile.write_columns(reinterpret_cast<std::uint8_t*>(op.again.columns), op.rows, row0, col0, rows, cols);
      }
      __syncthreads();
    }
  }
  if constexpr (kFp8) add_counts(op.out.statistics, counts, seen);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    store_scales(op.out, kFp8 ? Fp8Caster::stored_scale(op.out) : 1.0F);
    if (op.again) store_scales(op.again, Fp8Caster::stored_scale(op.again));
  }
  if (op.partials == nullptr) return;
  auto* scratch = reinterpret_cast<float*>(memory);
  float* partials = op.partials + static_cast<Size>(blockIdx.y) * op.width;
  leave_sums(sums, across, down, col0, op.cols, scratch, partials);
  if constexpr (results == 2) leave_sums(up_sums, across, down, col0, op.cols, scratch, partials + op.cols);
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
    add_partial_sums(gpu, args.partials, strips, sums_width, sums_width, 1.0F, column_sums);
  }
}

template <class T, Function F>
void forward(Gpu& gpu, View x, Size cols, float factor, float limit, const FusedTarget& out) {
  Map<T> args{};
  args.x = static_cast<const T*>(x.data);
  args.factor = factor;
  args.limit = limit;
  args.rows = x.rows;
  args.cols = cols;
  args.width = x.cols;
  args.aligned = cols % 8 == 0 && x.cols % 8 == 0;
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
void backward(Gpu& gpu, const ActivationBackward& op, const FusedTarget& in_gradient, const FusedTarget& again) {
  Map<T> args{};
  args.x = static_cast<const T*>(op.x.data);
  args.dy = static_cast<const T*>(op.out_gradient.data);
  args.forward = op.forward_factor;
  args.factor = op.factor;
  args.limit = op.limit;
  args.rows = op.x.rows;
  args.cols = op.out_gradient.cols;
  args.width = op.x.cols;
  args.aligned = args.cols % 8 == 0;
  args.out = in_gradient;
  args.again = again;
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
void backward_of(Gpu& gpu, const ActivationBackward& op, const FusedTarget& in_gradient, const FusedTarget& again) {
  switch (op.kind) {
    case ActivationKind::gelu:
      return backward<T, Function::gelu>(gpu, op, in_gradient, again);
    case ActivationKind::relu:
      return backward<T, Function::relu>(gpu, op, in_gradient, again);
    case ActivationKind::swiglu:
      return backward<T, Function::swiglu>(gpu, op, in_gradient, again);
  }
}

}  // namespace

void cast_fused(Gpu& gpu, View x, float factor, const FusedTarget& out) {
  if (x.format == Format::f32) return forward<float, Function::identity>(gpu, x, x.cols, factor, 0, out);
  forward<__nv_bfloat16, Function::identity>(gpu, x, x.cols, factor, 0, out);
}

void activation(Gpu& gpu, const Activation& op, const FusedTarget& out) {
  if (op.x.format == Format::f32) return forward_of<float>(gpu, op, out);
  forward_of<__nv_bfloat16>(gpu, op, out);
}

void activation_backward(Gpu& gpu, const ActivationBackward& op, const FusedTarget& in_gradient,
                         const FusedTarget& out) {
  if (op.x.format == Format::f32) return backward_of<float>(gpu, op, in_gradient, out);
  backward_of<__nv_bfloat16>(gpu, op, in_gradient, out);
}

}  // namespace quaver::cuda
