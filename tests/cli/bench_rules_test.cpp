// What `bench step` says and judges, word by word and at its limits, from measurements that are made up.
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/bench_step.h"
#include "cli/command.h"
#include "precision/recipe.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Every measurement has a value of its own.
StepBenchmark measured_by_hand() {
  StepBenchmark benchmark;
  benchmark.config.preset = "tiny";
  benchmark.config.precision.recipe = "fp8-static";
  benchmark.config.train.accumulation = 2;
  benchmark.config.train.batch = 4;
  benchmark.config.train.context = 16;
  benchmark.engine = "cpu reference";
  benchmark.parameters = 1'234'567;
  benchmark.tokens_per_step = 128;
  benchmark.flops_per_token = 5e9;
  benchmark.low_precision_share = 0.625;
  benchmark.setup_seconds = 1.5;
  benchmark.step_seconds = {0.125, 0.5, 0.25};
  benchmark.losses = {6, 5, 4, 3};
  benchmark.skipped = 1;
  benchmark.memory.weights = 1 << 20;
  benchmark.memory.quantized_weights = 2 << 20;
  benchmark.memory.gradients = 3 << 20;
  benchmark.memory.optimizer = 4 << 20;
  benchmark.memory.activations = 5 << 20;
  benchmark.memory.scratch = 6 << 20;
  benchmark.workspace = 7 << 20;
  benchmark.calibrated = CalibratedScales{.batches = 3, .steps = 8};
  benchmark.learning.data = LearningData::one_batch;
  benchmark.learning.tokens = 128;
  benchmark.learning.losses = {5.5, 4.5};
  benchmark.learning.reference = {5.25, 4};
  benchmark.learning.zero_codes[static_cast<std::size_t>(Role::x)] = {1000, 30, 10, 100};
  benchmark.learning.zero_codes[static_cast<std::size_t>(Role::dy)] = {400, 4, 2, 100};
  benchmark.learning.timed_reference = {"0123abcd", {7, 6, 5}};
  benchmark.watched_seconds = 0.5;
  benchmark.kernels[0] = {0.25, 4};
  benchmark.kernels[1] = {0.125, 3};
  return benchmark;
}

std::string row(std::string_view name, std::string_view ms, std::string_view percent, std::string_view calls) {
  return fmt::format("{:<28}{:>10}{:>8}{:>8}\n", name, ms, percent, calls);
}

TEST(BenchmarkTable, WordByWord) {
  EXPECT_EQ(benchmark_table(measured_by_hand()),
            "tiny · 1.23M parameters · fp8-static · cpu reference\n"
            "tokens/step   128 = 2 micro-steps × 4 sequences × 16\n"
            "tokens/s      512 (256 – 1024, 3 steps)\n"
            "ms/step       250.0\n"
            "TFLOP/s       2.56, 62.5 % of the matrix products' operations in 8 bits or fewer\n"
            "peak memory   28.0 MiB: weights 1.00 MiB, quantized weights 2.00 MiB, gradients 3.00 MiB, optimizer "
            "4.00 MiB, activations 5.00 MiB, scratch 6.00 MiB, workspace 7.00 MiB\n"
            "static scales calibrated in this run: 3 batches over 8 steps in bf16\n"
            "zero codes    x 3.00 % (1.00 % underflowed), dy 1.00 % (0.50 % underflowed)\n"
            "loss          5.5000 → 4.5000 in 2 steps on one micro-batch; bf16 5.2500 → 4.0000: 0.800 of its fall\n"
            "1 steps had gradients that were not finite: the measurements are not those of training\n"
            "\n" +
                row("time per micro-step", "ms", "%", "calls") +
                row(name_of(static_cast<OperationKind>(0)), "125.000", "50.0", "2") +
                row(name_of(static_cast<OperationKind>(1)), "62.500", "25.0", "2") +
                row("between operations", "62.500", "25.0", "") +
                row("one operation at a time", "250.000", "100.0", "") +
                fmt::format("{:<28}{:>10}\n", "as trained", "125.000"));
}

