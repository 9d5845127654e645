#include "study/estimate_time.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "engine/tensor_cores.h"
#include "engine/timed_engine.h"
#include "models/factory.h"
#include "precision/plan.h"
#include "precision/recipe.h"
#include "train/trainer.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One micro-batch of the model as it is.
Config probe_of(Config config, Size batch) {
  config.train.batch = batch;
  config.train.make_single();
  config.train.steps = 1000;
  config.train.statistics_every = 0;
  config.train.memory_limit_mb = 0;
  config.precision.switch_to.clear();
  config.precision.scales.clear();
  return config;
}

// Of a list of patterns: those that name single blocks become all layers.
std::string without_numbers(const std::string& list) {
  std::string kept;
  for (const std::string& pattern : patterns_in(list)) {
    const bool numbered = pattern.find_first_of("0123456789?") != std::string::npos;
    kept += (kept.empty() ? "" : ",") + (numbered ? std::string("*") : pattern);
  }
  return kept;
}

}  // namespace

// Patterns may name layers that the shallow model has not, and the blocks in high precision would be its whole stack.
Config shallow(const Config& whole, Size layers, Size batch) {
  Config config = probe_of(whole, batch);
  config.model.layers = layers;
  config.precision.layers.clear();
  config.precision.wide_start = 0;
  config.precision.wide_tail = 0;
  config.optim.learning_rate_of.clear();
  config.optim.weight_decay_of.clear();
  config.optim.muon_matrices = without_numbers(whole.optim.muon_matrices);
  config.model.lora_targets = without_numbers(whole.model.lora_targets);
  return config;
}

namespace {

// Steps of the CPU: the first one touches its memory for the first time and takes several times as long as others.
bool enough_steps(int steps, double seconds) {
  constexpr int fewest = 4;
  constexpr double shortest = 0.5;
  constexpr double longest = 10;  // the first steps of large models are long enough to go by
  return seconds > longest || (steps >= fewest && seconds > shortest);
}

struct TimedStep {
  double seconds = 0;
  double optimizer = 0;  // of them
};

// The median, as runs report it: what disturbs some steps here disturbs as many of the run. Without the first, where
// there are others.
TimedStep typical_of(std::vector<TimedStep> steps) {
  if (steps.size() > 1) steps.erase(steps.begin());
  std::ranges::sort(steps, {}, &TimedStep::seconds);
  return steps[steps.size() / 2];
}

// On the CPU timing costs nothing. A GPU captures its micro-step as a CUDA graph in the first two steps, and is slower
// while every operation is waited for.
ShallowStep run_probe(const Config& config, Engine& engine) {
  const bool gpu = engine.device().hardware().kind == HardwareKind::gpu;
  TimedEngine timed(engine);
  const TrainingData data = stand_in_data(config, config.model.vocab);
  Trainer trainer(config, data, timed, [](const std::string&) {});
  const auto one_step = [&] {
    timed.reset();
    timed.device().synchronize();
    const auto start = Clock::now();
    trainer.step();
    timed.device().synchronize();
    return seconds_since(start);
  };
  ShallowStep probe;
  probe.parameters = trainer.model().parameters().count();
  TimedStep typical;
  if (gpu) {
    for (int warmup = 0; warmup < 3; ++warmup) one_step();
    typical.seconds = std::min(one_step(), one_step());
    timed.set_mode(TimedEngine::Mode::watching);
    one_step();
    typical.optimizer = std::min(typical.seconds, timed.time(OperationKind::optimizer).seconds);
  } else {
    timed.set_mode(TimedEngine::Mode::watching);
    std::vector<TimedStep> steps;
    const auto start = Clock::now();
    while (!enough_steps(static_cast<int>(steps.size()), seconds_since(start))) {
      const double seconds = one_step();
      steps.push_back({seconds, timed.time(OperationKind::optimizer).seconds});
    }
    typical = typical_of(std::move(steps));
  }
  probe.optimizer = typical.optimizer;
  probe.micro_step = typical.seconds - typical.optimizer;
  return probe;
}

// Of a micro-step that the CPU makes in a second or two.
constexpr double most_flops = 1e11;

double flops_per_token(const Config& config) { return make_model(config.model)->flops_per_token(config.train.context); }

// Whether tensor cores of this GPU take the recipe's operands as they lie, by the engine's own rules.
bool runs_natively(const Config& config, const GpuModel& gpu) {
  const Recipe recipe = make_recipe(config.precision.recipe, config.precision);
  return why_not_native(gpu.architecture, "", recipe.x.rows, recipe.w.rows).empty() &&
         library_has_scaling(gpu.architecture, scaling_of(recipe.x.rows));
}

}  // namespace

