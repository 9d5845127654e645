#include "engine/cuda/column_sums.h"
#include "engine/cuda/norm.h"
#include "engine/cuda/norm_device.cuh"
#include "engine/cuda/norm_launch.h"

namespace quaver::cuda {

namespace {

template <class T>
struct Backward {
  const T* x;
  const float2* stats;
  const T* dy;
  const T* next;  // null at the end of the stream
  float keep;
  float add;
  T* gradient;
  const float* gain;
  const float* shift;
  bool layer;
  Size rows;
  int cols;
  bool aligned;
  FusedTarget branch;  // empty: none
  FusedTarget again;   // empty: none; its columns alone are written
  float* partials;     // [blocks × 3 × cols]: gains, shifts, columns of the gradient
};

template <int V>
struct Sums {
  float gain[V][8] = {};
  float shift[V][8] = {};
  float column[V][8] = {};
};

// Adds up the teams' sums of one kind and leaves them as this block's row of partial sums.
template <int V, int W>
__device__ void leave_sums(const Team<V, W>& team, const float (&sums)[V][8], int cols, float* scratch, float* out) {
  __syncthreads();
#pragma unroll
  for (int i = 0; i < V; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (team.column(i) + j < cols) scratch[team.index * cols + team.column(i) + j] = sums[i][j];
    }
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += norm_threads<W>) {
    float total = 0;
    for (int t = 0; t < team.count; ++t) total += scratch[t * cols + c];
    out[c] = total;
  }
}

// Σ g·y and Σ g over the row, g being dy · gain.
template <class T, int V, int W>
__device__ float2 row_sums(const Backward<T>& op, Team<V, W>& team, const Affine<V>& affine, NormRow norm,
                           const Packed8<T> (&x)[V], const Packed8<T> (&dy)[V]) {
  float dot = 0;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int valid = op.cols - team.column(i);
    if (valid <= 0) continue;
    float v[8];
    float d[8];
    float gain[8];
    float shift[8];
    x[i].unpack(v);
    dy[i].unpack(d);
    affine.get(team.column(i), gain, shift);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float g = d[j] * gain[j];
      dot += g * norm.normal(v[j]);
      sum += g;
    }
  }
  const float2 total = team.sum(make_float2(dot, sum));
  const float scale = 1.0F / static_cast<float>(op.cols);
  return make_float2(total.x * scale, op.layer ? total.y * scale : 0.0F);
}

// A row's share of one thread, as loaded: the next row's is on its way while this one's is worked on.
template <class T, int V>
struct Loaded {
  Packed8<T> x[V];
  Packed8<T> dy[V];
  Packed8<T> next[V];
  float2 stats;
};

template <class T, int V, int W>
__device__ void load_row(const Backward<T>& op, const Team<V, W>& team, Size row, Loaded<T, V>& to) {
  if (row >= op.rows) return;
  to.stats = op.stats[row];
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const Size at = row * op.cols + team.column(i);
    const int valid = op.cols - team.column(i);
    to.x[i] = load_packed(op.x + at, valid, op.aligned);
    to.dy[i] = load_packed(op.dy + at, valid, op.aligned);
    if (op.next != nullptr) to.next[i] = load_packed(op.next + at, valid, op.aligned);
  }
}

template <class T, int V, int W, bool kFp8>
__global__ __launch_bounds__(norm_threads<W>, V == 1 ? 2 : 1) void add_norm_backward_kernel(const Backward<T> op) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  using Tile = CodeTile<norm_tile_rows>;
  Team<V, W> team;
  const Tile tile{memory, Tile::pitch_for(op.cols)};
  const Tile again_tile{memory + (op.branch.columns != nullptr ? Tile::bytes_for(op.cols) : 0), tile.pitch};
  const Fp8Caster caster = Fp8Caster::into(op.branch);
  const Fp8Caster again_caster = Fp8Caster::into(op.again);
  const Affine<V> affine(op.gain, op.shift, op.cols, op.aligned, team.column(0));
  CastCounts counts;
  unsigned long long seen = 0;
  Sums<V> sums;
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
      const Loaded<T, V> now = loaded;
      cursor = RowCursor{t, r}.next(team.count, norm_tile_rows, op.rows);
      load_row<T, V, W>(op, team, cursor.index(norm_tile_rows), loaded);
      const NormRow norm{now.stats.x, now.stats.y};
      const float2 of_row = row_sums<T, V, W>(op, team, affine, norm, now.x, now.dy);
      const float factor = op.add * norm.inverse_std;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const int col = team.column(i);
        const int valid = cols - col;
        if (valid <= 0) continue;
        float v[8];
        float d[8];
        float gain[8];
        float shift[8];
        float before[8] = {};
        now.x[i].unpack(v);
        now.dy[i].unpack(d);
        if (op.next != nullptr) now.next[i].unpack(before);
        affine.get(col, gain, shift);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          v[j] = norm.normal(v[j]);
          sums.gain[i][j] += d[j] * v[j];
          sums.shift[i][j] += d[j];
          const float dx = factor * (d[j] * gain[j] - of_row.y - v[j] * of_row.x);
          d[j] = op.keep * before[j] + dx;
        }
        clear_tail(d, valid);
