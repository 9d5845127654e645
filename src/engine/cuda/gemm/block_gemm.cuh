// The kernel of block_gemm.h. Clusters of two blocks run through units, tiles or parts of their reduction. The blocks
// own 128 rows each of the same 256 columns: each copies its rows of a, and half of b for both (multicast).
//
// In a block a producer copies slices of 128 ahead (TMA, four stages), a warp beside it their scales. Two consumer
// warpgroups own 64 rows each, in two halves of 128 columns. While tensor cores sum one half of a slice, a warpgroup
// waits for the next slice or stores a half that is done, so that a unit's stores hide under the wgmma of the next.
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
  CUtensorMap a;         // boxes of 128 rows and a slice
  CUtensorMap b;         // the same
  CUtensorMap out;       // boxes of 64 rows and 128 bytes
  CUtensorMap partials;  // the same, of all tiles of 256 × 256 one below the other
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
};

// Where things lie in shared memory, from an address that is a multiple of 1024.
template <class Out>
struct BlockGemmLayout {
  static constexpr int stages = 4;
  static constexpr int box_bytes = 128 * Tile::row_bytes;  // of a, or of half of b

  // Of a slice: the rows' scales, then those of b's two blocks.
  static constexpr int b_scales_offset = 128 * 4;
  static constexpr int scales_bytes = b_scales_offset + 16;

  static constexpr int out_box_bytes = group_rows * Tile::row_bytes;
  static constexpr int out_boxes = 2;  // of a warpgroup
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

// Where a tile of this block begins.
struct TilePlace {
  int row;
  int col;
};

// Of this cluster. Only FP32 results are split.
template <class Out>
__device__ __forceinline__ BlockGemmUnit unit_at(const BlockGemmSchedule& schedule, int round) {
  if constexpr (sizeof(Out) == 2) return schedule.whole_unit(cluster_index(), round);
  return schedule.unit(cluster_index(), round);
}

__device__ __forceinline__ TilePlace place_of(const BlockGemmSchedule& schedule, int tile) {
  const int pair = tile / schedule.column_tiles;
  return {pair * static_cast<int>(BlockGemmSchedule::cluster_rows) +
              block_in_cluster() * static_cast<int>(BlockGemmSchedule::tile_rows),
          (tile - pair * schedule.column_tiles) * static_cast<int>(BlockGemmSchedule::tile_cols)};
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

template <class Out>
__device__ __forceinline__ void produce(const BlockGemmMaps& maps, const BlockGemmWork& work, Address shared) {
  using L = BlockGemmLayout<Out>;
  constexpr std::uint16_t both = 3;
  const int rank = block_in_cluster();
  Ring<L::stages> at;
  int round = 0;
  for (BlockGemmUnit unit = unit_at<Out>(work.schedule, 0); unit.slices > 0;
       unit = unit_at<Out>(work.schedule, ++round)) {
    const TilePlace place = place_of(work.schedule, unit.tile);
    const int end = unit.first + unit.slices;
    for (int slice = unit.first; slice < end; ++slice, at.advance()) {
      const Address full = shared + L::full + at.stage * barrier_bytes;
      const int x = slice * static_cast<int>(BlockGemmSchedule::slice);
      wait(shared + L::empty + at.stage * barrier_bytes, at.parity ^ 1);
      arrive_expecting(full, 3 * L::box_bytes);
      copy_box(shared + L::a + at.stage * L::box_bytes, maps.a, x, place.row, full);
      multicast_box(shared + L::b + (2 * at.stage + rank) * L::box_bytes, maps.b, x, place.col + rank * half_cols, full,
                    both);
    }
  }
}

// The scales of a's rows, and of b's blocks: one warp.
template <class Out>
__device__ __forceinline__ void produce_scales(const BlockGemmWork& work, Address shared) {
  using L = BlockGemmLayout<Out>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int slices = work.schedule.slices;
  Ring<L::stages> at;
  int round = 0;
  for (BlockGemmUnit unit = unit_at<Out>(work.schedule, 0); unit.slices > 0;
       unit = unit_at<Out>(work.schedule, ++round)) {
    const TilePlace place = place_of(work.schedule, unit.tile);
    const float* rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] = work.a_scales + offset_of(min(place.row + lane + 32 * i, work.m - 1), slices) + unit.first;
    }
    const int block = min(place.col / half_cols + lane % 2, (work.n - 1) / half_cols);
    const float* blocks = work.b_scales + offset_of(block, slices) + unit.first;
    for (int slice = 0; slice < unit.slices; ++slice, at.advance()) {
      const Address to = shared + L::scales + at.stage * L::scales_bytes + lane * 4;
      wait(shared + L::empty + at.stage * barrier_bytes, at.parity ^ 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) copy_word(to + i * 32 * 4, rows[i]++);
      if (lane < 2) copy_word(to + L::b_scales_offset, blocks);
      ++blocks;
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
__device__ __forceinline__ void sync_group(int group) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(group + 1), "n"(warpgroup_threads) : "memory");
}

// What becomes of a sum on its way out.
enum class Bias : std::uint8_t { none, added };
struct Finish {
  float alpha;
  const float* bias;  // of the half's first column
  int cols;           // from there to the end of the matrix, a multiple of 8

