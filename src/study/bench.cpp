#include "study/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "config/dump.h"
#include "engine/energy.h"
#include "models/factory.h"
#include "precision/recipe.h"
#include "study/bench_casts.h"
#include "study/bench_layers.h"
#include "study/bench_steps.h"
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
  config.precision = {};
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
    {
      BenchEngines engines(config_);
      Engine& engine = engines.of("bf16");
      bench_.machine = {engine.name(), cpu_model(), EnergyMeter(engine.device().hardware().kind).source()};
      peaks(engines);
      layers(engines);
      casts(engines);
    }
    steps();
    bench_.seconds = elapsed();
    return std::move(bench_);
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void tell(const std::string& what) const { progress_(std::min(0.99, elapsed() / plan_.seconds), what); }
  void add(const std::vector<Measurement>& measured) {
    bench_.measurements.insert(bench_.measurements.end(), measured.begin(), measured.end());
  }

  void peaks(BenchEngines& engines) {
    tell("peaks of the machine");
    add(measure_peaks(engines, peak_share * plan_.seconds));
  }

  void layers(BenchEngines& engines) {
    const double vectors = vector_share / static_cast<double>(bench_.layers.size());
    for (const BenchLayer& layer : bench_.layers) {
      const std::vector<Size> counts = token_counts(layer);
      const double share = layer_share / static_cast<double>(bench_.layers.size() * counts.size());
      for (const Size tokens : counts) {
        tell(layer.subject(tokens));
        add(measure_layer(engines, {layer, tokens, with_bf16(plan_.recipes), share * plan_.seconds}));
      }
      if (layer.rows(1) > 1) continue;
      tell(layer.subject(1));
      add(measure_layer(engines, {layer, 1, with_bf16(plan_.recipes), vectors * plan_.seconds}));
    }
  }

  void casts(BenchEngines& engines) {
    tell("casts");
    CastRace race = cast_race_of(bench_.layers);
    race.recipes = plan_.recipes;
    race.seconds = cast_share * plan_.seconds;
    add(measure_casts(engines, race));
  }

  void steps() {
    const std::vector<std::string> recipes = with_bf16(plan_.step_recipes);
    std::vector<std::vector<StepBench>> rounds(recipes.size());
    const auto all = static_cast<std::size_t>(plan_.step_rounds) * recipes.size();
    for (std::size_t done = 0; done < all; ++done) {
      const std::string& recipe = recipes[done % recipes.size()];
      tell(fmt::format("whole steps of {} in {}", bench_.model, recipe));
      const double left = std::max(0.0, plan_.seconds - elapsed()) / static_cast<double>(all - done);
      rounds[done % recipes.size()].push_back(measure_steps(config_, recipe, left / 4));
    }
    std::vector<double> reference;
    double bf16_seconds = 0;
    double bf16_noise = 0;
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      const StepBench made = middle_of(std::move(rounds[i]));
      add(made.measurements);
      const RunTiming& time = made.measurements.front().time;
      if (recipes[i] == "bf16") {
        reference = made.losses;
        bf16_seconds = time.median;
        bf16_noise = time.noise;
      }
      bench_.steps.push_back({recipes[i], bf16_seconds / time.median, std::hypot(time.noise, bf16_noise),
                              made.peak_memory, share_of_fall(made.losses, reference), made.memory});
    }
  }

  const BenchPlan& plan_;
  const BenchProgress& progress_;
  Config config_;
  Clock::time_point start_ = Clock::now();
  Bench bench_;
};

}  // namespace

BenchPlan default_bench_plan(const Config& config, HardwareKind hardware) {
  BenchPlan plan{.config = config};
  const bool gpu = hardware == HardwareKind::gpu;
  plan.seconds = gpu ? 40 : 80;
  plan.step_rounds = gpu ? 1 : 3;  // other programs' bursts are longer than a recipe's steps on a CPU
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
