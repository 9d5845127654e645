// A comparison in words: rows and notes for the terminal and the report, and the JSON.
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/compare.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "precision/recipe.h"

namespace quaver {

namespace {

using nlohmann::ordered_json;

constexpr const char* unknown = "–";

// "2.5500", or "2.5500 ± 0.0707" where there are several seeds.
std::string mean_text(const std::optional<MeanOverSeeds>& value, int decimals, bool with_sign) {
  if (!value) return unknown;
  const std::string mean =
      with_sign ? fmt::format("{:+.{}f}", value->mean, decimals) : fmt::format("{:.{}f}", value->mean, decimals);
  return value->deviation ? fmt::format("{} ± {:.{}f}", mean, *value->deviation, decimals) : mean;
}

std::string accuracy_text(std::optional<MeanOverSeeds> share) {
  if (!share) return unknown;
  share->mean *= 100;
  if (share->deviation) *share->deviation *= 100;
  return mean_text(share, 2, false);
}

std::string gap_of(const Comparison& comparison, std::size_t index) {
  const RecipeMetrics& recipe = comparison.recipes[index];
  if (recipe.base == index) return "base";
  return mean_text(recipe.gap_percent, 2, true) + (recipe.is_like_base ? "" : "*");
}

std::vector<std::string> recipe_row(const Comparison& comparison, std::size_t index) {
  const RecipeMetrics& recipe = comparison.recipes[index];
  const auto bytes = [&](auto size) {
    return recipe.example == nullptr ? unknown : format_bytes(static_cast<std::uint64_t>(size(recipe.example->memory)));
  };
  std::string loss = mean_text(recipe.loss, 4, false);
  if (recipe.completed < recipe.seeds.size()) loss += fmt::format(" ({} of {})", recipe.completed, recipe.seeds.size());
  std::optional<MeanOverSeeds> milliseconds = recipe.seconds_per_step;
  if (milliseconds) milliseconds->mean *= 1000;
  if (milliseconds && milliseconds->deviation) *milliseconds->deviation *= 1000;
  const std::string low_precision =
      recipe.example == nullptr ? unknown
                                : fmt::format("{:.0f}", 100 * low_precision_share(recipe.example->format_shares));
  return {recipe.label,
          loss,
          gap_of(comparison, index),
          bytes([](const MemoryUse& use) { return use.weights + use.quantized_weights; }),
          bytes([](const MemoryUse& use) { return use.activations; }),
          bytes([](const MemoryUse& use) { return use.optimizer; }),
          low_precision,
          mean_text(milliseconds, 1, false),
          recipe.tokens_per_second ? format_count(recipe.tokens_per_second->mean) : unknown,
          std::to_string(recipe.overflows),
          std::to_string(recipe.skipped)};
}

std::vector<std::string> seed_row(const SeedMetrics& seed, bool is_base) {
  const std::string label = fmt::format("  seed {}", seed.seed);
  if (seed.status != SeedStatus::completed) {
    return {label, std::string(name_of(seed.status)), "", "", "", "", "", "", "", "", ""};
  }
  const std::string gap = seed.gap_percent ? fmt::format("{:+.2f}", *seed.gap_percent) : unknown;
  return {label,
          fmt::format("{:.4f}", *seed.loss),
          is_base ? "base" : gap,
          "",
          "",
          "",
          "",
          fmt::format("{:.1f}", 1000 * seed.seconds_per_step),
          format_count(seed.tokens_per_second),
          std::to_string(seed.overflows),
          std::to_string(seed.skipped)};
}

std::string seconds_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g}ms", 1000 * seconds);
  return seconds < 60 ? fmt::format("{:.1f}s", seconds) : format_duration(seconds);
}

// "0.77×", or "0.77× ± 0.02" where there are several seeds.
std::string ratio_text(const std::optional<MeanOverSeeds>& ratio) {
  if (!ratio) return unknown;
  const std::string mean = fmt::format("{:.2f}×", ratio->mean);
  return ratio->deviation ? fmt::format("{} ± {:.2f}", mean, *ratio->deviation) : mean;
}

