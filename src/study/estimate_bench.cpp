#include "study/estimate_bench.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <initializer_list>
#include <string_view>

#include "config/schema.h"
#include "config/value_text.h"
#include "models/factory.h"
#include "precision/plan.h"
#include "quaver/error.h"
#include "train/faster_layers.h"

namespace quaver {

namespace {

constexpr const char* measure_again = "measure with `quaver bench --json FILE` and the config of the run";

// Keys of the section model that change no time, or that a step is scaled by.
constexpr std::array scaled_or_without_time{"model.layers",          "model.vocab", "model.context", "model.from",
                                            "model.parametrization", "model.init",  "model.tie_head"};
// Of other sections, what changes the time of a step.
constexpr std::array with_time{"train.context",
                               "train.memory",
                               "optim.optimizer",
                               "optim.muon_matrices",
                               "optim.muon_steps",
                               "optim.moments",
                               "optim.master",
                               "lora.rank",
                               "lora.targets",
                               "precision.accumulator",
                               "precision.wide_weight_gradient"};

bool changes_time(const Key& key) {
  if (std::ranges::find(with_time, key.name) != with_time.end()) return true;
  return key.section() == "model" &&
         std::ranges::find(scaled_or_without_time, key.name) == scaled_or_without_time.end();
}

// The config that was measured, which must be the run's but for what a step can be scaled by.
Config comparable_config(const Config& config, const Bench& bench) {
  Config measured = measured_config(bench);
  for (const Key& key : schema()) {
    if (!changes_time(key)) continue;
    const Value ours = key.get(config);
    const Value theirs = key.get(measured);
    if (ours == theirs) continue;
    throw Error(fmt::format("the benchmark measured {} = {}, and the run has {}", key.name, toml_value(theirs),
                            toml_value(ours)),
                measure_again);
  }
  return measured;
}

// A micro-step's time in blocks and outside of them, and the optimizer's.
struct MeasuredStep {
  std::string recipe;
  double blocks = 0;
  double head = 0;
  double outside = 0;  // embedding and data
  double optimizer = 0;
};

// Phases as shares of their step: they were recorded in steps of their own, which may have been slower.
double share_of_phases(const Bench& bench, const std::string& recipe, std::initializer_list<std::string_view> names) {
  double all = 0;
  double named = 0;
  for (const Measurement& m : bench.measurements) {
    if (m.workload != Workload::phase || m.subject != bench.model || m.recipe != recipe) continue;
    all += m.time.median;
    if (std::ranges::find(names, m.part) != names.end()) named += m.time.median;
  }
  return all > 0 ? named / all : 0;
}

// Of the run's recipe, or of bf16.
MeasuredStep measured_step(const Bench& bench, const std::string& wanted) {
  for (const std::string& recipe : {wanted, std::string("bf16")}) {
    const Measurement* step = bench.find(Workload::step, bench.model, "step", recipe);
    if (step == nullptr) continue;
    const double seconds = step->time.median;
    MeasuredStep parts{.recipe = recipe,
                       .head = seconds * share_of_phases(bench, recipe, {"head and loss"}),
                       .outside = seconds * share_of_phases(bench, recipe, {"embedding", "data loading"}),
                       .optimizer = seconds * share_of_phases(bench, recipe, {"optimizer"})};
    parts.blocks = seconds - parts.head - parts.outside - parts.optimizer;
    if (parts.optimizer > 0 && parts.blocks > 0) return parts;
  }
  throw Error(fmt::format("the benchmark has no whole steps in {}, nor in bf16", wanted), measure_again);
}

double ratio(Size ours, Size theirs, const char* what, StepScaling scaling) {
  constexpr double farthest = 4;
  if (ours == theirs) return 1;
  if (scaling == StepScaling::refused) {
    throw Error(fmt::format("the benchmark measured {} {}, and the run has {}", theirs, what, ours),
                "it is measured here instead");
  }
  const double found = static_cast<double>(ours) / static_cast<double>(std::max<Size>(1, theirs));
  if (found <= farthest && found * farthest >= 1) return found;
  throw Error(fmt::format("the benchmark measured {} {}, and the run has {}: too far apart", theirs, what, ours),
              measure_again);
}

double seconds_in(const Bench& bench, const LayerLoad& load, const std::string& recipe, const std::string& other) {
  return recipe == "bf16" ? layer_seconds(bench, load, other).bf16 : layer_seconds(bench, load, recipe).recipe;
}

// What the run's plan adds to a step of the measured recipe, layer by layer.
double seconds_of_other_recipes(const Config& config, const std::vector<LayerShape>& layers, const Bench& bench,
                                const std::string& measured) {
  const PrecisionConfig bare{.recipes = config.precision.recipes, .recipe = measured};
  const Plan theirs = make_plan(bare, layers);
  const Plan ours = make_plan(config.precision, layers);
  double added = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto recipe = [&](const Plan& plan, Role role) { return plan.rows[site_index(i, role)].recipe; };
    const std::string here = recipe(ours, Role::x);
    const std::string there = recipe(theirs, Role::x);
    if (std::ranges::any_of(roles, [&](Role role) { return recipe(ours, role) != here; })) {
      throw Error(
          fmt::format("the operands of {} are in several recipes, and layers are measured in one", layers[i].name),
          "leave the time to a probe");
    }
    if (here == there) continue;
    const BenchScope scope{.tokens = config.train.batch * config.train.context, .unit = unit_of(config.data.kind)};
    const LayerLoad load{bench_layers({layers[i]}, scope).front(), config.train.accumulation};
    added += seconds_in(bench, load, here, there) - seconds_in(bench, load, there, here);
  }
  return added;
}

std::string scaled_words(const Config& config, const Config& measured, const std::string& recipe) {
  std::string words;
  if (recipe != config.precision.recipe) words += ", brought to " + config.precision.recipe + " by its layers";
  if (config.model.layers != measured.model.layers) words += fmt::format(", scaled to {} layers", config.model.layers);
  if (config.model.vocab != measured.model.vocab) words += fmt::format(", scaled to {} token ids", config.model.vocab);
  if (config.train.batch != measured.train.batch)
    words += fmt::format(", scaled to {} {}", config.train.batch, sequences_of(config.data.kind));
  if (config.train.accumulation > 1) words += fmt::format(", {} micro-batches a step", config.train.accumulation);
  return words;
}

}  // namespace

