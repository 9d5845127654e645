// The kernel of block_gemm.h. Clusters of two blocks run through items, tiles or parts of their reduction. The blocks
// own 128 rows each of the same 256 columns: each copies its rows of a, and half of b for both (multicast).
//
// In a block a producer copies slices of 128 ahead (TMA, four stages). Two consumer warpgroups own 64 rows each, in two
// halves of 128 columns: while tensor cores sum one half of a slice, nothing else needs their registers, and the
// warpgroup promotes the other half or stores a tile that is done. So a tile's stores hide under the wgmma of the next.
#pragma once

#include "engine/cuda/device/hopper.cuh"
#include "engine/cuda/device/primitives.cuh"
#include "engine/cuda/gemm/block_gemm.h"

namespace quaver::cuda::hopper {

constexpr int warpgroup_threads = 128;
constexpr int consumer_groups = 2;
constexpr int consumer_threads = consumer_groups * warpgroup_threads;
constexpr int gemm_threads = consumer_threads + warpgroup_threads;
constexpr int half_cols = 128;
constexpr int group_rows = 64;

struct BlockGemmMaps {
  CUtensorMap a;    // boxes of 128 rows and a slice
  CUtensorMap b;    // the same
  CUtensorMap out;  // boxes of 64 rows and 128 bytes
};

struct BlockGemmWork {
  BlockGemmSchedule schedule;
  int m;
  int n;
  const float* a_scales;
  const float* b_scales;
  const float* bias;
  float alpha;
  Store store;
  std::uint32_t* turns;
};

// Where things lie in shared memory, from an address that is a multiple of 1024.
template <BScales scaling, class Out>
struct BlockGemmLayout {
  static constexpr int stages = 4;
  static constexpr int box_bytes = 128 * Tile::row_bytes;  // of a, or of half of b

  // Of a slice: the rows' scales, then those of b's two blocks or 256 columns.
  static constexpr int b_scales_offset = 128 * 4;
  static constexpr int scales_bytes = b_scales_offset + (scaling == BScales::columns ? 2 * half_cols * 4 : 16);

  static constexpr int out_box_bytes = group_rows * Tile::row_bytes;
  static constexpr int out_boxes = scaling == BScales::columns ? 1 : 2;  // of a warpgroup
  static constexpr int out_box_cols = Tile::row_bytes / static_cast<int>(sizeof(Out));

