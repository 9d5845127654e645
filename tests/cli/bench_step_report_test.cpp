// How a benchmark whose measurements are made up is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/bench_step.h"

namespace quaver {
namespace {

using ::testing::HasSubstr;

// Two micro-steps of 4 × 16 tokens; a step takes 200 ms, 240 ms where it is watched.
StepBenchmark made_up() {
  StepBenchmark benchmark;
  benchmark.config.train.accumulation = 2;
  benchmark.config.train.batch = 4;
  benchmark.config.train.context = 16;
  benchmark.engine = "cpu";
  benchmark.parameters = 1'500'000;
  benchmark.tokens_per_step = 128;
  benchmark.flops_per_token = 5e9;
  benchmark.low_precision_share = 0.25;
  benchmark.step_seconds = {0.1, 0.4, 0.2};
  benchmark.losses = {5, 4, 3, 2};
  benchmark.learning.tokens = 128;
  benchmark.learning.losses = benchmark.learning.reference = {5, 4, 3, 2};
  benchmark.memory.weights = 1 << 20;
  benchmark.memory.scratch = 2 << 20;
  benchmark.workspace = 1 << 20;
  benchmark.watched_seconds = 0.24;
  benchmark.kernels[static_cast<std::size_t>(OperationKind::attention)] = {0.06, 8};
  benchmark.kernels[static_cast<std::size_t>(OperationKind::optimizer)] = {0.12, 4};
  return benchmark;
}

// The numbers of the line that begins with a name.
std::vector<double> numbers_of(const std::string& table, const std::string& name) {
  const std::size_t at = table.find("\n" + name);
  if (at == std::string::npos) return {};
  std::istringstream words(table.substr(at + 1 + name.size(), table.find('\n', at + 1) - at - 1 - name.size()));
  std::vector<double> numbers;
  for (double number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

TEST(BenchTable, TimesAreThoseOfOneMicroStep) {
  const std::string table = benchmark_table(made_up());
  EXPECT_EQ(numbers_of(table, std::string(name_of(OperationKind::attention))), (std::vector<double>{30, 25, 4}))
      << table;
  EXPECT_EQ(numbers_of(table, std::string(name_of(OperationKind::optimizer))), (std::vector<double>{60, 50, 2}))
      << table;
  EXPECT_EQ(numbers_of(table, "between operations"), (std::vector<double>{30, 25})) << table;
  EXPECT_EQ(numbers_of(table, "one operation at a time"), (std::vector<double>{120, 100})) << table;
  EXPECT_EQ(numbers_of(table, "as trained"), (std::vector<double>{100})) << table;
}

TEST(BenchTable, SpeedIsThatOfTheMedianStep) {
  const StepBenchmark benchmark = made_up();
  EXPECT_EQ(benchmark.median_seconds(), 0.2);
  EXPECT_EQ(benchmark.tokens_per_second(0.2), 640);
  EXPECT_NEAR(benchmark.tflops(), 640 * 5e9 / 1e12, 1e-12);
  EXPECT_EQ(benchmark.peak_memory(), 4 << 20);
  const std::string table = benchmark_table(benchmark);
  EXPECT_THAT(table, HasSubstr("640 (320 – 1280, 3 steps)"));
  EXPECT_THAT(table, HasSubstr("3.2, 25.0 % of the matrix products"));
  EXPECT_THAT(table, HasSubstr("4.00 MiB: weights 1.00 MiB"));
}

TEST(BenchTable, TheMedianOfAnEvenNumberIsTheMeanOfTheMiddle) {
  StepBenchmark benchmark = made_up();
  benchmark.step_seconds = {0.4, 0.1, 0.3, 0.2};
  EXPECT_NEAR(benchmark.median_seconds(), 0.25, 1e-12);
}

TEST(BenchJson, HasSecondsOfOneMicroStepAndSharesOfTheWhole) {
  const auto object = nlohmann::json::parse(benchmark_json(made_up()));
  EXPECT_NEAR(object["ms_per_step"].get<double>(), 200, 1e-9);
  EXPECT_NEAR(object["micro_step"]["seconds"].get<double>(), 0.1, 1e-12);
  EXPECT_NEAR(object["micro_step"]["watched_seconds"].get<double>(), 0.12, 1e-12);
  const auto& attention = object["micro_step"]["kernels"][static_cast<std::size_t>(OperationKind::attention)];
  EXPECT_NEAR(attention["seconds"].get<double>(), 0.03, 1e-12);
  EXPECT_NEAR(attention["share"].get<double>(), 0.25, 1e-12);
  EXPECT_EQ(attention["calls"], 4.0);
  EXPECT_EQ(object["tokens_per_second"]["median"], 640.0);
  EXPECT_EQ(object["tokens_per_second"]["min"], 320.0);
  EXPECT_EQ(object["tokens_per_second"]["max"], 1280.0);
}

}  // namespace
}  // namespace quaver
