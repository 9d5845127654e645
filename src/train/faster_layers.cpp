#include "train/faster_layers.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "config/load.h"
#include "models/factory.h"
#include "precision/plan.h"
#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/environment.h"

namespace quaver {

namespace {

constexpr const char* measure_it =
    "measure it with `quaver bench --json FILE` and the config of the run, its train.batch too";

// Both recipes at one number of tokens.
struct TimePair {
  Size tokens = 0;
  LayerSeconds seconds = {};
};

// The benchmark's layer of this shape, by the same name where it has one.
const BenchLayer* layer_of_shape(const Bench& bench, const BenchLayer& layer) {
  const BenchLayer* found = nullptr;
  for (const BenchLayer& each : bench.layers) {
    if (each.in != layer.in || each.out != layer.out || each.pixels != layer.pixels) continue;
    if (each.name == layer.name) return &each;
    if (found == nullptr) found = &each;
  }
  return found;
}

std::vector<TimePair> time_pairs(const Bench& bench, const BenchLayer& layer, const std::string& recipe,
                                 Size micro_steps) {
  std::vector<TimePair> pairs;
  for (const Size tokens : measured_tokens(bench, layer)) {
    const auto ours = layer_time(bench, layer.subject(tokens), recipe);
    const auto bf16 = layer_time(bench, layer.subject(tokens), "bf16");
    if (ours && bf16) pairs.push_back({tokens, {ours->seconds(micro_steps), bf16->seconds(micro_steps)}});
  }
  return pairs;
}

LayerSeconds between(const TimePair& low, const TimePair& high, Size tokens) {
  const auto log_of = [](Size count) { return std::log(static_cast<double>(count)); };
  const double at = (log_of(tokens) - log_of(low.tokens)) / (log_of(high.tokens) - log_of(low.tokens));
  const auto mixed = [at](double a, double b) { return std::exp((1 - at) * std::log(a) + at * std::log(b)); };
  return {mixed(low.seconds.recipe, high.seconds.recipe), mixed(low.seconds.bf16, high.seconds.bf16)};
}

void require_recipe(const Bench& bench, const std::string& recipe) {
  for (const std::string& name : {std::string("bf16"), recipe}) {
    if (std::ranges::any_of(bench.measurements,
                            [&](const Measurement& m) { return m.workload == Workload::layer && m.recipe == name; })) {
      continue;
    }
    throw Error(
        "the benchmark has no layers in " + name,
        fmt::format("measure it with `quaver bench --recipes {} --json FILE` and the config of the run", recipe));
  }
}

bool is_known(const PrecisionConfig& precision, const std::vector<LayerShape>& layers) {
  return std::ranges::all_of(layers_in_recipe(precision, layers),
                             [&](const LayerShape& layer) { return layer_speed(precision, layer.name).has_value(); });
}

// The recipes of the run, one after the other.
std::vector<PrecisionConfig> recipes_of(const PrecisionConfig& precision) {
  std::vector<PrecisionConfig> all{precision};
  if (precision.switch_to.empty()) return all;
  all.push_back(precision);
  all.back().recipe = precision.switch_to;
  return all;
}

// The group's pattern where all layers that it matches have one shape, else the layer's own name.
std::string pattern_for(const LayerShape& layer, const std::vector<LayerShape>& layers) {
  const std::string pattern = group_name(layer);
  const bool alike = std::ranges::all_of(layers, [&](const LayerShape& other) {
    return !matches(pattern, other.name) ||
           (other.in == layer.in && other.out == layer.out && other.pixels == layer.pixels);
  });
  return alike ? pattern : layer.name;
}

}  // namespace

LayerSeconds layer_seconds(const Bench& bench, const LayerLoad& load, const std::string& recipe) {
  constexpr Size farthest = 2;  // times beyond what was measured
  require_recipe(bench, recipe);
  const BenchLayer& wanted = load.layer;
  const BenchLayer* layer = layer_of_shape(bench, wanted);
  if (layer == nullptr) {
    const std::string at = wanted.pixels == 1 ? "" : fmt::format(" at {} pixels", wanted.pixels);
    throw Error(
        fmt::format("the benchmark has no layer of {} → {}{}, which {} is", wanted.in, wanted.out, at, wanted.name),
        measure_it);
  }
  const std::vector<TimePair> pairs = time_pairs(bench, *layer, recipe, load.micro_steps);
  if (pairs.empty()) {
    throw Error(fmt::format("the benchmark did not measure all of {}, {} → {}, in {} and bf16", wanted.name, wanted.in,
                            wanted.out, recipe),
                measure_it);
  }
  // A benchmark judges a large layer at a part of its micro-batch: more of them take as much longer as they are more.
  const bool is_part = layer->tokens < bench.tokens;
  const Size most = std::max(pairs.back().tokens, is_part ? bench.tokens : Size{0});
  if (wanted.tokens > farthest * most || farthest * wanted.tokens < pairs.front().tokens) {
    throw Error(fmt::format("the benchmark measured {}, {} → {}, at {} to {} {}, and the run has {} of them at a time",
                            wanted.name, wanted.in, wanted.out, pairs.front().tokens, pairs.back().tokens, wanted.unit,
                            wanted.tokens),
                measure_it);
  }
  const auto above = std::ranges::find_if(pairs, [&](const TimePair& pair) { return pair.tokens >= wanted.tokens; });
  if (above == pairs.end()) {
    const LayerSeconds& last = pairs.back().seconds;
    const double times = is_part ? static_cast<double>(wanted.tokens) / static_cast<double>(pairs.back().tokens) : 1;
    return {times * last.recipe, times * last.bf16};
  }
  if (above == pairs.begin() || above->tokens == wanted.tokens) return above->seconds;
  return between(*(above - 1), *above, wanted.tokens);
}

Config measured_config(const Bench& bench) {
  if (bench.settings.empty()) throw Error("the benchmark does not say which settings it measured", measure_it);
  return load_config({.files = {},
                      .texts = {{"the benchmark's settings", bench.settings}},
                      .flags = {},
                      .model_folder = ModelFolder::recorded});
}

void require_same_recipes(const Bench& bench, const PrecisionConfig& precision) {
  std::set<std::string> names{precision.recipe, precision.switch_to};
  for (const auto& [pattern, recipe] : precision.layers) names.insert(recipe);
  for (const std::string& name : names) {
    const auto ours = precision.recipes.find(name);
    const auto is_of_it = [&](const Measurement& m) { return m.recipe == name; };
    if (ours == precision.recipes.end() || std::ranges::none_of(bench.measurements, is_of_it)) continue;
    const RecipeTable measured = measured_config(bench).precision.recipes;
    const auto theirs = measured.find(name);
    if (theirs == measured.end()) {
      throw Error(fmt::format("the benchmark does not say what its recipe {} was", name), measure_it);
    }
    if (have_same_operands(ours->second, theirs->second)) continue;
    throw Error(fmt::format("the benchmark measured another recipe of the name {}", name), measure_it);
  }
}

std::map<std::string, double> layer_speeds(const Bench& bench, const Config& config,
                                           const std::vector<LayerShape>& layers) {
  require_same_recipes(bench, config.precision);
  std::map<std::string, double> speeds;
  for (const PrecisionConfig& precision : recipes_of(config.precision)) {
    for (const LayerShape& layer : layers_in_recipe(precision, layers)) {
      const std::string key = speed_key(pattern_for(layer, layers), precision.recipe);
      if (speeds.contains(key)) continue;
      const BenchScope scope{.tokens = config.train.batch * config.train.context, .unit = unit_of(config.data.kind)};
      const LayerLoad load{bench_layers({layer}, scope).front(), config.train.accumulation};
      speeds[key] = layer_seconds(bench, load, precision.recipe).speed();
    }
  }
  return speeds;
}

std::string difference_of_machine(const Bench& bench, Engine& engine) {
  if (bench.machine.engine != engine.name()) {
    return fmt::format("it is of {}, and this is {}", bench.machine.engine, engine.name());
  }
  if (engine.device().hardware().kind == HardwareKind::cpu && bench.machine.host != cpu_model()) {
    return fmt::format("it is of {}, and this is {}", bench.machine.host, cpu_model());
  }
  return "";
}

Config resolve_layer_speeds(Config config, const std::vector<LayerShape>& layers, Engine* engine) {
  const std::string& path = config.precision.only_where_faster;
  if (path.empty()) return config;
  const std::vector<PrecisionConfig> recipes = recipes_of(config.precision);
  if (std::ranges::all_of(recipes, [&](const PrecisionConfig& each) { return is_known(each, layers); })) return config;
  try {
    const Bench bench = read_benchmark(path);
    if (engine != nullptr) {
      const std::string difference = difference_of_machine(bench, *engine);
      if (!difference.empty()) {
        throw Error(
            "the benchmark is not of this machine: " + difference,
            "measure this one with `quaver bench --json FILE` and the config of the run, or leave the rule out");
      }
    }
    config.precision.layer_speeds.merge(layer_speeds(bench, config, layers));
  } catch (const Error& error) {
    throw Error(fmt::format("precision.only_where_faster = {}: {}", path, error.what()), error.remedy());
  }
  return config;
}

Config resolve_layer_speeds(Config config, Engine* engine) {
  if (config.precision.only_where_faster.empty()) return config;
  const std::vector<LayerShape> layers = make_model(config.model)->layers();
  return resolve_layer_speeds(std::move(config), layers, engine);
}

std::string kept_for_speed(const PrecisionConfig& config, const std::vector<LayerShape>& layers) {
  if (config.only_where_faster.empty()) return "";
  const auto kept = std::ranges::count_if(layers_in_recipe(config, layers), [&](const LayerShape& layer) {
    return layer_speed(config, layer.name).value_or(0) <= 1;
  });
  if (kept == 0) return "";
  return fmt::format("{} of {} layers stay in bf16: {} is not faster there", kept, layers.size(), config.recipe);
}

}  // namespace quaver
