#include "engine/cuda/norm.h"
#include "engine/cuda/norm_device.cuh"
#include "engine/cuda/norm_launch.h"

namespace quaver::cuda {

namespace {

template <class T>
struct Forward {
  const T* residual;
  const T* branch;  // null: sum = residual
  float keep;
  float add;
  T* sum;  // null: it is the residual's own memory and stays as it is
  float2* stats;
  const float* gain;
  const float* shift;
  float eps;
  bool layer;
  Size rows;
  int cols;
  bool aligned;
  FusedTarget out;
};

template <class T, int V, int W>
__device__ NormRow measure(const Forward<T>& op, Team<V, W>& team, const Packed8<T> (&x)[V]) {
  const float scale = 1.0F / static_cast<float>(op.cols);
  float mean = 0;
  if (op.layer) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      float v[8];
      x[i].unpack(v);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += v[j];
    }
    mean = team.sum(sum) * scale;
  }
  float square = 0;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    float v[8];
    x[i].unpack(v);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] -= mean;
    clear_tail(v, op.cols - team.column(i));
#pragma unroll
    for (int j = 0; j < 8; ++j) square += v[j] * v[j];
  }
  return {mean, rsqrtf(team.sum(square) * scale + op.eps)};
}

// A row's share of one thread, as loaded: the next row's is on its way while this one's is worked on.
template <class T, int V>
struct Loaded {
  Packed8<T> residual[V];
  Packed8<T> branch[V];
};

template <class T, int V, int W>
__device__ void load_row(const Forward<T>& op, const Team<V, W>& team, Size row, Loaded<T, V>& to) {
  if (row >= op.rows) return;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const Size at = row * op.cols + team.column(i);
    const int valid = op.cols - team.column(i);
    to.residual[i] = load_packed(op.residual + at, valid, op.aligned);
    if (op.branch != nullptr) to.branch[i] = load_packed(op.branch + at, valid, op.aligned);
  }
}

// sum, its first `cols` elements stored, and returned.
template <class T, int V, int W>
__device__ void join(const Forward<T>& op, const Team<V, W>& team, Size row, int cols, const Loaded<T, V>& from,
                     Packed8<T> (&x)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    x[i] = from.residual[i];
    if (op.branch != nullptr) {
      float a[8];
      float b[8];
      from.residual[i].unpack(a);
      from.branch[i].unpack(b);
#pragma unroll
      for (int j = 0; j < 8; ++j) a[j] = op.keep * a[j] + op.add * b[j];
      x[i] = Packed8<T>::pack(a);
    }
    if (op.sum == nullptr) continue;
    store_packed(x[i], op.sum + row * op.cols + team.column(i), cols - team.column(i), op.aligned);
  }
}

