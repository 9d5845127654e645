// The backward pass of attention on Hopper, for heads of 64 and 128. A block loads the keys of a head 128 at a time,
// holds their gradients in registers while it iterates over the queries, and adds its part of the queries' gradients to
// memory. Every element is added to in one order (attention_schedule.cuh), so the same input gives the same bits,
// without the scores ever leaving the chip.
//
// A producer warpgroup copies tiles ahead (TMA); two consumers own 64 keys each. Scores are computed with keys as rows,
// so that they are, in registers, the left operands of the wgmma for the keys' and values' gradients; only the
// gradients of scores go through shared memory, because the queries' gradients need those of both warpgroups.
#pragma once

#include "engine/cuda/attention/attention_schedule.cuh"

namespace quaver::cuda::hopper {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct TileOrigin {
  int column;
  int row;
  int sequence;
};

// `Rows` positions of a head, in boxes of 64 by 64.
template <int E, int Rows>
__device__ void copy_tile(Address to, const CUtensorMap& map, TileOrigin from, Address here, std::uint64_t hint) {
#pragma unroll
  for (int p = 0; p < E / part; ++p) {
#pragma unroll
    for (int r = 0; r < Rows; r += 64) {
      copy_box(to + (p * Rows + r) * row_bytes, map, from.column + p * part, from.row + r, from.sequence, here, hint);
    }
  }
}

template <int E, AttentionUnit Unit>
__device__ void copy_tiles(Address shared, const Work& work, const CUtensorMap& qkv, const CUtensorMap& gradient) {
  using T = Tiles<E>;
  PipelineState keys;
  PipelineState queries;
  DealtUnits dealt;
  const auto next = [&] { return Unit == AttentionUnit::head ? dealt.next() : draw_unit<E>(shared, work, keys); };
  const int kv_heads = work.heads / work.group;
  for_all_pairs<E, Unit>(work, next, [&](const Pair<E, Unit>& pair) {
    const int b = pair.item / work.heads;
    const int h = pair.item % work.heads;
    if (pair.first(work)) {
      const int kv = h / work.group;
      const Address here = keys.of(shared + T::keys_here);
      const Address to = shared + keys.stage() * T::keys_bytes;
      const int row = pair.j * key_rows;
      wait(keys.of(shared + T::keys_done), keys.previous_phase());
      arrive_expecting(here, 2 * T::keys_bytes);
      copy_tile<E, key_rows>(to + T::keys, qkv, {(work.heads + kv) * E, row, b}, here, read_once);
      copy_tile<E, key_rows>(to + T::values, qkv, {(work.heads + kv_heads + kv) * E, row, b}, here, read_once);
      ++keys.count;
    }
    const Address here = queries.of(shared + T::queries_here);
    const Address to = shared + queries.stage() * T::queries_bytes;
    const int row = pair.i * T::query_rows;
    wait(queries.of(shared + T::queries_done), queries.previous_phase());
    arrive_expecting(here, 2 * T::queries_bytes + T::row_statistics_bytes);
    copy_tile<E, T::query_rows>(to + T::queries, qkv, {h * E, row, b}, here, read_again);
    copy_tile<E, T::query_rows>(to + T::result_gradients, gradient, {h * E, row, b}, here, read_again);
    copy_bytes(shared + T::row_statistics + queries.stage() * T::row_statistics_bytes,
               work.row_statistics + (Size{pair.item} * work.query_tiles + pair.i) * T::row_statistics_count,
               T::row_statistics_bytes, here);
    ++queries.count;
  });
}

// Transposes 4 × 4 words among four neighboring threads: thread t gets word t of each.
inline __device__ uint4 transpose_4x4(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  const auto exchange = [](std::uint32_t& low, std::uint32_t& high, unsigned int distance) {
    const bool upper = (threadIdx.x & distance) != 0;
    const std::uint32_t got = __shfl_xor_sync(~0U, upper ? low : high, distance);
    (upper ? low : high) = got;
  };
  exchange(a, b, 1);
  exchange(c, d, 1);
  exchange(a, c, 2);
  exchange(b, d, 2);
  return {a, b, c, d};
}

// 64 rows and 64 columns of a gradient by a warpgroup; `to` is their first, rows_left of the rows are there.
template <class Value>
__device__ void write_gradient(Element* to, Size stride, int rows_left, const Sums<8>& sums, float factor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) % warpgroup / 32 * 16 + lane / 4;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const int row = first + 8 * upper;
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
      std::uint32_t words[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float(&x)[4] = sums[n + k];
        words[k] = pack_pair<Value>(x[2 * upper] * factor, x[2 * upper + 1] * factor);
      }
      const uint4 line = transpose_4x4(words[0], words[1], words[2], words[3]);
      if (row < rows_left) __stcs(reinterpret_cast<uint4*>(to + row * stride + (n + lane % 4) * 8), line);
    }
  }
}

