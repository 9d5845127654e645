// Two benchmarks of one build differ by noise and by the machine; a build that changed differs by more.
#include "study/bench_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "config/load.h"
#include "study/bench_sweeps.h"
#include "study/bench_yardsticks.h"

namespace quaver {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What a machine and a build do to seconds, and how sweeps differ.
struct MadeUp {
  double sweep_deviation = 0.05;  // of logarithms
  double copies = 1;              // times as long
  double products = 1;
  std::string engine = "cpu (2 threads)";
  std::function<double(const Measurement&)> build = [](const Measurement&) { return 1.0; };  // likewise
};

class MakeUp {
 public:
  explicit MakeUp(std::uint64_t seed) : random_(seed) {}

  Bench bench(const MadeUp& made_up) {
    Bench bench;
    bench.model = "made up";
    bench.machine.engine = made_up.engine;
    bench.tokens = 1024;
    for (const Size width : {128, 256, 384, 512, 640}) {
      bench.layers.push_back({"blocks.*.layer" + std::to_string(width), width, width, 4, 1024});
    }
    for (const BenchLayer& layer : bench.layers) {
      for (const Size tokens : {64, 1024}) add_layer(bench, layer, tokens, made_up);
    }
    for (const char* recipe : {"bf16", "fp8-delayed", "fp8-block"}) {
      add(bench, {.workload = Workload::step, .subject = "made up", .part = "step", .recipe = recipe}, 0.2, made_up);
      bench.steps.push_back({.recipe = recipe, .speedup = 1, .noise = 0.02, .loss_share = 1});
    }
    add(bench, {.workload = Workload::yardstick, .subject = "copies"}, 5e-3, made_up, made_up.copies);
    add(bench, {.workload = Workload::yardstick, .subject = "GEMMs"}, 5e-3, made_up, made_up.products);
    pool_noise(bench.measurements);
    return bench;
  }

 private:
  // GEMMs are as fast as the machine's, what writes operands as its copies, and steps in between.
  static double of_machine(const Measurement& m, const MadeUp& made_up) {
    if (m.workload == Workload::step) return std::sqrt(made_up.copies * made_up.products);
    return m.part == "x" || m.part == "dy" || m.part == "w" ? made_up.copies : made_up.products;
  }

  void add_layer(Bench& bench, const BenchLayer& layer, Size tokens, const MadeUp& made_up) {
    for (const char* recipe : {"bf16", "fp8-delayed", "fp8-block"}) {
      for (const char* part : {"fprop", "dgrad", "wgrad", "x", "dy", "w"}) {
        const Measurement m{
            .workload = Workload::layer, .subject = layer.subject(tokens), .part = part, .recipe = recipe};
        add(bench, m, 1e-6 * static_cast<double>(tokens) * static_cast<double>(layer.in) / 128, made_up);
      }
    }
  }

  void add(Bench& bench, Measurement m, double seconds, const MadeUp& made_up, double times = 0) {
    seconds *= (times > 0 ? times : of_machine(m, made_up)) * made_up.build(m);
    std::vector<RunTiming> sweeps;
    std::normal_distribution<double> deviations(0, made_up.sweep_deviation);
    for (int i = 0; i < 5; ++i) {
      const double found = seconds * std::exp(deviations(random_));
      sweeps.push_back({.median = found, .p95 = found, .noise = 0.01, .rounds = 5});
    }
    m.time = timing_of_sweeps(sweeps);
    bench.measurements.push_back(m);
  }