TEST(BenchmarkTable, OfOtherMeasurements) {
  StepBenchmark benchmark = measured_by_hand();
  benchmark.step_seconds = {0.25};
  benchmark.calibrated.reset();
  benchmark.skipped = 0;
  benchmark.learning.data = LearningData::timed_steps;
  benchmark.learning.zero_codes = {};
  benchmark.learning.losses = {5.5, 5.5, 4.51};  // a little too little
  benchmark.kernels[0].seconds = 0.75;           // more than the step, as clocks go
  benchmark.device_memory = 20 << 20;
  const std::string table = benchmark_table(benchmark);
  EXPECT_THAT(table, HasSubstr("cpu reference\nNOT VALID: these are not measurements of training\ntokens/step"));
  EXPECT_THAT(table, HasSubstr("512 (512 – 512, 1 step)\n"));
  EXPECT_THAT(table, HasSubstr("peak memory   20.0 MiB: weights 1.00 MiB"));
  EXPECT_THAT(table, Not(HasSubstr("static scales")));
  EXPECT_THAT(table, HasSubstr("zero codes    nothing is cast to 8 bits or fewer\n"));
  EXPECT_THAT(table, HasSubstr("→ 4.5100 in 3 steps; bf16"));
  EXPECT_THAT(table, HasSubstr(row("between operations", "0.000", "0.0", "")));
  EXPECT_THAT(table, Not(HasSubstr("not finite")));
  benchmark.device_memory = -5;
  EXPECT_THAT(benchmark_table(benchmark), HasSubstr("peak memory   0 B: "));
}

TEST(BenchmarkJson, FieldByField) {
  auto object = nlohmann::json::parse(benchmark_json(measured_by_hand()));
  object.erase("quaver");
  const auto kernels = object["micro_step"]["kernels"];
  object["micro_step"].erase("kernels");
  EXPECT_EQ(object, nlohmann::json::parse(R"({
    "engine": "cpu reference", "wide_format": "f32", "preset": "tiny", "recipe": "fp8-static", "parameters": 1234567,
    "batch": 4, "context": 16, "accumulation": 2, "tokens_per_step": 128, "setup_seconds": 1.5,
    "step_seconds": [0.125, 0.5, 0.25], "losses": [6.0, 5.0, 4.0, 3.0], "skipped": 1, "valid": true,
    "learning": {"steps": "2 steps on one micro-batch", "losses": [5.5, 4.5], "bf16_losses": [5.25, 4.0], "fall": 1.0,
                 "bf16_fall": 1.25, "share_of_bf16_fall": 0.8},
    "zero_codes": {"x": 0.03, "w": null, "dy": 0.01}, "underflow": {"x": 0.01, "w": null, "dy": 0.005},
    "calibrated": {"batches": 3, "steps": 8}, "reference": {"config": "0123abcd", "losses": [7.0, 6.0, 5.0]},
    "tokens_per_second": {"median": 512.0, "min": 256.0, "max": 1024.0}, "ms_per_step": 250.0, "tflops": 2.56,
    "narrow_share": 0.625,
    "memory_bytes": {"peak": 29360128, "measured": false, "weights": 1048576, "quantized_weights": 2097152,
                     "gradients": 3145728, "optimizer": 4194304, "activations": 5242880, "scratch": 6291456,
                     "workspace": 7340032},
    "micro_step": {"seconds": 0.125, "watched_seconds": 0.25}})"));
  ASSERT_EQ(kernels.size(), operation_kinds);
  EXPECT_EQ(kernels[1],
            nlohmann::json::parse(R"({"kind": "", "seconds": 0.0625, "share": 0.25, "calls": 1.5})")
                .patch({{{"op", "replace"}, {"path", "/kind"}, {"value", name_of(static_cast<OperationKind>(1))}}}));
  EXPECT_EQ(kernels[2]["calls"], 0.0);
  StepBenchmark other = measured_by_hand();
  other.calibrated.reset();
  other.device_memory = 123;
  other.learning.losses = {5.5, 5};
  object = nlohmann::json::parse(benchmark_json(other));
  EXPECT_TRUE(object["calibrated"].is_null());
  EXPECT_EQ(object["memory_bytes"]["peak"], 123);
  EXPECT_EQ(object["memory_bytes"]["measured"], true);
  EXPECT_EQ(object["valid"], false);
}

LearningCheck check_of(std::vector<double> losses, std::vector<double> reference, Size tokens = 1 << 20) {
  LearningCheck check;
  check.tokens = tokens;
  check.losses = std::move(losses);
  check.reference = std::move(reference);
  return check;
}

TEST(LearningVerdict, NeedsAFallOfTheReferenceThatIsClearOfNoise) {
  EXPECT_EQ(check_of({}, {}, 10000).least_fall(), 0.04);
  EXPECT_EQ(check_of({}, {}, 640000).least_fall(), 0.005);
  EXPECT_EQ(check_of({}, {}, 1'000'000).least_fall(), 0.005);
  EXPECT_EQ(check_of({5, 4}, {5, 4.96}, 9900).verdict(), LearningVerdict::reference_learns_too_little);
  EXPECT_EQ(check_of({5, 4}, {5, 4.75}, 256).verdict(), LearningVerdict::learns) << "a quarter is four standard errors";
  EXPECT_EQ(check_of({5, 4}, {5, 5.1}).verdict(), LearningVerdict::reference_learns_too_little);
  EXPECT_EQ(check_of({5, 4}, {5, std::nan("")}).verdict(), LearningVerdict::reference_learns_too_little);
  LearningCheck memorized = check_of({5, 4}, {5, 4.9375}, 16);
  EXPECT_EQ(memorized.verdict(), LearningVerdict::reference_learns_too_little);
  memorized.data = LearningData::one_batch;
  EXPECT_EQ(memorized.verdict(), LearningVerdict::learns) << "the same tokens again: there is no noise";
  memorized.reference = {5, 4.996};
  EXPECT_EQ(memorized.verdict(), LearningVerdict::reference_learns_too_little);
}

