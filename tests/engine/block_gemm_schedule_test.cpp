// The units of a blockwise GEMM are its products, each once, in parts whose order does not depend on who computes them.
#include "engine/cuda/gemm/block_gemm_schedule.h"

#include <gtest/gtest.h>
#include <map>
#include <vector>

#include "engine/cuda/gemm/gemm_shapes.h"

namespace quaver::test {
namespace {

using cuda::block_gemm_schedule;
using cuda::BlockGemmSchedule;
using cuda::BlockGemmShape;
using cuda::BlockGemmUnit;

constexpr int h200 = 132;

// Outputs of wgrad: GPT 124M and 350M, Qwen2.5 of 0.5B, 1.5B and 7B; odd ones.
const std::vector<BlockGemmShape> outputs{
    {768, 768},   {2304, 768},  {3072, 768},   {768, 3072},   {1024, 1024}, {3072, 1024}, {4096, 1024},  {1024, 4096},
    {896, 896},   {1152, 896},  {4864, 896},   {896, 4864},   {1536, 1536}, {2048, 1536}, {8960, 1536},  {1536, 8960},
    {3584, 3584}, {4608, 3584}, {18944, 3584}, {3584, 18944}, {16, 16},     {1, 8},       {33000, 1000}, {300, 264}};
const std::vector<std::int64_t> reductions{16, 128, 1000, 2064, 8192, 16384, 65536};

struct Part {
  int first;
  int slices;
};

// The parts of each tile; every cluster that is launched has work.
std::map<int, std::map<int, Part>> parts_of(const BlockGemmSchedule& schedule) {
  std::map<int, std::map<int, Part>> tiles;
  for (int cluster = 0; cluster < schedule.clusters; ++cluster) {
    int round = 0;
    for (BlockGemmUnit unit = schedule.unit(cluster, 0); unit.slices > 0; unit = schedule.unit(cluster, ++round)) {
      EXPECT_TRUE(tiles[unit.tile].emplace(unit.part, Part{unit.first, unit.slices}).second);
    }
    EXPECT_GT(round, 0) << "cluster " << cluster << " has nothing to do";
  }
  return tiles;
}

void expect_covered(const BlockGemmSchedule& schedule) {
  const auto tiles = parts_of(schedule);
  ASSERT_EQ(static_cast<int>(tiles.size()), schedule.tiles());
  EXPECT_EQ(tiles.begin()->first, 0);
  EXPECT_EQ(tiles.rbegin()->first, schedule.tiles() - 1);
  for (const auto& [tile, parts] : tiles) {
    const int expected = tile < schedule.whole ? 1 : schedule.parts();
    ASSERT_EQ(static_cast<int>(parts.size()), expected) << "tile " << tile;
    int next = 0;
    int number = 0;
    for (const auto& [part, slices] : parts) {
      EXPECT_EQ(part, number++);
      EXPECT_EQ(slices.first, next);
      next = slices.first + slices.slices;
    }
    EXPECT_EQ(next, schedule.slices) << "tile " << tile;
  }
}

TEST(BlockGemmSchedule, EverySliceOfEveryTileIsInOneUnit) {
  for (const int multiprocessors : {1, 2, 16, 78, 114, h200}) {
    for (const BlockGemmShape& output : outputs) {
      for (const std::int64_t k : reductions) {
        for (const Format out : {Format::bf16, Format::f32}) {
          SCOPED_TRACE(std::to_string(output.m) + " × " + std::to_string(output.n) + " × " + std::to_string(k) +
                       " on " + std::to_string(multiprocessors));
          const BlockGemmSchedule schedule = block_gemm_schedule({output.m, output.n, k}, out, multiprocessors);
          EXPECT_LE(schedule.clusters, std::max(1, multiprocessors / 2));
          expect_covered(schedule);
        }
      }
    }
  }
}

// The slowest cluster's time in slices is what the schedule was chosen by.
TEST(BlockGemmSchedule, NoClusterTakesLongerThanTheCost) {
  for (const BlockGemmShape& output : outputs) {
    const BlockGemmSchedule schedule = block_gemm_schedule({output.m, output.n, 16384}, Format::f32, h200);
    for (int cluster = 0; cluster < schedule.clusters; ++cluster) {
      int slices = 0;
      int round = 0;
      for (BlockGemmUnit unit = schedule.unit(cluster, 0); unit.slices > 0; unit = schedule.unit(cluster, ++round)) {
        slices += unit.slices;
      }
      EXPECT_LE(slices, schedule.cost) << output.m << " × " << output.n << ", cluster " << cluster;
    }
  }
}

TEST(BlockGemmSchedule, OnlySumsInFp32AreSplit) {
  for (const BlockGemmShape& output : outputs) {
    const BlockGemmSchedule schedule = block_gemm_schedule({output.m, output.n, 65536}, Format::bf16, h200);
    EXPECT_EQ(schedule.split(), 0);
    EXPECT_EQ(cuda::block_gemm_partial_bytes(schedule), 0);
  }
}

// GPT 350M's four weights, 65,536 tokens: nine tenths of the multiprocessors' time and more, but for the smallest.
TEST(BlockGemmSchedule, LongReductionsFillTheMultiprocessors) {
  const auto share = [](std::int64_t m, std::int64_t n) {
    const BlockGemmSchedule schedule = block_gemm_schedule({m, n, 65536}, Format::f32, h200);
    constexpr int clusters = h200 / 2;
    return static_cast<double>(schedule.tiles() * schedule.slices) / (schedule.cost * clusters);
  };
  EXPECT_GT(share(3072, 1024), 0.9);
  EXPECT_GT(share(4096, 1024), 0.9);
  EXPECT_GT(share(1024, 4096), 0.9);
  EXPECT_GT(share(1024, 1024), 0.85);
}

// Fewer than a cluster's tile for each cluster, whatever the shape.
TEST(BlockGemmSchedule, PartialSumsTakeLittleMemory) {
  for (const BlockGemmShape& output : outputs) {
    for (const std::int64_t k : reductions) {
      const BlockGemmSchedule schedule = block_gemm_schedule({output.m, output.n, k}, Format::f32, h200);
      EXPECT_LE(schedule.partials(), h200 / 2);
      EXPECT_LE(cuda::block_gemm_partial_bytes(schedule), 17'301'504);
    }
  }
}

TEST(BlockGemmSchedule, OursWhereItIsBusy) {
  const auto faster = [](const BlockGemmShape& shape, Format out) {
    return cuda::block_gemm_is_faster(shape, out, h200);
  };
  EXPECT_TRUE(faster({65536, 1024, 4096}, Format::bf16));
  EXPECT_TRUE(faster({16384, 4864, 896}, Format::bf16));
  EXPECT_FALSE(faster({16384, 896, 4864}, Format::bf16)) << "an eighth of the tiles lies outside";
  EXPECT_FALSE(faster({2048, 1024, 1024}, Format::bf16)) << "32 tiles";
  EXPECT_TRUE(faster({1024, 1024, 65536}, Format::f32));
  EXPECT_FALSE(faster({1024, 1024, 65536}, Format::bf16)) << "which is not split";
  EXPECT_FALSE(faster({1024, 1024, 2048}, Format::f32)) << "one slice a cluster";
  EXPECT_TRUE(faster({4864, 896, 32768}, Format::f32)) << "an eighth lies outside, but the result is FP32";
  EXPECT_FALSE(faster({896, 896, 32768}, Format::f32)) << "almost a quarter lies outside";
}

}  // namespace
}  // namespace quaver::test
