#include "study/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <map>

#include "config/dump.h"
#include "engine/energy.h"
#include "models/factory.h"
#include "precision/recipe.h"
#include "study/bench_casts.h"
#include "study/bench_layers.h"
#include "study/bench_steps.h"
#include "study/bench_sweeps.h"
#include "study/bench_yardsticks.h"
#include "train/environment.h"
#include "train/resolved_config.h"
#include "train/run_folder.h"
#include "train/training_data.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

// Shares of the time to spend.
constexpr double peak_share = 0.05;
constexpr double layer_share = 0.45;
constexpr double vector_share = 0.05;
constexpr double cast_share = 0.03;
constexpr double step_share = 0.1;  // of the timed steps; models are made, warmed up and decode besides

std::vector<std::string> with_bf16(std::vector<std::string> recipes) {
  if (std::ranges::find(recipes, "bf16") == recipes.end()) recipes.insert(recipes.begin(), "bf16");
  return recipes;
}

// Fewer and fewer tokens or images: where a recipe begins to pay.
std::vector<Size> token_counts(const BenchLayer& layer) {
  constexpr Size step = 16;
  constexpr Size fewest_rows = 64;
  std::vector<Size> counts{layer.tokens};
  for (Size fewer = layer.tokens / step; layer.rows(fewer) >= fewest_rows; fewer /= step) counts.push_back(fewer);
  return counts;
}

// Neither where data nor where runs lie: benchmarks are shown to others.
Config without_places(Config config) {
  const DataKind kind = config.data.kind;
  config.data = {};
  config.data.kind = kind;
  config.run = {};
  config.model.from.clear();
  config.precision = {.recipes = config.precision.recipes};
  return config;
}

