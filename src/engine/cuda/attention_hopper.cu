// The backward pass of attention on Hopper, for heads of 64. One block has a head of a sequence to itself: it takes the
// keys 128 at a time, holds their gradients in registers while the queries pass by, and adds to the queries' gradients
// in memory of its own, that stays in the L2 cache. Every element is added to by one thread in one order, so the same
// input gives the same bits, without the scores ever leaving the chip.
//
// A warpgroup copies tiles ahead; two others have 64 keys each. Scores are computed with keys as rows, so that they
// are, in registers, the left factors of the keys' and values' gradients; only their own gradients go through shared
// memory, for the queries, where the two warpgroups meet.
#include <string>

#include "engine/cuda/attention_hopper.h"
#include "engine/cuda/hopper.cuh"
#include "engine/gpu_rules.h"
#include "quaver/error.h"

namespace quaver::cuda {

namespace {

using bf16 = __nv_bfloat16;

constexpr float log2_e = 1.4426950408889634F;

constexpr int head = static_cast<int>(hopper_head);
constexpr int tile_rows = static_cast<int>(HopperAttentionMemory::tile_rows);
constexpr int tile_bytes = tile_rows * head * 2;
constexpr int figures_of_tile = 2 * tile_rows;  // log2 of the sum of each query's row, then its dot
constexpr int figures_bytes = figures_of_tile * 4;
constexpr int warpgroup = 128;
constexpr int workers = 2 * warpgroup;
constexpr int block_threads = workers + warpgroup;

// What lies where in shared memory, from an address on that is a multiple of 1024. There are two of each: one is worked
// on while the other is filled.
struct Shared {
  static constexpr int keys = 0;
  static constexpr int values = keys + 2 * tile_bytes;
  static constexpr int queries = values + 2 * tile_bytes;
  static constexpr int result_gradients = queries + 2 * tile_bytes;
  static constexpr int score_gradients = result_gradients + 2 * tile_bytes;  // keys as rows, queries 0 to 63, 64 to 127
  static constexpr int lines = score_gradients + 2 * 2 * tile_bytes;         // one: 16 rows for each warp
  static constexpr int figures = lines + tile_bytes;
  static constexpr int keys_here = figures + 2 * figures_bytes;
  static constexpr int keys_done = keys_here + 2 * hopper::barrier_bytes;
  static constexpr int queries_here = keys_done + 2 * hopper::barrier_bytes;
  static constexpr int queries_done = queries_here + 2 * hopper::barrier_bytes;
  static constexpr int scores_here = queries_done + 2 * hopper::barrier_bytes;
  static constexpr int scores_done = scores_here + 2 * hopper::barrier_bytes;
  static constexpr int bytes = scores_done + 2 * hopper::barrier_bytes;
};
constexpr int shared_bytes = Shared::bytes + 1024;

struct Work {
  int heads;
  int group;  // query heads that share one of keys
  int sequence;
  int tiles;  // of a sequence
  int items;  // heads of all sequences
  float scale;
  const float* figures;  // [items][tiles][figures_of_tile]
  float4* partial;       // [blocks][tiles][8][workers]
  bf16* query_gradient;  // of the first token and head; a token is `stride` on, a head 64
  Size query_stride;
  bf16* key_gradient;  // these too, by query head
  bf16* value_gradient;
  Size key_stride;
};

__device__ std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ float low_of(std::uint32_t pair) { return __uint_as_float(pair << 16U); }
__device__ float high_of(std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000U); }

__device__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// ---- figures of each query ----------------------------------------------------------------------------------------

constexpr int figures_threads = 256;
constexpr int figures_rows = figures_threads / 8;  // eight threads read the 64 elements of a row

__device__ float dot(uint4 a, uint4 b) {
  const std::uint32_t x[] = {a.x, a.y, a.z, a.w};
  const std::uint32_t y[] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum = fmaf(high_of(x[i]), high_of(y[i]), fmaf(low_of(x[i]), low_of(y[i]), sum));
  return sum;
}

__global__ void __launch_bounds__(figures_threads)
    figures_kernel(const bf16* result, const bf16* result_gradient, const float* log_sum, int heads, int sequence,
                   int tiles, float* figures) {
  const int h = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y) * figures_rows + static_cast<int>(threadIdx.x) / 8;
  const Size b = blockIdx.z;
  const int part = static_cast<int>(threadIdx.x) % 8;
  float log_2 = INFINITY;  // past the sequence: no score is above zero
  float sum = 0;
  if (row < sequence) {
    const Size at = ((b * sequence + row) * heads + h) * head + part * 8;
    sum = dot(*reinterpret_cast<const uint4*>(result + at), *reinterpret_cast<const uint4*>(result_gradient + at));
    if (part == 0) log_2 = log_sum[(b * heads + h) * sequence + row] * log2_e;
  }
  for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0U, sum, offset);
  if (part != 0) return;
  float* to = figures + ((b * heads + h) * tiles + row / tile_rows) * figures_of_tile + row % tile_rows;
  to[0] = log_2;
  to[tile_rows] = sum;
}

