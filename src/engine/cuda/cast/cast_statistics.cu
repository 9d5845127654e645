#include "engine/cuda/cast/cast_launch.cuh"
#include "engine/cuda/cast/cast_statistics.h"

namespace quaver::cuda {

namespace {

using namespace casts;

struct Moments {
  double sum = 0;
  double sum2 = 0;
  double sum4 = 0;
  double error2 = 0;

  __device__ void add(const Moments& other) {
    sum += other.sum;
    sum2 += other.sum2;
    sum4 += other.sum4;
    error2 += other.error2;
  }
};

struct StatisticsJob {
  Source x;
  SideJob rows;
  Moments* parts;  // one per tile
  SiteStatistics* statistics;
};

struct Extremes {
  Bits min_nonzero;
  Bits binades[binade_count];
};

template <Format F>
__device__ float rounded_magnitude(const SideJob& side, Bits scaled, Bits word) {
  if (F != Format::f32 && side.rounding == Rounding::stochastic) {
    return round_magnitude<F, Rounding::stochastic>(scaled, word).value;
  }
  return round_magnitude<F, Rounding::nearest_even>(scaled, word).value;
}

__device__ inline int binade_of(Bits magnitude) {
  constexpr int low = lane::float_bias + lowest_binade;
  constexpr int high = lane::float_bias + highest_binade;
  return min(max(static_cast<int>(magnitude >> lane::float_mantissa), low), high) - low;
}

struct Scales {
  float factor;      // of the cast
  float multiplier;  // of its inverse
};

template <Format F>
__device__ void add_element(const SideJob& side, float v, Scales scales, Bits word, Moments& moments,
                            Extremes& extremes) {
  const Bits a = lane::bits(v) & lane::magnitude_mask;
  if (!is_finite(a) || a == 0) return;
  const Bits scaled = lane::bits(times(v, scales.factor)) & lane::magnitude_mask;
  const float error = lane::value(a) - times(rounded_magnitude<F>(side, scaled, word), scales.multiplier);
  const double value = v;
  const double square = value * value;
  moments.sum += value;
  moments.sum2 += square;
  moments.sum4 += square * square;
  moments.error2 += static_cast<double>(error) * static_cast<double>(error);
  if (a < extremes.min_nonzero) atomicMin(&extremes.min_nonzero, a);
  atomicAdd(&extremes.binades[binade_of(a)], 1U);
}

template <Format F>
__device__ void add_group(const SideJob& side, const RandomKey& key, const GroupPlace& at, float (&v)[group_size],
                          Moments& moments, Extremes& extremes) {
  if (side.rotation == Rotation::hadamard && at.count == group_size) rotate_group(v, side.signs);
  const float tensor_scale = *side.tensor_scale;
  float factor = factor_from_stored(tensor_scale);
  float multiplier = tensor_scale;
  if (side.has_blocks) {
    const float stored = side.block_scales[side.scale_index(at)];
    factor = block_factor(side.rule, tensor_scale, stored);
    multiplier = times(stored, tensor_scale);
  }
  const Scales scales{factor, multiplier};
  RandomWords words(key, static_cast<std::uint64_t>(at.out_line * side.length + at.out_first));
#pragma unroll
  for (int i = 0; i < group_size; i += 4) {
    const uint4 word = side.rounding == Rounding::stochastic ? words.next() : uint4{0, 0, 0, 0};
    add_element<F>(side, v[i], scales, word.x, moments, extremes);
    add_element<F>(side, v[i + 1], scales, word.y, moments, extremes);
    add_element<F>(side, v[i + 2], scales, word.z, moments, extremes);
    add_element<F>(side, v[i + 3], scales, word.w, moments, extremes);
  }
}

__device__ inline double warp_sum_of(double x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0U, x, step);
  return x;
}

// The sums over a block in a fixed order; thread 0 has them.
__device__ Moments block_sum_of(const Moments& moments) {
  constexpr int warps = tile_threads / 32;
  __shared__ Moments of_warp[warps];
  const Moments mine{warp_sum_of(moments.sum), warp_sum_of(moments.sum2), warp_sum_of(moments.sum4),
                     warp_sum_of(moments.error2)};
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  Moments total;
  for (int w = 0; threadIdx.x == 0 && w < warps; ++w) total.add(of_warp[w]);
  return total;
}

template <class T, Format F>
__global__ void __launch_bounds__(tile_threads) observe_tiles(const __grid_constant__ StatisticsJob job) {
  extern __shared__ uint4 memory[];
  __shared__ Extremes extremes;
  T* tile = reinterpret_cast<T*>(memory);
  const TilePlace place = tile_place(job.x);
  if (threadIdx.x < binade_count) extremes.binades[threadIdx.x] = 0;
  if (threadIdx.x == 0) extremes.min_nonzero = lane::infinity_bits;
  load_tile(job.x, place, tile);
  __syncthreads();
  Moments moments;
  const RandomKey key = job.rows.random_key();
#pragma unroll 1
  for (int pass = 0; pass < tile_passes; ++pass) {
    const GroupPlace at = group_place<Side::rows>(job.x, place, pass);
    if (at.count == 0) continue;
    float v[group_size];
    read_group<T, Side::rows>(tile, at, job.x.factor, v);
    add_group<F>(job.rows, key, at, v, moments, extremes);
  }
  const Moments total = block_sum_of(moments);  // its barrier also ends the counting of extremes
  if (threadIdx.x == 0) {
    job.parts[blockIdx.x] = total;
    atomicMin(&job.statistics->min_nonzero, extremes.min_nonzero);
  }
  if (threadIdx.x < binade_count && extremes.binades[threadIdx.x] > 0) {
    atomicAdd(&job.statistics->binades[threadIdx.x], static_cast<unsigned long long>(extremes.binades[threadIdx.x]));
  }
}

__global__ void __launch_bounds__(tile_threads)
    add_parts(const Moments* parts, Size count, unsigned long long elements, SiteStatistics* statistics) {
  Moments mine;
  for (Size part = threadIdx.x; part < count; part += tile_threads) mine.add(parts[part]);
  const Moments total = block_sum_of(mine);
  if (threadIdx.x != 0) return;
  statistics->sum += total.sum;
  statistics->sum2 += total.sum2;
  statistics->sum4 += total.sum4;
  statistics->error2 += total.error2;
  statistics->full_count += elements;
}

}  // namespace

void gather_full_statistics(Gpu& gpu, const Source& x, const SideJob& rows, Format format, SiteStatistics* statistics) {
  static_assert(sizeof(Moments) == moments_bytes);
  const Size tiles = cast_tile_count(x.rows, x.cols);
  const StatisticsJob job{x, rows, gpu.workspace<Moments>(Slot::statistics, tiles), statistics};
  with_tile_type(x, [&](auto element) {
    using T = decltype(element);
    with_format(format, [&](auto constant) {
      launch_tiles<T>(gpu, observe_tiles<T, decltype(constant)::value>, x, "observe_tiles", job);
    });
  });
  add_parts<<<1, tile_threads, 0, gpu.stream()>>>(job.parts, tiles, static_cast<unsigned long long>(x.rows * x.cols),
                                                  statistics);
  check_launch("add_parts");
}

}  // namespace quaver::cuda