  static constexpr int a = 0;
  static constexpr int b = a + stages * box_bytes;
  static constexpr int out = b + stages * 2 * box_bytes;
  static constexpr int scales = out + consumer_groups * out_boxes * out_box_bytes;
  static constexpr int full = scales + stages * scales_bytes;
  static constexpr int empty = full + stages * barrier_bytes;
  static constexpr int total = empty + stages * barrier_bytes;
  static_assert(total <= 227 * 1024);
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct BlockGemmItem {
  int tile;
  int row;  // first of this block
  int col;
  int split;
  int first;  // slice
  int end;
};

__device__ __forceinline__ BlockGemmItem item_at(const BlockGemmSchedule& schedule, int index) {
  BlockGemmItem item;
  item.tile = index / schedule.splits;
  item.split = index - item.tile * schedule.splits;
  const int pair = item.tile / schedule.column_tiles;
  item.row = pair * static_cast<int>(BlockGemmSchedule::cluster_rows) +
             block_in_cluster() * static_cast<int>(BlockGemmSchedule::tile_rows);
  item.col = (item.tile - pair * schedule.column_tiles) * static_cast<int>(BlockGemmSchedule::tile_cols);
  item.first = item.split * schedule.slices_per_split;
  item.end = min(item.first + schedule.slices_per_split, schedule.slices);
  return item;
}

__device__ __forceinline__ int slices_of(const BlockGemmSchedule& schedule, int index) {
  const int first = index % schedule.splits * schedule.slices_per_split;
  return min(schedule.slices_per_split, schedule.slices - first);
}

// A place in the ring of stages, and the parity of its barriers.
template <int stages>
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

// ---- producer: one thread -----------------------------------------------------------------------------------------

template <BScales scaling, class Out>
__device__ __forceinline__ void produce(const BlockGemmMaps& maps, const BlockGemmWork& work, Address shared) {
  using L = BlockGemmLayout<scaling, Out>;
  constexpr std::uint16_t both = 3;
  const int rank = block_in_cluster();
  Ring<L::stages> at;
  for (int index = cluster_index(); index < work.schedule.items(); index += cluster_count()) {
    const BlockGemmItem item = item_at(work.schedule, index);
    const int scale_bytes = scaling == BScales::columns ? 4 * min(2 * half_cols, work.n - item.col) : 0;
    for (int slice = item.first; slice < item.end; ++slice, at.advance()) {
      const Address full = shared + L::full + at.stage * barrier_bytes;
      const int x = slice * static_cast<int>(BlockGemmSchedule::slice);
      wait(shared + L::empty + at.stage * barrier_bytes, at.parity ^ 1);
      arrive_expecting(full, 3 * L::box_bytes + scale_bytes);
      copy_box(shared + L::a + at.stage * L::box_bytes, maps.a, x, item.row, full);
      multicast_box(shared + L::b + (2 * at.stage + rank) * L::box_bytes, maps.b, x, item.col + rank * half_cols, full,
                    both);
      if constexpr (scaling == BScales::columns) {
        copy_bytes(shared + L::scales + at.stage * L::scales_bytes + L::b_scales_offset,
                   work.b_scales + static_cast<Size>(slice) * work.n + item.col, scale_bytes, full);
      }
    }
  }
}

// The scales of a's rows, and of b's blocks: one warp.
template <BScales scaling, class Out>
__device__ __forceinline__ void produce_scales(const BlockGemmWork& work, Address shared) {
  using L = BlockGemmLayout<scaling, Out>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int slices = work.schedule.slices;
  Ring<L::stages> at;
  for (int index = cluster_index(); index < work.schedule.items(); index += cluster_count()) {
    const BlockGemmItem item = item_at(work.schedule, index);
    const float* rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] = work.a_scales + offset_of(min(item.row + lane + 32 * i, work.m - 1), slices) + item.first;
    }
    const int block = min(item.col / half_cols + lane % 2, (work.n - 1) / half_cols);
    const float* blocks = work.b_scales + offset_of(block, slices) + item.first;
    for (int slice = item.first; slice < item.end; ++slice, at.advance()) {
      const Address to = shared + L::scales + at.stage * L::scales_bytes + lane * 4;
      wait(shared + L::empty + at.stage * barrier_bytes, at.parity ^ 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) copy_word(to + i * 32 * 4, rows[i]++);
      if constexpr (scaling == BScales::blocks) {
        if (lane < 2) copy_word(to + L::b_scales_offset, blocks);
        ++blocks;
      }
      arrive_with_words(shared + L::full + at.stage * barrier_bytes);
    }
  }
}

// ---- consumers ----------------------------------------------------------------------------------------------------

// sums[64 × 128] = one half of a slice, enqueued.
__device__ __forceinline__ void multiply_half(Sums<16>& sums, Address a, Address b) {
  constexpr std::uint64_t step = Tile::on(32);
  const std::uint64_t left = Tile::at(a);
  const std::uint64_t right = Tile::at(b);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) multiply_rows_e4m3(sums, left + i * step, right + i * step, i > 0);
  wgmma_commit();
}

