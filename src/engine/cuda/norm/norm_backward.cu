#include "engine/cuda/cast/column_sums.h"
#include "engine/cuda/cast/row_block.cuh"
#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/norm/norm.h"
#include "engine/cuda/norm/norm_device.cuh"
#include "engine/cuda/norm/norm_launch.h"
#include "engine/cuda/norm/norm_rows.cuh"

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
  int rows;
  int cols;
  int slots;                // of rows ahead, in shared memory behind the tiles
  FusedTarget branch;       // empty: none
  FusedTarget requantized;  // empty: none; its columns alone are written
  float* partials;          // [blocks × 3 × cols]: gains, shifts, columns of the gradient
};

template <int V>
struct Sums {
  float gain[V][8] = {};
  float shift[V][8] = {};
  float column[V][8] = {};
};

// Adds up the teams' sums of one kind and leaves them as this block's row of partial sums.
template <int V, class Team>
__device__ void leave_sums(const Team& team, const float (&sums)[V][8], int cols, float* scratch, float* out) {
  __syncthreads();
#pragma unroll
  for (int i = 0; i < V; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (team.column(i) + j < cols) scratch[team.index * cols + team.column(i) + j] = sums[i][j];
    }
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += static_cast<int>(blockDim.x)) {
    float total = 0;
    for (int t = 0; t < team.count; ++t) total += scratch[t * cols + c];
    out[c] = total;
  }
}

enum Operand : int { of_x, of_dy, of_next, operands };

// What a thread has of a row: dy, and x normalized. Kept between the passes over it where that is eight numbers each.
template <class Rows, int V>
struct Numbers {
  const Rows& in;
  NormRow norm;
  float kept_y[8];
  float kept_dy[8];

  __device__ Numbers(const Rows& rows, NormRow of_row) : in(rows), norm(of_row) {
    if constexpr (V == 1) make(0, kept_y, kept_dy);
  }
  __device__ void get(int i, float (&y)[8], float (&dy)[8]) const {
    if constexpr (V > 1) {
      make(i, y, dy);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        y[j] = kept_y[j];
        dy[j] = kept_dy[j];
      }
    }
  }

 private:
  __device__ void make(int i, float (&y)[8], float (&dy)[8]) const {
    in.at(of_x, i).unpack(y);
    in.at(of_dy, i).unpack(dy);
#pragma unroll
    for (int j = 0; j < 8; ++j) y[j] = norm.normal(y[j]);
  }
};

// Σ g·y and Σ g over the row, g being dy · gain.
template <class T, class Numbers, class Affine, class Team>
__device__ float2 row_sums(const Backward<T>& op, Team& team, const Affine& affine, const Numbers& numbers) {
  float dot = 0;
  float sum = 0;
  team.for_groups(op.cols, [&](int i, int col, int valid) {
    float y[8];
    float d[8];
    float gain[8];
    float shift[8];
    numbers.get(i, y, d);
    affine.get(i, col, valid, gain, shift);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float g = d[j] * gain[j];
      dot += g * y[j];
      sum += g;
    }
  });
  const float2 total = team.sum(make_float2(dot, sum));
  const float scale = 1.0F / static_cast<float>(op.cols);
  return make_float2(total.x * scale, op.layer ? total.y * scale : 0.0F);
}