// The seeds that did not reach it are in no mean: how many did stands beside it.
std::vector<std::string> time_row(const Comparison& comparison, std::size_t index) {
  const RecipeMetrics& recipe = comparison.recipes[index];
  const MeanTimeToLoss& time = recipe.to_base_loss;
  const std::string label = recipe.label + (recipe.is_like_base ? "" : "*");
  if (time.seeds == 0) return {label, unknown, unknown, unknown, unknown};
  if (time.reached == 0) return {label, "not reached", "", "", ""};
  std::string tokens = format_count(time.tokens->mean);
  if (time.reached < time.seeds) tokens += fmt::format(" ({} of {})", time.reached, time.seeds);
  return {label, tokens, ratio_text(time.tokens_ratio), seconds_text(time.seconds->mean),
          ratio_text(time.seconds_ratio)};
}

std::vector<std::string> time_row(const SeedMetrics& seed) {
  const std::string label = fmt::format("  seed {}", seed.seed);
  if (!seed.has_base) return {label, unknown, "", "", ""};
  if (!seed.to_base_loss) return {label, "not reached", "", "", ""};
  const TimeToLoss& time = *seed.to_base_loss;
  return {label, format_count(time.tokens), fmt::format("{:.2f}×", time.tokens_ratio), seconds_text(time.seconds),
          time.seconds_ratio ? fmt::format("{:.2f}×", *time.seconds_ratio) : unknown};
}

// "base: fp32 (the highest precision)"; where a unit-scaled recipe has one of its own, "fp8-unit against bf16@umup".
std::string base_note(const Comparison& comparison) {
  const std::vector<RecipeMetrics>& recipes = comparison.recipes;
  const std::size_t base = recipes.front().base;
  std::string text = fmt::format("base: {} ({})", recipes[base].label,
                                 comparison.is_base_chosen ? "chosen with --base" : "the highest precision");
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    if (recipes[i].base == base || recipes[i].base == i) continue;
    text += fmt::format("; {} against {}, of its parametrization", recipes[i].label, recipes[recipes[i].base].label);
  }
  return text;
}

ordered_json number(const std::optional<double>& value) { return value ? ordered_json(*value) : ordered_json(nullptr); }
ordered_json mean_of(const std::optional<MeanOverSeeds>& value) {
  return value ? ordered_json(value->mean) : ordered_json(nullptr);
}
ordered_json deviation_of(const std::optional<MeanOverSeeds>& value) {
  return value ? number(value->deviation) : ordered_json(nullptr);
}

// null: not reached, or there is no such run of the base.
ordered_json time_json(const SeedMetrics& seed) {
  if (!seed.to_base_loss) return nullptr;
  const TimeToLoss& time = *seed.to_base_loss;
  return {{"steps", time.steps},
          {"tokens", time.tokens},
          {"seconds", time.seconds},
          {"tokens_ratio", time.tokens_ratio},
          {"seconds_ratio", number(time.seconds_ratio)}};
}

ordered_json time_json(const MeanTimeToLoss& time) {
  return {{"seeds", time.seeds},
          {"reached", time.reached},
          {"tokens", mean_of(time.tokens)},
          {"tokens_deviation", deviation_of(time.tokens)},
          {"seconds", mean_of(time.seconds)},
          {"seconds_deviation", deviation_of(time.seconds)},
          {"tokens_ratio", mean_of(time.tokens_ratio)},
          {"tokens_ratio_deviation", deviation_of(time.tokens_ratio)},
          {"seconds_ratio", mean_of(time.seconds_ratio)},
          {"seconds_ratio_deviation", deviation_of(time.seconds_ratio)}};
}