// ---- gradients ----------------------------------------------------------------------------------------------------

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using namespace hopper;

// A tile of keys and one of queries that is not before it.
struct Pair {
  int item;
  int j;
  int i;
  __device__ bool diagonal() const { return i == j; }
  // Queries pass by upwards and downwards in turn: those that were last are still in the cache. With their own keys
  // they have the last part of their gradient.
  __device__ bool upwards() const { return j % 2 == 0; }
  __device__ bool first(int tiles) const { return i == (upwards() ? j : tiles - 1); }
  __device__ bool last(int tiles) const { return i == (upwards() ? tiles - 1 : j); }
};

template <class Body>
__device__ void for_all_pairs(const Work& work, Body body) {
  for (int item = static_cast<int>(blockIdx.x); item < work.items; item += static_cast<int>(gridDim.x)) {
    for (int j = 0; j < work.tiles; ++j) {
      for (int n = j; n < work.tiles; ++n) {
        Pair pair{item, j, n};
        if (!pair.upwards()) pair.i = work.tiles - 1 - (n - j);
        body(pair);
      }
    }
  }
}

// The n-th of something that there are two places for.
struct Turn {
  int count = 0;
  __device__ int slot() const { return count & 1; }
  __device__ Address of(Address barriers) const { return barriers + slot() * barrier_bytes; }
  __device__ std::uint32_t parity() const { return static_cast<std::uint32_t>(count >> 1) & 1U; }
  __device__ std::uint32_t parity_before() const { return parity() ^ 1U; }  // when this place was used last
};

__device__ void copy_tiles(Address shared, const Work& work, const CUtensorMap& qkv, const CUtensorMap& gradient) {
  Turn keys;
  Turn queries;
  const int kv_heads = work.heads / work.group;
  for_all_pairs(work, [&](const Pair& pair) {
    const int b = pair.item / work.heads;
    const int h = pair.item % work.heads;
    if (pair.first(work.tiles)) {
      const int kv = h / work.group;
      const Address here = keys.of(shared + Shared::keys_here);
      const Address to = shared + keys.slot() * tile_bytes;
      wait(keys.of(shared + Shared::keys_done), keys.parity_before());
      arrive_expecting(here, 2 * tile_bytes);
      copy_box(to + Shared::keys, qkv, (work.heads + kv) * head, pair.j * tile_rows, b, here, read_once);
      copy_box(to + Shared::values, qkv, (work.heads + kv_heads + kv) * head, pair.j * tile_rows, b, here, read_once);
      ++keys.count;
    }
    const Address here = queries.of(shared + Shared::queries_here);
    const Address to = shared + queries.slot() * tile_bytes;
    wait(queries.of(shared + Shared::queries_done), queries.parity_before());
    arrive_expecting(here, 2 * tile_bytes + figures_bytes);
    copy_box(to + Shared::queries, qkv, h * head, pair.i * tile_rows, b, here, read_again);
    copy_box(to + Shared::result_gradients, gradient, h * head, pair.i * tile_rows, b, here, read_again);
    copy_bytes(shared + Shared::figures + queries.slot() * figures_bytes,
               work.figures + (Size{pair.item} * work.tiles + pair.i) * figures_of_tile, figures_bytes, here);
    ++queries.count;
  });
}

