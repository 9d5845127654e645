#include <bit>
#include <cmath>
#include <string>
#include <type_traits>

#include "engine/cuda/cast.h"
#include "engine/cuda/cast_activation.cuh"
#include "engine/cuda/cast_launch.cuh"
#include "engine/cuda/cast_lines.cuh"
#include "engine/cuda/cast_statistics.h"
#include "engine/cuda/cast_survey.h"
#include "engine/cuda/cast_tile.cuh"
#include "engine/cuda/column_sums.h"
#include "formats/hadamard.h"
#include "quaver/error.h"

namespace quaver::cuda {

namespace {

using namespace casts;

struct CastJob {
  Source x;
  SideJob rows;
  SideJob columns;
  bool has_squares = false;
  SiteStatistics* statistics = nullptr;
  float* partial_sums = nullptr;  // [tiles down × cols]
};

// amaxes of the tile's 16 × 16 blocks, row by row, and that of the whole tile.
constexpr int square_count = lane_groups * lane_groups;
struct Squares {
  Bits amax[square_count + 1];

  __device__ void clear() {
    if (threadIdx.x <= square_count) amax[threadIdx.x] = 0;
  }
  __device__ void raise(const GroupPlace& at, Bits value) {
    atomicMax(&amax[at.line / group_size * lane_groups + at.group], value);
    value = warp_largest(value);
    if (threadIdx.x % 32 == 0) atomicMax(&amax[square_count], value);
  }
  template <Side S>
  __device__ Bits of(const GroupPlace& at, int block_cols) const {
    if (block_cols == tile_size) return amax[square_count];
    const int line_block = at.line / group_size;
    return S == Side::rows ? amax[line_block * lane_groups + at.group] : amax[at.group * lane_groups + line_block];
  }
};

template <class T>
__device__ void survey_squares(const Source& x, const TilePlace& place, const T* tile, Squares& squares) {
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<Side::rows>(x, place, pass);
    float v[group_size];
    read_group<T, Side::rows>(tile, at, x.factor, v);
    Bits amax = largest_magnitude(v);
    if (!is_finite(amax)) amax = finite_amax(v);
    squares.raise(at, amax);
  }
}

// The factor for a block with this amax, whose scale is stored by the thread that has the block's first group.
__device__ float block_factor_for(const SideJob& side, const GroupPlace& at, float tensor_scale, Bits amax) {
  const float stored = stored_block_scale(side.rule, tensor_scale, amax);
  const bool first_line = (at.line & ((1 << side.block_rows_shift) - 1)) == 0;
  const bool first_group =
      side.block_cols == 0 ? at.out_first == 0 : ((at.group * group_size) & (side.block_cols - 1)) == 0;
  if (at.count > 0 && first_line && first_group) side.block_scales[side.scale_index(at)] = stored;
  return block_factor(side.rule, tensor_scale, stored);
}

// The factor of the group's block; amax is the group's own.
template <Side S>
__device__ float group_factor(const SideJob& side, const GroupPlace& at, const Squares& squares, float tensor_scale,
                              Bits amax) {
  if (side.block_rows_shift > 0) {
    amax = squares.of<S>(at, side.block_cols);
  } else if (side.block_cols == 0) {
    amax = at.count > 0 ? side.line_amax[at.out_line] : 0;
  } else {
    for (int step = 1; step * group_size < side.block_cols; step *= 2) {
      amax = lane::larger(amax, __shfl_xor_sync(~0U, amax, step));
    }
  }
  return block_factor_for(side, at, tensor_scale, amax);
}

// The first `count` codes, one by one: rows that no vector fits.
template <Format F>
__device__ void store_codes(std::byte* to, Packed<F>& packed, int count) {
  constexpr int width = lane::layout(F).width;
  constexpr int bits = width < 8 ? 8 : width;
  using Unit = std::conditional_t<bits == 8, std::uint8_t, std::conditional_t<bits == 16, std::uint16_t, Bits>>;
  const int units = (count * width + bits - 1) / bits;
#pragma unroll
  for (int i = 0; i < group_size * width / bits; ++i) {
    Bits unit = packed[i * bits / 32] >> (i * bits % 32);
    if (width < 8 && 2 * i + 1 == count) unit &= 0xFU;  // the other half of a last odd code is zero
    if (i < units) reinterpret_cast<Unit*>(to)[i] = static_cast<Unit>(unit);
  }
}

template <Format F>
__device__ void store_group(const SideJob& side, const GroupPlace& at, Packed<F>& packed) {
  std::byte* to = side.codes + at.out_line * side.row_bytes + at.out_first * lane::layout(F).width / 8;
  if (!side.aligned || at.count < group_size) {
    store_codes<F>(to, packed, at.count);
  } else if constexpr (packed_words<F> == 2) {
    *reinterpret_cast<uint2*>(to) = uint2{packed[0], packed[1]};
  } else {
#pragma unroll
    for (int w = 0; w < packed_words<F>; w += 4) {
      reinterpret_cast<uint4*>(to)[w / 4] = uint4{packed[w], packed[w + 1], packed[w + 2], packed[w + 3]};
    }
  }
}

// What a thread keeps of a side from group to group.
struct SideState {
  float tensor_scale;
  float tensor_factor;
  RandomKey key;