template <class T, int V, int W, bool kFp8>
__global__ __launch_bounds__(norm_threads<W>, V == 1 ? 3 : 1) void add_norm_kernel(const Forward<T> op) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  Team<V, W> team;
  const CodeTile<norm_tile_rows> tile{memory, CodeTile<norm_tile_rows>::pitch_for(op.cols)};
  const Fp8Caster caster = Fp8Caster::into(op.out);
  const Affine<V> affine(op.gain, op.shift, op.cols, op.aligned, team.column(0));
  CastCounts counts;
  unsigned long long seen = 0;
  const Size tiles = (op.rows + norm_tile_rows - 1) / norm_tile_rows;
  RowCursor cursor{blockIdx.x, team.index};
  Loaded<T, V> loaded;
  load_row<T, V, W>(op, team, cursor.index(norm_tile_rows), loaded);
  for (Size t = blockIdx.x; t < tiles; t += gridDim.x) {
    const Size row0 = t * norm_tile_rows;
    const int rows = static_cast<int>(min(static_cast<Size>(norm_tile_rows), op.rows - row0));
    for (int r = team.index; team.has_round(r, rows); r += team.count) {
      const Size row = row0 + r;
      const int cols = r < rows ? op.cols : 0;
      Packed8<T> x[V];
      join<T, V, W>(op, team, row, cols, loaded, x);
      cursor = RowCursor{t, r}.next(team.count, norm_tile_rows, op.rows);
      load_row<T, V, W>(op, team, cursor.index(norm_tile_rows), loaded);
      const NormRow norm = measure<T, V, W>(op, team, x);
      if (r < rows && team.warp == 0 && team.lane == 0) op.stats[row] = make_float2(norm.mean, norm.inverse_std);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const int col = team.column(i);
        const int valid = cols - col;
        if (valid <= 0) continue;
        float v[8];
        float gain[8];
        float shift[8];
        x[i].unpack(v);
        affine.get(col, gain, shift);
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = scaled_and_shifted(norm.normal(v[j]), gain[j], shift[j]);
        clear_tail(v, valid);
        if constexpr (kFp8) {
          const uint2 codes = caster.cast(v, counts);
          if (op.out.rows != nullptr) store_codes(op.out.rows + row * op.cols, col, valid, op.aligned, codes);
          if (op.out.columns != nullptr) tile.put(r, col, codes);
        } else {
          store_packed(Packed8<T>::pack(v), reinterpret_cast<T*>(op.out.rows) + row * op.cols + col, valid, op.aligned);
        }
      }
    }
    if constexpr (kFp8) {
      seen += static_cast<unsigned long long>(rows) * op.cols;
      if (op.out.columns == nullptr) continue;
      __syncthreads();
      tile.write_columns(reinterpret_cast<std::uint8_t*>(op.out.columns), op.rows, row0, 0, rows, op.cols);
      __syncthreads();
    }
  }
  if constexpr (kFp8) add_counts(op.out.statistics, counts, seen);
  if (blockIdx.x == 0 && threadIdx.x == 0) store_scales(op.out, kFp8 ? Fp8Caster::stored_scale(op.out) : 1.0F);
}

template <class T>
void launch_forward(Gpu& gpu, const AddNorm& op, const FusedTarget& out) {
  Forward<T> args{};
  args.residual = static_cast<const T*>(op.residual.data);
  args.branch = static_cast<const T*>(op.branch.data);
  args.keep = op.keep;
  args.add = op.add;
  const bool keeps_residual = op.branch.empty() && op.sum.data == op.residual.data;
  args.sum = keeps_residual ? nullptr : static_cast<T*>(op.sum.data);
  args.stats = static_cast<float2*>(op.stats.data);
  args.gain = op.norm.gain.f32();
  args.shift = op.norm.shift.empty() ? nullptr : op.norm.shift.f32();
  args.eps = op.norm.eps;
  args.layer = op.norm.kind == NormKind::layer;
  args.rows = op.residual.rows;
  args.cols = static_cast<int>(op.residual.cols);
  args.aligned = args.cols % 8 == 0;
  args.out = out;
  const std::size_t shared = out.columns != nullptr ? CodeTile<norm_tile_rows>::bytes_for(args.cols) : 0;
  const Size tiles = ceil_div(args.rows, norm_tile_rows);
  const auto run = [&](auto kernel, int threads) {
    launch_persistent(gpu, kernel, threads, shared, tiles, "add_norm", args);
  };
  with_team(args.cols, "add_norm", [&]<int V, int W>() {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      if (out.is_fp8()) return run(add_norm_kernel<T, V, W, true>, norm_threads<W>);
    }
    run(add_norm_kernel<T, V, W, false>, norm_threads<W>);
  });
}

}  // namespace

void add_norm(Gpu& gpu, const AddNorm& op, const FusedTarget& out) {
  if (op.residual.format == Format::f32) return launch_forward<float>(gpu, op, out);
  launch_forward<__nv_bfloat16>(gpu, op, out);
}

}  // namespace quaver::cuda
