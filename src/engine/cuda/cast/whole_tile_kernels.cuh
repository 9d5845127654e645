// Casts inside the kernel that computes the tensor. A thread block owns a tile of 128 × 128: it computes the tile's
// values from operands in shared memory, writes them back there in BF16, and casts them to FP8 along rows and along
// columns, with one scale per 128 elements, along columns also one per tile, or one per tensor, whose amax a pass over
// the same tiles finds first. Tiles are whole, so that nothing is compared with the matrix's end.
#pragma once

#include "engine/cuda/cast/cast_kernels.cuh"
#include "engine/cuda/cast/row_block.cuh"

namespace quaver::cuda::casts {

using Eight = Packed8<__nv_bfloat16>;

// What is a block: a line of a tile, or, along columns, the whole tile.
enum class Extent : std::uint8_t { line, tile };

// The blocks along columns of a job's results: known to the kernel, for which each further case costs registers.
enum class ColumnBlocks : std::uint8_t { lines, tiles, mixed };
template <ColumnBlocks B>
__device__ bool is_tile(Extent extent) {
  return B == ColumnBlocks::mixed ? extent == Extent::tile : B == ColumnBlocks::tiles;
}

// One code matrix of a result.
struct TileSide {
  std::byte* codes = nullptr;  // null: not wanted
  float* scales = nullptr;     // of the blocks
  const Bits* amax = nullptr;  // the tensor's, where it has one scale; null: blocks
  float* tensor_scale = nullptr;
  int row_bytes = 0;
  int scale_cols = 0;
  float limit = 1;                   // what an amax is scaled to
  Bits kept = lane::magnitude_mask;  // bits of a scale that stay
  Extent extent = Extent::line;      // where there are blocks

  __device__ BlockScale of_tensor() const { return block_scale(limit, kept, *amax); }
};

// A matrix that is cast, of which the tiles of a job are all columns, or those from first_col on.
struct TileResult {
  TileSide rows;
  TileSide columns;               // the transpose
  float* partial_sums = nullptr;  // [tiles down × cols]: column sums; null: not wanted
  int cols = 0;
  int first_col = 0;
};

// An operand of which tiles are loaded: BF16, its rows whole vectors.
struct TileOperand {
  const __nv_bfloat16* data;
  int stride;  // elements from row to row
};

// A producer names its operands and makes eight elements of each result from eight of each operand, knowing the row and
// the columns. There are no more results than operands: each takes an operand's place. The first `own_results` are one
// tensor, side by side; one more may be requantized on the way.
template <class Producer>
struct TileJob {
  Producer producer;
  TileResult results[Producer::results] = {};
  SiteStatistics* statistics = nullptr;  // of all results that are cast along rows
  unsigned long long elements = 0;       // of those
};

// Where a thread is in its tile. Four lanes share a line, as in cast_lines.cuh, and a thread has one line per pass.
struct TileThread {
  int row0 = static_cast<int>(blockIdx.y) * tile_size;
  int col0 = static_cast<int>(blockIdx.x) * tile_size;
  int quarter = static_cast<int>(threadIdx.x) % line_lanes;
  int first_line =
      static_cast<int>(threadIdx.x) / 32 * (8 * line_passes) + static_cast<int>(threadIdx.x) % 32 / line_lanes;

