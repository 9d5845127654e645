// Hopper's own instructions, one function each: barriers in shared memory that count threads and bytes, TMA copies of
// whole tiles, wgmma of 64 rows by the four warps of a warpgroup. For device code of sm_90a only. A function has as
// many parameters as its instruction has operands.
#pragma once

#include <cstdint>
#include <cuda.h>
#include <cuda_fp16.h>
#include <type_traits>

namespace quaver::cuda::hopper {

using Address = std::uint32_t;  // in shared memory, in bytes

// ---- barriers -----------------------------------------------------------------------------------------------------

constexpr int barrier_bytes = 8;

inline __device__ void start(Address barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Before the other threads, and the copies, may see barriers just started.
inline __device__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory"); }

inline __device__ void arrive(Address barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
inline __device__ void arrive_expecting(Address barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the barrier's phase of this parity has ended.
inline __device__ void wait(Address barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ended;\n"
      "bra again;\n"
      "ended:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- clusters -----------------------------------------------------------------------------------------------------

inline __device__ int cluster_index() {
  int index;
  asm volatile("mov.u32 %0, %%clusterid.x;\n" : "=r"(index));
  return index;
}
inline __device__ int cluster_count() {
  int count;
  asm volatile("mov.u32 %0, %%nclusterid.x;\n" : "=r"(count));
  return count;
}
inline __device__ int block_in_cluster() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}
// All threads of the cluster's blocks.
inline __device__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}
// At the barrier in the same place of another block of the cluster. It orders reads alone: a release of writes to that
// block would cost a fence of the whole GPU.
inline __device__ void arrive_at_block(Address barrier, int block) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}

// Makes ordinary writes to shared memory visible to wgmma and TMA.
inline __device__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

// ---- copies -------------------------------------------------------------------------------------------------------

inline __device__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}
// What the L2 cache is told of a copy.
constexpr std::uint64_t read_once = 0x12F0000000000000;
constexpr std::uint64_t read_again = 0x1000000000000000;

// The box at (x, y, z) of a tensor in global memory; what lies outside of the tensor arrives as zeros.
inline __device__ void copy_box(Address to, const CUtensorMap& map, int x, int y, int z, Address done,
                                std::uint64_t hint) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
      "%4, %5}], [%2], %6;\n" ::"r"(to),
      "l"(&map), "r"(done), "r"(x), "r"(y), "r"(z), "l"(hint)
      : "memory");
}
inline __device__ void copy_box(Address to, const CUtensorMap& map, int x, int y, Address done) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
      "[%2];\n" ::"r"(to),
      "l"(&map), "r"(done), "r"(x), "r"(y)
      : "memory");
}
// The same box for every block of the cluster whose bit is set in `blocks`: at the same place, to the same barrier.
inline __device__ void multicast_box(Address to, const CUtensorMap& map, int x, int y, Address done,
                                     std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%3, %4}], [%2], %5;\n" ::"r"(to),
      "l"(&map), "r"(done), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}
inline __device__ void copy_bytes(Address to, const void* from, int bytes, Address done) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
               "l"(from), "r"(bytes), "r"(done)
               : "memory");
}

// Single words, and the arrival of this thread once they are there: one of those that the barrier expects.
inline __device__ void copy_word(Address to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from) : "memory");
}
inline __device__ void arrive_with_words(Address barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}

// Boxes from shared memory into a tensor, or added to it; what lies outside of the tensor is dropped.
inline __device__ void store_box(const CUtensorMap& map, int x, int y, Address from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];\n" ::"l"(&map), "r"(x),
               "r"(y), "r"(from)
               : "memory");
}
inline __device__ void add_box(const CUtensorMap& map, int x, int y, Address from) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];\n" ::"l"(&map),
      "r"(x), "r"(y), "r"(from)
      : "memory");
}
inline __device__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;\n" ::: "memory"); }
// Until the boxes that this thread stored have been read from shared memory, or have arrived.
inline __device__ void wait_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory"); }
inline __device__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory"); }

// Four 8 × 8 matrices of 16-bit elements; lane l gives the address of row l mod 8 of matrix l / 8.
inline __device__ void store_matrices(Address address, const std::uint32_t* x) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(x[0]),
               "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

inline __device__ float load_float(Address address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(x) : "r"(address) : "memory");
  return x;
}
inline __device__ float2 load_pair(Address address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
  return x;
}

// *to += x, each by itself, in the order in which a thread says so.
inline __device__ void add_to(float4* to, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

// 128 bytes that will be written before they are read again: the L2 cache need not write them to memory.
inline __device__ void discard_line(const void* line) {
  asm volatile("discard.global.L2 [%0], 128;\n" ::"l"(line) : "memory");
}

// ---- registers ----------------------------------------------------------------------------------------------------

template <int Count>
inline __device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(Count));
}
template <int Count>
inline __device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(Count));
}

// ---- wgmma --------------------------------------------------------------------------------------------------------

// A tile of BF16 or FP16 in shared memory whose rows have 64 elements, 16-byte pieces swizzled over groups of 8 rows as
// copies of boxes do, from an address that is a multiple of 1024. An operand is named by the descriptor of its start;
// `on` advances it.
struct Tile {
  static constexpr int row_bytes = 128;

  inline __device__ static std::uint64_t at(Address address) {
    constexpr std::uint64_t group_bytes = 8 * row_bytes;
    constexpr std::uint64_t swizzle_128 = 1;
    return address / 16 | 1ULL << 16U | group_bytes / 16 << 32U | swizzle_128 << 62U;
  }
  inline __device__ static constexpr std::uint64_t on(int bytes) { return static_cast<std::uint64_t>(bytes / 16); }
  static constexpr std::uint64_t step_across = 16 * 2 / 16;        // 16 elements on along the rows
  static constexpr std::uint64_t step_down = 16 * row_bytes / 16;  // 16 rows on

