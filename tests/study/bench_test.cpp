// Benchmarks: what follows from measurements that are given, and that a small model gets all of its own.
#include "study/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/load.h"
#include "quaver/error.h"
#include "study/bench_layers.h"
#include "study/bench_steps.h"

namespace quaver {
namespace {

const BenchLayer up_layer{"blocks.*.mlp.up", 64, 256, 4, 256};

Measurement part_of(const std::string& part, const std::string& recipe, Size tokens, double seconds) {
  return {.workload = Workload::layer,
          .subject = up_layer.subject(tokens),
          .part = part,
          .recipe = recipe,
          .support = "native",
          .time = {.median = seconds, .p95 = seconds, .noise = 0.001, .rounds = 9},
          .units = static_cast<double>(tokens)};
}

// A layer whose parts take the seconds given, at each number of tokens.
Bench bench_of(const std::vector<std::tuple<Size, double, double>>& bf16_and_fp8) {
  Bench bench;
  bench.tokens = std::get<0>(bf16_and_fp8.back());
  bench.layers = {up_layer};
  for (const auto& [tokens, bf16, fp8] : bf16_and_fp8) {
    for (const char* part : {"fprop", "dgrad", "wgrad", "x", "dy", "w"}) {
      bench.measurements.push_back(part_of(part, "bf16", tokens, bf16 / 6));
      bench.measurements.push_back(part_of(part, "fp8-current", tokens, fp8 / 6));
    }
  }
  return bench;
}

TEST(BenchTest, TimesAreMediansWithTheirNoise) {
  const RunTiming time = timing_of({3, 1, 2, 5, 4});
  EXPECT_EQ(time.median, 3);
  EXPECT_NEAR(time.p95, 4.8, 1e-12);
  EXPECT_NEAR(time.noise, 1.57 * 2 / std::sqrt(5.0) / 3, 1e-12);
  EXPECT_EQ(time.rounds, 5);
  EXPECT_EQ(timing_of({2, 2, 2}).noise, 0);
}

TEST(BenchTest, LayersOfBlocksAreTakenTogether) {
  const std::vector<BenchLayer> layers = bench_layers(
      {{"blocks.0.up", 4, 8, 0}, {"blocks.1.up", 4, 8, 1}, {"blocks.11.up", 4, 8, 11}, {"head", 4, 1 << 20}}, 4096);
  ASSERT_EQ(layers.size(), 2);
  EXPECT_EQ(layers[0].name, "blocks.*.up");
  EXPECT_EQ(layers[0].count, 3);
  EXPECT_EQ(layers[0].tokens, 4096);
  EXPECT_EQ(layers[1].name, "head");
  EXPECT_EQ(layers[1].tokens, 512) << "a head computes few logits at a time";
}

TEST(BenchTest, ALayerPaysWhereAllOfItsPartsTogetherAreFaster) {
  const std::vector<LayerVerdict> verdicts = layer_verdicts(bench_of({{16, 1e-3, 2e-3}, {256, 2e-3, 1e-3}}));
  ASSERT_EQ(verdicts.size(), 1);
  EXPECT_NEAR(verdicts[0].speedup(), 2, 1e-9);
  EXPECT_TRUE(verdicts[0].pays());
  EXPECT_EQ(verdicts[0].break_even, 64);  // twice slower at 16, twice faster at 256
}

TEST(BenchTest, BreakEvenIsTheLastCrossing) {
  EXPECT_EQ(layer_verdicts(bench_of({{16, 2e-3, 1e-3}, {256, 2e-3, 1e-3}}))[0].break_even, 16);
  EXPECT_EQ(layer_verdicts(bench_of({{16, 1e-3, 2e-3}, {256, 1e-3, 2e-3}}))[0].break_even, std::nullopt);
  EXPECT_FALSE(layer_verdicts(bench_of({{256, 1e-3, 2e-3}}))[0].pays());
  EXPECT_FALSE(layer_verdicts(bench_of({{256, 1e-3, 0.9999e-3}}))[0].pays()) << "within the noise";
}

TEST(BenchTest, RecommendsTheFastestThatLearns) {
  Bench bench;
  bench.steps = {{.recipe = "bf16", .speedup = 1, .loss_share = 1},
                 {.recipe = "fp8-delayed", .speedup = 1.3, .loss_share = 0.98},
                 {.recipe = "fp8-static", .speedup = 1.5, .loss_share = 0.1}};
  EXPECT_EQ(recommended(bench)->recipe, "fp8-delayed");
  bench.steps[1].speedup = 1.01;
  bench.steps[1].noise = 0.02;
  EXPECT_EQ(recommended(bench)->recipe, "bf16") << "within the noise";
}

TEST(BenchTest, JsonIsReadBack) {
  Bench bench = bench_of({{256, 2e-3, 1e-3}});
  bench.model = "tiny";
  bench.machine = {"cpu", "a \"processor\"", "RAPL"};
  bench.measurements[0].joules = 0.25;
  bench.steps = {{.recipe = "bf16", .speedup = 1, .noise = 0.01, .peak_memory = 7, .loss_share = 1}};
  const Bench read = bench_from_json(to_json(bench));
  EXPECT_EQ(to_json(read), to_json(bench));
  EXPECT_EQ(read.measurements[0].joules, 0.25);
  EXPECT_THAT(to_csv(bench), testing::HasSubstr("layer,\"blocks.*.mlp.up, 64 → 256, 256 tokens\",\"fprop\",\"bf16\""));
}

TEST(BenchTest, JsonThatIsNoBenchmarkIsRefused) {
  const std::string good = to_json(bench_of({{256, 2e-3, 1e-3}}));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), good.substr(0, good.size() / 2),
        with("\"quaver_bench\": 1", "\"quaver_bench\": 2"), with("\"workload\": \"layer\"", "\"workload\": \"other\""),
        with("\"seconds\": 0.0003333333333333333", "\"seconds\": -1"),
        with("\"seconds\": 0.0003333333333333333", "\"seconds\": 0"),
        with("\"seconds\": 0.0003333333333333333", "\"seconds\": \"fast\"")}) {
    EXPECT_THROW(bench_from_json(text), Error) << text.substr(0, 60);
  }
}