TimeEstimate time_from_bench(const Config& config, const Bench& bench, StepScaling scaling) {
  const Config measured = comparable_config(config, bench);
  require_same_recipes(bench, config.precision);
  const auto ours = make_model(config.model);
  const auto theirs = make_model(measured.model);
  const MeasuredStep step = measured_step(bench, config.precision.recipe);
  const double depth = ratio(config.model.layers, measured.model.layers, "layers", scaling);
  const std::string of_batch = bench.unit + " in a micro-batch";
  const double tokens = ratio(config.train.batch * config.train.context, bench.tokens, of_batch.c_str(), scaling);
  const double vocab = ratio(config.model.vocab, measured.model.vocab, "token ids", scaling);
  const double parameters =
      static_cast<double>(ours->parameters().count()) / static_cast<double>(theirs->parameters().count());
  const double micro_step = tokens * (depth * step.blocks + vocab * step.head + step.outside);
  TimeEstimate time;
  time.origin = Origin::measured;
  time.optimizer_seconds = parameters * step.optimizer;
  time.seconds_per_step = static_cast<double>(config.train.accumulation) * micro_step + time.optimizer_seconds +
                          seconds_of_other_recipes(config, ours->layers(), bench, step.recipe);
  if (!(time.seconds_per_step > 0)) throw Error("the benchmark's layers and steps do not agree", measure_again);
  time.how = fmt::format("a step of {} in {}, {} {} per micro-batch, measured by quaver bench on {}, {}{}", bench.model,
                         step.recipe, bench.tokens, bench.unit, bench.machine.engine, bench.date,
                         scaled_words(config, measured, step.recipe));
  return time;
}

}  // namespace quaver
