// The model of many GPUs against cases worked out by hand, and what must hold of every case.
#include "study/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quaver {
namespace {

using ::testing::HasSubstr;

constexpr Size million = 1'000'000;
constexpr double few = 1e-3;  // seconds: more than all latencies of the cases by hand

// 100 million bytes per second inside a machine, 10 between machines, no latency but that of calls.
Cluster slow_cluster(Size gpus, Size machines) {
  const Link inside{"inside", Reach::within_machine, Lane::of_each_gpu, 1e8, 0, "a test"};
  const Link between{"between", Reach::between_machines, Lane::of_each_gpu, 1e7, 0, "a test"};
  return {gpus, machines, inside, between};
}

// A table of 20 million weights that is read in FP32, then sections of 60 and 20 million in 8 bits: 100 million.
ScalingInput four_gpus() {
  ScalingInput input;
  input.cluster = slow_cluster(4, 1);
  input.parameters = {
      {.count = 20 * million, .whole_bytes = 80 * million},
      {.count = 60 * million, .codes_bytes = 60 * million, .section = 1, .code_section = 1, .bucket = 1},
      {.count = 20 * million, .codes_bytes = 20 * million, .section = 2, .code_section = 2, .bucket = 2}};
  return input;
}

TEST(LargestShareTest, DealsFromTheLargestOn) {
  const ScalingInput input = four_gpus();
  const LargestShare two = largest_share(input.parameters, 2, Ownership::whole_parameters);
  EXPECT_EQ(two.count, 60e6);
  EXPECT_EQ(two.sent_bytes, 100e6);  // the other rank: 80 in FP32 and 20 in 8 bits
  EXPECT_EQ(largest_share(input.parameters, 1, Ownership::whole_parameters).count, 100e6);
  const LargestShare split = largest_share(input.parameters, 4, Ownership::split);
  EXPECT_EQ(split.count, 25e6);
  EXPECT_EQ(split.sent_bytes, 40e6);
}

TEST(ScalingTest, BytesOfEveryStageAsWorkedOutByHand) {
  ScalingInput input = four_gpus();
  input.micro_steps = 6;
  input.rounds = 3;
  // Three of four parts go to others: 300 of 400 MB of gradients, 120 of 160 MB of weights.
  const StageScaling none = scale(input, ShardMode::none);
  EXPECT_DOUBLE_EQ(none.gradients_sent, (3 + 1) * 300e6);
  EXPECT_DOUBLE_EQ(none.weights_sent, 0);
  const StageScaling optimizer = scale(input, ShardMode::optimizer);
  EXPECT_DOUBLE_EQ(optimizer.gradients_sent, 3 * 300e6);
  EXPECT_DOUBLE_EQ(optimizer.weights_sent, 120e6);
  const StageScaling gradients = scale(input, ShardMode::gradients);
  EXPECT_DOUBLE_EQ(gradients.gradients_sent, 6 * 300e6);
  EXPECT_DOUBLE_EQ(gradients.weights_sent, 120e6);
  const StageScaling weights = scale(input, ShardMode::weights);
  EXPECT_DOUBLE_EQ(weights.gradients_sent, 6 * 300e6);
  EXPECT_DOUBLE_EQ(weights.weights_sent, 6 * 120e6) << "backward finds two sections in place, and needs no table";
  input.parameters.push_back({.count = 4 * million, .codes_bytes = 4 * million, .section = 3, .code_section = 3});
  EXPECT_DOUBLE_EQ(scale(input, ShardMode::weights).weights_sent, 6 * (123e6 + 45e6)) << "but not a third one";
  input.parameters.back() = {
      .count = 4 * million, .whole_bytes = 4 * million, .section = ParameterSize::before_sections};
  EXPECT_DOUBLE_EQ(scale(input, ShardMode::weights).weights_sent, 6 * 120e6 + 3e6) << "vectors stay";
  input.parameters.pop_back();
  input.equal_shares = 104 * million;
  EXPECT_DOUBLE_EQ(scale(input, ShardMode::none).gradients_sent, (3 + 1) * 312e6) << "with padding";
  EXPECT_DOUBLE_EQ(scale(input, ShardMode::optimizer).gradients_sent, 3 * 300e6);
  input.equal_shares = 0;
  input.gradient_bytes = 2;
  EXPECT_DOUBLE_EQ(scale(input, ShardMode::none).gradients_sent, (3 + 1) * 150e6);
}

TEST(ScalingTest, SecondsOfEveryStageAsWorkedOutByHand) {
  ScalingInput input = four_gpus();
  EXPECT_NEAR(scale(input, ShardMode::none).whole.apart, 3 + 3, few);
  // The owner of 60 million weights receives 3 × 240 MB; that of 20 million in FP32 sends 3 × 80 MB.
  EXPECT_NEAR(scale(input, ShardMode::optimizer).whole.apart, 7.2 + 2.4, few);
  EXPECT_NEAR(scale(input, ShardMode::optimizer).split.apart, 3 + 1.2, few);
  input.micro_steps = 2;
  EXPECT_NEAR(scale(input, ShardMode::gradients).whole.apart, 2 * 7.2 + 2.4, few);
  EXPECT_NEAR(scale(input, ShardMode::weights).whole.apart, 2 * 7.2 + 2 * 2.4, few);
  EXPECT_NEAR(scale(input, ShardMode::weights).split.apart, 2 * 3 + 2 * 1.2, few);
}

TEST(ScalingTest, OverlapLeavesWhatIsLastOrFirstAndWhatIsLongerThanThePass) {
  ScalingInput input = four_gpus();
  input.overlap = 1;
  input.rank_seconds = 30;  // 10 forward, 20 backward
  // The table is a fifth of the gradients, which leaves last, and half of the weights' bytes, which is needed first.
  EXPECT_NEAR(scale(input, ShardMode::none).whole.overlapped, 6.0 / 5, few);
  EXPECT_NEAR(scale(input, ShardMode::optimizer).whole.overlapped, 7.2 / 5 + 2.4 / 2, few);
  EXPECT_NEAR(scale(input, ShardMode::weights).whole.overlapped, 7.2 / 5 + 2.4 / 2, few);
  input.parameters[2].late = true;  // as a table that two sections share
  EXPECT_NEAR(scale(input, ShardMode::none).whole.overlapped, 6.0 * 2 / 5, few);
  input.parameters[2].late = false;
  input.rank_seconds = 3;  // 1 and 2
  EXPECT_NEAR(scale(input, ShardMode::none).whole.overlapped, 6 - 2, few);
  EXPECT_NEAR(scale(input, ShardMode::optimizer).whole.overlapped, 7.2 - 2 + 2.4 - 1, few);
  EXPECT_NEAR(scale(input, ShardMode::weights).whole.overlapped, 2.4 - 1 + 7.2 - 2, few);
  input.overlap = 0.5;
  EXPECT_NEAR(scale(input, ShardMode::none).whole.overlapped, 6 - 1, few);
  input.overlap = 0;
  EXPECT_DOUBLE_EQ(scale(input, ShardMode::none).whole.overlapped, scale(input, ShardMode::none).whole.apart);
}

// Direct: each byte to another machine leaves by itself. Ring: it enters a machine once, over one of its adapters.
TEST(TransferTest, BetweenMachinesAsWorkedOutByHand) {
  Cluster cluster = slow_cluster(4, 2);
  const Transfer direct{Route::direct, 300e6, 300e6, 1};
  const Transfer ring{Route::ring, 300e6, 300e6, 1};
  EXPECT_NEAR(seconds_of(direct, cluster), 20, few);  // two of three receivers are elsewhere
  EXPECT_NEAR(seconds_of(ring, cluster), 15, few);    // half of it by each of two adapters
  cluster.between.lane = Lane::of_the_machine;
  EXPECT_NEAR(seconds_of(direct, cluster), 40, few);
  EXPECT_NEAR(seconds_of(ring, cluster), 30, few);
  const Transfer uneven{Route::direct, 300e6, 600e6, 1};
  EXPECT_NEAR(seconds_of(uneven, cluster), 60, few);
  cluster.between.lane = Lane::of_each_gpu;
  EXPECT_NEAR(seconds_of(uneven, cluster), 40, few);
  cluster.between.bytes_per_second = 1e12;  // then the links inside decide: a third of it
  EXPECT_NEAR(seconds_of(direct, cluster), 1, few);
}

TEST(TransferTest, LatencyGrowsWithRanksAndCalls) {
  Cluster cluster = slow_cluster(1024, 128);
  cluster.inside.hop_seconds = 1e-3;
  cluster.between.hop_seconds = 1;
  EXPECT_NEAR(seconds_of({Route::direct, 0, 0, 1}, cluster), 127 + 1e-3, 1e-4);  // 1,016 others, eight at once
  EXPECT_NEAR(seconds_of({Route::ring, 0, 0, 1}, cluster), 127 + 0.896, 1e-4);
  EXPECT_NEAR(seconds_of({Route::ring, 0, 0, 3}, cluster), 3 * (127 + 0.896), 1e-4);
}

TEST(ScalingTest, OneGpuExchangesNothing) {
  ScalingInput input = four_gpus();
  input.cluster = slow_cluster(1, 1);
  input.micro_steps = 4;
  input.rank_seconds = 2;
  for (const ShardMode stage : shard_modes) {
    const StageScaling scaling = scale(input, stage);
    EXPECT_EQ(scaling.gradients_sent, 0);
    EXPECT_EQ(scaling.weights_sent, 0);
    EXPECT_EQ(scaling.whole.apart, 0);
    EXPECT_EQ(scaling.whole.overlapped, 0);
    EXPECT_EQ(efficiency(*input.rank_seconds, scaling.whole.apart), 1);
  }
}

// Every stage on clusters of many sizes.
template <class Check>
void for_many(const Check& check) {
  for (const Size machines : {1, 2, 16}) {
    for (const Size each : {1, 3, 8}) {
      for (const double seconds : {0.01, 1.0, 100.0}) {
        ScalingInput input = four_gpus();
        input.cluster = slow_cluster(machines * each, machines);
        input.cluster.inside.hop_seconds = 1e-5;
        input.cluster.between.hop_seconds = 1e-4;
        input.micro_steps = 4;
        input.rounds = 2;
        input.rank_seconds = seconds;
        for (const ShardMode stage : shard_modes) check(input, stage);
      }
    }
  }
}

TEST(ScalingTest, HidingNeverCostsAndEfficiencyIsAtMostOne) {
  for_many([](const ScalingInput& input, ShardMode stage) {
    const StageScaling scaling = scale(input, stage);
    for (const Exposed& exposed : {scaling.whole, scaling.split}) {
      EXPECT_LE(exposed.overlapped, exposed.apart);
      EXPECT_GE(exposed.overlapped, 0);
      EXPECT_LE(efficiency(*input.rank_seconds, exposed.overlapped), 1);
      EXPECT_LE(efficiency(*input.rank_seconds, exposed.apart), efficiency(*input.rank_seconds, exposed.overlapped));
    }
    EXPECT_LE(scaling.split.apart, scaling.whole.apart);
    EXPECT_LE(scaling.split.overlapped, scaling.whole.overlapped);
  });
}

TEST(ScalingTest, BetterLinksAreNeverSlower) {
  for_many([](const ScalingInput& input, ShardMode stage) {
    const Exposed before = scale(input, stage).whole;
    const auto expect_no_slower = [&](const auto& change) {
      ScalingInput better = input;
      change(better.cluster);
      const Exposed after = scale(better, stage).whole;
      EXPECT_LE(after.apart, before.apart);
      EXPECT_LE(after.overlapped, before.overlapped);
    };
    expect_no_slower([](Cluster& cluster) { cluster.inside.bytes_per_second *= 2; });
    expect_no_slower([](Cluster& cluster) { cluster.between.bytes_per_second *= 2; });
    expect_no_slower([](Cluster& cluster) { cluster.between.hop_seconds /= 2; });
    ScalingInput smaller = input;
    smaller.gradient_bytes = 2;
    EXPECT_LE(scale(smaller, stage).whole.apart, before.apart);
  });
}

std::vector<StageEstimate> stages_of(const std::vector<std::pair<double, Size>>& seconds_and_gib) {
  std::vector<StageEstimate> stages;
  for (std::size_t i = 0; i < seconds_and_gib.size(); ++i) {
    StageEstimate stage;
    stage.scaling.stage = shard_modes[i];
    stage.scaling.whole.overlapped = seconds_and_gib[i].first;
    stage.needed = seconds_and_gib[i].second << 30;
    stages.push_back(stage);
  }
  return stages;
}

TEST(AdviceTest, TheFastestThatFitsAndTheSmallestOfEquals) {
  ScalingInput input;
  input.rank_seconds = 100;
  const auto stages = stages_of({{1, 40}, {3, 30}, {3.5, 20}, {9, 10}});
  EXPECT_EQ(advise(stages, input, {}).stage, ShardMode::none);
  EXPECT_EQ(advise(stages, input, Size{40} << 30).stage, ShardMode::none);
  const Advice tight = advise(stages, input, (Size{40} << 30) - 1);
  EXPECT_EQ(tight.stage, ShardMode::gradients);  // as fast as optimizer within 1 %
  EXPECT_THAT(tight.why, HasSubstr("as fast as optimizer within 1 %, and 10.0 GiB smaller"));
  EXPECT_THAT(tight.why, HasSubstr("none"));
  EXPECT_TRUE(tight.fits);
  EXPECT_EQ(advise(stages, input, Size{10} << 30).stage, ShardMode::weights);
}

TEST(AdviceTest, SaysWhatToDoWhereNothingFits) {
  const Advice advice = advise(stages_of({{1, 40}, {3, 30}, {4, 20}, {9, 10}}), {}, Size{9} << 30);
  EXPECT_FALSE(advice.fits);
  EXPECT_EQ(advice.stage, ShardMode::weights);
  EXPECT_THAT(advice.why, HasSubstr("no stage fits: weights needs the least, 10.0 GiB of 9.0 GiB"));
  EXPECT_THAT(advice.why, HasSubstr("train.batch"));
}

}  // namespace
}  // namespace quaver
