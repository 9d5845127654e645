// How the backward pass of attention on Hopper is spread over thread blocks, and who adds to the queries' gradients
// when. A block takes one unit of work after another: a whole head of a sequence, or one tile of a head's keys.
//
// Where units are tiles of keys, those of a head add to the same queries' gradients. They do so in the order of the
// keys, whatever the timing: a counter for each tile of queries says whose turn it is. All go through the queries
// downwards, so that each follows the keys before it at a distance and seldom waits.
//
// That cannot deadlock. A unit waits only for one of a lower ticket, a block draws its tickets while it runs and works
// them off in their order: so the lowest ticket that is not worked off is at work, and nothing is left for it to wait
// for. This holds however few blocks are resident.
#pragma once

#include "engine/cuda/attention/attention_sizes.h"
#include "engine/cuda/device/hopper.cuh"
#include "engine/cuda/device/primitives.cuh"

namespace quaver::cuda::hopper {

using Element = std::uint16_t;  // BF16 or FP16, as it is stored

constexpr int key_rows = static_cast<int>(hopper_key_rows);
constexpr int part = 64;  // elements of a head that lie together: a tile has one part after the other
constexpr int row_bytes = part * 2;
constexpr int warpgroup = 128;
constexpr int workers = 2 * warpgroup;
constexpr int block_threads = workers + warpgroup;

// Tiles for heads of E elements. Each has two stages: one is consumed while the other is filled.
template <int E>
struct Tiles {
  static constexpr int parts = E / part;
  static constexpr int query_rows = static_cast<int>(hopper_query_rows(E));
  static constexpr int row_statistics_count = 2 * query_rows;  // log2 of the sum of each query's row, then its dot

  static constexpr int keys_part = key_rows * row_bytes;
  static constexpr int keys_bytes = parts * keys_part;
  static constexpr int queries_part = query_rows * row_bytes;
  static constexpr int queries_bytes = parts * queries_part;
  static constexpr int scores_part = key_rows * row_bytes;  // of 64 queries, keys as rows
  static constexpr int scores_bytes = query_rows / 64 * scores_part;
  static constexpr int row_statistics_bytes = row_statistics_count * 4;

  // Offsets in shared memory from an address that is a multiple of 1024.
  static constexpr int keys = 0;
  static constexpr int values = keys + 2 * keys_bytes;
  static constexpr int queries = values + 2 * keys_bytes;
  static constexpr int result_gradients = queries + 2 * queries_bytes;
  static constexpr int score_gradients = result_gradients + 2 * queries_bytes;
  static constexpr int row_statistics = score_gradients + 2 * scores_bytes;
  static constexpr int keys_here = row_statistics + 2 * row_statistics_bytes;
  static constexpr int keys_done = keys_here + 2 * barrier_bytes;
  static constexpr int queries_here = keys_done + 2 * barrier_bytes;
  static constexpr int queries_done = queries_here + 2 * barrier_bytes;
  static constexpr int scores_here = queries_done + 2 * barrier_bytes;
  static constexpr int scores_done = scores_here + 2 * barrier_bytes;
  static constexpr int turn_here = scores_done + 2 * barrier_bytes;
  static constexpr int turn_done = turn_here + 2 * barrier_bytes;
  static constexpr int units = turn_done + 2 * barrier_bytes;  // by the stage of their keys
  static constexpr int shared_bytes = units + 2 * 4 + 1024;
};

struct Work {
  int heads;
  int group;  // query heads that share one of keys
  int sequence;
  int key_tiles;  // of a sequence
  int query_tiles;
  int items;  // heads of all sequences
  float scale;
  const float* row_statistics;  // [items][query_tiles][Tiles::row_statistics_count]
  float4* partial;              // [blocks, or items][query_tiles][8][workers]
  Element* query_gradient;      // of the first token and head; a token is `stride` on, a head E
  Size query_stride;
  Element* key_gradient;  // these too, by query head
  Element* value_gradient;
  Size key_stride;
  int units;
  int together;            // heads whose tiles of keys are at work at the same time
  std::uint32_t* tickets;  // how many have been drawn
  std::uint32_t* turns;    // [items][query_tiles]: tiles of keys that have been added to these queries' gradients
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A tile of keys and one of queries that is not before it.
template <int E, AttentionUnit Unit>
struct Pair {
  static constexpr int queries_of_keys = key_rows / Tiles<E>::query_rows;  // tiles as long as one of keys

  int item;
  int j;  // of the keys' tile
  int i;  // of the queries'