  // Of columns x and x + 1, four products; where they lie outside, anything.
  template <Bias kind>
  __device__ __forceinline__ void apply(const float (&sums)[4], int x, float (&out)[4]) const {
    float even = 0;
    float odd = 0;
    if constexpr (kind == Bias::added) {
      // A few at a time: there are no registers for all biases.
      asm volatile("ld.global.f32 %0, [%2];\nld.global.f32 %1, [%2 + 4];\n"
                   : "=f"(even), "=f"(odd)
                   : "l"(bias + min(x, cols - 2))
                   : "memory");
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = fmaf(sums[i], alpha, i % 2 == 0 ? even : odd);
  }
};

// Boxes [pass · boxes, …) of a half: of 64 columns in BF16, 32 in FP32.
template <int boxes, Bias kind>
__device__ __forceinline__ void write_bf16(const Sums<16>& sums, const Finish& finish, Address to, int pass) {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));  // no addresses are kept in registers between tiles
  const int lane = thread % 32;
  const int row = thread % warpgroup_threads / 32 * 16 + (lane & 15);
#pragma unroll
  for (int j = 0; j < 16; j += 2) {
    if (j / (8 * boxes) != pass) continue;
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float x[4];
      finish.apply<kind>(sums[j + i], (j + i) * 8 + lane % 4 * 2, x);
      words[2 * i] = pack_pair(x[0], x[1]);
      words[2 * i + 1] = pack_pair(x[2], x[3]);
    }
    const Address box = to + j / 8 % boxes * (group_rows * Tile::row_bytes);
    store_matrices(box + Tile::piece(row, j % 8 + (lane >> 4)), words);
  }
}

template <int boxes, Bias kind>
__device__ __forceinline__ void write_f32(const Sums<16>& sums, const Finish& finish, Address to, int pass) {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  const int lane = thread % 32;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    if (j / (4 * boxes) != pass) continue;
    float x[4];
    finish.apply<kind>(sums[j], j * 8 + lane % 4 * 2, x);
    const Address box = to + j / 4 % boxes * (group_rows * Tile::row_bytes);
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int row = thread % warpgroup_threads / 32 * 16 + below * 8 + lane / 4;
      const int piece = j % 4 * 2 + lane % 4 / 2;
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(box + Tile::piece(row, piece) + lane % 2 * 8),
                   "f"(x[2 * below]), "f"(x[2 * below + 1])
                   : "memory");
    }
  }
}