TEST(LearningVerdict, NeedsFourFifthsOfTheReferencesFall) {
  EXPECT_EQ(check_of({5, 4}, {5.25, 4}).share(), 0.8);
  EXPECT_EQ(check_of({5, 4}, {5.25, 4}).verdict(), LearningVerdict::learns);
  EXPECT_EQ(check_of({5, 4.01}, {5.25, 4}).verdict(), LearningVerdict::learns_too_little);
  EXPECT_EQ(check_of({5, 6}, {5.25, 4}).verdict(), LearningVerdict::learns_too_little);
  EXPECT_EQ(check_of({5, 3, 4}, {5, 9, 4}).share(), 1) << "from the first to the last";
  EXPECT_EQ(check_of({5, std::nan("")}, {5.25, 4}).verdict(), LearningVerdict::learns_too_little);
}

TEST(LearningVerdict, ToleratesAsManyZerosAsTheAlerts) {
  ZeroCodes codes{.elements = 200, .zeros = 10, .underflowed = 5, .most_zeros = 10};
  EXPECT_EQ(codes.share(), 0.05);
  EXPECT_EQ(codes.underflow_share(), 0.025);
  EXPECT_FALSE(codes.is_too_many());
  codes.zeros = 11;
  EXPECT_TRUE(codes.is_too_many());
  EXPECT_EQ(ZeroCodes{}.share(), 0);
  EXPECT_EQ(ZeroCodes{}.underflow_share(), 0);
  LearningCheck check = check_of({5, 4}, {5, 4});
  check.zero_codes[2] = codes;
  EXPECT_EQ(check.verdict(), LearningVerdict::too_many_zeros);
  check.losses = {5, 5};
  EXPECT_EQ(check.verdict(), LearningVerdict::learns_too_little) << "the worse of the two";
}

// Of a hundred elements ten are zero before the cast, five underflow and one is not finite.
ScaleEntry cast_site(const char* recipe, Role role) {
  ScaleEntry entry;
  entry.site.role = role;
  entry.site.spec = make_recipe(recipe, {}).of(role);
  entry.sampled.count = 100;
  entry.sampled.underflowed = 5;
  entry.sampled.nonfinite = 1;
  entry.sampled.binades[3] = 50;
  entry.sampled.binades[9] = 39;
  return entry;
}

TEST(ZeroCodesByRole, AreUnderflowsAndZerosButNotInfinities) {
  std::array<ZeroCodes, 3> counts;
  count_zeros(cast_site("fp8-current", Role::dy), counts);
  EXPECT_EQ(counts[2].elements, 100U);
  EXPECT_EQ(counts[2].underflowed, 5U);
  EXPECT_EQ(counts[2].zeros, 15U);
  EXPECT_DOUBLE_EQ(counts[2].most_zeros, AlertConfig{}.underflow_dy);
  EXPECT_EQ(counts[0].elements, 0U);
  count_zeros(cast_site("fp8-current", Role::dy), counts);
  EXPECT_EQ(counts[2].zeros, 30U);
  EXPECT_DOUBLE_EQ(counts[2].most_zeros, 2 * AlertConfig{}.underflow_dy);
  count_zeros(cast_site("bf16", Role::w), counts);
  EXPECT_EQ(counts[1].elements, 0U) << "nothing is cast";
  count_zeros(cast_site("nvfp4", Role::x), counts);
  EXPECT_DOUBLE_EQ(counts[0].most_zeros, AlertConfig{}.underflow_4bit);
}

std::string demand_of(const LearningCheck& check) {
  try {
    check.require();
    return "";
  } catch (const Error& error) {
    EXPECT_NE(error.remedy(), "");
    return error.what();
  }
}

