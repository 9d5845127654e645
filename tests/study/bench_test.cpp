// Benchmarks: what follows from measurements that are given, and that a small model gets all of its own.
#include "study/bench.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/load.h"
#include "quaver/error.h"
#include "study/bench_diff.h"
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
      {{"blocks.0.up", 4, 8, 0}, {"blocks.1.up", 4, 8, 1}, {"blocks.11.up", 4, 8, 11}, {"head", 4, 1 << 20}},
      {.tokens = 4096});
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
  EXPECT_EQ(verdicts[0].payoff(), Payoff::pays);
  EXPECT_EQ(verdicts[0].break_even, 64);  // twice slower at 16, twice faster at 256
}

TEST(BenchTest, BreakEvenIsTheLastCrossing) {
  EXPECT_EQ(layer_verdicts(bench_of({{16, 2e-3, 1e-3}, {256, 2e-3, 1e-3}}))[0].break_even, 16);
  EXPECT_EQ(layer_verdicts(bench_of({{16, 1e-3, 2e-3}, {256, 1e-3, 2e-3}}))[0].break_even, std::nullopt);
  EXPECT_EQ(layer_verdicts(bench_of({{256, 1e-3, 2e-3}}))[0].payoff(), Payoff::does_not_pay);
  EXPECT_EQ(layer_verdicts(bench_of({{256, 1e-3, 0.9999e-3}}))[0].payoff(), Payoff::uncertain) << "within the noise";
}

TEST(BenchTest, RecommendsTheFastestThatLearns) {
  Bench bench;
  bench.steps = {{.recipe = "bf16", .speedup = 1, .loss_share = 1},
                 {.recipe = "fp8-delayed", .speedup = 1.3, .loss_share = 0.98},
                 {.recipe = "fp8-static", .speedup = 1.5, .loss_share = 0.1}};
  EXPECT_EQ(recommended(bench)->recipe, "fp8-delayed");
  bench.steps[1].speedup = 1.08;
  bench.steps[1].noise = 0.1;
  EXPECT_EQ(recommended(bench)->recipe, "bf16") << "within the noise";
  bench.steps[1].speedup = 1.04;
  bench.steps[1].noise = 0.001;
  EXPECT_EQ(recommended(bench)->recipe, "bf16") << "not worth it";
}