// One of two consumer warpgroups. It computes the gradients of queries one pair of tiles late, because they need the
// other's scores: so neither waits for the other at once, and one runs wgmma while the other computes exponentials.
template <class Value, int E, AttentionUnit Unit>
struct Worker {
  using T = Tiles<E>;
  using Pair = hopper::Pair<E, Unit>;
  static constexpr int blocks = T::query_rows / 8;  // of 8 columns of scores
  using Scores = Sums<blocks>;
  using Packed = std::uint32_t[2 * blocks];  // pairs of Value, as the left operand of a wgmma

  Address shared;
  const Work& work;
  int index;            // of this thread among the workers
  int half;             // which 64 keys, and which half of the queries' gradients
  std::uint64_t tiles;  // descriptor of the tile at the start of shared memory
  PipelineState keys;
  PipelineState pairs;
  Pair before;             // the pair before; none where pairs.count is 0
  float4* partial_before;  // partial sums of its queries' gradients
  Sums<8> key_sums[T::parts];
  Sums<8> value_sums[T::parts];

  __device__ int lane() const { return index % 32; }
  __device__ int warp_row() const { return index / 32 * 16; }  // of the keys, the warp's first

  // Probabilities; keys after the query have none.
  template <bool Diagonal>
  __device__ void probabilities(Packed& p, const Scores& scores, Address row_statistics, int queries_before) const {
    const int row = warp_row() + lane() / 4 - queries_before;
    const float factor = work.scale * log2_e;
#pragma unroll
    for (int n = 0; n < blocks; ++n) {
      const int column = n * 8 + lane() % 4 * 2;
      const float2 log_2 = load_pair(row_statistics + column * 4);
      float x[4];
      x[0] = exp2_fast(fmaf(scores[n][0], factor, -log_2.x));
      x[1] = exp2_fast(fmaf(scores[n][1], factor, -log_2.y));
      x[2] = exp2_fast(fmaf(scores[n][2], factor, -log_2.x));
      x[3] = exp2_fast(fmaf(scores[n][3], factor, -log_2.y));
      if constexpr (Diagonal) {
        if (row > column) x[0] = 0;
        if (row > column + 1) x[1] = 0;
        if (row + 8 > column) x[2] = 0;
        if (row + 8 > column + 1) x[3] = 0;
      }
      p[2 * n] = pack_pair<Value>(x[0], x[1]);
      p[2 * n + 1] = pack_pair<Value>(x[2], x[3]);
    }
  }

  __device__ static std::uint32_t gradient_pair(std::uint32_t p, float low, float high) {
    return pack_pair<Value>(low_of<Value>(p) * low, high_of<Value>(p) * high);
  }
  __device__ void score_gradients(Packed& out, const Packed& p, const Scores& x, Address dots) const {
#pragma unroll
    for (int n = 0; n < blocks; ++n) {
      const float2 d = load_pair(dots + n * 32 + lane() % 4 * 8);
      out[2 * n] = gradient_pair(p[2 * n], x[n][0] - d.x, x[n][1] - d.y);
      out[2 * n + 1] = gradient_pair(p[2 * n + 1], x[n][2] - d.x, x[n][3] - d.y);
    }
  }

  __device__ void store_scores(const Packed& x) const {
    const Address to = shared + T::score_gradients + pairs.stage() * T::scores_bytes;
    const int row = warp_row() + lane() % 16;
    wait(pairs.of(shared + T::scores_done), pairs.previous_phase());
#pragma unroll
    for (int m = 0; m < blocks / 2; ++m) {
      store_matrices(to + m / 4 * T::scores_part + Tile::piece(row, m % 4 * 2 + lane() / 16), x + 4 * m);
    }
    fence_async_proxy();
    arrive(pairs.of(shared + T::scores_here));
  }

  __device__ Size token(const Pair& pair, int row) const { return Size{pair.item / work.heads} * work.sequence + row; }
  __device__ int column(const Pair& pair) const { return pair.item % work.heads * E; }

  // Where several blocks add to them, in turns.
  __device__ void wait_for_turn() const {
    const PipelineState previous{pairs.count - 1};
    if constexpr (Unit == AttentionUnit::key_tile) wait(previous.of(shared + T::turn_here), previous.phase());
  }
  __device__ void pass_turn() const {
    if constexpr (Unit == AttentionUnit::key_tile) arrive(PipelineState{pairs.count - 1}.of(shared + T::turn_done));
  }