TEST(LearningVerdict, IsAnErrorWithBothLosses) {
  EXPECT_EQ(demand_of(check_of({5, 4}, {5, 4})), "");
  EXPECT_EQ(
      demand_of(check_of({5, 4.75, 4.5}, {5, 4.5, 4})),
      "the measurements are not those of training: in 3 steps the loss went from 5.0000 to 4.5000, and from 5.0000 to "
      "4.0000 in bf16; it must fall at least 0.8 times as far");
  EXPECT_EQ(
      demand_of(check_of({5, 4}, {5, 5.5})),
      "the measurements cannot be judged: in 2 steps the loss went from 5.0000 to 4.0000, and from 5.0000 to 5.5000 in "
      "bf16, whose loss must fall");
  LearningCheck check = check_of({5, 4}, {5, 4});
  check.data = LearningData::one_batch;
  check.zero_codes[static_cast<std::size_t>(Role::x)] = {100, 25, 20, 24};
  check.zero_codes[static_cast<std::size_t>(Role::w)] = {100, 25, 20, 26};
  check.zero_codes[static_cast<std::size_t>(Role::dy)] = {100, 50, 20, 24};
  EXPECT_EQ(
      demand_of(check),
      "the measurements are not those of training: 25.0 % of the codes of x, 50.0 % of the codes of dy are zero; in 2 "
      "steps on one micro-batch the loss went from 5.0000 to 4.0000, and from 5.0000 to 4.0000 in bf16");
}

TEST(BenchmarkConfig, IsThatOfTheFilesOrTheUsualOne) {
  const Config usual = benchmark_config({});
  EXPECT_EQ(usual.preset, "gpt-350m");
  EXPECT_EQ(usual.precision.recipe, "fp8-delayed");
  EXPECT_EQ(usual.train.batch, 64);
  EXPECT_EQ(usual.train.context, usual.model.context);
  const Config set = benchmark_config({{}, {"preset=tiny", "train.batch=3", "train.context=32", "model.vocab=99"}});
  EXPECT_EQ(set.preset, "tiny");
  EXPECT_EQ(set.precision.recipe, "fp8-delayed");
  EXPECT_EQ(set.train.batch, 3);
  EXPECT_EQ(set.train.context, 32);
  EXPECT_EQ(set.model.vocab, 99);
  const TemporaryFolder folder;
  const std::string file = folder.write("c.toml", "preset = \"tiny\"\nprecision.recipe = \"bf16\"\n").string();
  const Config own = benchmark_config({{file}, {"train.seed=9"}});
  EXPECT_EQ(own.preset, "tiny");
  EXPECT_EQ(own.precision.recipe, "bf16");
  EXPECT_NE(own.train.batch, 64);
  EXPECT_EQ(own.model.vocab, 256) << "where the model has none";
}

TEST(BenchmarkData, IsRandomByTheSeed) {
  Config config = benchmark_config({{}, {"preset=tiny", "train.seed=9", "model.vocab=77"}});
  const TrainingData data = benchmark_data(config);
  EXPECT_EQ(data.vocab, 77);
  EXPECT_EQ(data.train->vocab_size(), 77);
  EXPECT_EQ(data.train->content_hash(), benchmark_data(config).train->content_hash());
  config.train.seed = 10;
  EXPECT_NE(data.train->content_hash(), benchmark_data(config).train->content_hash());
}

// What it prints of one pass: milliseconds, the fastest, the slowest, TFLOP/s.
std::vector<double> attention_row(const std::string& out, const std::string& name) {
  std::string text = out.substr(out.find("\n" + name) + 1 + name.size());
  text = text.substr(0, text.find('\n'));
  for (const std::string mark : {"(", ")", "–"}) {
    for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) {
      text.replace(at, mark.size(), " ");
    }
  }
  std::istringstream words(text);
  std::vector<double> figures;
  for (double figure = 0; words >> figure;) figures.push_back(figure);
  return figures;
}

TEST(AttentionBenchmark, TellsTheMedianBetweenTheFastestAndTheSlowest) {
  ::testing::internal::CaptureStdout();
  AttentionBenchArguments arguments;
  arguments.config.settings = {"preset=tiny", "train.batch=8", "train.context=64", "train.device=cpu"};
  arguments.repeats = 2;
  EXPECT_EQ(bench_attention_verb(arguments), 0);
  const std::string out = ::testing::internal::GetCapturedStdout();
  const ModelConfig model = resolved(benchmark_config(arguments.config).model);
  EXPECT_THAT(out, StartsWith(fmt::format("tiny · 8 × 64 positions, {} heads of {} ({} of keys) · ", model.heads,
                                          model.head_size, model.kv_heads)));
  for (const char* name : {"forward", "backward"}) {
    const std::vector<double> figures = attention_row(out, name);
    ASSERT_EQ(figures.size(), 4U) << out;
    EXPECT_GT(figures[1], 0);
    EXPECT_LE(figures[1], figures[0]);
    EXPECT_LE(figures[0], figures[2]);
  }
}

}  // namespace
}  // namespace quaver::test
