// precision.only_where_faster: which layers stay in bf16, from benchmarks that are made up, and that runs keep to it.
#include "train/faster_layers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "support/synthetic_bench.h"
#include "support/thread_ranks.h"

#include "config/dump.h"
#include "config/load.h"
#include "io/file_io.h"
#include "models/factory.h"
#include "precision/plan.h"
#include "train/resolved_config.h"
#include "train/support.h"

namespace quaver::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr Size tokens_of_run = 4 * 32;  // of small_config

std::vector<LayerShape> layers_of(const Config& config) {
  return make_model(resolve_shape(config, {.vocab = 32}).model)->layers();
}

// fp8-delayed is twice as slow as bf16 in the layers named, and twice as fast in the others.
Bench bench_with_slow(const Config& config, const std::vector<std::string>& slow) {
  const std::vector<BenchLayer> layers = bench_layers(layers_of(config), {.tokens = tokens_of_run});
  return synthetic_bench(layers, {"bf16", "fp8-delayed"}, {tokens_of_run},
                         [&](const BenchLayer& layer, const std::string& recipe, Size) {
                           const bool is_slow = std::ranges::find(slow, layer.name) != slow.end();
                           return recipe == "bf16" ? 2e-3 : is_slow ? 4e-3 : 1e-3;
                         });
}

// A run's config with the benchmark in a file.
struct Ruled {
  explicit Ruled(const std::vector<std::string>& slow = {"blocks.*.mlp.up", "blocks.*.attn.out"})
      : config(small_config("fp8-delayed", folder.path() / "run")) {
    config.precision.only_where_faster = (folder.path() / "bench.json").string();
    write(bench_with_slow(config, slow));
  }
  void write(const Bench& bench) const { write_file_atomically(config.precision.only_where_faster, to_json(bench)); }
  Config resolved() const {
    const auto engine = make_cpu_engine(1);
    return resolve_layer_speeds(resolve_shape(config, {.vocab = 32}), engine.get());
  }

  TemporaryFolder folder;
  Config config;
};

std::string error_of(const Ruled& ruled) {
  try {
    ruled.resolved();
  } catch (const Error& error) {
    return error.what() + (" | " + error.remedy());
  }
  return "no error";
}

TEST(OnlyWhereFaster, ExactlyTheSlowerLayersStayInBf16) {
  const Ruled ruled;
  const Config config = ruled.resolved();
  const Plan plan = make_plan(config.precision, layers_of(config));
  ASSERT_FALSE(plan.rows.empty());
  for (const PlanRow& row : plan.rows) {
    const bool slow = row.layer.ends_with(".mlp.up") || row.layer.ends_with(".attn.out");
    EXPECT_EQ(row.recipe, slow || row.layer == "head" ? "bf16" : "fp8-delayed") << row.site;
    EXPECT_EQ(row.reason == "not faster: fp8-delayed is 0.5× as fast as bf16 here", slow) << row.site;
  }
  EXPECT_THAT(config.precision.layer_speeds, testing::Contains(Pair("blocks.*.mlp.up in fp8-delayed", 0.5)));
  EXPECT_EQ(config.precision.layer_speeds.size(), 4) << "the head is in high precision anyway";
  EXPECT_EQ(kept_for_speed(config.precision, layers_of(config)),
            "4 of 9 layers stay in bf16: fp8-delayed is not faster there");
}

TEST(OnlyWhereFaster, PatternsOfTheUserWin) {
  Ruled ruled;
  ruled.config.precision.layers = {{"blocks.0.mlp.up", "fp8-delayed"}, {"blocks.1.mlp.up/dy", "fp8-current"}};
  const Config config = ruled.resolved();
  const Plan plan = make_plan(config.precision, layers_of(config));
  EXPECT_EQ(plan.at("blocks.0.mlp.up/x").recipe, "fp8-delayed");
  EXPECT_EQ(plan.at("blocks.1.mlp.up/x").recipe, "bf16");
  EXPECT_EQ(plan.at("blocks.1.mlp.up/dy").recipe, "fp8-current");
}

TEST(OnlyWhereFaster, IsNothingToARecipeOfHighPrecision) {
  Ruled ruled;
  ruled.config.precision.only_where_faster = "nowhere.json";
  for (const char* recipe : {"bf16", "fp32"}) {
    ruled.config.precision.recipe = recipe;
    EXPECT_TRUE(ruled.resolved().precision.layer_speeds.empty());
  }
}