  __device__ int line(int pass) const { return first_line + 8 * pass; }
  // The thread's chunks of eight elements in a line, in the order of LinePairs.
  __device__ int chunk_col(int chunk) const {
    return quarter * group_size + chunk % 2 * 8 + chunk / 2 * (tile_size / 2);
  }
};

inline constexpr int line_chunks = 4;
inline constexpr int tile_elements = tile_size * tile_size;

__device__ inline void load_operand(const TileOperand& from, const TileThread& at, __nv_bfloat16* tile) {
  constexpr int chunks = tile_size / 8;
  constexpr int rows_at_once = tile_threads / chunks;
  const int row = static_cast<int>(threadIdx.x) / chunks;
  const int col = static_cast<int>(threadIdx.x) % chunks * 8;
  const __nv_bfloat16* source = from.data + offset_of(at.row0 + row, from.stride) + at.col0 + col;
#pragma unroll
  for (int i = 0; i < tile_size / rows_at_once; ++i) {
    copy16_async(tile + tile_offset<__nv_bfloat16>(row + i * rows_at_once, col),
                 source + offset_of(i * rows_at_once, from.stride));
  }
}

// Loads a tile's operands, computes its results and calls visit(result, pass, place, elements) for every eight: `place`
// is where an operand was. A thread has the elements that it casts along rows.
template <class Producer, class Visit>
__device__ void make_tile(const Producer& producer, const TileThread& at, __nv_bfloat16* tiles, const Visit& visit) {
  constexpr int apart = tile_elements / 8;
#pragma unroll
  for (int i = 0; i < Producer::operands; ++i) load_operand(producer.sources[i], at, tiles + i * tile_elements);
  typename Producer::Row rows[line_passes];
#pragma unroll
  for (int pass = 0; pass < line_passes; ++pass) rows[pass] = producer.row(at.row0 + at.line(pass));
  wait_for_copies();
  __syncthreads();
#pragma unroll 1
  for (int chunk = 0; chunk < line_chunks; ++chunk) {
    const int col = at.chunk_col(chunk);
    const typename Producer::Columns columns = producer.columns(at.col0 + col);
#pragma unroll
    for (int pass = 0; pass < line_passes; ++pass) {
      auto* place = reinterpret_cast<Eight*>(tiles + tile_offset<__nv_bfloat16>(at.line(pass), col));
      Eight in[Producer::operands];
      Eight out[Producer::results];
#pragma unroll
      for (int i = 0; i < Producer::operands; ++i) in[i] = place[i * apart];
      producer.make(rows[pass], columns, in, out);
#pragma unroll
      for (int i = 0; i < Producer::results; ++i) visit(i, pass, place[i * apart], out[i]);
    }
  }
}

using LineAmaxes = Bits[line_passes];

// Leaves a tile's results in place of its operands, and the largest magnitudes of a thread's elements.
template <class Producer>
__device__ void keep_tile(const Producer& producer, const TileThread& at, __nv_bfloat16* tiles,
                          LineAmaxes (&largest)[Producer::results]) {
  LineAmaxes pairs[Producer::results] = {};
  make_tile(producer, at, tiles, [&](int result, int pass, Eight& place, const Eight& made) {
    if constexpr (Producer::computes) place = made;
    const Bits words[4] = {made.bits.x, made.bits.y, made.bits.z, made.bits.w};
#pragma unroll
    for (const Bits word : words) pairs[result][pass] = __vmaxu2(pairs[result][pass], word & 0x7FFF7FFFU);
  });
#pragma unroll
  for (int i = 0; i < Producer::results; ++i) {
#pragma unroll
    for (int pass = 0; pass < line_passes; ++pass) {
      largest[i][pass] = lane::larger(pairs[i][pass] << 16, pairs[i][pass] & 0xFFFF0000U);
    }
  }
}

// amax over the finite elements of a thread's part of a line: where there are others, which is rare.
template <Side S>
__device__ __noinline__ Bits finite_line_amax(const __nv_bfloat16* tile, int line) {
  LinePairs pairs;
  read_line<S>(tile, line, pairs);
  return finite_amax(pairs);
}

// Makes the largest magnitudes of a thread's elements the amaxes of its lines.
template <Side S>
__device__ void find_amaxes(const TileThread& at, const __nv_bfloat16* tile, LineAmaxes& amax) {
  static_assert(line_passes == 2);
  if (__builtin_expect(__any_sync(~0U, !is_finite(lane::larger(amax[0], amax[1]))), 0)) {
    amax[0] = finite_line_amax<S>(tile, at.line(0));
    amax[1] = finite_line_amax<S>(tile, at.line(1));
  }
  amax[0] = line_largest(amax[0]);
  amax[1] = line_largest(amax[1]);
}

// The factors of a thread's lines, whose scales are stored at scales[line · scale_cols]. Lanes that share lines share
// the divisions too: each computes the scale of one line.
__device__ inline void scale_lines(const TileSide& side, const TileThread& at, float* scales, const LineAmaxes& amax,
                                   float (&factors)[line_passes]) {
  static_assert(line_passes == 2);
  const int mine = at.quarter % line_passes;
  const BlockScale found = block_scale(side.limit, side.kept, mine == 0 ? amax[0] : amax[1]);
  if (at.quarter < line_passes) scales[offset_of(at.line(mine), side.scale_cols)] = found.stored;
#pragma unroll
  for (int pass = 0; pass < line_passes; ++pass) factors[pass] = __shfl_sync(~0U, found.factor, pass, line_lanes);
}

using LineCodes = Bits[2][4];

template <Format F>
__device__ void encode_line(const LinePairs& pairs, float factor, LineCodes& codes) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const Bits low = pairs[half][2 * w];
      const Bits high = pairs[half][2 * w + 1];
      codes[half][w] = pair_of<F>(low_of(low), high_of(low), factor) | pair_of<F>(low_of(high), high_of(high), factor)
                                                                           << 16;
    }
  }
}