std::string batch_text(Size batch, Size context) {
  return context <= 1 ? std::to_string(batch) : fmt::format("{} × {}", batch, context);
}

bool is_measured_whole(const Config& config, HardwareKind kind) {
  if (config.model.family == Family::convnet) return true;  // its blocks differ
  const auto tokens = static_cast<double>(config.train.batch * config.train.context);
  return kind == HardwareKind::cpu && tokens * flops_per_token(config) <= most_flops;
}

// A step has costs that do not shrink with its tokens, half of it in a model as small as tiny: as many as can be.
Size probe_batch(const Config& config, HardwareKind kind) {
  constexpr double fewest_tokens = 1024;
  if (kind == HardwareKind::gpu || is_measured_whole(config, kind)) return config.train.batch;
  Config two = config;
  two.model.layers = std::min<Size>(2, config.model.layers);
  const double tokens = std::max(fewest_tokens, most_flops / flops_per_token(two));
  return std::clamp<Size>(static_cast<Size>(tokens) / config.train.context, 1, config.train.batch);
}

double optimizer_seconds(Size layers, const ShallowStep& one, const ShallowStep& two) {
  const double per_parameter = (one.optimizer + two.optimizer) / static_cast<double>(one.parameters + two.parameters);
  return per_parameter * (static_cast<double>(one.parameters) +
                          static_cast<double>(layers - 1) * static_cast<double>(two.parameters - one.parameters));
}

double seconds_of_step(const TrainConfig& train, Size layers, Size measured_batch, const ShallowStep& one,
                       const ShallowStep& two) {
  const auto beyond = static_cast<double>(layers - 1);
  const double per_layer = std::max(0.0, two.micro_step - one.micro_step);
  const double micro_batches =
      static_cast<double>(train.accumulation * train.batch) / static_cast<double>(measured_batch);
  return micro_batches * (one.micro_step + beyond * per_layer) + optimizer_seconds(layers, one, two);
}

TimeEstimate measure_time(const Config& config, Engine& engine) {
  const HardwareKind kind = engine.device().hardware().kind;
  const Size batch = probe_batch(config, kind);
  const bool whole = is_measured_whole(config, kind);
  const Size layers = whole ? 1 : config.model.layers;
  const ShallowStep one = run_probe(whole ? probe_of(config, batch) : shallow(config, 1, batch), engine);
  const ShallowStep two = layers > 1 ? run_probe(shallow(config, 2, batch), engine) : one;
  TimeEstimate time;
  time.origin = Origin::measured;
  time.seconds_per_step = seconds_of_step(config.train, layers, batch, one, two);
  time.optimizer_seconds = optimizer_seconds(layers, one, two);
  const char* unit = unit_of(config.data.kind);
  time.how = fmt::format("steps of {} on {}, {} {} per micro-batch, scaled to {}{} {}",
                         layers > 1 ? "one and two layers" : "this model", engine.name(),
                         batch_text(batch, config.train.context), unit,
                         layers > 1 ? fmt::format("{} layers and ", layers) : "",
                         batch_text(config.train.accumulation * config.train.batch, config.train.context), unit);
  return time;
}

TimeEstimate assume_time(const Estimate& estimate, const GpuModel& gpu) {
  // What GPT 350M reached on an H200 (docs/results.md): 52 % of the peak in bf16, and this split in fp8-delayed.
  constexpr double bf16_efficiency = 0.5;
  constexpr double fp8_efficiency = 0.35;
  const bool native = runs_natively(estimate.config, gpu);
  const double fp8_share = native ? estimate.low_precision_share : 0;
  const double seconds_per_tflop = (1 - fp8_share) / (bf16_efficiency * gpu.bf16_tflops) +
                                   (native ? fp8_share / (fp8_efficiency * gpu.fp8_tflops) : 0);
  TimeEstimate time;
  time.origin = Origin::assumed;
  time.seconds_per_step =
      estimate.flops_per_token * static_cast<double>(estimate.tokens_per_step) / 1e12 * seconds_per_tflop;
  time.how = fmt::format("{}'s dense peaks, {} TFLOP/s in BF16", gpu.name, gpu.bf16_tflops);
  if (native) time.how += fmt::format(" and {} TFLOP/s in FP8", gpu.fp8_tflops);
  time.how += fmt::format(", of which {:.0f} %", 100 * bf16_efficiency);
  if (native) time.how += fmt::format(" and {:.0f} %", 100 * fp8_efficiency);
  time.how += " are assumed to be reached";
  if (estimate.low_precision_share > 0 && !native)
    time.how += "; the recipe's matrix products are emulated in BF16 there";
  return time;
}

}  // namespace quaver