TEST(OnlyWhereFaster, WhatTheBenchmarkDoesNotTellIsAnError) {
  Ruled ruled;
  const Bench good = bench_with_slow(ruled.config, {});
  Bench other = good;
  other.machine.engine = "cpu (64 threads)";
  ruled.write(other);
  EXPECT_THAT(error_of(ruled), HasSubstr("it is of cpu (64 threads), and this is cpu (1 threads)"));
  other = good;
  other.machine.host = "a quicker processor";
  ruled.write(other);
  EXPECT_THAT(error_of(ruled), HasSubstr("a quicker processor"));
  ruled.write(good);
  ruled.config.precision.recipe = "fp8-row";
  EXPECT_THAT(error_of(ruled),
              testing::AllOf(HasSubstr("no layers in fp8-row"), HasSubstr("quaver bench --recipes fp8-row")));
  ruled.config.precision.recipe = "fp8-delayed";
  ruled.config.precision.switch_to = "mxfp8";
  EXPECT_THAT(error_of(ruled), HasSubstr("no layers in mxfp8"));
  ruled.config.precision.switch_to = "";
  ruled.config.model.ffn = 80;
  EXPECT_THAT(error_of(ruled), testing::AllOf(HasSubstr("no layer of 32 → 80, which blocks.*.mlp.up is"),
                                              HasSubstr("quaver bench --json")));
  ruled.config.model.ffn = 0;
  ruled.config.train.batch = 40;
  EXPECT_THAT(error_of(ruled), HasSubstr("at 128 to 128 tokens, and the run has 1280"));
  ruled.config.train.batch = 8;
  EXPECT_EQ(error_of(ruled), "no error") << "twice the tokens is near enough";
  write_file_atomically(ruled.config.precision.only_where_faster, "{}");
  EXPECT_THAT(error_of(ruled), testing::AllOf(HasSubstr("precision.only_where_faster = "), HasSubstr("not the JSON")));
  ruled.config.precision.only_where_faster += ".not";
  EXPECT_THAT(error_of(ruled), HasSubstr("bench.json.not"));
}

TEST(OnlyWhereFaster, ARecipeOfTheSameNameIsNotTheOneThatWasMeasured) {
  Ruled ruled;
  const auto mine = [](const std::string& format) {
    return load_config(
        {.files = {},
         .texts = {},
         .flags = {fmt::format("recipes.mine={{ x = \"{0} row current\", w = \"{0} row current\", dy = \"bf16\" }}",
                               format)}});
  };
  Bench bench = bench_with_slow(ruled.config, {});
  for (Measurement& m : bench.measurements) m.recipe = m.recipe == "bf16" ? "bf16" : "mine";
  bench.settings = to_toml(mine("e4m3"));
  ruled.write(bench);
  ruled.config.precision.recipe = "mine";
  ruled.config.precision.recipes = mine("e4m3").precision.recipes;
  EXPECT_EQ(error_of(ruled), "no error");
  ruled.config.precision.recipes = mine("int8").precision.recipes;
  EXPECT_THAT(error_of(ruled), HasSubstr("measured another recipe of the name mine"));
  bench.settings = to_toml(Config{});
  ruled.write(bench);
  EXPECT_THAT(error_of(ruled), HasSubstr("does not say what its recipe mine was"));
}

TEST(OnlyWhereFaster, APlanWithoutTheSpeedsIsRefused) {
  Ruled ruled;
  EXPECT_THROW(make_plan(ruled.config.precision, layers_of(ruled.config)), Error);
}

TEST(OnlyWhereFaster, IsDecidedBetweenTheTokensMeasured) {
  const BenchLayer up{"up", 64, 256, 1, 64};
  // Twice slower with 16 tokens, twice faster with 256: as fast with 64.
  const Bench bench = synthetic_bench({up}, {"bf16", "fp8-delayed"}, {16, 256},
                                      [](const BenchLayer&, const std::string& recipe, Size tokens) {
                                        return recipe == "bf16" ? 1e-3 : tokens == 16 ? 2e-3 : 0.5e-3;
                                      });
  const auto speed_at = [&](Size tokens) {
    return layer_seconds(bench, {.layer = {"up", 64, 256, 1, tokens}}, "fp8-delayed").speed();
  };
  EXPECT_NEAR(speed_at(16), 0.5, 1e-12);
  EXPECT_NEAR(speed_at(256), 2, 1e-12);
  EXPECT_NEAR(speed_at(64), 1, 1e-12);
  EXPECT_NEAR(speed_at(128), std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(speed_at(8), 0.5, 1e-12);
  EXPECT_NEAR(speed_at(512), 2, 1e-12);
  EXPECT_THROW(speed_at(7), Error);
  EXPECT_THROW(speed_at(513), Error);
}

// Weights are cast once per step, everything else in every micro-step.
TEST(OnlyWhereFaster, AccumulationMakesTheCastOfTheWeightsCheap) {
  const BenchLayer up{"up", 64, 256, 1, 64};
  Bench bench = synthetic_bench({up}, {"bf16", "fp8-delayed"}, {64},
                                [](const BenchLayer&, const std::string&, Size) { return 6e-3; });
  for (Measurement& m : bench.measurements) {
    if (m.recipe == "fp8-delayed") m.time.median = m.part == "w" ? 5e-3 : 0.5e-3;
  }
  EXPECT_LT(layer_seconds(bench, {.layer = up, .micro_steps = 1}, "fp8-delayed").speed(), 1);
  const LayerSeconds many = layer_seconds(bench, {.layer = up, .micro_steps = 4}, "fp8-delayed");
  EXPECT_NEAR(many.recipe, 4 * 2.5e-3 + 5e-3, 1e-12);
  EXPECT_NEAR(many.bf16, 4 * 5e-3 + 1e-3, 1e-12);
}

// The promise in times: never slower than bf16 everywhere, nor than the recipe everywhere.
TEST(OnlyWhereFaster, IsNeverSlowerThanAllOfEither) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-1, 1);
  Ruled ruled;
  const std::vector<LayerShape> shapes = layers_of(ruled.config);
  for (int trial = 0; trial < 50; ++trial) {
    ruled.config.train.batch = 1 + trial % 9;
    ruled.config.train.accumulation = 1 + trial % 3;
    const Bench bench =
        synthetic_bench(bench_layers(shapes, {.tokens = tokens_of_run}), {"bf16", "fp8-delayed"},
                        {tokens_of_run / 8, tokens_of_run * 2},
                        [&](const BenchLayer&, const std::string&, Size) { return 1e-3 * std::exp(exponent(random)); });
    Config config = resolve_shape(ruled.config, {.vocab = 32});
    config.precision.layer_speeds = layer_speeds(bench, config, shapes);
    const Plan plan = make_plan(config.precision, shapes);
    double ours = 0;
    double bf16 = 0;
    double recipe = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (shapes[i].high_precision) continue;
      const LayerLoad load{bench_layers({shapes[i]}, {.tokens = config.train.batch * 32}).front(),
                           config.train.accumulation};
      const LayerSeconds seconds = layer_seconds(bench, load, "fp8-delayed");
      bf16 += seconds.bf16;
      recipe += seconds.recipe;
      ours += plan.rows[site_index(i, Role::x)].recipe == "bf16" ? seconds.bf16 : seconds.recipe;
    }
    EXPECT_LE(ours, bf16 * (1 + 1e-12));
    EXPECT_LE(ours, recipe * (1 + 1e-12));
  }
}

