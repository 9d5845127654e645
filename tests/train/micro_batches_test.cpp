// Which micro-batches a rank computes: together the ranks compute each once, in the order of one process.
#include "train/micro_batches.h"

#include <gmock/gmock.h>
#include <numeric>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "quaver/error.h"
#include "train/gradient_exchange.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TrainConfig step_of(Size accumulation, Size groups) {
  TrainConfig train;
  train.accumulation = accumulation;
  train.reduction_groups = groups;
  return train;
}

std::vector<Size> computed(const MicroBatches& mine) {
  std::vector<Size> micro_batches;
  for (Size round = 0; round < mine.rounds(); ++round) {
    for (Size i = 0; i < mine.per_group(); ++i) micro_batches.push_back(mine.first(round) + i);
  }
  return micro_batches;
}

TEST(MicroBatches, AreComputedOnceByAnyNumberOfRanks) {
  std::vector<Size> all(24);
  std::iota(all.begin(), all.end(), 0);
  for (const int ranks : {1, 2, 3, 4, 6, 12}) {
    std::vector<Size> together;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<Size> mine = computed(MicroBatches(step_of(24, 12), rank, ranks));
      together.insert(together.end(), mine.begin(), mine.end());
    }
    std::sort(together.begin(), together.end());
    EXPECT_EQ(together, all) << ranks << " ranks";
  }
}

// What makes a running sum over rounds the same for all of them.
TEST(MicroBatches, OfARoundAreNeighborsInTheOrderOfTheRanks) {
  for (const int ranks : {1, 2, 3, 4, 6, 12}) {
    Size next = 0;
    for (Size round = 0; round < 12 / ranks; ++round) {
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(MicroBatches(step_of(12, 12), rank, ranks).group(round), next++);
      }
    }
  }
}

// Across steps too: the loader is started once.
TEST(MicroBatches, AreLoadedInTheOrderTheyAreComputed) {
  const MicroBatches mine(step_of(12, 6), 1, 3);
  EXPECT_THAT(computed(mine), ElementsAre(2, 3, 8, 9));
  const BatchOrder order = mine.order(100);
  std::vector<std::uint64_t> loaded;
  for (std::uint64_t i = 0; i < 8; ++i) loaded.push_back(order.index(i));
  EXPECT_THAT(loaded, ElementsAre(102, 103, 108, 109, 114, 115, 120, 121));
}

std::string refusal(const TrainConfig& train, int ranks) {
  try {
    MicroBatches(resolve_groups(train, ranks), 0, ranks);
  } catch (const Error& error) {
    return std::string(error.what()) + " → " + error.remedy();
  }
  return "";
}

TEST(MicroBatches, ThatCannotBeDividedAreRefusedWithWhatWouldWork) {
  TrainConfig train = step_of(1, 0);
  train.batch = 8;
  EXPECT_THAT(refusal(train, 4), HasSubstr("train.accumulation = 4 with train.batch = 2"));
  EXPECT_THAT(refusal(step_of(6, 0), 4), HasSubstr("a multiple of 4"));
  EXPECT_THAT(refusal(step_of(12, 12), 5), HasSubstr("(1, 2, 3, 4, 6, 12)"));
  EXPECT_EQ(refusal(step_of(12, 0), 4), "");
}

// One process with several groups sums as the ranks do: group by group, not micro-batch by micro-batch.
TEST(GradientExchange, AddsGroupsInTheirOrder) {
  const auto engine = make_cpu_engine(1);
  Parameters parameters;
  parameters.add({.name = "w", .rows = 1, .cols = 2});
  parameters.allocate(*engine, Format::f32);
  parameters.deal_out({});
  GradientExchange exchange(*engine, single_process(), parameters, 3);
  constexpr float large = 33554432;  // 2^25: loses a 1 that is added to it
  const float groups[3][2] = {{1, large}, {large, -large}, {-large, 1}};
  for (Size round = 0; round < 3; ++round) {
    std::copy_n(groups[round], 2, parameters.all()[0].gradient.f32());
    exchange.add_all(round);
  }
  EXPECT_EQ(parameters.all()[0].gradient_sum.f32()[0], 0);
  EXPECT_EQ(parameters.all()[0].gradient_sum.f32()[1], 1);
}

TEST(GradientExchange, NeedsNoMemoryWhereThereIsNothingToAdd) {
  const auto bytes = [](int ranks, Size rounds) {
    Parameters parameters;
    for (int i = 0; i < 4; ++i) parameters.add({.name = "w", .rows = 1024, .cols = 256});
    parameters.deal_out({ShardMode::optimizer, 0, ranks});
    return GradientExchange::planned_bytes(parameters, rounds);
  };
  EXPECT_EQ(bytes(1, 1), 0);
  EXPECT_EQ(bytes(1, 2), 4 << 20) << "the sum";
  EXPECT_EQ(bytes(4, 1), (1 << 20) + (4 << 20)) << "the sum of what a rank owns, and what it is sent of that";
}

}  // namespace
}  // namespace quaver::test