// total += slice, scaled: rows g and g + 8 by their own scales.
__device__ __forceinline__ void promote(Sums<16>& total, const Sums<16>& slice, float upper, float lower) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) total[j][i] = fmaf(slice[j][i], i < 2 ? upper : lower, total[j][i]);
  }
}
// With the columns' scales in shared memory too.
__device__ __forceinline__ void promote(Sums<16>& total, const Sums<16>& slice, float upper, float lower,
                                        Address columns) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 scale = load_pair(columns + j * 8 * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float scaled = slice[j][i] * (i % 2 == 0 ? scale.x : scale.y);
      total[j][i] = fmaf(scaled, i < 2 ? upper : lower, total[j][i]);
    }
  }
}

__device__ __forceinline__ void sync_group(int group) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(group + 1), "n"(warpgroup_threads) : "memory");
}

// What becomes of a sum on its way out.
struct Finish {
  float alpha;
  const float* bias;  // of the half's first column; null: none
  int cols;           // from there to the end of the matrix, a multiple of 8

  // The biases of columns x and x + 1; any where they lie outside.
  __device__ __forceinline__ float2 bias_at(int x) const {
    float2 pair;
    asm volatile(
        "{\n.reg .pred biased;\nsetp.ne.s64 biased, %2, 0;\nmov.f32 %0, 0f00000000;\nmov.f32 %1, 0f00000000;\n"
        "@biased ld.global.f32 %0, [%3];\n@biased ld.global.f32 %1, [%3 + 4];\n}\n"
        : "=f"(pair.x), "=f"(pair.y)
        : "l"(bias), "l"(bias + min(x, cols - 2)));
    return pair;
  }
};

// Boxes [round · boxes, …) of a half: of 64 columns in BF16, 32 in FP32.
template <int boxes>
__device__ __forceinline__ void write_bf16(const Sums<16>& sums, const Finish& finish, Address to, int round) {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));  // no addresses are kept in registers between tiles
  const int lane = thread % 32;
  const int row = thread % warpgroup_threads / 32 * 16 + (lane & 15);
#pragma unroll
  for (int j = 0; j < 16; j += 2) {
    if (j / (8 * boxes) != round) continue;
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 bias = finish.bias_at((j + i) * 8 + lane % 4 * 2);
      const auto& x = sums[j + i];
      words[2 * i] = pack_pair(fmaf(x[0], finish.alpha, bias.x), fmaf(x[1], finish.alpha, bias.y));
      words[2 * i + 1] = pack_pair(fmaf(x[2], finish.alpha, bias.x), fmaf(x[3], finish.alpha, bias.y));
    }
    const Address box = to + j / 8 % boxes * (group_rows * Tile::row_bytes);
    store_matrices(box + Tile::piece(row, j % 8 + (lane >> 4)), words);
  }
}

template <int boxes>
__device__ __forceinline__ void write_f32(const Sums<16>& sums, const Finish& finish, Address to, int round) {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  const int lane = thread % 32;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    if (j / (4 * boxes) != round) continue;
    const float2 bias = finish.bias_at(j * 8 + lane % 4 * 2);
    const Address box = to + j / 4 % boxes * (group_rows * Tile::row_bytes);
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int row = thread % warpgroup_threads / 32 * 16 + below * 8 + lane / 4;
      const int piece = j % 4 * 2 + lane % 4 / 2;
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(box + Tile::piece(row, piece) + lane % 2 * 8),
                   "f"(fmaf(sums[j][2 * below], finish.alpha, bias.x)),
                   "f"(fmaf(sums[j][2 * below + 1], finish.alpha, bias.y))
                   : "memory");
    }
  }
}

// The parts of a tile's reduction are added in their order: a part waits until the one before it has arrived.
__device__ __forceinline__ void wait_turn(const std::uint32_t* turn, int split) {
  std::uint32_t seen = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(seen) : "l"(turn) : "memory");
  } while (seen != static_cast<std::uint32_t>(split));
  asm volatile("fence.proxy.async.global;\n" ::: "memory");
}
__device__ __forceinline__ void pass_turn(std::uint32_t* turn, int split) {
  wait_stores();
  asm volatile("fence.proxy.async.global;\n" ::: "memory");
  asm volatile("st.release.gpu.global.u32 [%0], %1;\n" ::"l"(turn), "r"(split + 1) : "memory");
}