__device__ inline void store_line(std::byte* to, const LineCodes& codes) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    *reinterpret_cast<uint4*>(to + half * (tile_size / 2)) =
        make_uint4(codes[half][0], codes[half][1], codes[half][2], codes[half][3]);
  }
}

// Stores the codes of inf and NaN over those that the conversion gave, for E4M3 the same ones. `to`: the thread's part
// of the line's codes.
template <Format F, Side S>
__device__ __noinline__ void store_nonfinite(const __nv_bfloat16* tile, int line, std::byte* to) {
  constexpr lane::Layout layout = lane::layout(F);
  LinePairs pairs;
  read_line<S>(tile, line, pairs);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float v[group_size];
    unpack(pairs[half], v);
#pragma unroll
    for (int i = 0; i < group_size; ++i) {
      const Bits magnitude = lane::bits(v[i]) & lane::magnitude_mask;
      if (is_finite(magnitude)) continue;
      const Bits sign = (lane::bits(v[i]) & lane::sign_mask) >> 24;
      const Bits code = magnitude > lane::infinity_bits ? layout.nan : layout.infinity | sign;
      to[half * (tile_size / 2) + i] = static_cast<std::byte>(code);
    }
  }
}

// Elements that became zero though they were not.
__device__ inline Bits underflowed(const LinePairs& pairs, const LineCodes& codes) {
  constexpr Bits magnitudes = 0x7F7F7F7FU;
  Bits nonzero = ~0U;  // the high bits of codes
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (const Bits word : codes[half]) nonzero &= (word & magnitudes) + magnitudes;
  }
  if (__builtin_expect((nonzero | magnitudes) == ~0U, 1)) return 0;
  Bits count = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    count += static_cast<Bits>(zero_codes<Format::e4m3>(codes[half]));
#pragma unroll
    for (const Bits pair : pairs[half]) count -= (low_of(pair) == 0 ? 1U : 0U) + (high_of(pair) == 0 ? 1U : 0U);
  }
  return count;
}

// How many elements of a thread's part of a line are not finite, and how many saturate.
struct RareCounts {
  Bits nonfinite;
  Bits saturated;
};
template <Format F>
__device__ __noinline__ RareCounts count_rare(const __nv_bfloat16* tile, int line, float factor) {
  LinePairs pairs;
  read_line<Side::rows>(tile, line, pairs);
  GroupCounts counts;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float v[group_size];
    unpack(pairs[half], v);
    Bits nonfinite = 0;
    casts::count_rare<F>(v, factor, counts, nonfinite);
  }
  return {counts.nonfinite, counts.saturated};
}

__device__ inline void sum_column(const LinePairs& pairs, float* to) {
  float sum = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float v[group_size];
    unpack(pairs[half], v);
    sum += sum_of(v);
  }
#pragma unroll
  for (int step = 1; step < line_lanes; step *= 2) sum += __shfl_xor_sync(~0U, sum, step);
  if (threadIdx.x % line_lanes == 0) *to = sum;
}

// The largest magnitudes of a thread's elements along columns.
__device__ inline void find_largest(const TileThread& at, const __nv_bfloat16* tile, LineAmaxes& largest) {
#pragma unroll
  for (int pass = 0; pass < line_passes; ++pass) {
    LinePairs pairs;
    read_line<Side::columns>(tile, at.line(pass), pairs);
    largest[pass] = largest_magnitude(pairs);
  }
}

// A thread's lines: their amaxes and the factors of their casts.
struct ScaledLines {
  LineAmaxes amax;
  float factors[line_passes];
};

template <Side S>
__device__ ScaledLines scaled_lines(const TileSide& side, const TileThread& at, const __nv_bfloat16* tile,
                                    const LineAmaxes& largest, float* scales) {
  ScaledLines lines{{largest[0], largest[1]}, {}};
  find_amaxes<S>(at, tile, lines.amax);
  scale_lines(side, at, scales, lines.amax, lines.factors);
  return lines;
}

__device__ inline ScaledLines scaled_by_tensor(const TileSide& side) {
  const float factor = side.of_tensor().factor;
  return {{*side.amax, *side.amax}, {factor, factor}};
}