#pragma unroll
        for (int j = 0; j < 8; ++j) sums.column[i][j] += d[j];
        const Packed8<T> rounded = Packed8<T>::pack(d);
        store_packed(rounded, op.gradient + row * op.cols + col, valid, op.aligned);
        if constexpr (kFp8) {
          if (op.branch) {
            const uint2 codes = caster.cast(d, counts);
            if (op.branch.rows != nullptr) store_codes(op.branch.rows + row * op.cols, col, valid, op.aligned, codes);
            if (op.branch.columns != nullptr) tile.put(r, col, codes);
          }
          if (op.again) {
#pragma unroll
            for (int j = 0; j < 8; ++j) v[j] = scaled_and_shifted(v[j], gain[j], shift[j]);
            clear_tail(v, valid);
            again_tile.put(r, col, again_caster.cast(v));
          }
        } else if (op.branch) {
          store_packed(rounded, reinterpret_cast<T*>(op.branch.rows) + row * op.cols + col, valid, op.aligned);
        }
      }
    }
    if constexpr (kFp8) {
      seen += static_cast<unsigned long long>(rows) * op.cols;
      __syncthreads();
      if (op.branch.columns != nullptr) {
        tile.write_columns(reinterpret_cast<std::uint8_t*>(op.branch.columns), op.rows, row0, 0, rows, op.cols);
      }
      if (op.again) {
        again_tile.write_columns(reinterpret_cast<std::uint8_t*>(op.again.columns), op.rows, row0, 0, rows, op.cols);
      }
      __syncthreads();
    }
  }
  if constexpr (kFp8) add_counts(op.branch.statistics, counts, seen);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if (op.branch) store_scales(op.branch, op.branch.is_fp8() ? Fp8Caster::stored_scale(op.branch) : 1.0F);
    if (op.again) store_scales(op.again, Fp8Caster::stored_scale(op.again));
  }
  float* out = op.partials + static_cast<Size>(blockIdx.x) * 3 * op.cols;
  auto* scratch = reinterpret_cast<float*>(memory);
  leave_sums(team, sums.gain, op.cols, scratch, out);
  leave_sums(team, sums.shift, op.cols, scratch, out + op.cols);
  leave_sums(team, sums.column, op.cols, scratch, out + 2 * op.cols);
}

template <class T>
void launch_backward(Gpu& gpu, const AddNormBackward& op, const FusedTarget& branch, const FusedTarget& again) {
  Backward<T> args{};
  args.x = static_cast<const T*>(op.sum.data);
  args.stats = static_cast<const float2*>(op.stats.data);
  args.dy = static_cast<const T*>(op.out_gradient.data);
  args.next = static_cast<const T*>(op.next.data);
  args.keep = op.keep;
  args.add = op.add;
  args.gradient = static_cast<T*>(op.gradient.data);
  args.gain = op.norm.gain.f32();
  args.shift = op.norm.shift.empty() ? nullptr : op.norm.shift.f32();
  args.layer = op.norm.kind == NormKind::layer;
  args.rows = op.sum.rows;
  args.cols = static_cast<int>(op.sum.cols);
  args.aligned = args.cols % 8 == 0;
  args.branch = branch;
  args.again = again;
  const Size tile = CodeTile<norm_tile_rows>::bytes_for(args.cols);
  const Size tiles = ceil_div(args.rows, norm_tile_rows);
  const auto run = [&](auto kernel, int block, int teams) {
    const Size codes = (branch.columns != nullptr ? tile : 0) + (again ? tile : 0);
    const auto shared = static_cast<std::size_t>(std::max<Size>(codes, teams * op.sum.cols * 4));
    const unsigned blocks = persistent_blocks(gpu, kernel, block, shared, tiles, "add_norm_backward");
    args.partials = gpu.workspace<float>(Slot::sums, static_cast<Size>(blocks) * 3 * args.cols);
    kernel<<<blocks, block, shared, gpu.stream()>>>(args);
    check_launch("add_norm_backward");
    const Size stride = 3 * args.cols;
    const NormGradients& to = op.gradients;
    if (!to.gain.empty()) add_partial_sums(gpu, args.partials, blocks, stride, args.cols, to.factor, to.gain.f32());
    if (!to.shift.empty()) {
      add_partial_sums(gpu, args.partials + args.cols, blocks, stride, args.cols, to.factor, to.shift.f32());
    }
    if (branch.column_sums != nullptr) {
      add_partial_sums(gpu, args.partials + 2 * args.cols, blocks, stride, args.cols, 1.0F, branch.column_sums);
    }
  };
  with_team(args.cols, "add_norm_backward", [&]<int V, int W>() {
    constexpr int teams = norm_threads<W> / 32 / W;
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      if (branch.is_fp8() || again) return run(add_norm_backward_kernel<T, V, W, true>, norm_threads<W>, teams);
    }
    run(add_norm_backward_kernel<T, V, W, false>, norm_threads<W>, teams);
  });
}

}  // namespace

bool norm_can_write_columns(const Gpu& gpu, Size width, int targets) {
  constexpr Size own = 1024;  // what the kernels have beside the tiles
  return targets * CodeTile<norm_tile_rows>::bytes_for(static_cast<int>(width)) + own <= gpu.shared_memory();
}

void add_norm_backward(Gpu& gpu, const AddNormBackward& op, const FusedTarget& branch_gradient,
                       const FusedTarget& out) {
  if (op.sum.format == Format::f32) return launch_backward<float>(gpu, op, branch_gradient, out);
  launch_backward<__nv_bfloat16>(gpu, op, branch_gradient, out);
}

}  // namespace quaver::cuda