  // On the diagonal the queries get the last part of their gradient.
  __device__ bool diagonal() const { return i / queries_of_keys == j; }
  // A block that has a whole head visits its queries upwards and downwards alternately: those visited last are still in
  // the cache.
  __device__ bool upwards() const { return Unit == AttentionUnit::head && j % 2 == 0; }
  __device__ int low() const { return j * queries_of_keys; }
  __device__ bool first(const Work& work) const { return i == (upwards() ? low() : work.query_tiles - 1); }
  __device__ bool last(const Work& work) const { return i == (upwards() ? work.query_tiles - 1 : low()); }
};

template <int E, AttentionUnit Unit, class Body>
__device__ void for_queries(const Work& work, int item, int j, Body body) {
  const int low = j * Pair<E, Unit>::queries_of_keys;
  for (int n = low; n < work.query_tiles; ++n) {
    Pair<E, Unit> pair{item, j, n};
    if (!pair.upwards()) pair.i = work.query_tiles - 1 - (n - low);
    body(pair);
  }
}

// The pairs of all units that `next` gives to this block.
template <int E, AttentionUnit Unit, class Next, class Body>
__device__ void for_all_pairs(const Work& work, Next next, Body body) {
  for (int unit = next(); unit < work.units; unit = next()) {
    if constexpr (Unit == AttentionUnit::head) {
      for (int j = 0; j < work.key_tiles; ++j) for_queries<E, Unit>(work, unit, j, body);
    } else {
      const int first = unit / (work.together * work.key_tiles) * work.together;
      const int among = min(work.together, work.items - first);
      const int place = unit - first * work.key_tiles;
      for_queries<E, Unit>(work, first + place % among, place / among, body);
    }
  }
}

// Heads are dealt out beforehand.
struct DealtUnits {
  int unit = static_cast<int>(blockIdx.x) - static_cast<int>(gridDim.x);
  __device__ int next() { return unit += static_cast<int>(gridDim.x); }
};

// The count-th use of a two-stage pipeline: which stage, and which phase of its barriers.
struct PipelineState {
  int count = 0;
  __device__ int stage() const { return count & 1; }
  __device__ Address of(Address barriers) const { return barriers + stage() * barrier_bytes; }
  __device__ std::uint32_t phase() const { return static_cast<std::uint32_t>(count >> 1) & 1U; }
  __device__ std::uint32_t previous_phase() const { return phase() ^ 1U; }  // of the last use of this stage
};

// A word that blocks tell each other by: what was written before it is stored is seen by whoever loads it.
inline __device__ std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(x) : "l"(from) : "memory");
  return x;
}
inline __device__ void store_release(std::uint32_t* to, std::uint32_t x) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;\n" ::"l"(to), "r"(x) : "memory");
}

inline __device__ int load_word(Address address) {
  int x;
  asm volatile("ld.shared.s32 %0, [%1];\n" : "=r"(x) : "r"(address) : "memory");
  return x;
}
inline __device__ void store_word(Address address, int x) {
  asm volatile("st.shared.s32 [%0], %1;\n" ::"r"(address), "r"(x) : "memory");
}

// Tiles of keys are drawn by the thread that copies them; the others find in shared memory which one it was.
template <int E>
__device__ int draw_unit(Address shared, const Work& work, PipelineState keys) {
  using T = Tiles<E>;
  wait(keys.of(shared + T::keys_done), keys.previous_phase());
  const auto unit = static_cast<int>(min(atomicAdd(work.tickets, 1U), static_cast<std::uint32_t>(work.units)));
  store_word(shared + T::units + keys.stage() * 4, unit);
  if (unit == work.units) arrive(keys.of(shared + T::keys_here));
  return unit;
}
template <int E>
__device__ int drawn_unit(Address shared, PipelineState keys) {
  using T = Tiles<E>;
  wait(keys.of(shared + T::keys_here), keys.phase());
  return load_word(shared + T::units + keys.stage() * 4);
}

// One thread waits for this block's turn at each tile of queries and passes it on, so that the workers, who add, spend
// no time on a fence. Barriers carry the order from the block before to them, and from them to the block after.
template <int E>
__device__ void take_turns(Address shared, const Work& work) {
  using T = Tiles<E>;
  PipelineState keys;
  PipelineState pairs;
  const auto next = [&] {
    const int unit = drawn_unit<E>(shared, keys);
    ++keys.count;
    return unit;
  };
  for_all_pairs<E, AttentionUnit::key_tile>(work, next, [&](const Pair<E, AttentionUnit::key_tile>& pair) {
    std::uint32_t* turn = work.turns + Size{pair.item} * work.query_tiles + pair.i;
    while (load_acquire(turn) != static_cast<std::uint32_t>(pair.j)) {
    }
    arrive(pairs.of(shared + T::turn_here));
    wait(pairs.of(shared + T::turn_done), pairs.phase());
    store_release(turn, static_cast<std::uint32_t>(pair.j) + 1);
    ++pairs.count;
  });
}

#endif

}  // namespace quaver::cuda::hopper
