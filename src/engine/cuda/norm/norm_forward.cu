// AddNorm as one persistent kernel: residual add, layer or RMS norm, and the cast to FP8 (or a store in high
// precision). A block takes tiles of norm_tile_rows rows; a team of warps holds a row in registers, so that the row is
// read once. Rowwise codes go straight to memory; columnwise codes are transposed through a tile in shared memory.
#include "engine/cuda/cast/row_block.cuh"
#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/norm/norm.h"
#include "engine/cuda/norm/norm_device.cuh"
#include "engine/cuda/norm/norm_launch.h"
#include "engine/cuda/norm/norm_rows.cuh"

namespace quaver::cuda {

namespace {

template <class T>
struct Forward {
  const T* residual;
  const T* branch;  // null: sum = residual
  float keep;
  float add;
  T* sum;  // null: sum is the residual, which stays as it is
  float2* stats;
  const float* gain;
  const float* shift;
  float eps;
  bool layer;  // layer norm; else RMS norm
  int rows;
  int cols;
  int slots;  // stages of the row prefetch (norm_rows.cuh), in shared memory behind the tile
  FusedTarget out;
};

// A thread's elements of a row as FP32. With one vector of eight they are unpacked once; with more, unpacking them
// again in each pass over the row costs less than the registers would.
template <class T, int V>
struct Numbers {
  const Packed8<T> (&packed)[V];
  float kept[8];

  __device__ explicit Numbers(const Packed8<T> (&x)[V]) : packed(x) {
    if constexpr (V == 1) packed[0].unpack(kept);
  }
  __device__ void get(int i, float (&v)[8]) const {
    if constexpr (V > 1) {
      packed[i].unpack(v);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = kept[j];
    }
  }
};

// Mean (zero for RMS norm) and 1/std of a row, in two passes over registers.
template <class T, int V, class Team>
__device__ NormRow measure(const Forward<T>& op, Team& team, const Numbers<T, V>& x) {
  const float scale = 1.0F / static_cast<float>(op.cols);
  float mean = 0;
  if (op.layer) {
    float sum = 0;
    team.for_groups(op.cols, [&](int i, int, int) {
      float v[8];
      x.get(i, v);
      sum += sum_of(v);
    });
    mean = team.sum(sum) * scale;
  }
  float square = 0;
  team.for_groups(op.cols, [&](int i, int, int valid) {
    float v[8];
    x.get(i, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] -= mean;
    clear_tail(v, valid);
#pragma unroll
    for (int j = 0; j < 8; ++j) square += v[j] * v[j];
  });
  return {mean, rsqrtf(team.sum(square) * scale + op.eps)};
}

// keep · residual + add · branch, rounded to T
template <class T>
__device__ Packed8<T> join(const Forward<T>& op, const Packed8<T>& residual, const Packed8<T>& branch) {
  float a[8];
  float b[8];
  residual.unpack(a);
  branch.unpack(b);
  if (op.keep == 1.0F && op.add == 1.0F) {
#pragma unroll
    for (int j = 0; j < 8; ++j) a[j] += b[j];
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) a[j] = op.keep * a[j] + op.add * b[j];
  }
  return Packed8<T>::pack(a);
}

// What `out` is: high precision, FP8 with a scale that is known beforehand, E4M3 in blocks of a row, or the amax alone.
enum class Output : std::uint8_t { high_precision, fp8, fp8_blocks, amax };

// A row in flight waits longest where its scales are found on the way: more rows at once make up for it.
template <int V, Output kOut>
constexpr int blocks_at_once = V > 1 ? 1 : (kOut == Output::fp8_blocks ? 4 : 3);

// V vectors of eight per lane, W warps per row (Team)
template <class T, int V, int W, bool kEven, Output kOut>
__global__ __launch_bounds__(norm_threads<W>, blocks_at_once<V, kOut>) void add_norm_kernel(const Forward<T> op) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  constexpr bool has_codes = kOut == Output::fp8 || kOut == Output::fp8_blocks;
  using Members = Team<V, W, kEven>;
  using Tile = CodeTile<norm_tile_rows>;
  Members team;
  const Tile tile{memory, Tile::pitch_for(op.cols)};
  Rows<T, Members, 2> in(team, memory + (op.out.columns != nullptr ? Tile::bytes_for(op.cols) : 0), op.slots);
  const Fp8Caster caster = Fp8Caster::into(op.out);
  const Affine<V, kEven> affine(op.gain, op.shift, op.cols, team);
  CastCounts counts;
  unsigned long long seen = 0;  // elements cast, of the statistics
  const int tiles = (op.rows + norm_tile_rows - 1) / norm_tile_rows;
  const auto load = [&](int row, const auto& fetch) {
    if (row >= op.rows) return;
    const Size first = offset_of(row, op.cols);
    team.for_groups(op.cols, [&](int i, int col, int valid) {
      fetch(0, i, op.residual + first + col, valid);
      if (op.branch != nullptr) fetch(1, i, op.branch + first + col, valid);
    });
  };
  in.begin(load);
  for (int t = static_cast<int>(blockIdx.x); t < tiles; t += static_cast<int>(gridDim.x)) {
    const int row0 = t * norm_tile_rows;
    const int rows = min(norm_tile_rows, op.rows - row0);
    for (int r = team.index; team.has_round(r, rows); r += team.count) {
      const Size first = offset_of(row0 + r, op.cols);
      std::byte* const code_row = op.out.rows + offset_of(row0 + r, op.out.row_bytes);  // of FP8
      const int cols = r < rows ? op.cols : 0;  // no row left: the team only takes part in barriers
      Packed8<T> x[V] = {};
      in.advance(load);
      team.for_groups(cols, [&](int i, int col, int valid) {
        x[i] = op.branch != nullptr ? join(op, in.at(0, i), in.at(1, i)) : in.at(0, i);
        if (op.sum != nullptr) store_packed(x[i], op.sum + first + col, valid, kEven);
      });
      const Numbers<T, V> numbers(x);
      const NormRow norm = measure(op, team, numbers);
      if (r < rows && team.warp == 0 && team.lane == 0) op.stats[row0 + r] = make_float2(norm.mean, norm.inverse_std);
      team.for_groups(cols, [&](int i, int col, int valid) {
        float v[8];
        float gain[8];
        float shift[8];
        numbers.get(i, v);
        affine.get(i, col, valid, gain, shift);
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = scaled_and_shifted(norm.normal(v[j]), gain[j], shift[j]);
        clear_tail(v, valid);
        if constexpr (kOut == Output::fp8_blocks) {
          float* const scale = op.out.blocks.scales + offset_of(row0 + r, op.out.blocks.cols) + col / 128;
          const uint2 codes = cast_row_block(Packed8<T>::pack(v), op.out.blocks, scale, counts);
          store_codes(code_row, col, 8, true, codes);
        } else if constexpr (kOut == Output::amax) {
          counts.amax = max(counts.amax, finite_amax(Packed8<T>::pack(v)));
        } else if constexpr (kOut == Output::fp8) {
          caster.with_format([&](const auto& to_format) {
            const uint2 codes = to_format.cast(v, counts);
            if (op.out.rows != nullptr) store_codes(code_row, col, valid, kEven, codes);
            if (op.out.columns != nullptr) tile.put(tile.offset(r, col), codes);
          });
        } else {
          store_packed(pack_as<T>(op.out.format, v), reinterpret_cast<T*>(op.out.rows) + first + col, valid, kEven);
        }
      });
    }
    if constexpr (has_codes) {
      seen += static_cast<unsigned>(rows * op.cols);
      if (op.out.columns == nullptr) continue;
      __syncthreads();
      tile.write_columns(op.out.columns, op.out.column_bytes, row0, 0, rows, op.cols);
      __syncthreads();
    }
  }
  if constexpr (kOut == Output::amax) {
    casts::raise_amax(op.out.amax, counts.amax);
    return;
  }
  if constexpr (has_codes) add_counts(op.out.statistics, counts, seen);
  if (blockIdx.x == 0 && threadIdx.x == 0) store_scales(op.out, has_codes ? stored_scale(op.out) : 1.0F);
}