  std::mt19937_64 random_;
};

// Every pair of ten benchmarks of one build, on machines as noisy as given.
Size pairs_with_changes(double sweep_deviation) {
  std::vector<Bench> benches;
  MakeUp make_up(7);
  for (int i = 0; i < 10; ++i) benches.push_back(make_up.bench({.sweep_deviation = sweep_deviation}));
  Size changed = 0;
  for (std::size_t i = 0; i < benches.size(); ++i) {
    for (std::size_t j = i + 1; j < benches.size(); ++j) changed += !compare_benches(benches[i], benches[j]).is_same();
  }
  return changed;
}

TEST(BenchDiffTest, OneBuildDoesNotDifferFromItself) {
  for (const double deviation : {0.0, 0.02, 0.1, 0.4}) EXPECT_EQ(pairs_with_changes(deviation), 0) << deviation;
}

TEST(BenchDiffTest, WhatTheYardsticksShowTooIsTheMachine) {
  MakeUp make_up(1);
  const Bench before = make_up.bench({.sweep_deviation = 0.02});
  const BenchDifference other = compare_benches(before, make_up.bench({.sweep_deviation = 0.02, .copies = 1.9}));
  EXPECT_TRUE(other.is_same());
  ASSERT_EQ(other.machine.size(), 1);
  EXPECT_EQ(other.machine[0].yardstick, "copies");
  EXPECT_NEAR(other.machine[0].speed, 1 / 1.9, 0.03);
  const BenchDifference slower =
      compare_benches(before, make_up.bench({.sweep_deviation = 0.02, .copies = 2.5, .products = 4}));
  EXPECT_TRUE(slower.is_same());
  EXPECT_EQ(slower.machine.size(), 2);
  EXPECT_GT(slower.limit, other.limit) << "less can be seen";
}

double slower_kernel(const Measurement& m) { return m.recipe == "fp8-block" && m.part == "dgrad" ? 1.5 : 1; }

TEST(BenchDiffTest, AKernelThatIsHalfAsSlowAgainIsAChange) {
  MakeUp make_up(2);
  const Bench before = make_up.bench({});
  for (const double machine : {1.0, 1.2}) {
    const BenchDifference found = compare_benches(before, make_up.bench({.products = machine, .build = slower_kernel}));
    ASSERT_FALSE(found.is_same()) << machine;
    EXPECT_EQ(found.changes[0].after.part, "dgrad");
    EXPECT_EQ(found.changes[0].after.recipe, "fp8-block");
    EXPECT_EQ(found.changes[0].after.subject, "10 shapes, mean");
    EXPECT_NEAR(found.changes[0].ratio(), 1.5 * machine, 0.1);
    for (const BenchChange& change : found.changes) EXPECT_EQ(change.after.recipe, "fp8-block");
  }
}

// As steady as an H200 was; kernels of a fraction of a millisecond.
TEST(BenchDiffTest, AGpuShowsAKernelThatIsASixthSlowerInOneShape) {
  MakeUp make_up(4);
  const auto slower_shape = [](const Measurement& m) {
    return m.recipe == "fp8-block" && m.subject.find("640 → 640, 64 ") != std::string::npos ? 1.17 : 1.0;
  };
  const MadeUp gpu{.sweep_deviation = 0.004, .engine = "NVIDIA H200"};
  MadeUp slower = gpu;
  slower.build = slower_shape;
  const Bench before = make_up.bench(gpu);
  EXPECT_TRUE(compare_benches(before, make_up.bench(gpu)).is_same());
  const BenchDifference found = compare_benches(before, make_up.bench(slower));
  ASSERT_EQ(found.changes.size(), 1);
  EXPECT_NE(found.changes[0].after.subject.find("640 → 640, 64 "), std::string::npos);
  EXPECT_LT(found.limit, 0.1);
}

TEST(BenchDiffTest, AStepThatIsAFifthSlowerIsAChange) {
  MakeUp make_up(3);
  const auto slower_step = [](const Measurement& m) {
    return m.workload == Workload::step && m.recipe == "fp8-delayed" ? 1.2 : 1.0;
  };
  const BenchDifference found = compare_benches(make_up.bench({.sweep_deviation = 0.005}),
                                                make_up.bench({.sweep_deviation = 0.005, .build = slower_step}));
  ASSERT_EQ(found.changes.size(), 1);
  EXPECT_EQ(found.changes[0].after.workload, Workload::step);
  EXPECT_EQ(found.changes[0].after.recipe, "fp8-delayed");
  EXPECT_THAT(found.machine, IsEmpty());
}

TEST(BenchDiffTest, OppositeVerdictsAreTold) {
  MakeUp make_up(4);
  const auto times = [](double factor) {
    return [factor](const Measurement& m) {
      return m.recipe == "fp8-block" && m.subject.starts_with("blocks.*.layer512") ? factor : 1.0;
    };
  };
  const Bench pays = make_up.bench({.sweep_deviation = 0.01, .build = times(0.7)});
  const Bench costs = make_up.bench({.sweep_deviation = 0.01, .build = times(1.3)});
  EXPECT_THAT(compare_benches(pays, costs).verdicts, ElementsAre("blocks.*.layer512 in fp8-block does not pay"));
  EXPECT_THAT(compare_benches(costs, pays).verdicts, ElementsAre("blocks.*.layer512 in fp8-block pays"));
  const Bench alike = make_up.bench({.sweep_deviation = 0.01});
  EXPECT_THAT(compare_benches(pays, alike).verdicts, IsEmpty()) << "uncertain is neither";
}

TEST(BenchDiffTest, AnotherRecommendationIsTold) {
  Bench before;
  before.steps = {{.recipe = "bf16", .speedup = 1, .noise = 0.02, .loss_share = 1},
                  {.recipe = "fp8-block", .speedup = 1.3, .noise = 0.02, .loss_share = 1}};
  Bench after = before;
  after.steps[1].speedup = 1.04;
  EXPECT_THAT(compare_benches(before, after).verdicts, ElementsAre("bf16 is recommended, and was fp8-block"));
  after.steps[1].noise = 0.3;
  EXPECT_THAT(compare_benches(before, after).verdicts, IsEmpty()) << "by chance";
  after = before;
  after.steps[1].loss_share = 0.1;
  EXPECT_THAT(compare_benches(before, after).verdicts, ElementsAre("bf16 is recommended, and was fp8-block"));
}

TEST(BenchSweepsTest, AMeasurementIsTheMedianOfItsSweeps) {
  Sweeps sweeps;
  const auto measured = [](const char* part, double seconds) {
    return Measurement{.part = part, .time = {.median = seconds, .p95 = 2 * seconds, .noise = 0.01, .rounds = 3}};
  };
  for (const double seconds : {4.0, 1.0, 2.0}) sweeps.add({measured("a", seconds), measured("b", 3)});
  const std::vector<Measurement> all = sweeps.together();
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[0].time.median, 2);
  EXPECT_EQ(all[0].time.p95, 8);
  EXPECT_EQ(all[0].time.rounds, 9);
  EXPECT_THAT(all[0].time.sweeps, ElementsAre(4, 1, 2));
  EXPECT_NEAR(all[0].time.noise, 4.30 * std::log(2) / std::sqrt(3), 1e-3) << "Student's t of two degrees of freedom";
  EXPECT_NEAR(all[1].time.noise, 0.01 / std::sqrt(3), 1e-9) << "that of the runs within them";
}