// All lines by their tile's amax. One thread stores the scale.
__device__ inline ScaledLines scaled_by_tile(const TileSide& side, Bits amax, float* scale) {
  const BlockScale found = block_scale(side.limit, side.kept, amax);
  if (threadIdx.x == 0) *scale = found.stored;
  return {{amax, amax}, {found.factor, found.factor}};
}

enum class Contents : std::uint8_t { finite, any };  // of a tile

// Casts a tile along rows, which is counted, or along columns, which are summed. A thread reads its lines anew rather
// than hold them: registers are what limits how many blocks run side by side.
template <Format F, Side S, ColumnBlocks B>
__device__ void cast_whole_lines(const TileResult& result, const TileThread& at, const __nv_bfloat16* tile,
                                 LineAmaxes& largest, Contents contents, GroupCounts& counts) {
  constexpr Bits beyond = lane::layout(F).max + 4;  // as count_rare has it
  const TileSide& side = S == Side::rows ? result.rows : result.columns;
  if (side.codes == nullptr) return;
  const int col0 = result.first_col + at.col0;
  const int first_line = S == Side::rows ? at.row0 : col0;
  const int along = S == Side::rows ? col0 : at.row0;
  ScaledLines lines;
  if (side.amax != nullptr) {
    lines = scaled_by_tensor(side);
  } else if (S == Side::columns && is_tile<B>(side.extent)) {
    float* const scale = side.scales + offset_of(first_line / tile_size, side.scale_cols) + along / tile_size;
    lines = scaled_by_tile(side, largest[0], scale);
  } else {
    if constexpr (S == Side::columns) find_largest(at, tile, largest);
    float* const scales = side.scales + offset_of(first_line, side.scale_cols) + along / tile_size;
    lines = scaled_lines<S>(side, at, tile, largest, scales);
  }
#pragma unroll 1
  for (int pass = 0; pass < line_passes; ++pass) {
    const int line = at.line(pass);
    const float factor = pass == 0 ? lines.factors[0] : lines.factors[1];
    std::byte* const to = side.codes + offset_of(first_line + line, side.row_bytes) + along + at.quarter * group_size;
    LinePairs pairs;
    LineCodes codes;
    read_line<S>(tile, line, pairs);
    encode_line<F>(pairs, factor, codes);
    store_line(to, codes);
    if (F == Format::e5m2 && contents == Contents::any) store_nonfinite<F, S>(tile, line, to);
    if constexpr (S == Side::rows) {
      const Bits amax = pass == 0 ? lines.amax[0] : lines.amax[1];
      const bool finite = is_finite(pass == 0 ? largest[0] : largest[1]);
      counts.amax = lane::larger(counts.amax, amax);
      counts.underflowed += underflowed(pairs, codes);
      if (__builtin_expect(!finite || lane::bits(times(lane::value(amax), factor)) > beyond, 0)) {
        const RareCounts rare = count_rare<F>(tile, line, factor);
        counts.nonfinite += rare.nonfinite;
        counts.saturated += rare.saturated;
      }
    } else if (result.partial_sums != nullptr) {
      sum_column(pairs, result.partial_sums + offset_of(at.row0 / tile_size, result.cols) + col0 + line);
    }
  }
}

// Every warp adds for itself; nearly always a comparison is all that is left of it.
__device__ inline void add_warp_counts(const GroupCounts& counts, SiteStatistics* statistics) {
  raise_amax(&statistics->amax, counts.amax);
  const bool any = __any_sync(~0U, (counts.nonfinite | counts.saturated | counts.underflowed) != 0);
  if (!any) return;
  const Bits nonfinite = warp_total(counts.nonfinite);
  const Bits saturated = warp_total(counts.saturated);
  const Bits underflowed = warp_total(counts.underflowed);
  if (threadIdx.x % 32 != 0) return;
  if (nonfinite > 0) atomicAdd(&statistics->nonfinite, static_cast<unsigned long long>(nonfinite));
  if (saturated > 0) atomicAdd(&statistics->saturated, static_cast<unsigned long long>(saturated));
  if (underflowed > 0) atomicAdd(&statistics->underflowed, static_cast<unsigned long long>(underflowed));
}

__device__ inline void store_tensor_scale(const TileSide& side) {
  if (side.codes != nullptr) *side.tensor_scale = side.amax != nullptr ? side.of_tensor().stored : 1.0F;
}

