// What a localization says: tables for the terminal, and an HTML report with the map drawn.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "cli/localize.h"
#include "cli/progress.h"
#include "cli/study.h"
#include "cli/table.h"
#include "report/chart.h"
#include "report/page.h"

namespace quaver {

namespace {

using Rows = std::vector<std::vector<std::string>>;

// What was stored in low precision in each measurement: the harm of an operand is that of its group.
std::string_view tried_together(Grouping grouping) {
  return grouping == Grouping::site ? "operand" : name_of(grouping);
}

std::string percent(double share) { return shown(100 * share, "{:.4f}"); }

// What was tried, most harmful first: an operand of each group stands for it.
std::vector<std::size_t> groups_by_harm(const Localization& localization) {
  std::vector<std::size_t> first;
  std::set<std::string> known;
  for (const std::size_t index : localization.ranking) {
    if (known.insert(localization.sites[index].group).second) first.push_back(index);
  }
  return first;
}

// In percentage points, of a classifier.
std::string accuracy_change(const Effect& effect) { return fmt::format("{:+.2f}", 100 * *effect.accuracy_change); }

std::string planned(const SiteSensitivity& site) {
  if (site.placement == Placement::high_precision) return "high precision";
  return site.placement == Placement::on_ladder ? site.ladder_recipe : site.recipe;
}

void add_loss_titles(const Localization& localization, std::vector<std::string>& titles) {
  titles.insert(titles.end(), {"loss change", "±"});
  if (localization.baseline_accuracy) titles.emplace_back("accuracy, points");
}

void add_loss(const Effect& effect, std::vector<std::string>& row) {
  row.insert(row.end(), {shown(effect.loss_change, "{:+.2e}"), shown(effect.loss_error, "{:.1e}")});
  if (effect.accuracy_change) row.push_back(accuracy_change(effect));
}

std::vector<std::string> row_of(const std::string& name, const SiteSensitivity& site, double own_cosine,
                                double sqnr_db) {
  std::vector<std::string> row{name, percent(site.harm)};
  add_loss(site.effect, row);
  row.insert(row.end(), {shown(site.effect.gradient_cosine, "{:.6f}"), shown(site.effect.gradient_error, "{:.4f}"),
                         shown(own_cosine, "{:.6f}"), shown(sqnr_db, "{:.1f}"), planned(site)});
  return row;
}

Rows titled(std::string_view first, const Localization& localization) {
  std::vector<std::string> titles{std::string(first), "harm %"};
  add_loss_titles(localization, titles);
  titles.insert(titles.end(), {"cosine", "error", "own cosine", "SQNR dB", "plan"});
  return {titles};
}

// The most harmful groups; own cosine and SQNR are those of the worst operand.
Rows ranking_rows(const Localization& localization, std::size_t most) {
  Rows rows = titled(name_of(localization.grouping), localization);
  const std::vector<std::size_t> groups = groups_by_harm(localization);
  for (std::size_t i = 0; i < std::min(most, groups.size()); ++i) {
    const SiteSensitivity& one = localization.sites[groups[i]];
    double own_cosine = one.own.cosine;
    double sqnr_db = one.sqnr_db;
    for (const SiteSensitivity& site : localization.sites) {
      if (site.group != one.group) continue;
      own_cosine = std::fmin(own_cosine, site.own.cosine);
      sqnr_db = std::fmin(sqnr_db, site.sqnr_db);
    }
    rows.push_back(row_of(one.group, one, own_cosine, sqnr_db));
  }
  return rows;
}

Rows operand_rows(const Localization& localization) {
  Rows rows = titled("site", localization);
  for (const std::size_t index : localization.ranking) {
    const SiteSensitivity& site = localization.sites[index];
    rows.push_back(row_of(site.site, site, site.own.cosine, site.sqnr_db));
  }
  return rows;
}

Rows trial_rows(const Localization& localization) {
  Rows rows{{"plan", "≤8 bit %"}};
  add_loss_titles(localization, rows.front());
  rows.front().insert(rows.front().end(), {"cosine", "harm at most %", "budget"});
  for (const PlanTrial& trial : localization.trials) {
    const std::string on_ladder =
        trial.ladder_sites > 0 ? fmt::format(", {} on the ladder", trial.ladder_sites) : std::string();
    std::vector<std::string> row{fmt::format("{} sites in low precision{}", trial.low_precision_sites, on_ladder),
                                 shown(100 * trial.low_precision_share, "{:.1f}")};
    add_loss(trial.effect, row);
    row.insert(row.end(), {shown(trial.effect.gradient_cosine, "{:.6f}"), percent(trial.harm),
                           trial.holds ? "holds" : "exceeded"});
    rows.push_back(std::move(row));
  }
  return rows;
}

// What lies between the recipe and high precision for the layers that do not bear the recipe.
Rows ladder_rows(const Localization& localization) {
  Rows rows{{"layer", "recipe", "operand", "underflow %", "SQNR dB", "harm %", "plan"}};
  const auto change = [](double before, double after, const char* format) {
    return fmt::format("{} → {}", shown(before, format), shown(after, format));
  };
  for (const LadderTrial& trial : localization.ladder) {
    rows.push_back({trial.group, trial.recipe, trial.site.substr(trial.site.rfind('/') + 1),
                    change(trial.before.underflow_percent, trial.after.underflow_percent, "{:.1f}"),
                    change(trial.before.sqnr_db, trial.after.sqnr_db, "{:.1f}"),
                    change(100 * trial.harm_before, 100 * trial.harm_after, "{:.4f}"), trial.taken ? "taken" : "no"});
  }
  return rows;
}

Size sites_in(const Localization& localization, Placement placement) {
  return std::count_if(localization.ranking.begin(), localization.ranking.end(),
                       [&](std::size_t index) { return localization.sites[index].placement == placement; });
}

Size kept_high_precision(const Localization& localization) { return sites_in(localization, Placement::high_precision); }

// "3 of 24 operands in fp8-row or mxfp8, "
std::string on_ladder(const Localization& localization) {
  const Size sites = sites_in(localization, Placement::on_ladder);
  if (sites == 0) return "";
  std::set<std::string> recipes;
  for (const SiteSensitivity& site : localization.sites) {
    if (site.placement == Placement::on_ladder) recipes.insert(site.ladder_recipe);
  }
  return fmt::format("{} of {} operands in {}, ", sites, localization.ranking.size(), fmt::join(recipes, " or "));
}

std::string verdict(const Localization& localization) {
  const PlanTrial& chosen = localization.chosen;
  if (chosen.low_precision_sites == 0) {
    return fmt::format("No part of {} stays within {} % of the loss: the plan keeps everything in high precision",
                       localization.recipe, percent(localization.budget));
  }
  return fmt::format(
      "The plan has {:.1f} % of the matrix products' operations in low precision ({:.1f} % with all of {}), {}{} of {} "
      "operands "
      "kept in high precision; measured whole its harm is at most {} % of the loss, budget {} %",
      100 * chosen.low_precision_share, 100 * localization.trials.front().low_precision_share, localization.recipe,
      on_ladder(localization), kept_high_precision(localization), localization.ranking.size(), percent(chosen.harm),
      percent(localization.budget));
}

report::HeatGrid empty_grid(const Localization& localization, const std::string& title) {
  report::HeatGrid grid;
  grid.title = title;
  grid.columns = {"x", "w", "dy"};
  for (std::size_t i = 0; i < localization.sites.size(); i += roles.size())
    grid.rows.push_back(localization.sites[i].layer);
  return grid;
}

std::string note_for(const SiteSensitivity& site) {
  if (!site.tried) return site.site + ": high precision in the recipe's own plan";
  const std::string accuracy =
      site.effect.accuracy_change ? fmt::format("accuracy {} points, ", accuracy_change(site.effect)) : "";
  return fmt::format("{}: harm {} %, loss {} ± {}, {}gradient cosine {}, of its own weight {}, SQNR {} dB, {}",
                     site.site, percent(site.harm), shown(site.effect.loss_change, "{:+.2e}"),
                     shown(site.effect.loss_error, "{:.1e}"), accuracy, shown(site.effect.gradient_cosine, "{:.6f}"),
                     shown(site.own.cosine, "{:.6f}"), shown(site.sqnr_db, "{:.1f}"),
                     site.placement == Placement::high_precision ? "kept in high precision" : planned(site));
}

// Harm on a logarithmic scale: it spans decades.
report::HeatGrid harm_grid(const Localization& localization) {
  report::HeatGrid grid = empty_grid(
      localization, fmt::format("Harm of each {} alone, % of the loss", tried_together(localization.grouping)));
  grid.value_scale = report::Scale::log;
  for (const SiteSensitivity& site : localization.sites) {
    report::Cell cell;
    cell.note = note_for(site);
    if (site.tried && std::isfinite(site.harm)) {
      cell.value = std::max(100 * site.harm, 1e-6);
      cell.text = shown(100 * site.harm, "{:.2g}");
    } else if (site.tried) {
      cell.category = "not finite";
    }
    grid.cells.push_back(std::move(cell));
  }
  return grid;
}

report::HeatGrid plan_grid(const Localization& localization) {
  report::HeatGrid grid = empty_grid(localization, "The plan proposed");
  for (const SiteSensitivity& site : localization.sites) {
    const std::string high = site.tried ? "kept in high precision" : "high precision in the recipe";
    const bool is_high = site.placement == Placement::high_precision;
    grid.cells.push_back({is_high ? high : planned(site), std::nullopt, "", note_for(site)});
  }
  return grid;
}

report::BarChart ranking_chart(const Localization& localization) {
  report::BarChart chart;
  chart.title = fmt::format("Most harmful {}s", tried_together(localization.grouping));
  chart.x_label = "% of the loss";
  constexpr std::size_t most = 20;
  const std::vector<std::size_t> groups = groups_by_harm(localization);
  for (std::size_t i = 0; i < std::min(most, groups.size()); ++i) {
    const SiteSensitivity& site = localization.sites[groups[i]];
    if (!std::isfinite(site.harm)) continue;
    const std::string mark =
        site.placement == Placement::high_precision ? "kept in high precision" : site.ladder_recipe;
    chart.bars.push_back({site.group, {100 * site.harm}, mark});
  }
  return chart;
}

}  // namespace

std::string localization_table(const Localization& localization) {
  constexpr std::size_t most = 12;
  const std::string accuracy =
      localization.baseline_accuracy ? fmt::format(", accuracy {:.1f} %", 100 * *localization.baseline_accuracy) : "";
  std::string text = fmt::format("loss in high precision {:.4f} ± {:.4f}{}; each {} alone, most harmful first:\n{}",
                                 localization.baseline_loss, localization.baseline_error, accuracy,
                                 tried_together(localization.grouping), aligned(ranking_rows(localization, most)));
  const std::size_t groups = groups_by_harm(localization).size();
  if (groups > most) text += fmt::format("… and {} that harm less\n", groups - most);
  if (!localization.ladder.empty()) {
    text += fmt::format("\ndown the ladder, each with everything else in high precision:\n{}",
                        aligned(ladder_rows(localization)));
  }
  text += fmt::format("\nplans measured whole:\n{}\n{}\n", aligned(trial_rows(localization)), verdict(localization));
  return text;
}

std::string localization_report(const Localization& localization, const std::string& plan) {
  report::Page page(
      "Localization",
      fmt::format("{} · {} · {} batches, {} {}", localization.source, localization.recipe, localization.batches,
                  format_count(static_cast<double>(localization.tokens)), localization.unit));
  const PlanTrial& chosen = localization.chosen;
  std::vector<report::Headline> headlines{
      {"in low precision", fmt::format("{:.1f} %", 100 * chosen.low_precision_share),
       "of the matrix products' operations"},
      {"harm at most", percent(chosen.harm) + " %",
       fmt::format("of the loss; budget {} %", percent(localization.budget))},
      {"kept in high precision",
       fmt::format("{} of {}", kept_high_precision(localization), localization.ranking.size()), "operands"},
      {"loss", fmt::format("{:.4f}", localization.baseline_loss),
       fmt::format("± {:.4f}, in high precision at step {}", localization.baseline_error, localization.step)}};
  if (localization.baseline_accuracy) {
    headlines.push_back(
        {"accuracy", fmt::format("{:.1f} %", 100 * *localization.baseline_accuracy), "of the same batches"});
  }
  page.headlines(headlines);
  page.paragraph(verdict(localization) + ".");
  page.heading("Map")
      .paragraph(
          fmt::format("Each {} stored as the recipe says with everything else in high precision: x is a layer's input, "
                      "w its weight, dy the gradient of its output.",
                      tried_together(localization.grouping)))
      .figure(report::to_svg(harm_grid(localization)), "Hover for values.")
      .figure(report::to_svg(plan_grid(localization)));
  page.heading("Ranking").figure(report::to_svg(ranking_chart(localization)));
  page.details("All operands", [&](report::Page& inner) { inner.table(report_table(operand_rows(localization))); });
  if (!localization.ladder.empty()) {
    page.heading("Down the ladder")
        .paragraph(fmt::format(
            "Layers that do not bear {} were tried in recipes between it and high precision, the cheapest first: x in "
            "E5M2 where its range is too wide for E4M3, then finer scales. The operand shown is the most harmful one; "
            "harm is that of this operand alone before, and of all of the layer's after.",
            localization.recipe))
        .table(report_table(ladder_rows(localization)));
  }
  page.heading("Plans measured")
      .paragraph(
          "Effects of single operands do not add up exactly, so plans are measured whole. The first has all that "
          "the recipe stores in low precision.")
      .table(report_table(trial_rows(localization)));
  page.heading("What harm means")
      .paragraph(
          "The change of the loss, compared batch by batch, plus a tenth of the loss times one minus the cosine of "
          "the gradients: to first order, a run whose steps have cosine c to the true gradient behaves as if it had "
          "c times the steps, and late in training e times the steps lower the loss by a tenth or less. Tensors "
          "count by their number of elements, as AdamW weighs them. A single operand's harm is the likeliest "
          "value; a plan is judged by the upper end of its 95 % confidence interval.");
  page.heading("precision.toml").code(plan);
  return page.footer("Written by quaver " QUAVER_VERSION).html();
}

}  // namespace quaver