TEST(BenchTest, JsonIsReadBack) {
  Bench bench = bench_of({{256, 2e-3, 1e-3}});
  bench.model = "tiny";
  bench.machine = {"cpu", "a \"processor\"", "RAPL"};
  bench.measurements[0].joules = 0.25;
  bench.measurements[0].time.sweeps = {1e-3, 2e-3, 3e-3};
  bench.measurements[1].workload = Workload::yardstick;
  bench.steps = {{.recipe = "bf16", .speedup = 1, .noise = 0.01, .peak_memory = 7, .loss_share = 1}};
  bench.steps[0].memory = {{"weights", 5}, {"workspace", 2}};
  const Bench read = bench_from_json(to_json(bench));
  EXPECT_EQ(to_json(read), to_json(bench));
  EXPECT_EQ(read.measurements[0].joules, 0.25);
  EXPECT_EQ(read.measurements[0].time.sweeps, bench.measurements[0].time.sweeps);
  ASSERT_EQ(read.steps[0].memory.size(), 2U);
  EXPECT_EQ(read.steps[0].memory[1].purpose, "workspace");
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
  bench.steps[0].memory = {{"weights", 5}};
  bench.measurements[0].time.sweeps = {1e-3, 2e-3};
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
  for (const char* count : {"/tokens", "/context", "/measurements/0/rounds", "/steps/0/memory/0/bytes"}) {
    for (const nlohmann::json& value : {nlohmann::json(-1), nlohmann::json(2.5), nlohmann::json(1e300)}) {
      expect_refused(count, value);
    }
  }
  for (const char* number :
       {"/measurements/0/seconds", "/measurements/0/noise", "/measurements/0/flops", "/measurements/0/units",
        "/measurements/0/joules", "/measurements/0/sweeps/1", "/steps/0/speedup", "/seconds"}) {
    for (const nlohmann::json& value : {nlohmann::json(-1e-9), nlohmann::json(1e300), nlohmann::json(true),
                                        nlohmann::json("1"), nlohmann::json::object()}) {
      expect_refused(number, value);
    }
  }
  expect_refused("/measurements/0/units", 1e18);
  expect_refused("/steps/0/loss_share", nullptr);
  for (const char* text : {"/machine/engine", "/machine/host", "/model", "/date", "/measurements/0/subject",
                           "/measurements/0/recipe", "/layers/0/name", "/settings", "/steps/0/memory/0/purpose"}) {
    for (const nlohmann::json& value : {nlohmann::json("red \x1b[31m"), nlohmann::json(std::string(100'000, 'x')),
                                        nlohmann::json(7), nlohmann::json(nullptr)}) {
      expect_refused(text, value);
    }
  }
  for (const char* list : {"/layers", "/steps", "/measurements", "/machine", "/measurements/0/sweeps"}) {
    expect_refused(list, "none");
  }
  expect_refused("/measurements/0/sweeps", std::vector<double>(1001, 1));
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
  after.measurements[1].time.median *= 5;  // of six parts
  const BenchDifference difference = compare_benches(before, after);
  ASSERT_EQ(difference.changes.size(), 1);
  EXPECT_NEAR(difference.changes[0].ratio(), 1.05 * 10 / 6, 1e-9);
  EXPECT_EQ(difference.changes[0].after.recipe, "fp8-current");
  EXPECT_EQ(difference.compared, 2);
  after.measurements.pop_back();
  EXPECT_EQ(compare_benches(before, after).missing, 1);
  const BenchDifference other = compare_benches(before, bench_of({{256, 2e-3, 3e-3}}));
  EXPECT_THAT(other.verdicts, testing::ElementsAre("blocks.*.mlp.up in fp8-current does not pay"));
}

TEST(BenchTest, AVerdictNearItsLimitIsNoDifference) {
  const Bench just = bench_of({{256, 20e-3, 18.6e-3}});
  const Bench not_quite = bench_of({{256, 20e-3, 19.4e-3}});
  ASSERT_NE(layer_verdicts(just)[0].payoff(), layer_verdicts(not_quite)[0].payoff());
  const BenchDifference difference = compare_benches(just, not_quite);
  EXPECT_TRUE(difference.changes.empty() && difference.verdicts.empty());
}

TEST(BenchTest, ShortMeasurementsMayDifferByMore) {
  EXPECT_TRUE(compare_benches(bench_of({{256, 1e-3, 1e-4}}), bench_of({{256, 1e-3, 1.5e-4}})).changes.empty());
  EXPECT_EQ(compare_benches(bench_of({{256, 1, 0.1}}), bench_of({{256, 1, 0.15}})).changes.size(), 1);
}

StepBench step_with_phase(double step, double phase) {
  StepBench made;
  made.measurements = {{.workload = Workload::step, .time = {step, step, 0.01, 5}},
                       {.workload = Workload::phase, .time = {phase, phase, 0.2, 5}}};
  return made;
}

TEST(BenchTest, TheMiddleSweepHasTheNoiseOfAll) {
  const StepBench middle = middle_of({step_with_phase(3, 1), step_with_phase(1, 1.1), step_with_phase(2, 0.9)});
  EXPECT_EQ(middle.measurements[0].time.median, 2);
  EXPECT_EQ(middle.measurements[0].time.p95, 3);
  EXPECT_EQ(middle.measurements[1].time.median, 0.9) << "of the same sweep";
  EXPECT_EQ(middle.measurements[0].time.sweeps, (std::vector<double>{3, 1, 2}));
  EXPECT_GT(middle.measurements[0].time.noise, 1);
  EXPECT_EQ(middle_of({step_with_phase(3, 1)}).measurements[0].time.noise, 0.01);
}

TEST(BenchTest, AStepsSpeedIsThatBesideBf16InTheSameSweeps) {
  const auto sweeps = [](const std::vector<double>& seconds) {
    std::vector<RunTiming> times;
    for (const double each : seconds) times.push_back({each, each, 0.01, 5});
    return times;
  };
  const StepSpeed speed = speed_of(sweeps({1, 2, 4}), sweeps({1.5, 3, 6}));
  EXPECT_EQ(speed.times, 1.5) << "while the machine became four times as slow";
  EXPECT_EQ(speed.noise, 0);
  const StepSpeed alone = speed_of(sweeps({2}), sweeps({3}));
  EXPECT_EQ(alone.times, 1.5);
  EXPECT_NEAR(alone.noise, 0.01 * std::sqrt(2), 1e-9);
}

TEST(BenchTest, TheShareOfAFallNeedsAFall) {
  EXPECT_NEAR(share_of_fall({5, 4.2}, {5, 4}), 0.8, 1e-9);
  EXPECT_EQ(share_of_fall({5, 4}, {5, 4.999}), 0);
  EXPECT_EQ(share_of_fall({}, {5, 4}), 0);
}

BenchPlan small_plan(std::vector<std::string> flags) {
  BenchPlan plan;
  for (const char* each : {"train.device=cpu", "train.threads=1"}) flags.emplace_back(each);
  plan.config = load_config({.files = {}, .texts = {}, .flags = flags});
  plan.recipes = {"fp8-block"};
  plan.step_recipes = {"fp8-block"};
  plan.seconds = 0.5;
  return plan;
}

Bench quick_bench(const BenchPlan& plan) {
  return run_bench(plan, [](double, const std::string&) {});
}

const Measurement& only(const Bench& bench, Workload workload, const std::string& part, const std::string& recipe) {
  for (const Measurement& m : bench.measurements) {
    if (m.workload == workload && m.part == part && m.recipe == recipe) return m;
  }
  throw Error("no " + part + " in " + recipe, "");
}

void expect_whole(const Bench& bench, const std::string& recipe) {
  const Measurement* step = bench.find(Workload::step, bench.model, "step", recipe);
  ASSERT_NE(step, nullptr);
  double sum = 0;
  for (const Measurement& m : bench.measurements) {
    if (m.workload == Workload::phase && m.recipe == recipe) sum += m.time.median;
  }
  EXPECT_NEAR(sum, step->time.median, 1e-6 * step->time.median) << recipe;
}

// Measured once, for several tests: one block, 64 tokens, width 128, 4 heads of 32, MLP 512, vocabulary 256.
const Bench& tiny_bench() {
  static const Bench bench = [] {
    double last = 0;
    return run_bench(small_plan({"preset=tiny", "train.batch=2", "train.context=32", "model.layers=1"}),
                     [&](double done, const std::string& what) {
                       EXPECT_GE(done, last);
                       EXPECT_FALSE(what.empty());
                       last = done;
                     });
  }();
  return bench;
}

TEST(BenchTest, MeasuresEveryPartOfASmallModel) {
  const Bench& bench = tiny_bench();
  EXPECT_EQ(bench.tokens, 64);
  EXPECT_EQ(bench.unit, "tokens");
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
    for (const char* phase :
         {"GEMM, fprop", "GEMM, dgrad", "GEMM, wgrad", "attention", "norms", "activations", "head and loss",
          "embedding", "optimizer", "data loading", "allocation", "communication", "between operations"}) {
      const Measurement* found = bench.find(Workload::phase, bench.model, phase, recipe);
      ASSERT_NE(found, nullptr) << phase;
      EXPECT_GE(found->time.rounds, 3) << phase;
    }
    expect_whole(bench, recipe);
  }
  ASSERT_EQ(bench.steps.size(), 2);
  EXPECT_GT(bench.steps[1].loss_share, 0.8);
  EXPECT_EQ(layer_verdicts(bench).size(), 5);
  EXPECT_EQ(to_json(bench_from_json(to_json(bench))), to_json(bench));
  const BenchDifference none = compare_benches(bench, bench);
  EXPECT_TRUE(none.changes.empty() && none.verdicts.empty());
  EXPECT_EQ(none.missing, 0);
}

TEST(BenchTest, BytesAndFlopsFollowFromTheShapes) {
  const Bench& bench = tiny_bench();
  const auto bytes = [&](Workload workload, const std::string& part, const std::string& recipe) {
    return only(bench, workload, part, recipe).bytes;
  };
  const double qkv = 64 * 384 * 4;
  const double lse = 2 * 4 * 32 * 4;
  EXPECT_EQ(bytes(Workload::phase, "attention", "bf16"),
            (qkv + 64 * 128 * 4 + lse) + (2 * qkv + 2 * 64 * 128 * 4 + lse));
  // fprop of the block: x and w in BF16, y in FP32, biases; each operand has one scale.
  const double weights = 128 * 384 + 128 * 128 + 2 * 128 * 512;
  const double inputs = 64 * (128 + 128 + 128 + 512);
  const double outputs = 64 * (384 + 128 + 512 + 128);
  const double biases = 384 + 128 + 512 + 128;
  EXPECT_EQ(bytes(Workload::phase, "GEMM, fprop", "bf16"), 2 * (weights + inputs) + 4 * (outputs + biases) + 2 * 4 * 4);
  EXPECT_EQ(bytes(Workload::phase, "data loading", "bf16"), 64 * 2 * 4);
  for (const char* part : {"allocation", "communication"}) {
    EXPECT_EQ(bytes(Workload::phase, part, "bf16"), 0) << part;
    EXPECT_EQ(only(bench, Workload::phase, part, "bf16").time.median, 0) << part;
  }
  const Measurement& block = only(bench, Workload::block, "block", "bf16");
  EXPECT_EQ(block.units, 64);
  EXPECT_EQ(block.flops, 64 * 6 * (weights + 128 * 32));  // causal attention: half of 12 · width · context
  EXPECT_LT(block.time.median, bench.find(Workload::step, bench.model, "step", "bf16")->time.p95);
  // A cast of mlp.down's input: FP32 in, E4M3 out with a scale per 128; columnwise the same again.
  const double values = 64 * 512;
  EXPECT_EQ(bytes(Workload::cast, "x, rowwise", "fp8-block"), values * 4 + values + (values / 128) * 4);
  const double columnwise_scales = 512;  // 64 rows are one block
  EXPECT_EQ(bytes(Workload::cast, "x, both sides", "fp8-block"),
            values * 4 + 2 * values + (values / 128 + columnwise_scales) * 4);
}

TEST(BenchTest, DecodingReadsTheWeightsOnceForAllSequences) {
  const Bench& bench = tiny_bench();
  for (const char* recipe : {"bf16", "fp8-block"}) {
    const Measurement& one = only(bench, Workload::decode, "1 sequence", recipe);
    const Measurement& eight = only(bench, Workload::decode, "8 sequences", recipe);
    EXPECT_EQ(one.units, 1);
    EXPECT_EQ(eight.units, 8);
    EXPECT_GT(one.time.median, 0);
    EXPECT_GT(eight.bytes, one.bytes);
    EXPECT_LT(eight.bytes, 8 * one.bytes);
  }
  const double weights = 128 * 384 + 128 * 128 + 2 * 128 * 512 + 128 * 256;
  EXPECT_GT(only(bench, Workload::decode, "1 sequence", "bf16").bytes, 2 * weights);
  EXPECT_LT(only(bench, Workload::decode, "1 sequence", "fp8-block").bytes, 2 * weights);
}

TEST(BenchTest, ConvolutionsAreProductsOverPatches) {
  const Bench bench = quick_bench(small_plan({"preset=convnet-small", "train.batch=4"}));
  EXPECT_EQ(bench.unit, "images");
  EXPECT_EQ(bench.tokens, 4);
  EXPECT_EQ(bench.context, 1);
  const auto layer = std::ranges::find_if(
      bench.layers, [](const BenchLayer& each) { return each.text() == "blocks.*.conv2, 288 → 32, 64 px"; });
  ASSERT_NE(layer, bench.layers.end());
  EXPECT_EQ(layer->count, 1);
  const Measurement* fprop = bench.find(Workload::layer, layer->subject(4), "fprop", "bf16");
  ASSERT_NE(fprop, nullptr);
  EXPECT_EQ(fprop->units, 4);
  EXPECT_EQ(fprop->flops, 2.0 * 4 * 64 * 288 * 32);
  const Measurement* patches = bench.find(Workload::layer, layer->subject(4), "x", "bf16");
  ASSERT_NE(patches, nullptr);
  EXPECT_EQ(patches->bytes, 4 * 64 * 32 * 4 + 4 * 64 * 288 * 2 + 4) << "pixels in FP32, patches in BF16, their scale";
  const Measurement* step = bench.find(Workload::step, bench.model, "step", "fp8-block");
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->units, 4);
  expect_whole(bench, "fp8-block");
  EXPECT_EQ(only(bench, Workload::phase, "data loading", "bf16").bytes, 4 * (256 + 1) * 4);
  for (const Measurement& m : bench.measurements) {
    EXPECT_NE(m.workload, Workload::decode);
    EXPECT_EQ(m.subject.find("tokens"), std::string::npos) << m.subject;
  }
  const Measurement& block = only(bench, Workload::block, "block", "bf16");
  EXPECT_EQ(block.units, 4);
  EXPECT_NEAR(3 * block.flops, step->flops - 6.0 * 4 * 64 * 10, 1) << "all but the head, as in its phases";
  const Bench read = bench_from_json(to_json(bench));
  EXPECT_EQ(to_json(read), to_json(bench));
  EXPECT_EQ(layer_verdicts(read).size(), bench.layers.size());
}