template <class T>
void launch_forward(Gpu& gpu, const AddNorm& op, const FusedTarget& out) {
  Forward<T> args{};
  args.residual = static_cast<const T*>(op.residual.data);
  args.branch = static_cast<const T*>(op.branch.data);
  args.keep = op.keep;
  args.add = op.add;
  const bool keeps_residual = op.sum_is_residual();
  args.sum = keeps_residual ? nullptr : static_cast<T*>(op.sum.data);
  args.stats = static_cast<float2*>(op.stats.data);
  args.gain = op.norm.gain.f32();
  args.shift = op.norm.shift.empty() ? nullptr : op.norm.shift.f32();
  args.eps = op.norm.eps;
  args.layer = op.norm.kind == NormKind::layer;
  args.rows = to_int(op.residual.rows);
  args.cols = to_int(op.residual.cols);
  args.out = out;
  const Size codes = out.columns != nullptr ? CodeTile<norm_tile_rows>::bytes_for(args.cols) : 0;
  const Size tiles = ceil_div(args.rows, norm_tile_rows);
  with_team(args.cols, "add_norm", [&]<int V, int W, bool kEven>() {
    using In = Rows<T, Team<V, W, kEven>, 2>;
    args.slots = slots_ahead<In>(gpu, codes);
    const auto run = [&](auto kernel) {
      launch_persistent(
          gpu, kernel,
          {norm_threads<W>, static_cast<std::size_t>(codes + args.slots * In::slot_bytes), tiles, "add_norm"}, args);
    };
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      if constexpr (kEven) {
        if (out.blocks.scales != nullptr) return run(add_norm_kernel<T, V, W, kEven, Output::fp8_blocks>);
        if (out.amax != nullptr) return run(add_norm_kernel<T, V, W, kEven, Output::amax>);
      }
      if (out.is_fp8()) return run(add_norm_kernel<T, V, W, kEven, Output::fp8>);
    }
    run(add_norm_kernel<T, V, W, kEven, Output::high_precision>);
  });
}

}  // namespace

void add_norm(Gpu& gpu, const AddNorm& op, const FusedTarget& out) {
  with_high_precision(op.residual.format, [&]<class T>(T) { launch_forward<T>(gpu, op, out); });
}

}  // namespace quaver::cuda
