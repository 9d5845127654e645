// A localization as files: the plan as a piece of config, everything that was measured as JSON.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "config/recipe_table.h"
#include "config/schema.h"
#include "config/value_text.h"
#include "study/localize.h"

namespace quaver {

using nlohmann::ordered_json;

namespace {

ordered_json finite_or_null(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

// Text from outside in a comment: nothing in it may end the line.
std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return text;
}

// Keys of [precision] that the user set, other than those that the plan writes itself: it was measured under them.
std::string other_settings(const PrecisionConfig& precision) {
  Config config;
  const Config untouched;
  config.precision = precision;
  if (!config.precision.scales.empty()) {
    config.precision.scales = std::filesystem::absolute(config.precision.scales).lexically_normal().string();
  }
  std::string text;
  for (const Key& key : schema()) {
    if (key.section() != "precision" || key.is_table() || key.leaf() == "recipe" || key.leaf() == "localization") {
      continue;
    }
    const Value value = key.get(config);
    if (value != key.get(untouched)) text += fmt::format("{} = {}\n", key.leaf(), toml_value(value));
  }
  return text;
}

// The most harmful of the sites that a line of precision.layers stands for.
const SiteSensitivity* worst_of(const Localization& localization, const std::string& name) {
  for (const std::size_t index : localization.ranking) {
    const SiteSensitivity& site = localization.sites[index];
    if (site.site == name || site.layer == name) return &site;
  }
  return nullptr;
}

std::string harm_text(double harm) { return std::isfinite(harm) ? fmt::format("{:.4f} %", 100 * harm) : "unbounded"; }

std::string remark(const SiteSensitivity* site, Grouping grouping) {
  if (site == nullptr) return "";
  const std::string tried_together =
      grouping == Grouping::site ? std::string(name_of(site->role)) : fmt::format("its {}", name_of(grouping));
  return fmt::format("  # {} alone: harm {}, gradient cosine {:.6f}; SQNR of {} {:.1f} dB", tried_together,
                     harm_text(site->harm), site->effect.gradient_cosine, name_of(site->role), site->sqnr_db);
}

// For a layer that was on the ladder, and stayed there or not.
std::string remark(const Localization& localization, const std::string& name, const std::string& recipe) {
  std::string refused;
  for (const LadderTrial& trial : localization.ladder) {
    if (name != trial.group && !name.starts_with(trial.group + "/") && !name.starts_with(trial.group + ".")) continue;
    if (trial.taken && trial.recipe == recipe) {
      return fmt::format("  # {}, harm {} → {}", difference_on_ladder(trial), harm_text(trial.harm_before),
                         harm_text(trial.harm_after));
    }
    refused += (refused.empty() ? "" : ", ") + trial.recipe;
  }
  const std::string alone = remark(worst_of(localization, name), localization.grouping);
  return alone + (alone.empty() || refused.empty() ? "" : fmt::format("; beyond the budget too: {}", refused));
}

ordered_json ladder_json(const LadderTrial& trial) {
  return {{"group", trial.group},
          {"recipe", trial.recipe},
          {"site", trial.site},
          {"underflow_percent_before", finite_or_null(trial.before.underflow_percent)},
          {"underflow_percent_after", finite_or_null(trial.after.underflow_percent)},
          {"sqnr_db_before", finite_or_null(trial.before.sqnr_db)},
          {"sqnr_db_after", finite_or_null(trial.after.sqnr_db)},
          {"harm_before", finite_or_null(trial.harm_before)},
          {"harm_after", finite_or_null(trial.harm_after)},
          {"taken", trial.taken}};
}

// Beside the loss, of a classifier.
ordered_json with_accuracy(ordered_json object, const char* key, const std::optional<double>& accuracy) {
  if (accuracy) object[key] = *accuracy;
  return object;
}

ordered_json trial_json(const PlanTrial& trial) {
  ordered_json object{{"narrow_sites", trial.low_precision_sites},
                      {"ladder_sites", trial.ladder_sites},
                      {"narrow_share", trial.low_precision_share},
                      {"loss_change", finite_or_null(trial.effect.loss_change)},
                      {"loss_error", finite_or_null(trial.effect.loss_error)},
                      {"gradient_cosine", finite_or_null(trial.effect.gradient_cosine)},
                      {"gradient_error", finite_or_null(trial.effect.gradient_error)},
                      {"harm_at_most", finite_or_null(trial.harm)},
                      {"holds", trial.holds}};
  return with_accuracy(std::move(object), "accuracy_change", trial.effect.accuracy_change);
}

ordered_json site_json(const SiteSensitivity& site) {
  ordered_json object{{"site", site.site},
                      {"layer", site.layer},
                      {"role", name_of(site.role)},
                      {"recipe", site.recipe},
                      {"tried", site.tried},
                      {"loss_change", site.tried ? finite_or_null(site.effect.loss_change) : nullptr},
                      {"loss_error", site.tried ? finite_or_null(site.effect.loss_error) : nullptr},
                      {"gradient_cosine", site.tried ? finite_or_null(site.effect.gradient_cosine) : nullptr},
                      {"gradient_error", site.tried ? finite_or_null(site.effect.gradient_error) : nullptr},
                      {"own_gradient_cosine", site.tried ? finite_or_null(site.own.cosine) : nullptr},
                      {"own_gradient_error", site.tried ? finite_or_null(site.own.error) : nullptr},
                      {"sqnr_db", finite_or_null(site.sqnr_db)},
                      {"underflow_percent", finite_or_null(site.underflow_percent)},
                      {"harm", site.tried ? finite_or_null(site.harm) : nullptr},
                      {"flops_share", site.flops_share},
                      {"ladder_recipe", site.ladder_recipe.empty() ? nullptr : ordered_json(site.ladder_recipe)},
                      {"kept_wide", site.placement == Placement::high_precision}};
  return with_accuracy(std::move(object), "accuracy_change", site.effect.accuracy_change);
}

}  // namespace

std::string difference_on_ladder(const LadderTrial& trial) {
  return fmt::format("{}: underflow {:.1f} % → {:.1f} %, SQNR {:.1f} → {:.1f} dB",
                     trial.site.substr(trial.site.rfind('/') + 1), trial.before.underflow_percent,
                     trial.after.underflow_percent, trial.before.sqnr_db, trial.after.sqnr_db);
}

std::string to_plan_file(const Localization& localization, const PrecisionConfig& precision,
                         const std::filesystem::path& document) {
  const PlanTrial& chosen = localization.chosen;
  std::string text = fmt::format(
      "# Proposed by quaver localize for {}: {} batches at step {}.\n"
      "# {:.1f} % of the matrix products' operations in low precision; measured whole, the loss is {:+.6f} ± {:.6f} of "
      "{:.4f}\n"
      "# nats, gradient cosine {:.6f}: harm at most {:.4f} % of the loss, budget {:.4f} %.\n"
      "# Use it with the config it was made for: quaver train config.toml precision.toml\n",
      on_one_line(localization.source), localization.batches, localization.step, 100 * chosen.low_precision_share,
      chosen.effect.loss_change, chosen.effect.loss_error, localization.baseline_loss, chosen.effect.gradient_cosine,
      100 * chosen.harm, 100 * localization.budget);
  text += fmt::format("\n[precision]\nrecipe = {}\nlocalization = {}\n{}\n[precision.layers]\n",
                      toml_string(localization.recipe), toml_string(document.string()), other_settings(precision));
  for (const auto& [name, recipe] : localization.layers) {
    text += fmt::format("{} = {}{}\n", toml_string(name), toml_string(recipe), remark(localization, name, recipe));
  }
  for (const RecipeTable* recipes : {&precision.recipes, &localization.recipes}) {
    for (const auto& [name, recipe] : *recipes) text += "\n" + recipe_toml(recipe);
  }
  return text;
}

std::string to_json(const Localization& localization) {
  ordered_json sites = ordered_json::array();
  for (const SiteSensitivity& site : localization.sites) sites.push_back(site_json(site));
  ordered_json ranking = ordered_json::array();
  for (const std::size_t index : localization.ranking) ranking.push_back(localization.sites[index].site);
  ordered_json trials = ordered_json::array();
  for (const PlanTrial& trial : localization.trials) trials.push_back(trial_json(trial));
  ordered_json ladder = ordered_json::array();
  for (const LadderTrial& trial : localization.ladder) ladder.push_back(ladder_json(trial));
  ordered_json object{{"baseline_loss", localization.baseline_loss},
                      {"baseline_error", localization.baseline_error},
                      {"recipe", localization.recipe},
                      {"source", localization.source},
                      {"config_hash", localization.hash},
                      {"step", localization.step},
                      {"batches", localization.batches},
                      {"tokens", localization.tokens},
                      {"group", name_of(localization.grouping)},
                      {"budget", localization.budget},
                      {"chosen", trial_json(localization.chosen)},
                      {"trials", std::move(trials)},
                      {"ladder", std::move(ladder)},
                      {"ranking", std::move(ranking)},
                      {"layers", localization.layers},
                      {"sites", std::move(sites)}};
  return with_accuracy(std::move(object), "baseline_accuracy", localization.baseline_accuracy).dump(1);
}

}  // namespace quaver