TEST(BenchTest, DenseClassifiersAreMeasuredInEveryRecipeOfTheirs) {
  BenchPlan plan = small_plan({"preset=mlp-tiny", "train.batch=16", "model.layers=2"});
  plan.step_recipes = {"fp8-unit"};
  const Bench bench = quick_bench(plan);
  EXPECT_EQ(bench.unit, "images");
  ASSERT_EQ(bench.steps.size(), 2);
  EXPECT_EQ(bench.steps[1].recipe, "fp8-unit");
  EXPECT_NE(bench.find(Workload::vector, bench.layers[0].subject(1), "fprop", "bf16"), nullptr);
}

TEST(BenchTest, LargeLayersAreJudgedAtAPartOfTheBatch) {
  const BenchScope scope{.tokens = 64, .unit = "images", .most_flops = 2.0 * 576 * 64 * 1024 * 16};
  const std::vector<BenchLayer> layers = bench_layers(
      {{.name = "conv", .in = 576, .out = 64, .pixels = 1024}, {.name = "head", .in = 64, .out = 10}}, scope);
  EXPECT_EQ(layers[0].tokens, 16);
  EXPECT_EQ(layers[0].subject(16), "conv, 576 → 64, 1024 px, 16 images");
  EXPECT_EQ(layers[1].tokens, 64);
}

TEST(BenchTest, FilesOfBeforeImagesAreOfTokens) {
  std::string text = to_json(bench_of({{256, 2e-3, 1e-3}}));
  for (const std::string& added : {std::string("\"unit\": \"tokens\","), std::string(",\n   \"pixels\": 1")}) {
    const std::size_t at = text.find(added);
    ASSERT_NE(at, std::string::npos) << text;
    text.erase(at, added.size());
  }
  const Bench bench = bench_from_json(text);
  EXPECT_EQ(bench.unit, "tokens");
  EXPECT_EQ(bench.layers[0].pixels, 1);
  EXPECT_EQ(layer_verdicts(bench).size(), 1);
}

}  // namespace
}  // namespace quaver