template <BScales scaling, class Out>
class Consumer {
  using L = BlockGemmLayout<scaling, Out>;

 public:
  __device__ Consumer(const BlockGemmMaps& maps, const BlockGemmWork& work, Address shared)
      : maps_(maps),
        work_(work),
        shared_(shared),
        group_(static_cast<int>(threadIdx.x) / warpgroup_threads),
        warp_(static_cast<int>(threadIdx.x) % warpgroup_threads / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    asm volatile("" : "+r"(shared_));  // not to be computed anew for each slice
  }

  __device__ __forceinline__ void run() {
    Sums<16> sums{};  // of a half of a slice
    Sums<16> left{};
    Sums<16> right{};
    const int items = work_.schedule.items();
    int index = cluster_index();
    int slices = slices_of(work_.schedule, index);
    int stored = -1;  // but for its right half
    Scales by = wait_for_slice();
    while (true) {
      const Address a = shared_ + L::a + at_.stage * L::box_bytes + group_ * group_rows * Tile::row_bytes;
      const Address b = shared_ + L::b + 2 * at_.stage * L::box_bytes;
      multiply_half(sums, a, b);
      if (stored >= 0) store(stored, 1, right);
      stored = -1;
      wgmma_wait<0>();
      pin(sums);
      promote_half(left, sums, by.upper * by.left, by.lower * by.left, by.columns);

      multiply_half(sums, a, b + L::box_bytes);
      const float upper = by.upper * by.right;
      const float lower = by.lower * by.right;
      const Address columns = by.columns + half_cols * 4;
      const Address empty = shared_ + L::empty + at_.stage * barrier_bytes;
      if (--slices == 0) {
        store(index, 0, left);
        stored = index;
        index += cluster_count();
        slices = slices_of(work_.schedule, index);
      }
      at_.advance();
      if (index < items) by = wait_for_slice();
      wgmma_wait<0>();
      pin(sums);
      if constexpr (scaling == BScales::blocks) release(empty);
      promote_half(right, sums, upper, lower, columns);
      if constexpr (scaling == BScales::columns) release(empty);
      if (index >= items) break;
    }
    store(stored, 1, right);
    if (is_storer()) wait_stores();
  }

 private:
  __device__ __forceinline__ bool is_storer() const { return threadIdx.x % warpgroup_threads == 0; }

  struct Scales {
    float upper;  // of rows g and g + 8
    float lower;
    float left = 1;  // of the halves
    float right = 1;
    Address columns = 0;  // of this thread's first two columns
  };

  __device__ __forceinline__ Scales wait_for_slice() const {
    const Address scales = shared_ + L::scales + at_.stage * L::scales_bytes;
    const Address row = scales + (group_ * group_rows + warp_ * 16 + lane_ / 4) * 4;
    wait(shared_ + L::full + at_.stage * barrier_bytes, at_.parity);
    Scales by{load_float(row), load_float(row + 8 * 4)};
    if constexpr (scaling == BScales::blocks) {
      const float2 blocks = load_pair(scales + L::b_scales_offset);
      by.left = blocks.x;
      by.right = blocks.y;
    } else {
      by.columns = scales + L::b_scales_offset + lane_ % 4 * 8;
    }
    return by;
  }

  __device__ __forceinline__ void promote_half(Sums<16>& total, const Sums<16>& sums, float upper, float lower,
                                               Address columns) const {
    if constexpr (scaling == BScales::columns) {
      promote(total, sums, upper, lower, columns);
    } else {
      promote(total, sums, upper, lower);
    }
  }

  // Both blocks' producers write this stage.
  __device__ __forceinline__ void release(Address empty) const {
    if (lane_ < 2) arrive_at_block(empty, lane_);
  }

