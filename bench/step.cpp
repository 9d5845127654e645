// Whole training steps of the reference model on the CPU: 4 layers, width 256, T 256, B 16, about 3.4M parameters.
// The figures that matter are ratios within one run: an emulated FP8 step against the FP32 step.
#include <benchmark/benchmark.h>

#include "data/synthetic.h"
#include "train/trainer.h"

namespace quaver {
namespace {

Config reference_config(const std::string& recipe) {
  Config config;
  config.model.layers = 4;
  config.model.width = 256;
  config.model.heads = 4;
  config.model.context = 256;
  config.model.vocab = 512;
  config.train.batch = 16;
  config.train.steps = 1'000'000;
  config.precision.recipe = recipe;
  config.data.kind = DataKind::synthetic;
  config.data.synthetic_vocab = 256;
  return config;
}

void step(benchmark::State& state, const std::string& recipe) {
  const Config config = reference_config(recipe);
  const TrainingData data = open_training_data(config.data, config.train.seed, config.model.context);
  const auto engine = make_cpu_engine(0);
  Trainer trainer(config, data, *engine, [](const std::string&) {});
  trainer.step();
  Size tokens = 0;
  for (auto _ : state) tokens += trainer.step().tokens;
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
  state.counters["parameters"] = static_cast<double>(trainer.model().parameters().count());
}

#define STEP(name, recipe) \
  BENCHMARK_CAPTURE(step, name, recipe)->Unit(benchmark::kMillisecond)->UseRealTime()->MinTime(4)

STEP(fp32, "fp32");
STEP(bf16, "bf16");
STEP(fp8_delayed, "fp8-delayed");
STEP(fp8_current, "fp8-current");
STEP(fp8_row, "fp8-row");
STEP(fp8_block, "fp8-block");
STEP(fp8_unit, "fp8-unit");
STEP(mxfp8, "mxfp8");
STEP(mxfp4, "mxfp4");
STEP(nvfp4, "nvfp4");

}  // namespace
}  // namespace quaver

BENCHMARK_MAIN();