  __device__ explicit SideState(const SideJob& side) : key(side.random_key()) {
    const float amax = side.tensor_amax != nullptr ? lane::value(*side.tensor_amax) : 0.0F;
    tensor_scale =
        stored_tensor_scale(side.rule, amax, side.rule.tensor == TensorScale::given ? *side.given_scale : 1.0F);
    tensor_factor = factor_from_stored(tensor_scale);
    if (blockIdx.x == 0 && threadIdx.x == 0) *side.tensor_scale = tensor_scale;
  }
};

template <Format F, Side S>
__device__ void cast_group(const SideJob& side, const SideState& state, const GroupPlace& at, const Squares& squares,
                           bool counting, float (&v)[group_size], GroupCounts& counts) {
  if (side.rotation == Rotation::hadamard && at.count == group_size) rotate_group(v, side.signs);
  const Bits largest = largest_magnitude(v);
  const Bits amax = is_finite(largest) ? largest : finite_amax(v);
  float factor = state.tensor_factor;
  if (side.has_blocks) factor = group_factor<S>(side, at, squares, state.tensor_scale, amax);
  Packed<F> packed;
  if (F != Format::f32 && side.rounding == Rounding::stochastic) {
    const auto index = static_cast<std::uint64_t>(at.out_line * side.length + at.out_first);
    encode_group<F, Rounding::stochastic>(v, factor, state.key, index, packed);
  } else {
    encode_group<F, Rounding::nearest_even>(v, factor, state.key, 0, packed);
  }
  if (!is_finite(largest)) patch_nonfinite<F>(v, packed);
  if (S == Side::rows && counting) count_group<F>(v, packed, factor, largest, amax, counts);
  if (at.count > 0) store_group<F>(side, at, packed);
}

// A column's sum over the tile, from the parts that kLanes neighbouring lanes have of it; the one with the column's
// first group stores it.
template <int kLanes>
__device__ inline void add_column(const Source& x, const GroupPlace& at, float sum, float* sums) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) sum += __shfl_xor_sync(~0U, sum, step);
  if (at.group == 0 && at.count > 0) sums[at.out_first / tile_size * x.cols + at.out_line] = sum;
}

__device__ inline float sum_of(const float (&v)[group_size]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < group_size; ++i) sum += v[i];
  return sum;
}

template <class T, Format F>
__device__ void cast_rows(const CastJob& job, const TilePlace& place, const T* tile, const Squares& squares,
                          GroupCounts& counts) {
  const SideState state(job.rows);
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<Side::rows>(job.x, place, pass);
    float v[group_size];
    read_group<T, Side::rows, F == Format::f32 ? Payload::kept : Payload::any>(tile, at, job.x.factor, v);
    cast_group<F, Side::rows>(job.rows, state, at, squares, job.statistics != nullptr, v, counts);
  }
}