// One of two warpgroups. It is a pair of tiles behind with the gradients of queries, which need what the other has
// computed: so neither waits for the other at once, and one multiplies while the other has its exponentials.
struct Worker {
  Address shared;
  const Work& work;
  int index;            // of this thread among the workers
  int half;             // which 64 keys, and which 64 queries' gradients
  std::uint64_t tiles;  // the factor that begins where shared memory does
  Turn keys;
  Turn pairs;
  Pair before;             // the pair before; none where pairs.count is 0
  float4* partial_before;  // what there is of its queries' gradients
  Sums<8> key_sums;
  Sums<8> value_sums;

  __device__ int lane() const { return index % 32; }
  __device__ int warp_row() const { return index / 32 * 16; }  // of a tile, the warp's first

  // Probabilities, rounded and packed as the left factor of a product; keys after the query have none.
  template <bool Diagonal>
  __device__ void probabilities(std::uint32_t (&p)[32], const Sums<16>& scores, Address figures) const {
    const int row = warp_row() + lane() / 4;
    const float factor = work.scale * log2_e;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const int column = n * 8 + lane() % 4 * 2;
      const float2 log_2 = load_pair(figures + column * 4);
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
      p[2 * n] = pack(x[0], x[1]);
      p[2 * n + 1] = pack(x[2], x[3]);
    }
  }

  __device__ void score_gradients(std::uint32_t (&out)[32], const std::uint32_t (&p)[32], const Sums<16>& x,
                                  Address dots) const {
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float2 d = load_pair(dots + n * 32 + lane() % 4 * 8);
      out[2 * n] = pack(low_of(p[2 * n]) * (x[n][0] - d.x), high_of(p[2 * n]) * (x[n][1] - d.y));
      out[2 * n + 1] = pack(low_of(p[2 * n + 1]) * (x[n][2] - d.x), high_of(p[2 * n + 1]) * (x[n][3] - d.y));
    }
  }

  __device__ void store_scores(const std::uint32_t (&x)[32]) const {
    const Address to = shared + Shared::score_gradients + pairs.slot() * 2 * tile_bytes;
    const int row = warp_row() + lane() % 16;
    wait(pairs.of(shared + Shared::scores_done), pairs.parity_before());
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      store_matrices(to + m / 4 * tile_bytes + Tile::piece(row, m % 4 * 2 + lane() / 16), x + 4 * m);
    }
    publish_shared();
    arrive(pairs.of(shared + Shared::scores_here));
  }

  // The warp's 16 rows of a head's gradient, `to` being the tile's first, as whole lines.
  __device__ void write_rows(bf16* to, Size stride, int rows_left, const Sums<8>& sums, float factor) const {
    const Address lines = shared + Shared::lines;
    to += (warp_row() + lane() / 8) * stride + lane() % 8 * 8;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const float(&a)[4] = sums[2 * m];
      const float(&b)[4] = sums[2 * m + 1];
      const std::uint32_t x[4] = {pack(a[0] * factor, a[1] * factor), pack(a[2] * factor, a[3] * factor),
                                  pack(b[0] * factor, b[1] * factor), pack(b[2] * factor, b[3] * factor)};
      store_matrices(lines + Tile::piece(warp_row() + lane() % 16, m * 2 + lane() / 16), x);
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const int row = warp_row() + m * 4 + lane() / 8;
      const uint4 x = load_16(lines + Tile::piece(row, lane() % 8));
      if (row < rows_left) __stcs(reinterpret_cast<uint4*>(to), x);
      to += 4 * stride;
    }
  }

  __device__ Size token(const Pair& pair, int tile) const {
    return Size{pair.item / work.heads} * work.sequence + tile * tile_rows;
  }
  __device__ int column(const Pair& pair) const { return pair.item % work.heads * head; }

  // The gradients of the queries of the pair before begin with what there is of them ...
  __device__ void begin_queries(Sums<8>& sums) const {
#pragma unroll
    for (auto& block : sums) {
#pragma unroll
      for (float& x : block) x = 0;
    }
    if (pairs.count == 0 || !before.diagonal() || before.j == 0) return;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float4 x = __ldcg(partial_before + n * workers);
      sums[n][0] = x.x;
      sums[n][1] = x.y;
      sums[n][2] = x.z;
      sums[n][3] = x.w;
    }
  }
  // ... are multiplied with their keys ...
  __device__ void multiply_queries(Sums<8>& sums) const {
    Turn turn{pairs.count - 1};
    Turn key_turn{before.last(work.tiles) ? keys.count - 1 : keys.count};
    if (pairs.count > 0) wait(turn.of(shared + Shared::scores_here), turn.parity());
    const std::uint64_t scores =
        tiles + Tile::on(Shared::score_gradients + turn.slot() * 2 * tile_bytes + half * tile_bytes);
    const std::uint64_t tile = tiles + Tile::on(Shared::keys + key_turn.slot() * tile_bytes);
    begin_products();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      multiply_columns(sums, scores + k * Tile::step_down, tile + k * Tile::step_down, true);
    }
  }
  // ... and written, added to what there is, or begin it.
  __device__ void finish_queries(const Sums<8>& sums) const {
    if (pairs.count == 0) return;
    Turn turn{pairs.count - 1};
    arrive(turn.of(shared + Shared::scores_done));
    if (before.last(work.tiles)) arrive(Turn{keys.count - 1}.of(shared + Shared::keys_done));
    if (before.diagonal()) {
      write_rows(work.query_gradient + token(before, before.i) * work.query_stride + column(before), work.query_stride,
                 work.sequence - before.i * tile_rows, sums, work.scale);
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
  }

  template <bool Diagonal>
  __device__ void pass(const Pair& pair) {
    const bool first = pair.first(work.tiles);
    const std::uint64_t own_keys = tiles + Tile::on(Shared::keys + keys.slot() * tile_bytes + half * tile_bytes / 2);
    const std::uint64_t own_values = own_keys + Tile::on(Shared::values - Shared::keys);
    const std::uint64_t queries = tiles + Tile::on(Shared::queries + pairs.slot() * tile_bytes);
    const std::uint64_t gradients = queries + Tile::on(Shared::result_gradients - Shared::queries);
    const Address figures = shared + Shared::figures + pairs.slot() * figures_bytes;
    if (first) wait(keys.of(shared + Shared::keys_here), keys.parity());
    wait(pairs.of(shared + Shared::queries_here), pairs.parity());

    Sums<16> scores;
    Sums<16> outer;  // result gradients · values
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply_rows(scores, own_keys + k * Tile::step_across, queries + k * Tile::step_across, k > 0);
    }
    end_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply_rows(outer, own_values + k * Tile::step_across, gradients + k * Tile::step_across, k > 0);
    }
    end_products();
    wait_for_products<1>();
    pin(scores);
    std::uint32_t p[32];
    probabilities<Diagonal>(p, scores, figures);
    begin_products();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      multiply_columns(value_sums, p + 4 * k, gradients + k * Tile::step_down, !first || k > 0);
    }
    end_products();
    wait_for_products<1>();
    pin(outer);
    std::uint32_t ds[32];
    score_gradients(ds, p, outer, figures + tile_rows * 4);
    store_scores(ds);

    Sums<8> query_sums;
    begin_queries(query_sums);
    begin_products();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      multiply_columns(key_sums, ds + 4 * k, queries + k * Tile::step_down, !first || k > 0);
    }
    end_products();
    multiply_queries(query_sums);
    end_products();
    wait_for_products<0>();
    pin(value_sums);
    pin(key_sums);
    pin(query_sums);
    arrive(pairs.of(shared + Shared::queries_done));
    finish_queries(query_sums);
    if (pair.last(work.tiles)) {
      const Size at = token(pair, pair.j) * work.key_stride + column(pair);
      const int rows_left = work.sequence - pair.j * tile_rows;
      write_rows(work.key_gradient + at, work.key_stride, rows_left, key_sums, work.scale);
      write_rows(work.value_gradient + at, work.key_stride, rows_left, value_sums, 1);
      ++keys.count;
    }
    ++pairs.count;
    before = pair;
    partial_before = work.partial + (Size{blockIdx.x} * work.tiles + pair.i) * 8 * workers + index;
  }

  __device__ void run() {
    for_all_pairs(work, [&](const Pair& pair) { pair.diagonal() ? pass<true>(pair) : pass<false>(pair); });
    Sums<8> query_sums;
    begin_queries(query_sums);
    multiply_queries(query_sums);
    end_products();
    wait_for_products<0>();
    pin(query_sums);
    finish_queries(query_sums);
  }
};

