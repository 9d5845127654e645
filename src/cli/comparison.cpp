#include "cli/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "precision/recipe.h"
#include "quaver/error.h"
#include "report/chart.h"

namespace quaver {

namespace {

Recipe recipe_used(const Contender& contender) {
  return make_recipe(contender.config.precision.recipe, contender.config.precision);
}

// By the operand with the fewest bits: fp32 before tf32, fp16, bf16 and everything of fewer bits, which keep their
// order.
int precision_rank(const Contender& contender) {
  constexpr std::array by_width{Format::bf16, Format::f16, Format::tf32};
  const Recipe recipe = recipe_used(contender);
  if (!is_high_precision(recipe)) return 4;
  for (std::size_t i = 0; i < by_width.size(); ++i) {
    if (has_operand_in(recipe, by_width[i])) return 3 - static_cast<int>(i);
  }
  return 0;
}

bool is_unit_scaled(const Contender& contender) {
  const Parametrization p = contender.config.model.parametrization;
  if (p == Parametrization::automatic) return is_unscaled(recipe_used(contender));
  return p != Parametrization::standard;
}

std::size_t base_for(const std::vector<Contender>& contenders, std::size_t index) {
  const auto highest = [&](bool same_parametrization) {
    std::size_t best = contenders.size();
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const bool fits = !same_parametrization || is_unit_scaled(contenders[i]) == is_unit_scaled(contenders[index]);
      if (!fits || (best < contenders.size() && precision_rank(contenders[i]) >= precision_rank(contenders[best])))
        continue;
      best = i;
    }
    return best;
  };
  const std::size_t alike = highest(true);
  const bool alone =
      alike == index && precision_rank(contenders[index]) >= 4;  // no high-precision run of its own parametrization
  return alone ? highest(false) : alike;
}

std::size_t chosen_base(const std::vector<Contender>& contenders, const std::string& label) {
  const auto found =
      std::find_if(contenders.begin(), contenders.end(), [&](const Contender& each) { return each.label == label; });
  if (found == contenders.end()) {
    throw Error(fmt::format("--base {} is not among the recipes that are compared", label),
                "name one of --recipes, as it is written there");
  }
  return static_cast<std::size_t>(found - contenders.begin());
}

LossKind kind_of(const std::vector<Contender>& contenders) {
  for (const Contender& contender : contenders) {
    for (const SeedRun& run : contender.runs) {
      if (run.status == SeedStatus::completed && run.result.final_validation_loss) return LossKind::validation;
    }
  }
  return LossKind::training;
}

std::optional<double> finite(std::optional<double> value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

SeedMetrics metrics_of(const SeedRun& run, LossKind kind) {
  SeedMetrics metrics;
  metrics.seed = run.seed;
  metrics.status = run.status;
  metrics.failure = run.failure;
  if (run.status != SeedStatus::completed) return metrics;
  metrics.train_loss = finite(run.result.final_train_loss);
  metrics.validation_loss = finite(run.result.final_validation_loss);
  metrics.loss = kind == LossKind::validation ? metrics.validation_loss : metrics.train_loss;
  metrics.accuracy = run.result.final_validation_accuracy;
  metrics.seconds_per_step = run.result.seconds_per_step;
  metrics.tokens_per_second = run.result.tokens_per_second;
  metrics.overflows = run.result.overflows;
  metrics.skipped = run.result.skipped;
  if (!metrics.loss) {
    metrics.status = SeedStatus::diverged;
    metrics.failure =
        kind == LossKind::validation ? "it has no finite validation loss" : "its last steps trained nothing";
  }
  return metrics;
}

const SeedMetrics* with_seed(const RecipeMetrics& recipe, std::uint64_t seed) {
  for (const SeedMetrics& each : recipe.seeds) {
    if (each.seed == seed && each.status == SeedStatus::completed) return &each;
  }
  return nullptr;
}

template <class Value>
std::optional<MeanOverSeeds> mean_over_seeds(const std::vector<SeedMetrics>& seeds, Value value) {
  std::vector<double> values;
  for (const SeedMetrics& each : seeds) {
    const std::optional<double> found = value(each);
    if (each.status == SeedStatus::completed && found) values.push_back(*found);
  }
  return mean_over(values);
}

// Curves of single seeds; the steps that all of them have.
MeanCurve mean_of(const std::vector<std::vector<LossPoint>>& curves) {
  struct Values {
    std::vector<double> losses;
    std::vector<double> seconds;
  };
  std::map<Size, Values> by_step;
  for (const auto& curve : curves) {
    for (const LossPoint& point : curve) {
      by_step[point.step].losses.push_back(point.loss);
      by_step[point.step].seconds.push_back(point.seconds);
    }
  }
  MeanCurve mean;
  for (const auto& [step, values] : by_step) {
    if (values.losses.size() != curves.size()) continue;
    const MeanOverSeeds at_step = *mean_over(values.losses);
    mean.step.push_back(static_cast<double>(step));
    mean.seconds.push_back(mean_over(values.seconds)->mean);
    mean.mean.push_back(at_step.mean);
    if (at_step.deviation) mean.deviation.push_back(*at_step.deviation);
  }
  return mean;
}

std::vector<LossPoint> smoothed(std::vector<LossPoint> curve) {
  std::vector<double> values;
  values.reserve(curve.size());
  for (const LossPoint& point : curve) values.push_back(point.loss);
  values = report::smooth(values, loss_smoothing);
  for (std::size_t i = 0; i < curve.size(); ++i) curve[i].loss = values[i];
  return curve;
}

std::vector<LossPoint> difference(const std::vector<ValidationPoint>& curve, const std::vector<ValidationPoint>& base) {
  std::map<Size, double> known;
  for (const ValidationPoint& point : base) known[point.step] = point.found.loss;
  std::vector<LossPoint> found;
  for (const ValidationPoint& point : curve) {
    if (known.contains(point.step)) found.push_back({point.step, point.found.loss - known[point.step]});
  }
  return found;
}

std::vector<LossPoint> accuracies_of(const std::vector<ValidationPoint>& curve) {
  std::vector<LossPoint> found;
  for (const ValidationPoint& point : curve) {
    if (point.found.accuracy) found.push_back({point.step, *point.found.accuracy});
  }
  return found;
}

RecipeMetrics recipe_of(const Contender& contender, LossKind kind) {
  RecipeMetrics recipe;
  recipe.label = contender.label;
  std::vector<std::vector<LossPoint>> curves;
  std::vector<std::vector<LossPoint>> accuracies;
  for (const SeedRun& run : contender.runs) {
    const SeedMetrics& metrics = recipe.seeds.emplace_back(metrics_of(run, kind));
    if (metrics.status != SeedStatus::completed) continue;
    if (recipe.completed++ == 0) recipe.example = &run.result;
    recipe.overflows += metrics.overflows;
    recipe.skipped += metrics.skipped;
    curves.push_back(contender.runs.size() > 1 ? smoothed(run.result.losses) : run.result.losses);
    accuracies.push_back(accuracies_of(run.result.validation));
  }
  recipe.loss = mean_over_seeds(recipe.seeds, [](const SeedMetrics& each) { return each.loss; });
  recipe.accuracy = mean_over_seeds(recipe.seeds, [](const SeedMetrics& each) { return each.accuracy; });
  recipe.seconds_per_step =
      mean_over_seeds(recipe.seeds, [](const SeedMetrics& each) { return std::optional(each.seconds_per_step); });
  recipe.tokens_per_second =
      mean_over_seeds(recipe.seeds, [](const SeedMetrics& each) { return std::optional(each.tokens_per_second); });
  recipe.train_loss = mean_of(curves);
  recipe.accuracy_curve = mean_of(accuracies);
  return recipe;
}

MeanTimeToLoss mean_time_to_loss(const std::vector<SeedMetrics>& seeds) {
  const auto mean = [&](auto value) {
    return mean_over_seeds(seeds, [&](const SeedMetrics& each) {
      return each.to_base_loss ? std::optional<double>(value(*each.to_base_loss)) : std::nullopt;
    });
  };
  MeanTimeToLoss found;
  for (const SeedMetrics& each : seeds) {
    found.seeds += each.has_base ? 1 : 0;
    found.reached += each.to_base_loss ? 1 : 0;
  }
  found.tokens = mean([](const TimeToLoss& time) { return time.tokens; });
  found.seconds = mean([](const TimeToLoss& time) { return time.seconds; });
  found.tokens_ratio = mean([](const TimeToLoss& time) { return time.tokens_ratio; });
  found.seconds_ratio = mean([](const TimeToLoss& time) { return time.seconds_ratio; });
  return found;
}

// Gaps are taken seed by seed: what the seed does to both runs (the order of the data, the first weights) cancels.
void measure_against(RecipeMetrics& recipe, const Contender& own, const RecipeMetrics& base, const Contender& other) {
  std::vector<std::vector<LossPoint>> curves;
  for (std::size_t i = 0; i < recipe.seeds.size(); ++i) {
    SeedMetrics& metrics = recipe.seeds[i];
    const SeedMetrics* from = with_seed(base, metrics.seed);
    if (from == nullptr || metrics.status != SeedStatus::completed) continue;
    metrics.gap_percent = 100 * (*metrics.loss - *from->loss) / *from->loss;
    const SeedRun& base_run = other.runs[static_cast<std::size_t>(from - base.seeds.data())];
    curves.push_back(difference(own.runs[i].result.validation, base_run.result.validation));
    metrics.has_base = !own.runs[i].result.losses.empty() && !base_run.result.losses.empty();
    metrics.to_base_loss = time_to_loss_of(base_run.result, own.runs[i].result);
  }
  recipe.validation_gap = mean_of(curves);
  recipe.to_base_loss = mean_time_to_loss(recipe.seeds);
  recipe.gap_percent = mean_over_seeds(recipe.seeds, [](const SeedMetrics& each) { return each.gap_percent; });
}

}  // namespace

std::string_view name_of(SeedStatus status) {
  switch (status) {
    case SeedStatus::completed:
      return "completed";
    case SeedStatus::diverged:
      return "diverged";
    case SeedStatus::failed:
      break;
  }
  return "failed";
}

std::optional<MeanOverSeeds> mean_over(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  const auto count = static_cast<double>(values.size());
  MeanOverSeeds found;
  for (const double value : values) found.mean += value / count;
  if (values.size() == 1) return found;
  double squares = 0;
  for (const double value : values) squares += (value - found.mean) * (value - found.mean);
  found.deviation = std::sqrt(squares / (count - 1));
  return found;
}

Comparison compare(const std::vector<Contender>& contenders, const std::string& base) {
  Comparison comparison;
  comparison.loss_kind = kind_of(contenders);
  comparison.is_base_chosen = !base.empty();
  if (!contenders.empty()) comparison.data = contenders.front().config.data.kind;
  for (const Contender& contender : contenders) {
    comparison.recipes.push_back(recipe_of(contender, comparison.loss_kind));
    comparison.seeds = std::max(comparison.seeds, contender.runs.size());
    const RunResult* example = comparison.recipes.back().example;
    if (example != nullptr && !comparison.best_loss) comparison.best_loss = example->best_loss;
    if (example != nullptr && !comparison.best_accuracy) comparison.best_accuracy = example->best_accuracy;
  }
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    RecipeMetrics& recipe = comparison.recipes[i];
    recipe.base = base.empty() ? base_for(contenders, i) : chosen_base(contenders, base);
    recipe.is_like_base = is_unit_scaled(contenders[recipe.base]) == is_unit_scaled(contenders[i]);
    measure_against(recipe, contenders[i], comparison.recipes[recipe.base], contenders[recipe.base]);
  }
  return comparison;
}

}  // namespace quaver