template <class T, int V, int W, bool kEven, bool kFp8>
__global__ __launch_bounds__(norm_threads<W>, V == 1 ? 2 : 1) void add_norm_backward_kernel(const Backward<T> op) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  constexpr bool leaves_amax = std::is_same_v<T, __nv_bfloat16> && kEven && !kFp8;
  using Tile = CodeTile<norm_tile_rows>;
  using Members = Team<V, W, kEven>;
  Members team;
  const Tile tile{memory, Tile::pitch_for(op.cols)};
  std::uint8_t* behind = memory + (op.branch.columns != nullptr ? Tile::bytes_for(op.cols) : 0);
  const Tile requantized_tile{behind, tile.pitch};
  if (op.requantized) behind += Tile::bytes_for(op.cols);
  Rows<T, Members, operands> in(team, behind, op.slots);
  const Fp8Caster caster = Fp8Caster::into(op.branch);
  const Fp8Caster requantized_caster = Fp8Caster::into(op.requantized);
  const Affine<V, kEven> affine(op.gain, op.shift, op.cols, team);
  CastCounts counts;
  unsigned long long seen = 0;
  Sums<V> sums;
  const int tiles = (op.rows + norm_tile_rows - 1) / norm_tile_rows;
  float2 next_stats = {};
  const auto load = [&](int row, const auto& fetch) {
    if (row >= op.rows) return;
    const Size first = offset_of(row, op.cols);
    team.for_groups(op.cols, [&](int i, int col, int valid) {
      fetch(of_x, i, op.x + first + col, valid);
      fetch(of_dy, i, op.dy + first + col, valid);
      if (op.next != nullptr) fetch(of_next, i, op.next + first + col, valid);
    });
  };
  in.begin(load);
  RowCursor<Members> cursor(team);
  if (cursor.row < op.rows) next_stats = op.stats[cursor.row];
  for (int t = static_cast<int>(blockIdx.x); t < tiles; t += static_cast<int>(gridDim.x)) {
    const int row0 = t * norm_tile_rows;
    const int rows = min(norm_tile_rows, op.rows - row0);
    for (int r = team.index; team.has_round(r, rows); r += team.count) {
      const Size first = offset_of(row0 + r, op.cols);
      std::byte* const code_row = op.branch.rows + offset_of(row0 + r, op.branch.row_bytes);  // of FP8
      const int cols = r < rows ? op.cols : 0;
      const NormRow norm{next_stats.x, next_stats.y};
      cursor.step();
      if (cursor.row < op.rows) next_stats = op.stats[cursor.row];
      in.advance(load);
      const Numbers<Rows<T, Members, operands>, V> numbers(in, norm);
      const float2 of_row = row_sums(op, team, affine, numbers);
      const float factor = op.add * norm.inverse_std;
      team.for_groups(cols, [&](int i, int col, int valid) {
        float v[8];
        float d[8];
        float gain[8];
        float shift[8];
        float before[8] = {};
        numbers.get(i, v, d);
        if (op.next != nullptr) in.at(of_next, i).unpack(before);
        affine.get(i, col, valid, gain, shift);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          sums.gain[i][j] += d[j] * v[j];
          sums.shift[i][j] += d[j];
          const float dx = factor * (d[j] * gain[j] - of_row.y - v[j] * of_row.x);
          d[j] = op.keep * before[j] + dx;
        }
        clear_tail(d, valid);
#pragma unroll
        for (int j = 0; j < 8; ++j) sums.column[i][j] += d[j];
        const Packed8<T> rounded = Packed8<T>::pack(d);
        store_packed(rounded, op.gradient + first + col, valid, kEven);
        if constexpr (leaves_amax) {
          if (op.branch.amax != nullptr) counts.amax = max(counts.amax, finite_amax(rounded));
        }
        if constexpr (kFp8) {
          const unsigned place = tile.offset(r, col);
          if (op.branch) {
            caster.with_format([&](const auto& to_format) {
              const uint2 codes = to_format.cast(d, counts);
              if (op.branch.rows != nullptr) store_codes(code_row, col, valid, kEven, codes);
              if (op.branch.columns != nullptr) tile.put(place, codes);
            });
          }
          if (op.requantized) {
#pragma unroll
            for (int j = 0; j < 8; ++j) v[j] = scaled_and_shifted(v[j], gain[j], shift[j]);
            clear_tail(v, valid);
            requantized_caster.with_format(
                [&](const auto& to_format) { requantized_tile.put(place, to_format.cast(v)); });
          }
        } else if (op.branch) {
          store_packed(pack_as<T>(op.branch.format, d), reinterpret_cast<T*>(op.branch.rows) + first + col, valid,
                       kEven);
        }
      });
    }
    if constexpr (kFp8) {
      seen += static_cast<unsigned>(rows * op.cols);
      __syncthreads();
      if (op.branch.columns != nullptr) {
        tile.write_columns(op.branch.columns, op.branch.column_bytes, row0, 0, rows, op.cols);
      }
      if (op.requantized) {
        requantized_tile.write_columns(op.requantized.columns, op.requantized.column_bytes, row0, 0, rows, op.cols);
      }
      __syncthreads();
    }
  }
  if constexpr (kFp8) add_counts(op.branch.statistics, counts, seen);
  if constexpr (leaves_amax) {
    if (op.branch.amax != nullptr) casts::raise_amax(op.branch.amax, counts.amax);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if (op.branch) store_scales(op.branch, op.branch.is_fp8() ? stored_scale(op.branch) : 1.0F);
    if (op.requantized) store_scales(op.requantized, stored_scale(op.requantized));
  }
  float* out = op.partials + static_cast<Size>(blockIdx.x) * 3 * op.cols;
  auto* scratch = reinterpret_cast<float*>(memory);
  leave_sums(team, sums.gain, op.cols, scratch, out);
  leave_sums(team, sums.shift, op.cols, scratch, out + op.cols);
  leave_sums(team, sums.column, op.cols, scratch, out + 2 * op.cols);
}