  // The gradients of the queries of the previous pair start from their partial sums ...
  __device__ void begin_queries(Sums<8>& sums) const {
#pragma unroll
    for (auto& block : sums) {
#pragma unroll
      for (float& x : block) x = 0;
    }
    if (pairs.count == 0 || !before.diagonal()) return;
    wait_for_turn();
    if (before.j == 0) return;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float4 x = __ldcg(partial_before + n * workers);
      sums[n][0] = x.x;
      sums[n][1] = x.y;
      sums[n][2] = x.z;
      sums[n][3] = x.w;
    }
  }
  // ... are multiplied with their keys: this half of the queries, or of the head's elements ...
  __device__ void multiply_queries(Sums<8>& sums) const {
    constexpr bool half_of_queries = T::parts == 1;
    const PipelineState previous{pairs.count - 1};
    const PipelineState key_state{before.last(work) ? keys.count - 1 : keys.count};
    if (pairs.count > 0) wait(previous.of(shared + T::scores_here), previous.phase());
    const std::uint64_t scores = tiles + Tile::on(T::score_gradients + previous.stage() * T::scores_bytes +
                                                  (half_of_queries ? half * T::scores_part : 0));
    const std::uint64_t tile =
        tiles + Tile::on(T::keys + key_state.stage() * T::keys_bytes + (half_of_queries ? 0 : half * T::keys_part));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < key_rows / 16; ++k) {
      multiply_columns<Value>(sums, scores + k * Tile::step_down, tile + k * Tile::step_down, true);
    }
  }
  // ... and written, added to the partial sums, or stored as the first of them.
  __device__ void finish_queries(const Sums<8>& sums) const {
    if (pairs.count == 0) return;
    arrive(PipelineState{pairs.count - 1}.of(shared + T::scores_done));
    if (before.last(work)) arrive(PipelineState{keys.count - 1}.of(shared + T::keys_done));
    if (!before.diagonal()) wait_for_turn();
    if (before.diagonal()) {
      const int row = before.i * T::query_rows + (T::parts == 1 ? half * 64 : 0);
      const int element = T::parts == 1 ? 0 : half * part;
      write_gradient<Value>(work.query_gradient + token(before, row) * work.query_stride + column(before) + element,
                            work.query_stride, work.sequence - row, sums, work.scale);
      if (before.j > 0) discard_line(partial_before - lane() + lane() / 4 * workers + lane() % 4 * 8);
    } else if (before.j == 0) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        __stcg(partial_before + n * workers, float4{sums[n][0], sums[n][1], sums[n][2], sums[n][3]});
      }
    } else {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        add_to(partial_before + n * workers, sums[n][0], sums[n][1], sums[n][2], sums[n][3]);
      }
    }
    pass_turn();
  }

  // sums (+)= left · tile
  __device__ static void multiply_parts(Sums<8> (&sums)[T::parts], const Packed& left, std::uint64_t tile, bool add) {
#pragma unroll
    for (int p = 0; p < T::parts; ++p) {
#pragma unroll
      for (int k = 0; k < T::query_rows / 16; ++k) {
        multiply_columns<Value>(sums[p], left + 4 * k, tile + Tile::on(p * T::queries_part) + k * Tile::step_down,
                                add || k > 0);
      }
    }
    wgmma_commit();
  }
  // scores = rows · columnsᵀ
  __device__ static void multiply_tiles(Scores& scores, std::uint64_t rows, std::uint64_t columns) {
#pragma unroll
    for (int p = 0; p < T::parts; ++p) {
#pragma unroll
      for (int k = 0; k < part / 16; ++k) {
        multiply_rows<Value>(scores, rows + Tile::on(p * T::keys_part) + k * Tile::step_across,
                             columns + Tile::on(p * T::queries_part) + k * Tile::step_across, p + k > 0);
      }
    }
    wgmma_commit();
  }

  template <bool Diagonal>
  __device__ void pass(const Pair& pair) {
    const bool first = pair.first(work);
    const std::uint64_t own_keys = tiles + Tile::on(T::keys + keys.stage() * T::keys_bytes + half * T::keys_part / 2);
    const std::uint64_t own_values = own_keys + Tile::on(T::values - T::keys);
    const std::uint64_t queries = tiles + Tile::on(T::queries + pairs.stage() * T::queries_bytes);
    const std::uint64_t gradients = queries + Tile::on(T::result_gradients - T::queries);
    const Address row_statistics = shared + T::row_statistics + pairs.stage() * T::row_statistics_bytes;
    if (first) wait(keys.of(shared + T::keys_here), keys.phase());
    wait(pairs.of(shared + T::queries_here), pairs.phase());

    Scores scores;
    Scores outer;  // result gradients · values
    wgmma_fence();
    multiply_tiles(scores, own_keys, queries);
    multiply_tiles(outer, own_values, gradients);
    wgmma_wait<1>();
    pin(scores);
    Packed p;
    probabilities<Diagonal>(p, scores, row_statistics, (pair.i - pair.low()) * T::query_rows);
    wgmma_fence();
    multiply_parts(value_sums, p, gradients, !first);
    wgmma_wait<1>();
    pin(outer);
    Packed ds;
    score_gradients(ds, p, outer, row_statistics + T::query_rows * 4);
    store_scores(ds);

    Sums<8> query_sums;
    begin_queries(query_sums);
    wgmma_fence();
    multiply_parts(key_sums, ds, queries, !first);
    multiply_queries(query_sums);
    wgmma_commit();
    wgmma_wait<0>();
    for (auto& sums : value_sums) pin(sums);
    for (auto& sums : key_sums) pin(sums);
    pin(query_sums);
    arrive(pairs.of(shared + T::queries_done));
    finish_queries(query_sums);
    if (pair.last(work)) {
      const int row = pair.j * key_rows + half * 64;
      const Size at = token(pair, row) * work.key_stride + column(pair);
#pragma unroll
      for (int q = 0; q < T::parts; ++q) {
        write_gradient<Value>(work.key_gradient + at + q * part, work.key_stride, work.sequence - row, key_sums[q],
                              work.scale);
        write_gradient<Value>(work.value_gradient + at + q * part, work.key_stride, work.sequence - row, value_sums[q],
                              1);
      }
      ++keys.count;
    }
    ++pairs.count;
    before = pair;
    const Size place = Unit == AttentionUnit::head ? Size{blockIdx.x} : Size{pair.item};
    partial_before = work.partial + (place * work.query_tiles + pair.i) * 8 * workers + index;
  }

  __device__ void run() {
    DealtUnits dealt;
    const auto next = [&] { return Unit == AttentionUnit::head ? dealt.next() : drawn_unit<E>(shared, keys); };
    for_all_pairs<E, Unit>(work, next,
                           [&](const Pair& pair) { pair.diagonal() ? pass<true>(pair) : pass<false>(pair); });
    Sums<8> query_sums;
    begin_queries(query_sums);
    multiply_queries(query_sums);
    wgmma_commit();
    wgmma_wait<0>();
    pin(query_sums);
    finish_queries(query_sums);
  }
};