  __device__ __forceinline__ void store(int index, int half, Sums<16>& sums) const {
    asm volatile("" : "+r"(index));  // nothing of this is kept in registers between tiles
    const BlockGemmItem item = item_at(work_.schedule, index);
    const int col = item.col + half * half_cols;
    constexpr int rounds = half_cols / (L::out_boxes * L::out_box_cols);
    std::uint32_t* turn = nullptr;
    if (work_.schedule.splits > 1) turn = work_.turns + ((item.tile * 2 + block_in_cluster()) * 2 + group_) * 2 + half;
    if (is_storer() && turn != nullptr) wait_turn(turn, item.split);
#pragma unroll
    for (int round = 0; round < rounds; ++round) store_round(item, col, round, sums);
    if (is_storer() && turn != nullptr) pass_turn(turn, item.split);
#pragma unroll
    for (auto& block : sums) {
#pragma unroll
      for (float& x : block) x = 0;
    }
  }

  __device__ __forceinline__ void store_round(const BlockGemmItem& item, int col, int round,
                                              const Sums<16>& sums) const {
    const bool biased = work_.bias != nullptr && item.split == 0;
    const Finish finish{work_.alpha, biased ? work_.bias + col : nullptr, work_.n - col};
    const Address boxes = shared_ + L::out + group_ * L::out_boxes * L::out_box_bytes;
    if (is_storer()) wait_stores_read();
    sync_group(group_);
    if constexpr (sizeof(Out) == 2) {
      write_bf16<L::out_boxes>(sums, finish, boxes, round);
    } else {
      write_f32<L::out_boxes>(sums, finish, boxes, round);
    }
    fence_async_proxy();
    sync_group(group_);
    if (!is_storer()) return;
    const bool adds = work_.store == Store::add || item.split > 0;
#pragma unroll
    for (int i = 0; i < L::out_boxes; ++i) {
      const int x = col + (round * L::out_boxes + i) * L::out_box_cols;
      const int y = item.row + group_ * group_rows;
      if (x >= work_.n || y >= work_.m) continue;
      if (sizeof(Out) == 4 && adds) {
        add_box(maps_.out, x, y, boxes + i * L::out_box_bytes);
      } else {
        store_box(maps_.out, x, y, boxes + i * L::out_box_bytes);
      }
    }
    commit_stores();
  }

  const BlockGemmMaps& maps_;
  const BlockGemmWork& work_;
  Address shared_;
  int group_;
  int warp_;
  int lane_;
  Ring<L::stages> at_;
};

#endif

template <BScales scaling, class Out>
__global__ void __cluster_dims__(2) __launch_bounds__(gemm_threads, 1)
    block_gemm_kernel(const __grid_constant__ BlockGemmMaps maps, const __grid_constant__ BlockGemmWork work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = BlockGemmLayout<scaling, Out>;
  extern __shared__ __align__(1024) std::byte memory[];
  const Address shared = shared_address(memory);
  if (threadIdx.x == 0) {
    constexpr int releases = 2 * consumer_threads / 32;  // by every warp of both blocks
    for (int i = 0; i < L::stages; ++i) {
      start(shared + L::full + i * barrier_bytes, 1 + 32);  // the copies of boxes, and each lane's of scales
      start(shared + L::empty + i * barrier_bytes, releases);
    }
    fence_barrier_init();
  }
  sync_cluster();
  if (threadIdx.x >= consumer_threads) {
    give_registers<40>();
    if (threadIdx.x == consumer_threads) {
      prefetch_map(maps.a);
      prefetch_map(maps.b);
      produce<scaling, Out>(maps, work, shared);
    } else if (threadIdx.x / 32 == consumer_threads / 32 + 1) {
      produce_scales<scaling, Out>(work, shared);
    }
    __syncwarp();
  } else {
    take_registers<232>();
    Consumer<scaling, Out>(maps, work, shared).run();
  }
  sync_cluster();  // no block leaves while the other may still copy or arrive
#endif
}

}  // namespace quaver::cuda::hopper
