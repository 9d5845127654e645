// What it costs to look: steps of the tiny GPT with full statistics every ten steps, their figures gathered, watched by
// the alarms and recorded in a store, against steps without. Both trainers take turns, so that a machine that grows
// slower or faster does so for both.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <filesystem>
#include <unistd.h>

#include "config/load.h"
#include "numerics/alerts.h"
#include "train/run_record.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr Size every = 10;

Config tiny(const std::string& recipe, Size statistics_every) {
  Config config = load_config({.files = {}, .texts = {}, .flags = {"--preset=tiny"}});
  config.data.kind = DataKind::synthetic;
  config.precision.recipe = recipe;
  config.train.steps = 1'000'000;
  config.train.device = DeviceChoice::cpu;
  config.train.statistics_every = statistics_every;
  return config;
}

struct Subject {
  Subject(const Config& config, const fs::path& directory)
      : data(open_training_data(config.data, config.train.seed, config.model.context)),
        engine(make_cpu_engine(0)),
        trainer(config, data, *engine, [](const std::string&) {}),
        record(trainer, directory, "{}", [](const std::string&) {}),
        alarms(config.alerts) {}

  // As many steps as lie between two samples, and what a run does after each.
  double round() {
    const auto start = Clock::now();
    for (Size i = 0; i < every; ++i) {
      const StepReport report = trainer.step();
      const StepMetrics figures{.step = static_cast<std::uint64_t>(report.step), .loss = report.loss};
      record.step(report, {});
      if (!report.sampled) {
        alarms.watch(figures, trainer.book());
        continue;
      }
      const NumericsSample sample = trainer.numerics();
      record.numerics(sample);
      alarms.watch(figures, trainer.book(), &sample);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  TrainingData data;
  std::unique_ptr<Engine> engine;
  Trainer trainer;
  RunRecord record;
  Alarms alarms;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void statistics(benchmark::State& state, const std::string& recipe) {
  const fs::path folder = fs::temp_directory_path() / ("quaver-bench-" + std::to_string(getpid()));
  fs::create_directories(folder / "with");
  fs::create_directories(folder / "without");
  {
    Subject with(tiny(recipe, every), folder / "with");
    Subject without(tiny(recipe, 0), folder / "without");
    std::vector<double> looking;
    std::vector<double> plain;
    with.round();
    without.round();
    for (auto _ : state) {
      looking.push_back(with.round());
      plain.push_back(without.round());
    }
    state.counters["ms/step"] = 1000 * median(plain) / every;
    state.counters["cost %"] = 100 * (median(looking) / median(plain) - 1);
  }
  fs::remove_all(folder);
}
BENCHMARK_CAPTURE(statistics, fp8_delayed, "fp8-delayed")->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(15);
BENCHMARK_CAPTURE(statistics, bf16, "bf16")->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(15);

}  // namespace
}  // namespace quaver

BENCHMARK_MAIN();