ordered_json seed_json(const SeedMetrics& seed) {
  ordered_json object{{"seed", seed.seed}, {"status", name_of(seed.status)}};
  if (seed.status != SeedStatus::completed) {
    object["failure"] = seed.failure;
    return object;
  }
  object["final_loss"] = number(seed.loss);
  object["final_train_loss"] = number(seed.train_loss);
  object["final_validation_loss"] = number(seed.validation_loss);
  if (seed.accuracy) object["final_validation_accuracy"] = *seed.accuracy;
  object["gap_percent"] = number(seed.gap_percent);
  object["to_base_loss"] = time_json(seed);
  object["seconds_per_step"] = seed.seconds_per_step;
  object["tokens_per_second"] = seed.tokens_per_second;
  object["overflows"] = seed.overflows;
  object["skipped"] = seed.skipped;
  return object;
}

ordered_json recipe_json(const Comparison& comparison, std::size_t index) {
  const RecipeMetrics& recipe = comparison.recipes[index];
  ordered_json losses = ordered_json::array();
  ordered_json seeds = ordered_json::array();
  for (const SeedMetrics& seed : recipe.seeds) {
    losses.push_back(number(seed.loss));
    seeds.push_back(seed_json(seed));
  }
  ordered_json object{{"recipe", recipe.label},
                      {"loss_kind", comparison.loss_kind == LossKind::validation ? "validation" : "training"},
                      {"final_loss", mean_of(recipe.loss)},
                      {"final_loss_deviation", deviation_of(recipe.loss)},
                      {"final_losses", losses},
                      {"gap_percent", mean_of(recipe.gap_percent)},
                      {"gap_percent_deviation", deviation_of(recipe.gap_percent)},
                      {"baseline", comparison.recipes[recipe.base].label},
                      {"is_base", recipe.base == index},
                      {"completed", recipe.completed},
                      {"seconds_per_step", mean_of(recipe.seconds_per_step)},
                      {"seconds_per_step_deviation", deviation_of(recipe.seconds_per_step)},
                      {"tokens_per_second", mean_of(recipe.tokens_per_second)}};
  object["to_base_loss"] = time_json(recipe.to_base_loss);
  if (recipe.accuracy) {
    object["final_validation_accuracy"] = recipe.accuracy->mean;
    object["final_validation_accuracy_deviation"] = number(recipe.accuracy->deviation);
  }
  if (recipe.example != nullptr) {
    const MemoryUse& memory = recipe.example->memory;
    object["weights_bytes"] = memory.weights + memory.quantized_weights;
    object["activations_bytes"] = memory.activations;
    object["optimizer_bytes"] = memory.optimizer;
    object["flops_by_format"] = recipe.example->format_shares;
  }
  object["overflows"] = recipe.overflows;
  object["skipped"] = recipe.skipped;
  object["seeds"] = seeds;
  return object;
}

// A column of its own for classifiers, behind the gap.
void add_accuracies(std::vector<std::vector<std::string>>& rows, const std::vector<std::string>& accuracies) {
  constexpr std::ptrdiff_t column = 3;
  if (std::ranges::all_of(accuracies, [](const std::string& text) { return text == unknown || text.empty(); })) return;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].insert(rows[i].begin() + column, i == 0 ? "accuracy %" : accuracies[i - 1]);
  }
}

}  // namespace

std::vector<std::vector<std::string>> comparison_rows(const Comparison& comparison, SeedRows seeds) {
  std::vector<std::vector<std::string>> rows{{"recipe", "loss", "gap %", "weights", "activations", "optimizer",
                                              "≤8 bit %", "ms/step", comparison.speed_unit(), "overflows", "skipped"}};
  std::vector<std::string> accuracies;
  for (std::size_t i = 0; i < comparison.recipes.size(); ++i) {
    const RecipeMetrics& recipe = comparison.recipes[i];
    rows.push_back(recipe_row(comparison, i));
    accuracies.push_back(accuracy_text(recipe.accuracy));
    if (seeds == SeedRows::left_out || recipe.seeds.size() < 2) continue;
    for (const SeedMetrics& seed : recipe.seeds) {
      rows.push_back(seed_row(seed, recipe.base == i));
      accuracies.push_back(seed.accuracy ? fmt::format("{:.2f}", 100 * *seed.accuracy) : "");
    }
  }
  add_accuracies(rows, accuracies);
  return rows;
}