#endif

// Registers of a thread. Workers wait for ever if they ask for more than the others give.
constexpr int launch_registers = 65536 / block_threads / 8 * 8;
constexpr int producer_registers = 24;
constexpr int worker_registers = 240;
static_assert(workers * (worker_registers - launch_registers) <= warpgroup * (launch_registers - producer_registers));

template <class Value, int E, AttentionUnit Unit>
__global__ void __launch_bounds__(block_threads, 1)
    gradients_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap gradient, Work work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Tiles<E>;
  extern __shared__ std::byte memory[];
  const Address shared = (shared_address(memory) + 1023) / 1024 * 1024;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    prefetch_map(qkv);
    prefetch_map(gradient);
    for (int slot = 0; slot < 2; ++slot) {
      const Address barriers = shared + slot * barrier_bytes;
      start(barriers + T::keys_here, 1);
      start(barriers + T::keys_done, workers);
      start(barriers + T::queries_here, 1);
      start(barriers + T::queries_done, workers);
      start(barriers + T::scores_here, workers);
      start(barriers + T::scores_done, workers);
      if constexpr (Unit == AttentionUnit::key_tile) {
        start(barriers + T::turn_here, 1);
        start(barriers + T::turn_done, workers);
      }
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (thread < warpgroup) {
    give_registers<producer_registers>();
    if (thread == 0) copy_tiles<E, Unit>(shared, work, qkv, gradient);
    if (Unit == AttentionUnit::key_tile && thread == 32) take_turns<E>(shared, work);
  } else {
    take_registers<worker_registers>();
    const int index = thread - warpgroup;
    Worker<Value, E, Unit> worker{shared,           work, index, __shfl_sync(~0U, index / warpgroup, 0),
                                  Tile::at(shared), {},   {},    {}};
    worker.run();
  }
#endif
}

}  // namespace quaver::cuda::hopper