template <class T, Format F>
__device__ void cast_columns(const CastJob& job, const TilePlace& place, const T* tile, const Squares& squares) {
  const SideState state(job.columns);
  GroupCounts ignored;  // the same elements seen again
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<Side::columns>(job.x, place, pass);
    float v[group_size];
    read_group<T, Side::columns, F == Format::f32 ? Payload::kept : Payload::any>(tile, at, job.x.factor, v);
    if (job.partial_sums != nullptr) add_column<lane_groups>(job.x, at, sum_of(v), job.partial_sums);
    cast_group<F, Side::columns>(job.columns, state, at, squares, false, v, ignored);
  }
}

template <class T>
__device__ void sum_columns(const CastJob& job, const TilePlace& place, const T* tile) {
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<Side::columns>(job.x, place, pass);
    float v[group_size];
    read_group<T, Side::columns>(tile, at, job.x.factor, v);
    add_column<lane_groups>(job.x, at, sum_of(v), job.partial_sums);
  }
}

// ---- whole lines: FP8 from BF16 as it lies, rounded to nearest, whose scales are of tensors, rows or 128 elements

// The factor of the line's elements; amax is that of the thread's own.
__device__ float line_factor(const SideJob& side, const SideState& state, const GroupPlace& at, Bits amax) {
  if (!side.has_blocks) return state.tensor_factor;
  if (side.block_cols == 0) {
    amax = at.count > 0 ? side.line_amax[at.out_line] : 0;
  } else {
    amax = line_largest(amax);
  }
  return block_factor_for(side, at, state.tensor_scale, amax);
}

template <Format F, Side S>
__device__ void cast_lines(const CastJob& job, const SideJob& side, const TilePlace& place, const __nv_bfloat16* tile,
                           GroupCounts& counts) {
  const SideState state(side);
  const bool counting = S == Side::rows && job.statistics != nullptr;
  const bool summing = S == Side::columns && job.partial_sums != nullptr;
  LinePlaces<S> places(job.x, place);
#pragma unroll 1
  for (int pass = 0; pass < line_passes; ++pass) {
    const GroupPlace& first = places.groups[0];
    LinePairs pairs;
    read_line<S>(tile, first.line, pairs);
    const Bits largest = largest_magnitude(pairs);
    const Bits amax = is_finite(largest) ? largest : finite_amax(pairs);
    const float factor = line_factor(side, state, first, amax);
    float sum = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float v[group_size];
      unpack(pairs[half], v);
      Packed<F> packed;
      encode_group<F, Rounding::nearest_even>(v, factor, state.key, 0, packed);
      if (!is_finite(largest)) patch_nonfinite<F>(v, packed);
      if (counting) count_group<F>(v, packed, factor, largest, amax, counts);
      if (places.groups[half].count > 0) store_group<F>(side, places.groups[half], packed);
      if (summing) sum += sum_of(v);
    }
    if (summing) add_column<line_lanes>(job.x, first, sum, job.partial_sums);
    places.next_pass();
  }
}