std::vector<std::vector<std::string>> time_to_loss_rows(const Comparison& comparison, SeedRows seeds) {
  const auto has_base = [](const RecipeMetrics& recipe) { return recipe.to_base_loss.seeds > 0; };
  if (std::ranges::count_if(comparison.recipes, has_base) < 2) return {};
  std::vector<std::vector<std::string>> rows{
      {"recipe", fmt::format("{} to base loss", comparison.unit()), "of base's", "time to base loss", "of base's"}};
  for (std::size_t i = 0; i < comparison.recipes.size(); ++i) {
    rows.push_back(time_row(comparison, i));
    const std::vector<SeedMetrics>& runs = comparison.recipes[i].seeds;
    if (seeds == SeedRows::left_out || runs.size() < 2) continue;
    for (const SeedMetrics& seed : runs) rows.push_back(time_row(seed));
  }
  return rows;
}

std::string time_to_loss_note(const Comparison& comparison) {
  return fmt::format(
      "to base loss: until the mean of the training losses over as many steps as the final one is a mean of is no "
      "higher than the base's final training loss at the same seed; time of the steps alone, without evaluation, "
      "checkpoints and pauses{}",
      comparison.seeds > 1 ? "; means over the seeds that reached it" : "");
}

std::vector<std::string> comparison_notes(const Comparison& comparison) {
  std::vector<std::string> notes{base_note(comparison)};
  notes.emplace_back(comparison.loss_kind == LossKind::validation
                         ? "loss: the last validation loss, "
                         : "loss: the final training loss (mean over the last twentieth of the steps), ");
  notes.back() += comparison.loss_unit();
  if (comparison.seeds > 1) {
    notes.back() += fmt::format("; mean ± σ (n − 1) of {} seeds", comparison.seeds);
    notes.emplace_back(
        "gap: mean ± σ of the gaps to the base at the same seed; overflows and skipped steps: sums over the seeds");
  }
  for (const RecipeMetrics& recipe : comparison.recipes) {
    if (recipe.is_like_base) continue;
    notes.emplace_back(
        "* another parametrization than the run it is compared with: part of the gap is the model's, not the format's");
    break;
  }
  for (const RecipeMetrics& recipe : comparison.recipes) {
    for (const SeedMetrics& seed : recipe.seeds) {
      if (seed.status == SeedStatus::completed) continue;
      notes.push_back(fmt::format("{}, seed {}: {} and left out of the means: {}", recipe.label, seed.seed,
                                  name_of(seed.status), seed.failure));
    }
  }
  if (comparison.best_loss) notes.push_back(fmt::format("best possible loss: {:.4f}", *comparison.best_loss));
  if (comparison.best_accuracy) {
    notes.push_back(fmt::format("best possible accuracy: {:.2f} %", 100 * *comparison.best_accuracy));
  }
  return notes;
}

std::string comparison_table(const Comparison& comparison) {
  std::string text = aligned(comparison_rows(comparison, SeedRows::shown));
  for (const std::string& note : comparison_notes(comparison)) text += note + "\n";
  const auto times = time_to_loss_rows(comparison, SeedRows::left_out);
  if (!times.empty()) text += "\n" + aligned(times) + time_to_loss_note(comparison) + "\n";
  return text;
}

std::string comparison_json(const Comparison& comparison) {
  ordered_json list = ordered_json::array();
  for (std::size_t i = 0; i < comparison.recipes.size(); ++i) list.push_back(recipe_json(comparison, i));
  return list.dump(1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace quaver
