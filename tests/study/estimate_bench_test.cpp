// Times from a benchmark: by hand from figures that are made up, and near a step that was measured.
#include "study/estimate_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/synthetic_bench.h"
#include "support/temporary_folder.h"

#include "config/dump.h"
#include "config/load.h"
#include "io/file_io.h"
#include "models/factory.h"
#include "quaver/error.h"
#include "study/bench.h"
#include "train/resolved_config.h"

namespace quaver {
namespace {

using testing::HasSubstr;

Config benched_config(const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags{"preset=tiny",      "model.layers=2",          "model.width=64",  "model.heads=2",
                                 "model.context=32", "train.batch=4",           "train.threads=1", "train.device=cpu",
                                 "model.vocab=64",   "train.statistics_every=0"};
  flags.insert(flags.end(), more.begin(), more.end());
  return resolve_shape(load_config({.files = {}, .texts = {}, .flags = flags}), {.vocab = 64});
}

Measurement part_of_step(Workload workload, const std::string& part, const std::string& recipe, double seconds) {
  return {.workload = workload,
          .subject = "made up",
          .part = part,
          .recipe = recipe,
          .time = {.median = seconds, .p95 = seconds, .noise = 0, .rounds = 3}};
}

// A step of 100 ms in bf16: 70 in two blocks, 10 in the head, 5 + 5 outside and 10 in the optimizer. In fp8-delayed 60
// ms less. Layers take 2 ms each in bf16, 1 ms in fp8-delayed and 3 ms in fp8-row.
Bench made_up_bench() {
  const Config config = benched_config();
  const std::vector<BenchLayer> layers = bench_layers(make_model(config.model)->layers(), {.tokens = 128});
  Bench bench = test::synthetic_bench(layers, {"bf16", "fp8-delayed", "fp8-row"}, {128},
                                      [](const BenchLayer&, const std::string& recipe, Size) {
                                        return recipe == "bf16" ? 2e-3 : recipe == "fp8-row" ? 3e-3 : 1e-3;
                                      });
  bench.tokens = 128;
  bench.context = 32;
  bench.settings = to_toml(config);
  for (const auto& [recipe, step] : {std::pair("bf16", 0.100), std::pair("fp8-delayed", 0.040)}) {
    bench.measurements.push_back(part_of_step(Workload::step, "step", recipe, step));
    constexpr double slower = 1.5;  // while phases are recorded
    for (const auto& [phase, seconds] :
         {std::pair("GEMM, fprop", step - 0.030), std::pair("head and loss", 0.010), std::pair("embedding", 0.005),
          std::pair("data loading", 0.005), std::pair("optimizer", 0.010)}) {
      bench.measurements.push_back(part_of_step(Workload::phase, phase, recipe, slower * seconds));
    }
  }
  return bench;
}

EstimateOptions from_file(const std::string& path, const std::string& gpu = "") {
  EstimateOptions options;
  options.bench = path;
  options.gpu = gpu;
  return options;
}

double seconds(const std::vector<std::string>& flags) {
  return time_from_bench(benched_config(flags), made_up_bench()).seconds_per_step;
}

TEST(BenchedTime, IsTheMeasuredStep) {
  const TimeEstimate bf16 = time_from_bench(benched_config(), made_up_bench());
  EXPECT_NEAR(bf16.seconds_per_step, 0.100, 1e-12);
  EXPECT_NEAR(bf16.optimizer_seconds, 0.010, 1e-12);
  EXPECT_EQ(bf16.origin, Origin::measured);
  EXPECT_THAT(bf16.how, HasSubstr("measured by quaver bench on cpu (1 threads), 2026-11-18T12:00:00Z"));
  EXPECT_NEAR(seconds({"precision.recipe=fp8-delayed"}), 0.040, 1e-12);
}

TEST(BenchedTime, RepeatsTheMicroStepAndNotTheOptimizer) {
  EXPECT_NEAR(seconds({"train.accumulation=3"}), 3 * 0.090 + 0.010, 1e-12);
  EXPECT_NEAR(seconds({"train.batch=8"}), 2 * 0.090 + 0.010, 1e-12);
}

TEST(BenchedTime, GrowsWithTheBlocks) {
  const double parameters =
      static_cast<double>(make_model(benched_config({"model.layers=4"}).model)->parameters().count()) /
      static_cast<double>(make_model(benched_config().model)->parameters().count());
  EXPECT_NEAR(seconds({"model.layers=4"}), 2 * 0.070 + 0.010 + 0.010 + parameters * 0.010, 1e-12);
}

// Eight layers in two blocks, each 1 ms slower than in bf16.
TEST(BenchedTime, OfARecipeWithoutStepsComesFromItsLayers) {
  const TimeEstimate time = time_from_bench(benched_config({"precision.recipe=fp8-row"}), made_up_bench());
  EXPECT_NEAR(time.seconds_per_step, 0.100 + 8 * 1e-3, 1e-9);
  EXPECT_THAT(time.how, HasSubstr("brought to fp8-row by its layers"));
  // A sixth is the cast of the weights, once per step.
  EXPECT_NEAR(seconds({"precision.recipe=fp8-row", "train.accumulation=2"}), 0.190 + 8 * (2 * 5.0 / 6 + 1.0 / 6) * 1e-3,
              1e-9);
}

TEST(BenchedTime, FollowsPatternsAndTheRule) {
  EXPECT_NEAR(seconds({"precision.recipe=fp8-delayed", "precision.layers.\"blocks.*.mlp.up\"=bf16"}), 0.042, 1e-9);
  EXPECT_NEAR(seconds({"precision.recipe=fp8-delayed", "precision.only_where_faster=gone.json",
                       "precision.layer_speeds.\"blocks.*.mlp.up in fp8-delayed\"=0.5",
                       "precision.layer_speeds.\"blocks.*.mlp.down in fp8-delayed\"=1.5",
                       "precision.layer_speeds.\"blocks.*.attn.* in fp8-delayed\"=1.5"}),
              0.042, 1e-9);
}

TEST(BenchedTime, IsRefusedWhereTheBenchmarkDoesNotTell) {
  const auto why = [](const std::vector<std::string>& flags, const Bench& bench) -> std::string {
    try {
      time_from_bench(benched_config(flags), bench);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const Bench bench = made_up_bench();
  EXPECT_THAT(why({"train.context=16"}, bench), HasSubstr("measured train.context = 32, and the run has 16"));
  EXPECT_THAT(why({"model.width=32"}, bench), HasSubstr("model.width"));
  EXPECT_THAT(why({"train.memory=small"}, bench), HasSubstr("train.memory"));
  EXPECT_THAT(why({"optim.moments=fp8"}, bench), HasSubstr("optim.moments"));
  EXPECT_THAT(why({"optim.optimizer=muon"}, bench), HasSubstr("optim.optimizer = \"adamw\", and the run has \"muon\""));
  EXPECT_THAT(why({"lora.rank=2"}, bench), HasSubstr("lora.rank"));
  EXPECT_THAT(why({"train.batch=32"}, bench), HasSubstr("too far apart"));
  EXPECT_THAT(why({"precision.recipe=mxfp8"}, bench), HasSubstr("no layers in mxfp8"));
  EXPECT_THAT(why({"precision.recipe=fp8-delayed", "precision.layers.\"blocks.0.mlp.up/dy\"=bf16"}, bench),
              HasSubstr("several recipes"));
  Bench without = bench;
  without.settings.clear();
  EXPECT_THAT(why({}, without), HasSubstr("does not say which settings"));
  without = bench;
  std::erase_if(without.measurements, [](const Measurement& m) { return m.workload == Workload::phase; });
  EXPECT_THAT(why({}, without), HasSubstr("no whole steps"));
}

// Where it does not tell, a note says why, and the time is estimated as without it.
TEST(BenchedTime, IsOneOfTheWaysToEstimate) {
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "bench.json").string();
  write_file_atomically(path, to_json(made_up_bench()));
  Config config = benched_config();
  config.data.kind = DataKind::synthetic;
  config.data.synthetic_vocab = 64;
  const Estimate good = estimate(config, from_file(path));
  EXPECT_NEAR(good.time.value().seconds_per_step, 0.100, 1e-9);
  EXPECT_TRUE(good.notes.empty());
  Bench other = made_up_bench();
  other.machine.engine = "NVIDIA H200";
  write_file_atomically(path, to_json(other));
  const Estimate fallen_back = estimate(config, from_file(path));
  EXPECT_TRUE(fallen_back.time.has_value());
  ASSERT_EQ(fallen_back.notes.size(), 1);
  EXPECT_THAT(fallen_back.notes[0], HasSubstr("it is of NVIDIA H200, and this is cpu (1 threads)"));
  EXPECT_NEAR(estimate(config, from_file(path, "h200")).time.value().seconds_per_step, 0.100, 1e-9)
      << "a GPU that is not here";
}

// Half of a small step does not grow with its tokens: a few steps of the model itself tell more than the benchmark's.
TEST(BenchedTime, IsNotScaledWhereTheModelItselfCanBeMeasured) {
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "bench.json").string();
  write_file_atomically(path, to_json(made_up_bench()));
  Config config = benched_config({"train.batch=8"});
  config.data.kind = DataKind::synthetic;
  config.data.synthetic_vocab = 64;
  const Estimate measured = estimate(config, from_file(path));
  EXPECT_THAT(measured.time.value().how, HasSubstr("steps of this model"));
  ASSERT_EQ(measured.notes.size(), 1);
  EXPECT_THAT(measured.notes[0], HasSubstr("measured 128 tokens in a micro-batch, and the run has 256"));
}

}  // namespace
}  // namespace quaver