// The table that a run keeps decides, not the file: which is gone.
TEST(OnlyWhereFaster, AResumedRunNeedsNoFile) {
  const Ruled ruled;
  Config straight = ruled.config;
  straight.run.dir = (ruled.folder.path() / "straight").string();
  std::vector<std::string> told;
  RunOptions listening;
  listening.observer.warning = [&](const std::string& text) { told.push_back(text); };
  run_training(straight, listening);
  EXPECT_THAT(told, ElementsAre("4 of 9 layers stay in bf16: fp8-delayed is not faster there"));
  EXPECT_THAT(contents(ruled.folder.path() / "straight" / "plan.toml"), HasSubstr("is 0.5× as fast as bf16 here"));

  std::atomic<bool> stop{false};
  RunOptions halting;
  halting.stop = &stop;
  halting.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step == 3; };
  EXPECT_EQ(run_training(ruled.config, halting).end, RunEnd::interrupted);
  std::filesystem::remove(ruled.config.precision.only_where_faster);
  RunOptions resuming;
  resuming.start = RunStart::resume;
  run_training(load_run_config(ruled.config.run.dir, {}), resuming);
  for (const char* part : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::filesystem::path file = std::filesystem::path("checkpoints") / "step-000006" / part;
    EXPECT_EQ(contents(ruled.folder.path() / "straight" / file), contents(ruled.folder.path() / "run" / file)) << part;
  }
  // Another recipe has other speeds; without the rule there is nothing to know.
  EXPECT_THROW(open_run(ruled.config.run.dir, {"precision.recipe=fp8-row"}, std::nullopt, [](const std::string&) {}),
               Error);
  EXPECT_NO_THROW(open_run(ruled.config.run.dir, {"precision.recipe=fp8-row", "precision.only_where_faster="},
                           std::nullopt, [](const std::string&) {}));
  // Naming a benchmark again asks it again.
  EXPECT_TRUE(
      load_run_config(ruled.config.run.dir, {"precision.only_where_faster=other.json"}).precision.layer_speeds.empty());
}

void run_on_two(const Ruled& ruled, const std::string& file_of_second) {
  ThreadRanks(2).run([&](Communicator& ranks) {
    Config config = ruled.config;
    config.train.reduction_groups = 2;
    config.train.steps = 1;
    if (!ranks.is_first()) config.precision.only_where_faster = file_of_second;
    RunOptions options;
    options.ranks = &ranks;
    EXPECT_EQ(run_training(config, options).steps, 1);
  });
}

TEST(OnlyWhereFaster, IsDecidedByTheFirstRank) {
  const Ruled ruled;
  run_on_two(ruled, ruled.config.precision.only_where_faster);
  EXPECT_EQ(load_run_config(ruled.config.run.dir, {}).precision.layer_speeds.size(), 4);
  // The second rank does not look for its file: that its config is another one is all that is wrong.
  const Ruled apart;
  try {
    run_on_two(apart, "/nowhere/bench.json");
    FAIL() << "the ranks have different configs";
  } catch (const AgreedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("config"));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("open")));
  }
}

}  // namespace
}  // namespace quaver::test