class Session {
 public:
  Session(const BenchPlan& plan, const BenchProgress& progress) : plan_(plan), progress_(progress) {
    config_ = plan.config;
    if (config_.model.vocab == 0 && !has_images(config_.data.kind)) config_.model.vocab = 256;
    bench_.version = QUAVER_VERSION;
    bench_.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now()));
    bench_.model = model_name(config_);
    const Config resolved = resolve_shape(config_, stand_in_data(config_, config_.model.vocab).shape());
    config_.train.context = resolved.train.context;
    bench_.unit = unit_of(config_.data.kind);
    bench_.context = config_.train.context;
    bench_.tokens = config_.train.batch * config_.train.context;
    bench_.settings = to_toml(without_places(resolved));
    const std::unique_ptr<Model> model = make_model(resolved.model);
    bench_.layers = bench_layers(
        model->layers(),
        {.tokens = bench_.tokens, .unit = bench_.unit, .most_flops = plan.layer_flops, .windows = model->windows()});
  }

  Bench run() {
    yardsticks_.emplace(config_);
    BenchEngines engines(config_);  // of all sweeps: a GPU measures algorithms of GEMMs once
    Engine& engine = engines.of("bf16");
    bench_.machine = {engine.name(), cpu_model(), EnergyMeter(engine.device().hardware().kind).source()};
    for (int sweep = 0; sweep < std::max(plan_.sweeps, plan_.step_sweeps) && has_time_for(sweep); ++sweep) {
      if (sweep < plan_.sweeps) sweep_over_machine(engines);
      if (sweep < plan_.step_sweeps) sweep_over_steps();
      sweeps_.add(yardsticks_->sweep());
    }
    bench_.measurements = sweeps_.together();
    judge_steps();
    pool_noise(bench_.measurements);
    bench_.seconds = elapsed();
    return std::move(bench_);
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void tell(const std::string& what) const { progress_(std::min(0.99, elapsed() / plan_.seconds), what); }
  // A busy machine takes longer, and has fewer sweeps.
  bool has_time_for(int sweep) const {
    constexpr int fewest = 2;
    constexpr double patience = 1.4;
    return sweep < fewest || elapsed() * (sweep + 1) / sweep < patience * plan_.seconds;
  }

  // Seconds of one sweep for a share of all.
  double seconds_for(double share) const { return share * plan_.seconds / plan_.sweeps; }

  // Every time beside the yardsticks.
  void add(const std::vector<Measurement>& measured) {
    sweeps_.add(measured);
    yardsticks_->measure();
  }

  void sweep_over_machine(BenchEngines& engines) {
    peaks(engines);
    layers(engines);
    casts(engines);
  }

  void peaks(BenchEngines& engines) {
    tell("peaks of the machine");
    add(measure_peaks(engines, seconds_for(peak_share)));
  }

  void layers(BenchEngines& engines) {
    const double vectors = vector_share / static_cast<double>(bench_.layers.size());
    for (const BenchLayer& layer : bench_.layers) {
      const std::vector<Size> counts = token_counts(layer);
      const double share = layer_share / static_cast<double>(bench_.layers.size() * counts.size());
      for (const Size tokens : counts) {
        tell(layer.subject(tokens));
        add(measure_layer(engines, {layer, tokens, with_bf16(plan_.recipes), seconds_for(share)}));
      }
      if (layer.rows(1) > 1) continue;
      tell(layer.subject(1));
      add(measure_layer(engines, {layer, 1, with_bf16(plan_.recipes), seconds_for(vectors)}));
    }
  }

  void casts(BenchEngines& engines) {
    tell("casts");
    CastRace race = cast_race_of(bench_.layers);
    race.recipes = plan_.recipes;
    race.seconds = seconds_for(cast_share);
    add(measure_casts(engines, race));
  }

  void sweep_over_steps() {
    const std::vector<std::string> recipes = with_bf16(plan_.step_recipes);
    const double share = step_share / static_cast<double>(plan_.step_sweeps) / static_cast<double>(recipes.size());
    for (const std::string& recipe : recipes) {
      tell(fmt::format("whole steps of {} in {}", bench_.model, recipe));
      steps_[recipe].push_back(measure_steps(config_, recipe, share * plan_.seconds));
      yardsticks_->measure();
    }
  }

  void judge_steps() {
    const std::vector<RunTiming> bf16 = step_times(steps_.at("bf16"));
    const StepBench reference = middle_of(steps_.at("bf16"));
    for (const std::string& recipe : with_bf16(plan_.step_recipes)) {
      const StepBench made = middle_of(steps_.at(recipe));
      bench_.measurements.insert(bench_.measurements.end(), made.measurements.begin(), made.measurements.end());
      const StepSpeed speed = speed_of(step_times(steps_.at(recipe)), bf16);
      bench_.steps.push_back({recipe, speed.times, speed.noise, made.peak_memory,
                              share_of_fall(made.losses, reference.losses), made.memory});
    }
  }

  const BenchPlan& plan_;
  const BenchProgress& progress_;
  Config config_;
  std::optional<Yardsticks> yardsticks_;
  Sweeps sweeps_;
  std::map<std::string, std::vector<StepBench>> steps_;  // by recipe
  Clock::time_point start_ = Clock::now();
  Bench bench_;
};

}  // namespace

BenchPlan default_bench_plan(const Config& config, HardwareKind hardware) {
  BenchPlan plan{.config = config};
  const bool gpu = hardware == HardwareKind::gpu;
  plan.seconds = gpu ? 32 : 80;
  plan.sweeps = gpu ? 3 : 5;
  plan.step_sweeps = gpu ? 1 : 5;  // models take long to be made on a GPU, which nobody else uses
  plan.layer_flops = gpu ? 0 : 2e9;
  for (const RecipeInfo& recipe : recipes()) {
    if (recipe.name == "fp8-unit") continue;  // the casts of fp8-static
    plan.recipes.emplace_back(recipe.name);
  }
  plan.step_recipes = {"bf16", "fp8-delayed", "fp8-current", "fp8-block"};
  if (!gpu) plan.step_recipes.insert(plan.step_recipes.begin() + 1, "fp32");
  return plan;
}

Bench run_bench(const BenchPlan& plan, const BenchProgress& progress) { return Session(plan, progress).run(); }

}  // namespace quaver