// One atomic a tile: every tile of a tensor adds to the same few words.
__device__ void add_counts(const Source& x, const GroupCounts& counts, SiteStatistics* statistics) {
  __shared__ GroupCounts total;
  if (threadIdx.x == 0) total = {};
  __syncthreads();
  const Bits amax = warp_largest(counts.amax);
  const Bits nonfinite = warp_total(counts.nonfinite);
  const Bits saturated = warp_total(counts.saturated);
  const Bits underflowed = warp_total(counts.underflowed);
  if (threadIdx.x % 32 == 0) {
    atomicMax(&total.amax, amax);
    atomicAdd(&total.nonfinite, nonfinite);
    atomicAdd(&total.saturated, saturated);
    atomicAdd(&total.underflowed, underflowed);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (total.amax > *static_cast<volatile unsigned*>(&statistics->amax)) atomicMax(&statistics->amax, total.amax);
  if (total.nonfinite > 0) atomicAdd(&statistics->nonfinite, static_cast<unsigned long long>(total.nonfinite));
  if (total.saturated > 0) atomicAdd(&statistics->saturated, static_cast<unsigned long long>(total.saturated));
  if (total.underflowed > 0) atomicAdd(&statistics->underflowed, static_cast<unsigned long long>(total.underflowed));
  if (blockIdx.x == 0) atomicAdd(&statistics->count, static_cast<unsigned long long>(x.rows * x.cols));
}

// Fills tiles with the matrix as it lies.
struct MatrixFill {
  template <class T>
  __device__ void operator()(const Source& x, const TilePlace& place, T* tile) const {
    load_tile(x, place, tile);
  }
};

template <class T, Format F, class Fill>
__global__ void __launch_bounds__(tile_threads, 3) cast_tiles(const __grid_constant__ CastJob job, const Fill fill) {
  extern __shared__ uint4 memory[];
  __shared__ Squares squares;
  T* tile = reinterpret_cast<T*>(memory);
  const TilePlace place = tile_place(job.x);
  squares.clear();
  fill(job.x, place, tile);
  __syncthreads();
  if (job.has_squares) {
    survey_squares(job.x, place, tile, squares);
    __syncthreads();
  }
  GroupCounts counts;
  if (job.rows.codes != nullptr) cast_rows<T, F>(job, place, tile, squares, counts);
  if (job.columns.codes != nullptr) {
    cast_columns<T, F>(job, place, tile, squares);
  } else if (job.partial_sums != nullptr) {
    sum_columns(job, place, tile);
  }
  if (job.statistics != nullptr) add_counts(job.x, counts, job.statistics);
}

template <Format F, class Fill>
__global__ void __launch_bounds__(tile_threads, 3)
    cast_line_tiles(const __grid_constant__ CastJob job, const Fill fill) {
  extern __shared__ uint4 memory[];
  auto* tile = reinterpret_cast<__nv_bfloat16*>(memory);
  const TilePlace place = tile_place(job.x);
  fill(job.x, place, tile);
  __syncthreads();
  GroupCounts counts;
  if (job.rows.codes != nullptr) cast_lines<F, Side::rows>(job, job.rows, place, tile, counts);
  if (job.columns.codes != nullptr) {
    cast_lines<F, Side::columns>(job, job.columns, place, tile, counts);
  } else if (job.partial_sums != nullptr) {
    sum_columns(job, place, tile);
  }
  if (job.statistics != nullptr) add_counts(job.x, counts, job.statistics);
}

// ---- the host's part

bool takes_own_amax(const QuantSpec& spec) {
  return (spec.block == block::tensor && spec.policy == ScalePolicy::current) || spec.scale == ScaleFormat::e4m3;
}

bool has_whole_rows(const QuantSpec& spec) { return spec.block == block::row; }

ScaleRule scale_rule(const QuantSpec& spec) {
  ScaleRule rule;
  rule.format = spec.scale;
  const bool waits = spec.policy == ScalePolicy::delayed || spec.policy == ScalePolicy::fixed;
  if (takes_own_amax(spec)) {
    rule.tensor = spec.policy == ScalePolicy::none ? TensorScale::one : TensorScale::current;
  } else if (waits) {
    rule.tensor = TensorScale::given;
  }
  rule.max = info(spec.format).max;
  rule.limit = std::ldexp(rule.max, -spec.margin);
  rule.tensor_limit = spec.scale == ScaleFormat::e4m3 ? info(Format::e4m3).max * rule.max : rule.limit;
  if (spec.scale == ScaleFormat::f32_power_of_two) rule.kept = lane::infinity_bits;
  rule.shrink = spec.shrink;
  return rule;
}

Bits packed_signs(const RandomKey& key) {
  const RotationSigns signs = rotation_signs(key);
  Bits packed = 0;
  for (int i = 0; i < group_size; ++i) packed |= (signs[static_cast<std::size_t>(i)] >> 31) << i;
  return packed;
}

// A delayed or fixed scale that is not known yet makes this one cast a current one.
QuantSpec resolved(QuantSpec spec, float host_scale) {
  const bool waits = spec.policy == ScalePolicy::delayed || spec.policy == ScalePolicy::fixed;
  if (waits && host_scale == 0) spec.policy = ScalePolicy::current;
  return spec;
}

SideJob side_job(const CodeMatrix& matrix, Side side, const CastTarget& target) {
  SideJob job;
  const QuantSpec& spec = matrix.spec;
  job.codes = matrix.codes;
  if (job.codes == nullptr) return job;
  job.block_scales = matrix.block_scales;
  job.tensor_scale = matrix.tensor_scale;
  job.length = matrix.cols;
  job.row_bytes = matrix.row_bytes();
  job.scale_cols = matrix.scale_cols();
  job.has_blocks = matrix.has_block_scales();
  job.block_cols = spec.block.cols;
  job.block_rows_shift = spec.block.rows > 0 ? std::countr_zero(static_cast<unsigned>(spec.block.rows)) : 0;
  job.block_cols_shift = spec.block.cols > 0 ? std::countr_zero(static_cast<unsigned>(spec.block.cols)) : 0;
  const std::size_t vector = spec.format == Format::e2m1 ? 8 : 16;
  job.aligned = reinterpret_cast<std::uintptr_t>(matrix.codes) % vector == 0 &&
                static_cast<std::size_t>(matrix.row_bytes()) % vector == 0;
  job.rounding = spec.rounding;
  job.rotation = spec.rotation;
  job.signs = packed_signs(target.key);
  job.rule = scale_rule(spec);
  job.key = target.key;
  if (side == Side::columns) job.key.stream ^= columns_stream;
  job.micro_step = target.micro_step;
  job.given_scale = target.slot.scale;
  return job;
}

// Lays out what the survey finds, and tells the sides where. Returns false where nothing has to be known.
bool plan_survey(Gpu& gpu, const CastTarget& target, CastJob& job, SurveyJob& survey) {
  const bool rows = job.rows.codes != nullptr;
  const bool columns = job.columns.codes != nullptr;
  const bool row_tensor = rows && takes_own_amax(target.rows.spec);
  const bool column_tensor = columns && takes_own_amax(target.columns.spec);
  const bool row_lines = rows && has_whole_rows(target.rows.spec);
  const bool column_lines = columns && has_whole_rows(target.columns.spec);
  if (!row_tensor && !column_tensor && !row_lines && !column_lines) return false;

  constexpr Size heads = 64;
  const Size words = heads + job.x.rows + job.x.cols;
  Bits* found = gpu.workspace<Bits>(Slot::scales, words);
  check(cudaMemsetAsync(found, 0, static_cast<std::size_t>(words) * sizeof(Bits), gpu.stream()), "clearing amaxes");
  survey.x = job.x;
  survey.rows = {row_tensor || row_lines, job.rows.rotation, job.rows.signs, nullptr, nullptr};
  survey.columns = {column_lines || (column_tensor && job.columns.rotation != Rotation::none), job.columns.rotation,
                    job.columns.signs, nullptr, nullptr};
  if (row_tensor) job.rows.tensor_amax = survey.rows.tensor_amax = found;
  if (row_lines) job.rows.line_amax = survey.rows.line_amax = found + heads;
  if (column_lines) job.columns.line_amax = survey.columns.line_amax = found + heads + job.x.rows;
  if (!column_tensor) return true;
  // Without a rotation of its own the columns' amax is that of x as it lies, which the rows' visit sees anyway.
  const bool rows_see_it = job.columns.rotation == Rotation::none && survey.rows.rotation == Rotation::none;
  SurveyVisit& visit = rows_see_it ? survey.rows : survey.columns;
  visit.wanted = true;
  if (visit.tensor_amax == nullptr) visit.tensor_amax = rows_see_it ? found : found + 1;
  job.columns.tensor_amax = visit.tensor_amax;
  return true;
}

bool has_fp8_lines(const SideJob& side, const CodeMatrix& matrix) {
  const QuantSpec& spec = matrix.spec;
  const bool is_fp8 = spec.format == Format::e4m3 || spec.format == Format::e5m2;
  const bool whole = spec.block == block::tensor || spec.block == block::row || spec.block == block::b1x128;
  return side.codes == nullptr ||
         (is_fp8 && whole && spec.rounding == Rounding::nearest_even && spec.rotation == Rotation::none);
}

// Calls launch with the format as a constant, and returns true, where the job is one of whole lines.
template <class Launch>
bool with_lines(const CastJob& job, const CastTarget& target, Format format, const Launch& launch) {
  if (job.x.format != Format::bf16 || !job.x.aligned || job.x.factor != 1) return false;
  if (!has_fp8_lines(job.rows, target.rows) || !has_fp8_lines(job.columns, target.columns)) return false;
  if (format == Format::e4m3) launch(FormatConstant<Format::e4m3>{});
  if (format == Format::e5m2) launch(FormatConstant<Format::e5m2>{});
  return true;
}

void run_cast(Gpu& gpu, const CastJob& job, const CastTarget& target, Format format) {
  const bool done = with_lines(job, target, format, [&](auto constant) {
    launch_tiles<__nv_bfloat16>(gpu, cast_line_tiles<decltype(constant)::value, MatrixFill>, job.x, "cast_line_tiles",
                                job, MatrixFill{});
  });
  if (done) return;
  with_tile_type(job.x, [&](auto element) {
    using T = decltype(element);
    with_format(format, [&](auto constant) {
      launch_tiles<T>(gpu, cast_tiles<T, decltype(constant)::value, MatrixFill>, job.x, "cast_tiles", job,
                      MatrixFill{});
    });
  });
}

// Kernels cast both sides from one read where their codes have one format.
void run_sides(Gpu& gpu, const CastJob& job, const CastTarget& target) {
  const bool rows = job.rows.codes != nullptr;
  const bool columns = job.columns.codes != nullptr;
  if (!rows || !columns || target.rows.spec.format == target.columns.spec.format) {
    return run_cast(gpu, job, target, rows ? target.rows.spec.format : target.columns.spec.format);
  }
  CastJob first = job;
  first.columns = {};
  first.partial_sums = nullptr;
  run_cast(gpu, first, target, target.rows.spec.format);
  CastJob second = job;
  second.rows = {};
  second.statistics = nullptr;
  run_cast(gpu, second, target, target.columns.spec.format);
}

CastTarget resolved(CastTarget target) {
  target.rows.spec = resolved(target.rows.spec, target.host_scale);
  target.columns.spec = resolved(target.columns.spec, target.host_scale);
  return target;
}

bool has_squares(const CodeMatrix& matrix) { return matrix.codes != nullptr && matrix.spec.block.rows > 1; }

void check_shape(const View& x, const CodeMatrix& matrix, Size rows, Size cols) {
  if (matrix.codes == nullptr || (matrix.rows == rows && matrix.cols == cols)) return;
  throw Error("a matrix of " + std::to_string(x.rows) + " by " + std::to_string(x.cols) + " does not fit codes of " +
                  std::to_string(matrix.rows) + " by " + std::to_string(matrix.cols),
              "the columns side holds the transpose of its source, the rows side the same shape");
}

// Like the CPU engine, which stores f32 without a look at it unless there is more to do.
bool is_observed(const CastTarget& target) {
  if (target.slot.statistics == nullptr || target.rows.codes == nullptr) return false;
  const bool stored_as_is = target.rows.spec.format == Format::f32 && target.columns.codes == nullptr;
  return !stored_as_is || target.detail == Detail::full;
}

CastJob cast_job(Gpu& gpu, const View& x, const Source& source, const CastTarget& target) {
  check_shape(x, target.rows, x.rows, x.cols);
  check_shape(x, target.columns, x.cols, x.rows);
  CastJob job;
  job.x = source;
  job.rows = side_job(target.rows, Side::rows, target);
  job.columns = side_job(target.columns, Side::columns, target);
  job.has_squares = has_squares(target.rows) || has_squares(target.columns);
  job.statistics = is_observed(target) ? target.slot.statistics : nullptr;
  if (target.column_sums != nullptr) {
    job.partial_sums = gpu.workspace<float>(Slot::sums, source.tiles_down() * source.cols);
  }
  return job;
}

void finish_sums(Gpu& gpu, const CastJob& job, const CastTarget& target) {
  const Source& x = job.x;
  if (target.column_sums == nullptr || x.rows * x.cols == 0) return;
  add_partial_sums(gpu, job.partial_sums, x.tiles_down(), x.cols, x.cols, 1.0F, target.column_sums);
}

template <class Fill>
void cast_filled(Gpu& gpu, const View& shape, const CastTarget& given, const Fill& fill) {
  const CastTarget target = resolved(given);
  const CastJob job = cast_job(gpu, shape, {nullptr, Format::bf16, shape.rows, shape.cols, 1, true}, target);
  const Format format = target.rows.spec.format;
  const bool done = with_lines(job, target, format, [&](auto constant) {
    launch_tiles<__nv_bfloat16>(gpu, cast_line_tiles<decltype(constant)::value, Fill>, job.x,
                                "cast_line_tiles, activation", job, fill);
  });
  const auto launch = [&](auto constant) {
    launch_tiles<__nv_bfloat16>(gpu, cast_tiles<__nv_bfloat16, decltype(constant)::value, Fill>, job.x,
                                "cast_tiles, activation", job, fill);
  };
  if (!done && format == Format::e4m3) launch(FormatConstant<Format::e4m3>{});
  if (!done && format == Format::e5m2) launch(FormatConstant<Format::e5m2>{});
  finish_sums(gpu, job, target);
}

template <Function F>
void cast_function(Gpu& gpu, const Activation& op, const CastTarget& target) {
  cast_filled(gpu, {nullptr, Format::bf16, op.x.rows, op.out.cols_count()}, target, ActivationFill<F>(op));
}

template <Function F>
void cast_function(Gpu& gpu, const ActivationBackward& op, const CastTarget& target) {
  cast_filled(gpu, {nullptr, Format::bf16, op.x.rows, op.x.cols}, target, GradientFill<F>(op));
}

template <class Op>
void cast_any_function(Gpu& gpu, const Op& op, const CastTarget& target) {
  switch (op.kind) {
    case ActivationKind::gelu:
      return cast_function<Function::gelu>(gpu, op, target);
    case ActivationKind::relu:
      return cast_function<Function::relu>(gpu, op, target);
    case ActivationKind::swiglu:
      return cast_function<Function::swiglu>(gpu, op, target);
  }
}

bool lies_in_vectors(const View& x) {
  return x.format == Format::bf16 && x.cols % 8 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

// Whether both sides can be cast from a tile alone: no scale depends on more than it holds.
bool needs_tiles_only(const CastTarget& target) {
  const Format format = target.rows.spec.format;
  if (format != target.columns.spec.format || (format != Format::e4m3 && format != Format::e5m2)) return false;
  if (target.detail == Detail::full && is_observed(target)) return false;
  const auto local = [](const QuantSpec& spec) { return !takes_own_amax(spec) && !has_whole_rows(spec); };
  return local(target.rows.spec) && local(target.columns.spec);
}

}  // namespace

bool can_cast_activation(const View& x, const View& dy, const CastTarget& target) {
  return lies_in_vectors(x) && (dy.empty() || lies_in_vectors(dy)) && needs_tiles_only(resolved(target));
}

void cast_activation(Gpu& gpu, const Activation& op, const CastTarget& target) { cast_any_function(gpu, op, target); }

void cast_activation_backward(Gpu& gpu, const ActivationBackward& op, const CastTarget& target) {
  cast_any_function(gpu, op, target);
}

void cast(Gpu& gpu, View x, float factor, const CastTarget& given) {
  const CastTarget target = resolved(given);
  CastJob job = cast_job(gpu, x, source_of(x, factor), target);
  SurveyJob survey;
  if (plan_survey(gpu, target, job, survey)) run_survey(gpu, survey);
  run_sides(gpu, job, target);
  finish_sums(gpu, job, target);
  if (job.statistics != nullptr && target.detail == Detail::full) {
    gather_full_statistics(gpu, job.x, job.rows, target.rows.spec.format, job.statistics);
  }
}

}  // namespace quaver::cuda
