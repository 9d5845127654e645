// What a calibration says: tables for the terminal, JSON, and an HTML report.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/calibrate.h"
#include "cli/progress.h"
#include "cli/study.h"
#include "cli/table.h"
#include "numerics/what_if.h"
#include "report/chart.h"
#include "report/page.h"

namespace quaver {

namespace {

constexpr std::array<Role, 3> all_roles{Role::x, Role::w, Role::dy};

double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string_view meaning_of(Role role) {
  return role == Role::x ? "inputs" : role == Role::w ? "weights" : "output gradients";
}

std::vector<const SiteRange*> scaled_sites(const Calibration& calibration, Role role) {
  std::vector<const SiteRange*> sites;
  for (const SiteRange& range : calibration.sites) {
    if (range.role == role && range.has_scale()) sites.push_back(&range);
  }
  return sites;
}

std::vector<std::vector<std::string>> effect_rows(const Calibration& calibration) {
  std::vector<std::vector<std::string>> rows{
      {"operand", "percentile", "saturated %", "underflow %", "worst dB", "median dB", "worst site"}};
  for (const RoleEffect& effect : role_effects(calibration)) {
    const bool chosen = effect.percentile == calibration.percentile;
    rows.push_back({fmt::format("{} ({})", name_of(effect.role), meaning_of(effect.role)),
                    fmt::format("{}{:g}", chosen ? "→ " : "", effect.percentile),
                    shown(effect.saturated_percent, "{:.4f}"), shown(effect.underflow_percent, "{:.3f}"),
                    shown(effect.worst_sqnr_db, "{:.1f}"), shown(effect.median_sqnr_db, "{:.1f}"), effect.worst_site});
  }
  return rows;
}

std::vector<std::vector<std::string>> drift_rows(const Drift& drift, std::size_t most) {
  std::vector<std::vector<std::string>> rows{{"site", "amax before", "now", "binades", "headroom left"}};
  for (std::size_t i = 0; i < std::min(most, drift.sites.size()); ++i) {
    const SiteDrift& site = drift.sites[i];
    rows.push_back({site.site, shown(site.amax_before), shown(site.amax_now), shown(site.binades, "{:+.2f}"),
                    shown(site.headroom_log2, "{:+.2f}")});
  }
  return rows;
}

// Where the magnitudes of each layer lie in the format: binades of |x|·s.
report::LineChart range_chart(const Calibration& calibration, Role role) {
  const auto sites = scaled_sites(calibration, role);
  const FormatInfo& format = sites.front()->format();
  report::LineChart chart;
  chart.title = fmt::format("{}: {} in {}", name_of(role), meaning_of(role), format.name);
  chart.x_label = "layer, in the order they run";
  chart.y_label = "log2 of |x| · scale";
  struct Line {
    const char* name;
    double share;
  };
  for (const auto& [name, share] :
       {Line{"largest", 1}, Line{"99.9 %", 0.999}, Line{"median", 0.5}, Line{"1 %", 0.01}}) {
    report::Series series{name, {}, {}};
    for (std::size_t i = 0; i < sites.size(); ++i) {
      series.x.push_back(static_cast<double>(i + 1));
      series.y.push_back(std::log2(static_cast<double>(magnitude_at(sites[i]->seen, share)) * sites[i]->scale));
    }
    chart.series.push_back(std::move(series));
  }
  chart.references = {{std::log2(static_cast<double>(format.max)), "largest value"},
                      {std::log2(static_cast<double>(format.min_normal)), "smallest normal"},
                      {std::log2(static_cast<double>(format.min_subnormal)), "smallest value"}};
  return chart;
}

// Largest magnitude of every site, in binades.
report::HeatGrid amax_grid(const Calibration& calibration) {
  report::HeatGrid grid;
  grid.title = "Largest magnitude, log2";
  for (const Role role : all_roles) grid.columns.emplace_back(name_of(role));
  for (std::size_t i = 0; i < calibration.sites.size(); ++i) {
    const SiteRange& range = calibration.sites[i];
    if (i % all_roles.size() == 0) grid.rows.push_back(range.layer);
    report::Cell cell;
    if (range.seen.amax > 0) cell.value = std::log2(range.seen.amax);
    cell.text = range.seen.amax > 0 ? report::format_fixed(*cell.value, 1) : "0";
    cell.note = fmt::format("{}: amax {:.4g}, rms {:.4g}, {}", range.site, range.seen.amax, range.seen.rms(),
                            range.has_scale() ? fmt::format("scale {:.5g}", range.scale) : "kept in high precision");
    grid.cells.push_back(std::move(cell));
  }
  return grid;
}

// How the ranges moved from batch to batch, as a quotient to the first.
report::LineChart movement_chart(const Calibration& calibration) {
  const bool by_step = calibration.last_step > calibration.first_step;
  report::LineChart chart;
  chart.title = "Largest magnitude, batch by batch";
  chart.x_label = by_step ? "step" : "batch";
  chart.y_label = "binades against the first";
  for (const Role role : all_roles) {
    report::Series series{fmt::format("{}, median over layers", name_of(role)), {}, {}};
    for (std::size_t batch = 0; batch < calibration.steps.size(); ++batch) {
      std::vector<double> moved;
      for (const SiteRange& range : calibration.sites) {
        const bool usable = range.role == role && range.batch_amax[batch] > 0 && range.batch_amax.front() > 0;
        if (usable) moved.push_back(std::log2(range.batch_amax[batch] / range.batch_amax.front()));
      }
      series.x.push_back(by_step ? static_cast<double>(calibration.steps[batch]) : static_cast<double>(batch + 1));
      series.y.push_back(median(std::move(moved)));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

report::BarChart drift_chart(const Drift& drift) {
  report::BarChart chart;
  chart.title = "Drift of the ranges";
  chart.x_label = "binades: above 0 the range has grown";
  constexpr std::size_t most = 24;
  for (std::size_t i = 0; i < std::min(most, drift.sites.size()); ++i) {
    const SiteDrift& site = drift.sites[i];
    const bool saturates = site.headroom_log2 < 0;
    chart.bars.push_back({site.site, {site.binades}, saturates ? "beyond the earlier scale" : ""});
  }
  return chart;
}

std::vector<std::vector<std::string>> site_rows(const Calibration& calibration) {
  std::vector<std::vector<std::string>> rows{
      {"site", "format", "amax", "threshold", "scale", "rms", "saturated %", "underflow %", "SQNR dB"}};
  for (const SiteRange& range : calibration.sites) {
    std::vector<std::string> row{range.site, std::string(range.format().name), shown(range.seen.amax),
                                 shown(range.threshold)};
    if (range.has_scale()) {
      const PercentileEffect effect = effect_of(range, calibration.percentile, calibration.margin);
      row.insert(row.end(), {shown(range.scale), shown(range.seen.rms()), shown(effect.saturated_percent, "{:.4f}"),
                             shown(effect.underflow_percent, "{:.3f}"), shown(effect.sqnr_db, "{:.1f}")});
    } else {
      row.insert(row.end(), {"high precision", shown(range.seen.rms()), "–", "–", "–"});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_drift(report::Page& page, const Drift& drift, const std::string& against) {
  page.heading("Drift").paragraph(fmt::format(
      "Ranges against {}. Headroom is what the earlier scale leaves the range of now; below zero it saturates.",
      against));
  if (!drift.sites.empty()) page.figure(report::to_svg(drift_chart(drift)));
  page.details("All sites",
               [&](report::Page& inner) { inner.table(report_table(drift_rows(drift, drift.sites.size()))); });
}

std::string summary_of(const Calibration& calibration) {
  return fmt::format("{} · {} batches, {} {} · for {}", calibration.source, calibration.steps.size(),
                     format_count(static_cast<double>(calibration.tokens)), calibration.unit, calibration.recipe);
}

}  // namespace

std::vector<RoleEffect> role_effects(const Calibration& calibration) {
  std::vector<double> percentiles(shown_percentiles.begin(), shown_percentiles.end());
  if (std::find(percentiles.begin(), percentiles.end(), calibration.percentile) == percentiles.end()) {
    percentiles.push_back(calibration.percentile);
    std::sort(percentiles.rbegin(), percentiles.rend());
  }
  std::vector<RoleEffect> effects;
  for (const Role role : all_roles) {
    const auto sites = scaled_sites(calibration, role);
    if (sites.empty()) continue;
    for (const double percentile : percentiles) {
      RoleEffect worst{.role = role, .percentile = percentile, .worst_sqnr_db = INFINITY, .worst_site = {}};
      std::vector<double> ratios;
      for (const SiteRange* range : sites) {
        const PercentileEffect effect = effect_of(*range, percentile, calibration.margin);
        worst.saturated_percent = std::max(worst.saturated_percent, effect.saturated_percent);
        worst.underflow_percent = std::max(worst.underflow_percent, effect.underflow_percent);
        ratios.push_back(effect.sqnr_db);
        if (!(effect.sqnr_db < worst.worst_sqnr_db)) continue;
        worst.worst_sqnr_db = effect.sqnr_db;
        worst.worst_site = range->site;
      }
      worst.median_sqnr_db = median(std::move(ratios));
      effects.push_back(std::move(worst));
    }
  }
  return effects;
}

std::string calibration_table(const Calibration& calibration) {
  return fmt::format(
      "{}\nWhat each percentile would do, with {} binade{} of headroom (worst site of all layers; from histograms of "
      "binades):\n{}",
      summary_of(calibration), calibration.margin, calibration.margin == 1 ? "" : "s",
      aligned(effect_rows(calibration)));
}

std::string drift_table(const Drift& drift) {
  constexpr std::size_t most = 10;
  std::string text = aligned(drift_rows(drift, most));
  if (drift.sites.size() > most) text += fmt::format("… and {} sites that moved less\n", drift.sites.size() - most);
  if (!drift.only_now.empty()) text += fmt::format("{} sites are new\n", drift.only_now.size());
  if (!drift.only_before.empty()) text += fmt::format("{} sites are gone\n", drift.only_before.size());
  return text;
}

std::string calibration_json(const Calibration& calibration, const std::optional<Drift>& drift) {
  using nlohmann::ordered_json;
  const auto number = [](double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); };
  ordered_json effects = ordered_json::array();
  for (const RoleEffect& effect : role_effects(calibration)) {
    effects.push_back({{"role", name_of(effect.role)},
                       {"percentile", effect.percentile},
                       {"saturated_percent", number(effect.saturated_percent)},
                       {"underflow_percent", number(effect.underflow_percent)},
                       {"worst_sqnr_db", number(effect.worst_sqnr_db)},
                       {"median_sqnr_db", number(effect.median_sqnr_db)},
                       {"worst_site", effect.worst_site}});
  }
  ordered_json result{{"recipe", calibration.recipe},         {"source", calibration.source},
                      {"batches", calibration.steps.size()},  {"tokens", calibration.tokens},
                      {"percentile", calibration.percentile}, {"margin", calibration.margin},
                      {"effects", std::move(effects)}};
  if (!drift) return result.dump(1);
  ordered_json moved = ordered_json::array();
  for (const SiteDrift& site : drift->sites) {
    moved.push_back({{"site", site.site},
                     {"amax_before", site.amax_before},
                     {"amax_now", site.amax_now},
                     {"binades", number(site.binades)},
                     {"headroom_log2", number(site.headroom_log2)}});
  }
  result["drift"] = std::move(moved);
  return result.dump(1);
}

std::string calibration_report(const Calibration& calibration, const std::optional<Drift>& drift,
                               const std::string& against) {
  report::Page page("Calibration", summary_of(calibration));
  const bool warmed_up = calibration.last_step > calibration.first_step;
  std::vector<report::KeyValue> facts{
      {"weights", calibration.source},
      {"steps", warmed_up ? fmt::format("{} to {}, trained in between", calibration.first_step, calibration.last_step)
                          : std::to_string(calibration.first_step)},
      {"batches", fmt::format("{} ({} {})", calibration.steps.size(), calibration.tokens, calibration.unit)},
      {"loss", fmt::format("{:.4f} first, {:.4f} last batch", calibration.losses.front(), calibration.losses.back())},
      {"scales", fmt::format("for {}: percentile {:g}, 2^{} of headroom", calibration.recipe, calibration.percentile,
                             calibration.margin)},
      {"config", calibration.hash}};
  if (!calibration.accuracies.empty()) {
    const auto after_loss = facts.begin() + 4;
    facts.insert(after_loss,
                 {"accuracy", fmt::format("{:.1f} % first, {:.1f} % last batch", 100 * calibration.accuracies.front(),
                                          100 * calibration.accuracies.back())});
  }
  page.key_values(facts);
  page.heading("What each percentile would do")
      .table(report_table(effect_rows(calibration)))
      .paragraph(
          "Each line is the worst site of all layers. Computed from histograms of powers of two: shares at powers "
          "of two are exact, a percentile is within a fifth of a binade for bell-shaped tensors and always within "
          "one. Figures of the cast are those of numerics from the same histograms.");
  page.heading("Ranges in the format")
      .paragraph("Binades of the scaled values, layer by layer, against what the format can hold.");
  for (const Role role : all_roles) {
    if (!scaled_sites(calibration, role).empty()) page.figure(report::to_svg(range_chart(calibration, role)));
  }
  page.heading("Ranges as they are").figure(report::to_svg(amax_grid(calibration)), "Hover for values.");
  if (calibration.steps.size() > 1) page.figure(report::to_svg(movement_chart(calibration)));
  if (drift) add_drift(page, *drift, against);
  page.heading("Sites").details("All sites",
                                [&](report::Page& inner) { inner.table(report_table(site_rows(calibration))); });
  return page.footer("Written by quaver " QUAVER_VERSION).html();
}

}  // namespace quaver