// What one thread of the grid writes.
template <class Producer>
__device__ void finish_tensors(const TileJob<Producer>& job) {
#pragma unroll
  for (const TileResult& result : job.results) {
    store_tensor_scale(result.rows);
    store_tensor_scale(result.columns);
  }
  if (job.statistics != nullptr) atomicAdd(&job.statistics->count, job.elements);
}

inline constexpr int tile_warps = tile_threads / 32;

// Leaves the amax of a warp's elements, for those results whose columns have one scale for the tile.
template <ColumnBlocks B, class Producer>
__device__ void leave_amaxes(const TileJob<Producer>& job, const TileThread& at, const __nv_bfloat16* tiles,
                             const LineAmaxes (&largest)[Producer::results],
                             Bits (&amaxes)[Producer::results][tile_warps]) {
#pragma unroll
  for (int i = 0; i < Producer::results; ++i) {
    if (!is_tile<B>(job.results[i].columns.extent)) continue;
    Bits amax = lane::larger(largest[i][0], largest[i][1]);
    if (__builtin_expect(__any_sync(~0U, !is_finite(amax)), 0)) {
      const __nv_bfloat16* const tile = tiles + i * tile_elements;
      amax =
          lane::larger(finite_line_amax<Side::rows>(tile, at.line(0)), finite_line_amax<Side::rows>(tile, at.line(1)));
    }
    amax = warp_largest(amax);
    if (threadIdx.x % 32 == 0) amaxes[i][threadIdx.x / 32] = amax;
  }
}

// The tile's amax, from those of its warps.
__device__ inline Bits tile_amax(const Bits (&amaxes)[tile_warps]) {
  Bits amax = 0;
#pragma unroll
  for (const Bits of_warp : amaxes) amax = lane::larger(amax, of_warp);
  return amax;
}

template <class Producer>
inline constexpr int whole_tile_bytes = Producer::operands* tile_bytes<__nv_bfloat16>;

template <class Producer, Format F, ColumnBlocks B>
__global__ void __launch_bounds__(tile_threads, Producer::blocks_at_once)
    whole_tiles_kernel(const __grid_constant__ TileJob<Producer> job) {
  extern __shared__ uint4 memory[];
  __shared__ Bits amaxes[Producer::results][tile_warps];
  auto* tiles = reinterpret_cast<__nv_bfloat16*>(memory);
  const TileThread at;
  LineAmaxes largest[Producer::results];
  keep_tile(job.producer, at, tiles, largest);
  constexpr bool has_tiles = B != ColumnBlocks::lines;
  if constexpr (has_tiles) leave_amaxes<B>(job, at, tiles, largest, amaxes);
  Contents contents = Contents::any;
  if constexpr (F == Format::e5m2) {
    Bits any = 0;
#pragma unroll
    for (const LineAmaxes& of_result : largest) any = lane::larger(any, lane::larger(of_result[0], of_result[1]));
    if (__syncthreads_and(is_finite(any) ? 1 : 0) != 0) contents = Contents::finite;
  }
  GroupCounts counts;
#pragma unroll
  for (int i = 0; i < Producer::results; ++i) {
    cast_whole_lines<F, Side::rows, B>(job.results[i], at, tiles + i * tile_elements, largest[i], contents, counts);
  }
  if constexpr (has_tiles || (Producer::computes && F != Format::e5m2)) __syncthreads();
#pragma unroll
  for (int i = 0; i < Producer::results; ++i) {
    if (has_tiles && is_tile<B>(job.results[i].columns.extent)) largest[i][0] = tile_amax(amaxes[i]);
    cast_whole_lines<F, Side::columns, B>(job.results[i], at, tiles + i * tile_elements, largest[i], contents, counts);
  }
  if (job.statistics != nullptr) add_warp_counts(counts, job.statistics);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) finish_tensors(job);
}

// The amax of a producer's own results.
template <class Producer>
__global__ void __launch_bounds__(tile_threads, Producer::blocks_at_once)
    whole_tiles_amax_kernel(const __grid_constant__ Producer producer, Bits* amax) {
  extern __shared__ uint4 memory[];
  const TileThread at;
  Bits found = 0;
  make_tile(producer, at, reinterpret_cast<__nv_bfloat16*>(memory), [&](int result, int, Eight&, const Eight& made) {
    if (result < Producer::own_results) found = lane::larger(found, quaver::cuda::finite_amax(made));
  });
  raise_amax(amax, found);
}

}  // namespace quaver::cuda::casts
