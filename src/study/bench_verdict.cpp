// What follows from the measurements of a benchmark.
#include <algorithm>
#include <cmath>
#include <map>

#include "study/bench.h"
#include "study/repeated_batch.h"

namespace quaver {

namespace {

// The number of tokens from which on the recipe is faster, between two that were measured on a line of logarithms.
std::optional<Size> break_even(const Bench& bench, const BenchLayer& layer, const std::string& recipe) {
  double last_ratio = 0;
  Size last = 0;
  std::optional<Size> found;
  for (const Size tokens : measured_tokens(bench, layer)) {
    const auto ours = layer_time(bench, layer.subject(tokens), recipe);
    const auto bf16 = layer_time(bench, layer.subject(tokens), "bf16");
    if (!ours || !bf16) continue;
    const double ratio = std::log(bf16->seconds() / ours->seconds());
    if (ratio <= 0) {
      found.reset();
    } else if (!found && last > 0 && last_ratio <= 0) {
      const double at = -last_ratio / (ratio - last_ratio);
      found = static_cast<Size>(
          std::llround(std::exp(std::log(static_cast<double>(last)) +
                                at * (std::log(static_cast<double>(tokens)) - std::log(static_cast<double>(last))))));
    } else if (!found) {
      found = tokens;
    }
    last = tokens;
    last_ratio = ratio;
  }
  return found;
}

std::vector<std::string> layer_recipes(const Bench& bench) {
  std::vector<std::string> names;
  for (const Measurement& m : bench.measurements) {
    if (m.workload == Workload::layer && std::ranges::find(names, m.recipe) == names.end()) names.push_back(m.recipe);
  }
  return names;
}

std::string key_of(const Measurement& m) {
  return std::string(name_of(m.workload)) + "\n" + m.subject + "\n" + m.part + "\n" + m.recipe;
}

// Layers as a whole: their parts may be too short to be the same in two runs.
std::vector<Measurement> what_is_compared(const Bench& bench) {
  std::vector<Measurement> compared;
  for (const Measurement& m : bench.measurements) {
    if (m.workload == Workload::phase) continue;
    if (m.workload != Workload::layer) {
      compared.push_back(m);
    } else if (m.part == "fprop") {
      const auto whole = layer_time(bench, m.subject, m.recipe);
      if (!whole) continue;
      compared.push_back(m);
      compared.back().part = "all";
      compared.back().time = {whole->seconds(), whole->seconds(), whole->noise, m.time.rounds};
    }
  }
  return compared;
}

constexpr double clocks = 0.12;  // what they and neighbors do from run to run

// More to what is over before they change: the state of caches, a burst of a neighbor.
double between_runs(double seconds) {
  constexpr double of_short_runs = 0.6;
  constexpr double short_run = 200e-6;
  constexpr double long_run = 10e-3;
  const double shortness = std::log(long_run / seconds) / std::log(long_run / short_run);
  return std::lerp(clocks, of_short_runs, std::clamp(shortness, 0.0, 1.0));
}

// A speedup near the limit falls on either side of it from run to run.
bool is_other_verdict(const LayerVerdict& before, const LayerVerdict& after) {
  const double limit = clocks + std::hypot(before.noise, after.noise);
  return before.pays() != after.pays() && std::abs(std::log(after.speedup() / before.speedup())) > std::log1p(limit);
}

std::string layer_verdict_text(const LayerVerdict& verdict) {
  return verdict.layer.name + " in " + verdict.recipe + (verdict.pays() ? " pays" : " does not pay");
}

}  // namespace

std::vector<LayerVerdict> layer_verdicts(const Bench& bench) {
  std::vector<LayerVerdict> verdicts;
  for (const BenchLayer& layer : bench.layers) {
    const auto bf16 = layer_time(bench, layer.subject(layer.tokens), "bf16");
    if (!bf16) continue;
    for (const std::string& recipe : layer_recipes(bench)) {
      const auto ours = layer_time(bench, layer.subject(layer.tokens), recipe);
      if (recipe == "bf16" || !ours) continue;
      verdicts.push_back({.layer = layer,
                          .recipe = recipe,
                          .seconds = ours->seconds(),
                          .bf16_seconds = bf16->seconds(),
                          .noise = std::hypot(ours->noise, bf16->noise),
                          .break_even = break_even(bench, layer, recipe)});
    }
  }
  return verdicts;
}

std::optional<StepVerdict> recommended(const Bench& bench) {
  std::optional<StepVerdict> best;
  for (const StepVerdict& step : bench.steps) {
    if (step.recipe != "bf16" && step.loss_share < least_share_of_fall) continue;
    if (!best || step.speedup > best->speedup * (1 + std::max(step.noise, best->noise))) best = step;
  }
  return best;
}

BenchDifference compare_benches(const Bench& before, const Bench& after) {
  std::map<std::string, Measurement> known;
  for (const Measurement& m : what_is_compared(before)) known[key_of(m)] = m;
  BenchDifference difference;
  for (const Measurement& m : what_is_compared(after)) {
    const auto found = known.find(key_of(m));
    if (found == known.end()) {
      ++difference.missing;
      continue;
    }
    ++difference.compared;
    const BenchChange change{found->second, m};
    known.erase(found);
    const double noise = 3 * std::hypot(change.before.time.noise, m.time.noise);
    const double limit = noise + between_runs(std::min(change.before.time.median, m.time.median));
    if (std::abs(std::log(change.ratio())) > std::log1p(limit)) difference.changes.push_back(change);
  }
  difference.missing += static_cast<Size>(known.size());
  std::ranges::sort(difference.changes, std::ranges::greater{},
                    [](const BenchChange& change) { return std::abs(std::log(change.ratio())); });
  std::map<std::string, LayerVerdict> verdicts;
  for (const LayerVerdict& verdict : layer_verdicts(before)) {
    verdicts[verdict.layer.text() + "\n" + verdict.recipe] = verdict;
  }
  for (const LayerVerdict& verdict : layer_verdicts(after)) {
    const auto found = verdicts.find(verdict.layer.text() + "\n" + verdict.recipe);
    if (found != verdicts.end() && is_other_verdict(found->second, verdict)) {
      difference.verdicts.push_back(layer_verdict_text(verdict));
    }
  }
  return difference;
}

}  // namespace quaver