  // Swizzled offset of a 16-byte piece of a row, in bytes from the start of the tile.
  inline __device__ static Address piece(int row, int index) {
    return static_cast<Address>(row * row_bytes + ((index ^ (row & 7)) << 4));
  }
};

// Sums of 64 rows and 8 · Blocks columns. Of each 8 columns a thread holds two in row g and two in row g + 8 of its
// warp's 16.
template <int Blocks>
using Sums = float[Blocks][4];

// wgmma_fence orders earlier register writes before the wgmmas that follow; wgmma_commit closes a group of them.
inline __device__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
inline __device__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
// Until no more than the last `Ahead` groups are under way.
template <int Ahead>
inline __device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Ahead) : "memory");
}
// The compiler must not move what it does with these registers across this point.
template <int Blocks>
inline __device__ void pin(Sums<Blocks>& sums) {
#pragma unroll
  for (auto& block : sums) {
#pragma unroll
    for (float& x : block) asm volatile("" : "+f"(x)::"memory");
  }
}

#define QUAVER_SUMS_1(d, i) "+f"((d)[i][0]), "+f"((d)[i][1]), "+f"((d)[i][2]), "+f"((d)[i][3])
#define QUAVER_SUMS_4(d, i) \
  QUAVER_SUMS_1(d, i), QUAVER_SUMS_1(d, i + 1), QUAVER_SUMS_1(d, i + 2), QUAVER_SUMS_1(d, i + 3)
#define QUAVER_NAMES_32                                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define QUAVER_NAMES_64                                                                                         \
  QUAVER_NAMES_32                                                                                               \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// The instruction for an operand type: `with` is a macro of its name.
#define QUAVER_OF_TYPE(Value, with)              \
  if constexpr (std::is_same_v<Value, __half>) { \
    with("f16.f16");                             \
  } else {                                       \
    with("bf16.bf16");                           \
  }

// sums (+)= a[64 × 16] · b[128 × 16]ᵀ, both from tiles whose rows are theirs. Value: BF16 or FP16.
template <class Value>
inline __device__ void multiply_rows(Sums<16>& sums, std::uint64_t a, std::uint64_t b, bool add) {
#define QUAVER_MULTIPLY(types)                                                                                       \
  asm volatile(                                                                                                      \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"                                                               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." types " {" QUAVER_NAMES_64 "}, %64, %65, add, 1, 1, 0, 0;\n}\n" \
      : QUAVER_SUMS_4(sums, 0), QUAVER_SUMS_4(sums, 4), QUAVER_SUMS_4(sums, 8), QUAVER_SUMS_4(sums, 12)              \
      : "l"(a), "l"(b), "r"(static_cast<int>(add)))
  QUAVER_OF_TYPE(Value, QUAVER_MULTIPLY)
#undef QUAVER_MULTIPLY
}

// The same of E4M3: sums (+)= a[64 × 32] · b[128 × 32]ᵀ
inline __device__ void multiply_rows_e4m3(Sums<16>& sums, std::uint64_t a, std::uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" QUAVER_NAMES_64 "}, %64, %65, add, 1, 1;\n}\n"
      : QUAVER_SUMS_4(sums, 0), QUAVER_SUMS_4(sums, 4), QUAVER_SUMS_4(sums, 8), QUAVER_SUMS_4(sums, 12)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// Two operands of 64 columns from tiles; where `Transposed`, the sum runs over the rows of both.
template <class Value, bool Transposed>
inline __device__ void multiply(Sums<8>& sums, std::uint64_t a, std::uint64_t b, bool add) {
#define QUAVER_MULTIPLY(types)                                                 \
  asm volatile(                                                                \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"                         \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " {" QUAVER_NAMES_32 \
      "}, %32, %33, add, 1, 1, %35, %35;\n}\n"                                 \
      : QUAVER_SUMS_4(sums, 0), QUAVER_SUMS_4(sums, 4)                         \
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(Transposed)))
  QUAVER_OF_TYPE(Value, QUAVER_MULTIPLY)
#undef QUAVER_MULTIPLY
}

// sums (+)= a[64 × 16] · b[64 × 16]ᵀ
template <class Value>
inline __device__ void multiply_rows(Sums<8>& sums, std::uint64_t a, std::uint64_t b, bool add) {
  multiply<Value, false>(sums, a, b, add);
}

// sums (+)= a[16 × 64]ᵀ · b[16 × 64]
template <class Value>
inline __device__ void multiply_columns(Sums<8>& sums, std::uint64_t a, std::uint64_t b, bool add) {
  multiply<Value, true>(sums, a, b, add);
}

// sums (+)= a[64 × 16] · b[16 × 64], a from registers, the rows of b's tile its own.
template <class Value>
inline __device__ void multiply_columns(Sums<8>& sums, const std::uint32_t* a, std::uint64_t b, bool add) {
#define QUAVER_MULTIPLY(types)                                                 \
  asm volatile(                                                                \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"                         \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " {" QUAVER_NAMES_32 \
      "}, {%32, %33, %34, %35}, %36, add, 1, 1, 1;\n}\n"                       \
      : QUAVER_SUMS_4(sums, 0), QUAVER_SUMS_4(sums, 4)                         \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)))
  QUAVER_OF_TYPE(Value, QUAVER_MULTIPLY)
#undef QUAVER_MULTIPLY
}

#undef QUAVER_OF_TYPE
#undef QUAVER_SUMS_1
#undef QUAVER_SUMS_4
#undef QUAVER_NAMES_32
#undef QUAVER_NAMES_64

}  // namespace quaver::cuda::hopper
