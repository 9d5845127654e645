// What follows from the measurements of a benchmark.
#include <algorithm>
#include <cmath>

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

// Bf16's time over the recipe's in each sweep, in which they took turns: what slows both does not count.
std::vector<double> speedups_of(const LayerTime& ours, const LayerTime& bf16) {
  std::vector<double> speedups;
  for (std::size_t i = 0; i < std::min(ours.sweeps.size(), bf16.sweeps.size()); ++i) {
    speedups.push_back(bf16.sweeps[i] / ours.sweeps[i]);
  }
  return speedups;
}

// Few sweeps of one layer may agree by chance: the others tell what they usually differ by.
double usual_variance(const std::vector<std::vector<double>>& speedups) {
  std::vector<double> variances;
  for (const std::vector<double>& each : speedups) {
    if (each.size() > 1) variances.push_back(variance_of_logarithms(each));
  }
  if (variances.empty()) return 0;
  std::ranges::nth_element(variances, variances.begin() + static_cast<std::ptrdiff_t>(variances.size() / 2));
  return variances[variances.size() / 2];
}

constexpr double least_gain = 0.05;  // of what is called faster

}  // namespace

Payoff LayerVerdict::payoff() const {
  const double clear = 1 + std::max(noise, least_gain);
  if (speedup() > clear) return Payoff::pays;
  return speedup() * clear < 1 ? Payoff::does_not_pay : Payoff::uncertain;
}

std::vector<LayerVerdict> layer_verdicts(const Bench& bench) {
  std::vector<LayerVerdict> verdicts;
  std::vector<std::vector<double>> speedups;
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
      speedups.push_back(speedups_of(*ours, *bf16));
    }
  }
  const double usual = usual_variance(speedups);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (speedups[i].size() > 1) verdicts[i].noise = noise_of_sweeps(speedups[i], usual);
  }
  return verdicts;
}

std::optional<StepVerdict> recommended(const Bench& bench) {
  std::optional<StepVerdict> best;
  for (const StepVerdict& step : bench.steps) {
    if (step.recipe != "bf16" && step.loss_share < least_share_of_fall) continue;
    if (!best || step.speedup > best->speedup * (1 + std::max({step.noise, best->noise, least_gain}))) best = step;
  }
  return best;
}

}  // namespace quaver