#endif

__global__ void __launch_bounds__(block_threads, 1)
    gradients_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap gradient, Work work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ std::byte memory[];
  const Address shared = (shared_address(memory) + 1023) / 1024 * 1024;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    prefetch_map(qkv);
    prefetch_map(gradient);
    for (int slot = 0; slot < 2; ++slot) {
      const Address barriers = shared + slot * barrier_bytes;
      start(barriers + Shared::keys_here, 1);
      start(barriers + Shared::keys_done, workers);
      start(barriers + Shared::queries_here, 1);
      start(barriers + Shared::queries_done, workers);
      start(barriers + Shared::scores_here, workers);
      start(barriers + Shared::scores_done, workers);
    }
    publish_barriers();
  }
  __syncthreads();
  if (thread < warpgroup) {
    give_registers<24>();
    if (thread == 0) copy_tiles(shared, work, qkv, gradient);
  } else {
    take_registers<240>();
    const int index = thread - warpgroup;
    Worker worker{shared, work, index, __shfl_sync(~0U, index / warpgroup, 0), Tile::at(shared), {}, {}, {}};
    worker.run();
  }
#endif
}

// ---- grouped heads ------------------------------------------------------------------------------------------------

constexpr int sum_threads = 256;

// The gradients of keys, or values, of one head for each of queries, summed over those that share one.
__global__ void __launch_bounds__(sum_threads)
    sum_groups_kernel(const bf16* by_query_head, bf16* to, Size to_stride, Size tokens, int heads, int group) {
  const int kv_width = heads / group * head;
  const Size index = (Size{blockIdx.x} * sum_threads + threadIdx.x) * 8;
  const Size token = index / (2 * kv_width);
  if (token >= tokens) return;
  const int column = static_cast<int>(index % (2 * kv_width));
  const bool values = column >= kv_width;
  const int kv = column % kv_width / head;
  const bf16* from =
      by_query_head + token * 2 * heads * head + (values ? heads * head : 0) + kv * group * head + column % head;
  float sums[8] = {};
  for (int h = 0; h < group; ++h) {
    const uint4 x = *reinterpret_cast<const uint4*>(from + h * head);
    const std::uint32_t pairs[] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[2 * i] += low_of(pairs[i]);
      sums[2 * i + 1] += high_of(pairs[i]);
    }
  }
  *reinterpret_cast<uint4*>(to + token * to_stride + column) =
      uint4{pack(sums[0], sums[1]), pack(sums[2], sums[3]), pack(sums[4], sums[5]), pack(sums[6], sums[7])};
}