template <class Out>
class Consumer {
  using L = BlockGemmLayout<Out>;

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
    int round = 0;
    int slices = unit_at<Out>(work_.schedule, 0).slices;
    int stored = -1;  // the round's unit but for its right half
    Scales by = wait_for_slice();
    while (true) {
      const Address a = shared_ + L::a + at_.stage * L::box_bytes + group_ * group_rows * Tile::row_bytes;
      const Address b = shared_ + L::b + 2 * at_.stage * L::box_bytes;
      const Address empty = shared_ + L::empty + at_.stage * barrier_bytes;
      multiply_half(sums, a, b);
      if (stored >= 0) store(stored, 1, right);
      stored = -1;
      wgmma_wait<0>();
      pin(sums);
      promote(left, sums, by.upper * by.left, by.lower * by.left);

      multiply_half(sums, a, b + L::box_bytes);
      const float upper = by.upper * by.right;
      const float lower = by.lower * by.right;
      if (--slices == 0) {
        store(round, 0, left);
        stored = round++;
        slices = unit_at<Out>(work_.schedule, round).slices;
      }
      at_.advance();
      if (slices > 0) by = wait_for_slice();
      wgmma_wait<0>();
      pin(sums);
      release(empty);
      promote(right, sums, upper, lower);
      if (slices == 0) break;
    }
    store(stored, 1, right);
    if (is_storer()) wait_stores();
  }

 private:
  __device__ __forceinline__ bool is_storer() const { return threadIdx.x % warpgroup_threads == 0; }

  struct Scales {
    float upper;  // of rows g and g + 8
    float lower;
    float left;  // of the halves
    float right;
  };

  __device__ __forceinline__ Scales wait_for_slice() const {
    const Address scales = shared_ + L::scales + at_.stage * L::scales_bytes;
    const Address row = scales + (group_ * group_rows + warp_ * 16 + lane_ / 4) * 4;
    wait(shared_ + L::full + at_.stage * barrier_bytes, at_.parity);
    const float2 halves = load_pair(scales + L::b_scales_offset);
    return {load_float(row), load_float(row + 8 * 4), halves.x, halves.y};
  }

  // Both blocks' producers write this stage.
  __device__ __forceinline__ void release(Address empty) const {
    if (lane_ < 2) arrive_at_block(empty, lane_);
  }

  // Where a half goes: into the result, or its part's sums to where they are kept.
  struct Destination {
    TilePlace place;    // of the half in the result
    TilePlace partial;  // and in the partial sums
    int part;
  };

  __device__ __forceinline__ Destination destination_of(int round, int half) const {
    constexpr int rows = BlockGemmSchedule::cluster_rows;
    const BlockGemmSchedule& schedule = work_.schedule;
    const BlockGemmUnit unit = unit_at<Out>(schedule, round);
    Destination to{place_of(schedule, unit.tile), {}, unit.part};
    const int tile = (unit.part - 1) * schedule.split() + unit.tile - schedule.whole;
    to.place.row += group_ * group_rows;
    to.place.col += half * half_cols;
    to.partial.row =
        tile * rows + block_in_cluster() * static_cast<int>(BlockGemmSchedule::tile_rows) + group_ * group_rows;
    to.partial.col = half * half_cols;
    return to;
  }

  __device__ __forceinline__ void store(int round, int half, Sums<16>& sums) const {
    asm volatile("" : "+r"(round));  // nothing of this is kept in registers between units
    const Destination to = destination_of(round, half);
    constexpr int passes = half_cols / (L::out_boxes * L::out_box_cols);
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) store_boxes(to, pass, sums);
#pragma unroll
    for (auto& block : sums) {
#pragma unroll
      for (float& x : block) x = 0;
    }
  }

  template <Bias kind>
  __device__ __forceinline__ void write(const Sums<16>& sums, int col, Address boxes, int pass) const {
    const Finish finish{work_.alpha, work_.bias + col, work_.n - col};
    if constexpr (sizeof(Out) == 2) {
      write_bf16<L::out_boxes, kind>(sums, finish, boxes, pass);
    } else {
      write_f32<L::out_boxes, kind>(sums, finish, boxes, pass);
    }
  }

  __device__ __forceinline__ void store_boxes(const Destination& to, int pass, const Sums<16>& sums) const {
    const Address boxes = shared_ + L::out + group_ * L::out_boxes * L::out_box_bytes;
    if (is_storer()) wait_stores_read();
    sync_group(group_);
    if (work_.bias != nullptr && to.part == 0) {
      write<Bias::added>(sums, to.place.col, boxes, pass);
    } else {
      write<Bias::none>(sums, to.place.col, boxes, pass);
    }
    fence_async_proxy();
    sync_group(group_);
    if (!is_storer()) return;
#pragma unroll
    for (int i = 0; i < L::out_boxes; ++i) {
      const int right = (pass * L::out_boxes + i) * L::out_box_cols;
      const Address box = boxes + i * L::out_box_bytes;
      if (to.place.col + right >= work_.n || to.place.row >= work_.m) continue;
      if (sizeof(Out) == 4 && to.part > 0) {
        store_box(maps_.partials, to.partial.col + right, to.partial.row, box);
      } else if (sizeof(Out) == 4 && work_.store == Store::add) {
        add_box(maps_.out, to.place.col + right, to.place.row, box);
      } else {
        store_box(maps_.out, to.place.col + right, to.place.row, box);
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

template <class Out>
__global__ void __cluster_dims__(2) __launch_bounds__(gemm_threads, 1)
    block_gemm_kernel(const __grid_constant__ BlockGemmMaps maps, const __grid_constant__ BlockGemmWork work) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = BlockGemmLayout<Out>;
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
      produce<Out>(maps, work, shared);
    } else if (threadIdx.x / 32 == consumer_threads / 32 + 1) {
      produce_scales<Out>(work, shared);
    }
    __syncwarp();
  } else {
    take_registers<232>();
    Consumer<Out>(maps, work, shared).run();
  }
  sync_cluster();  // no block leaves while the other may still copy or arrive
#endif
}

}  // namespace quaver::cuda::hopper