template <class T>
void launch_backward(Gpu& gpu, const AddNormBackward& op, const FusedTarget& branch, const FusedTarget& requantized) {
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
  args.rows = to_int(op.sum.rows);
  args.cols = to_int(op.sum.cols);
  args.branch = branch;
  args.requantized = requantized;
  const Size tile = CodeTile<norm_tile_rows>::bytes_for(args.cols);
  const Size codes = (branch.columns != nullptr ? tile : 0) + (requantized ? tile : 0);
  const Size tiles = ceil_div(args.rows, norm_tile_rows);
  const auto run = [&](auto kernel, int block, int teams, Size rows_ahead) {
    const Size sums = static_cast<Size>(teams) * args.cols * 4;
    const auto shared = static_cast<std::size_t>(std::max(codes + rows_ahead, sums));
    const unsigned blocks = persistent_blocks(gpu, kernel, block, shared, tiles, "add_norm_backward");
    args.partials = gpu.workspace<float>(Slot::sums, static_cast<Size>(blocks) * 3 * args.cols);
    kernel<<<blocks, block, shared, gpu.stream()>>>(args);
    check_launch("add_norm_backward");
    const auto sums_at = [&](int kind) {
      return PartialSums{args.partials + kind * args.cols, blocks, 3 * args.cols, args.cols};
    };
    const NormGradients& to = op.gradients;
    if (!to.gain.empty()) add_partial_sums(gpu, sums_at(0), to.factor, to.gain.f32());
    if (!to.shift.empty()) {
      add_partial_sums(gpu, sums_at(1), to.factor, to.shift.f32());
    }
    if (branch.column_sums != nullptr) {
      add_partial_sums(gpu, sums_at(2), 1.0F, branch.column_sums);
    }
  };
  with_team(args.cols, "add_norm_backward", [&]<int V, int W, bool kEven>() {
    using Members = Team<V, W, kEven>;
    using In = Rows<T, Members, operands>;
    args.slots = slots_ahead<In>(gpu, codes);
    const Size rows_ahead = args.slots * In::slot_bytes;
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      if (branch.is_fp8() || requantized) {
        return run(add_norm_backward_kernel<T, V, W, kEven, true>, norm_threads<W>, Members::count, rows_ahead);
      }
    }
    run(add_norm_backward_kernel<T, V, W, kEven, false>, norm_threads<W>, Members::count, rows_ahead);
  });
}

}  // namespace

bool norm_can_write_columns(const Gpu& gpu, Size width, int targets) {
  // What the kernels have beside the tiles: sums, and where rows are short enough, two slots of rows.
  constexpr Size slot = Rows<__nv_bfloat16, Team<1, 4, true>, operands>::slot_bytes;
  const Size own = 2048 + (width <= widest_row_ahead ? 2 * slot : 0);
  return targets * CodeTile<norm_tile_rows>::bytes_for(static_cast<int>(width)) + own <= gpu.shared_memory();
}

void add_norm_backward(Gpu& gpu, const AddNormBackward& op, const FusedTarget& branch_gradient,
                       const FusedTarget& out) {
  with_high_precision(op.sum.format, [&]<class T>(T) { launch_backward<T>(gpu, op, branch_gradient, out); });
}

}  // namespace quaver::cuda