// Sizes, types and texts of a file that may come from anywhere.
TEST(BenchTest, JsonWithHostileValuesIsRefused) {
  Bench bench = bench_of({{256, 2e-3, 1e-3}});
  bench.steps = {{.recipe = "bf16", .speedup = 1, .noise = 0.01, .peak_memory = 7, .loss_share = 1}};
  const nlohmann::json good = nlohmann::json::parse(to_json(bench));
  EXPECT_NO_THROW(bench_from_json(good.dump()));
  const auto expect_refused = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_THROW(bench_from_json(bad.dump()), Error) << pointer << " = " << value;
  };
  for (const char* size : {"/layers/0/in", "/layers/0/out", "/layers/0/count", "/layers/0/tokens"}) {
    for (const nlohmann::json& value :
         {nlohmann::json(0), nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json("64"), nlohmann::json(1e300),
          nlohmann::json(true), nlohmann::json(~0ULL), nlohmann::json(nullptr), nlohmann::json::array()}) {
      expect_refused(size, value);
    }
  }
  for (const char* count : {"/tokens", "/context", "/measurements/0/rounds"}) {
    for (const nlohmann::json& value : {nlohmann::json(-1), nlohmann::json(2.5), nlohmann::json(1e300)}) {
      expect_refused(count, value);
    }
  }
  for (const char* number : {"/measurements/0/seconds", "/measurements/0/noise", "/measurements/0/flops",
                             "/measurements/0/units", "/measurements/0/joules", "/steps/0/speedup", "/seconds"}) {
    for (const nlohmann::json& value : {nlohmann::json(-1e-9), nlohmann::json(1e300), nlohmann::json(true),
                                        nlohmann::json("1"), nlohmann::json::object()}) {
      expect_refused(number, value);
    }
  }
  expect_refused("/measurements/0/units", 1e18);
  expect_refused("/steps/0/loss_share", nullptr);
  for (const char* text : {"/machine/engine", "/machine/host", "/model", "/date", "/measurements/0/subject",
                           "/measurements/0/recipe", "/layers/0/name", "/settings"}) {
    for (const nlohmann::json& value : {nlohmann::json("red \x1b[31m"), nlohmann::json(std::string(100'000, 'x')),
                                        nlohmann::json(7), nlohmann::json(nullptr)}) {
      expect_refused(text, value);
    }
  }
  for (const char* list : {"/layers", "/steps", "/measurements", "/machine"}) expect_refused(list, "none");
}

TEST(BenchTest, JsonOfAnOlderVersionHasNoSettings) {
  nlohmann::json older = nlohmann::json::parse(to_json(bench_of({{256, 2e-3, 1e-3}})));
  older.erase("settings");
  EXPECT_EQ(bench_from_json(older.dump()).settings, "");
}

TEST(BenchTest, ADifferenceIsWhatExceedsTheNoise) {
  const Bench before = bench_of({{256, 2e-3, 1e-3}});
  EXPECT_TRUE(compare_benches(before, before).changes.empty());
  Bench after = before;
  for (Measurement& m : after.measurements) m.time.median *= 1.05;
  EXPECT_TRUE(compare_benches(before, after).changes.empty()) << "clocks do that";
  after.measurements[1].time.median *= 4;  // of six parts
  const BenchDifference difference = compare_benches(before, after);
  ASSERT_EQ(difference.changes.size(), 1);
  EXPECT_NEAR(difference.changes[0].ratio(), 1.05 * 1.5, 1e-9);
  EXPECT_EQ(difference.changes[0].after.recipe, "fp8-current");
  EXPECT_EQ(difference.compared, 2);
  after.measurements.pop_back();
  EXPECT_EQ(compare_benches(before, after).missing, 1);
  const BenchDifference other = compare_benches(before, bench_of({{256, 2e-3, 3e-3}}));
  EXPECT_THAT(other.verdicts, testing::ElementsAre("blocks.*.mlp.up in fp8-current does not pay"));
}

TEST(BenchTest, TheShareOfAFallNeedsAFall) {
  EXPECT_NEAR(share_of_fall({5, 4.2}, {5, 4}), 0.8, 1e-9);
  EXPECT_EQ(share_of_fall({5, 4}, {5, 4.999}), 0);
  EXPECT_EQ(share_of_fall({}, {5, 4}), 0);
}

TEST(BenchTest, MeasuresEveryPartOfASmallModel) {
  BenchPlan plan;
  plan.config = load_config({.files = {},
                             .texts = {},
                             .flags = {"preset=tiny", "train.batch=2", "train.context=32", "model.layers=1",
                                       "train.device=cpu", "train.threads=1"}});
  plan.recipes = {"fp8-block"};
  plan.step_recipes = {"fp8-block"};
  plan.seconds = 0.5;
  double last = 0;
  const Bench bench = run_bench(plan, [&](double done, const std::string& what) {
    EXPECT_GE(done, last);
    EXPECT_FALSE(what.empty());
    last = done;
  });
  EXPECT_EQ(bench.tokens, 64);
  ASSERT_EQ(bench.layers.size(), 5);
  for (const char* recipe : {"bf16", "fp8-block"}) {
    for (const BenchLayer& each : bench.layers) {
      for (const char* part : {"fprop", "dgrad", "wgrad", "x", "dy", "w"}) {
        const Measurement* found = bench.find(Workload::layer, each.subject(64), part, recipe);
        ASSERT_NE(found, nullptr) << each.name << " " << part;
        EXPECT_GT(found->time.median, 0);
        EXPECT_GE(found->time.rounds, 3);
      }
      EXPECT_NE(bench.find(Workload::vector, each.subject(1), "fprop", recipe), nullptr);
    }
    const Measurement* step = bench.find(Workload::step, bench.model, "step", recipe);
    ASSERT_NE(step, nullptr);
    for (const char* phase : {"GEMM, fprop", "GEMM, dgrad", "GEMM, wgrad", "attention", "norms", "activations",
                              "head and loss", "embedding", "optimizer", "between operations"}) {
      const Measurement* found = bench.find(Workload::phase, bench.model, phase, recipe);
      ASSERT_NE(found, nullptr) << phase;
      EXPECT_EQ(found->time.rounds, 3) << phase;
    }
  }
  ASSERT_EQ(bench.steps.size(), 2);
  EXPECT_GT(bench.steps[1].loss_share, 0.8);
  EXPECT_EQ(layer_verdicts(bench).size(), 5);
}

}  // namespace
}  // namespace quaver