// ---- launching ----------------------------------------------------------------------------------------------------

// [batch × sequence × width] of BF16, read in tiles of 128 positions and 64 elements.
CUtensorMap map_of(const void* data, const HeadLayout& layout, Size width) {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
          "looking for cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  if (encode == nullptr) {
    throw Error("the NVIDIA driver has no cuTensorMapEncodeTiled", "install the driver of CUDA 12 or later");
  }
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(layout.sequence),
                                static_cast<cuuint64_t>(layout.batch)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(width) * 2,
                                static_cast<cuuint64_t>(width * layout.sequence) * 2};
  const cuuint32_t box[] = {head, tile_rows, 1};
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), extents, strides,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error("attention: CUDA cannot describe " + std::to_string(layout.batch) + " × " +
                    std::to_string(layout.sequence) + " × " + std::to_string(width) + " (error " +
                    std::to_string(static_cast<int>(status)) + ")",
                "QUAVER_ATTENTION=cudnn computes attention without this kernel");
  }
  return map;
}

}  // namespace

void hopper_attention_backward(Gpu& gpu, const AttentionBackward& op) {
  const HeadLayout& layout = op.layout;
  const Size heads_width = layout.heads * head;
  const bool grouped = layout.heads != layout.kv_heads;
  const int tiles = static_cast<int>(HopperAttentionMemory::tiles(layout));
  const Size items = layout.batch * layout.heads;
  const Size blocks = HopperAttentionMemory::blocks(layout, gpu.multiprocessors());
  const HopperAttentionMemory sizes(layout, gpu.multiprocessors());
  std::byte* memory = gpu.workspace(Slot::large, static_cast<std::size_t>(sizes.total()));

  Work work{};
  work.heads = static_cast<int>(layout.heads);
  work.group = static_cast<int>(layout.heads / layout.kv_heads);
  work.sequence = static_cast<int>(layout.sequence);
  work.tiles = tiles;
  work.items = static_cast<int>(items);
  work.scale = op.scale;
  auto* figures = reinterpret_cast<float*>(memory);
  work.figures = figures;
  work.partial = reinterpret_cast<float4*>(memory + sizes.figures);
  auto* gradient = static_cast<bf16*>(op.qkv_gradient.data);
  auto* by_query_head = reinterpret_cast<bf16*>(memory + sizes.figures + sizes.partial);
  work.query_gradient = gradient;
  work.query_stride = layout.width();
  work.key_gradient = grouped ? by_query_head : gradient + heads_width;
  work.value_gradient = work.key_gradient + heads_width;
  work.key_stride = grouped ? 2 * heads_width : layout.width();

  const dim3 grid(static_cast<unsigned int>(layout.heads), static_cast<unsigned int>(tiles * tile_rows / figures_rows),
                  static_cast<unsigned int>(layout.batch));
  figures_kernel<<<grid, figures_threads, 0, gpu.stream()>>>(
      static_cast<const bf16*>(op.result.data), static_cast<const bf16*>(op.result_gradient.data),
      static_cast<const float*>(op.log_sum.data), work.heads, work.sequence, tiles, figures);
  check_launch("attention, figures of queries");

  const char* name = "attention, gradients";
  check(cudaFuncSetAttribute(gradients_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), name);
  gradients_kernel<<<static_cast<unsigned int>(blocks), block_threads, shared_bytes, gpu.stream()>>>(
      map_of(op.qkv.data, layout, layout.width()), map_of(op.result_gradient.data, layout, heads_width), work);
  check_launch(name);

  if (!grouped) return;
  const Size pieces = layout.tokens() * 2 * layout.kv_heads * head / 8;
  sum_groups_kernel<<<static_cast<unsigned int>(ceil_div(pieces, sum_threads)), sum_threads, 0, gpu.stream()>>>(
      by_query_head, gradient + heads_width, layout.width(), layout.tokens(), work.heads, work.group);
  check_launch("attention, sums over groups of heads");
}

}  // namespace quaver::cuda