TEST(BenchSweepsTest, FewSweepsThatAgreeByChanceAreAsNoisyAsOthers) {
  std::vector<Measurement> measured(3);
  measured[0].time = timing_of_sweeps({{.median = 1}, {.median = 1}});
  measured[1].time = timing_of_sweeps({{.median = 1}, {.median = std::exp(0.2)}});
  measured[2].time = timing_of_sweeps({{.median = 1}, {.median = std::exp(0.2)}});
  EXPECT_EQ(measured[0].time.noise, 0);
  pool_noise(measured);
  // Four of the five degrees of freedom are the others'.
  EXPECT_NEAR(measured[0].time.noise, 2.57 * std::sqrt(4.0 / 5 * 0.02 / 2), 1e-9);
  EXPECT_NEAR(measured[1].time.noise, 2.57 * std::sqrt(0.02 / 2), 1e-9);
}

TEST(BenchSweepsTest, YardsticksAreMeasuredInEverySweep) {
  Yardsticks yardsticks(load_config({.files = {}, .texts = {}, .flags = {"train.device=cpu", "train.threads=1"}}));
  yardsticks.measure();
  const std::vector<Measurement> first = yardsticks.sweep();
  ASSERT_EQ(first.size(), 4);
  for (const Measurement& m : first) {
    EXPECT_EQ(m.workload, Workload::yardstick);
    EXPECT_EQ(m.time.rounds, 3) << m.subject;
    EXPECT_GT(m.time.median, 0) << m.subject;
  }
  EXPECT_GT(first[3].time.median, first[0].time.median) << "all of them";
  yardsticks.measure();
  yardsticks.measure();
  EXPECT_EQ(yardsticks.sweep()[0].time.rounds, 6) << "without those of the sweep before";
}

}  // namespace
}  // namespace quaver
