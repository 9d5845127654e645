// The reader's answers about sites: the matrix of one statistic, one site's history, its histograms.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "store/histograms.h"
#include "store/numerics_table.h"
#include "store/read_connections.h"
#include "store/reader.h"
#include "store/thinning.h"

namespace quaver {

namespace {

// What one answer may read. A view reads one statistic of a role, a history all statistics of a chunk.
constexpr std::size_t view_budget = std::size_t{64} << 20U;
constexpr std::size_t history_budget = std::size_t{96} << 20U;

constexpr std::size_t most_columns = 16384;
constexpr std::size_t most_rows = 16384;

// Where a site's statistics are stored.
struct SitePlace {
  std::size_t number = 0;
  std::size_t role = 0;
  std::size_t chunk = 0;
  std::size_t offset = 0;
};

SitePlace find_site(Look& look, std::int64_t run, const SiteLayout& layout, const std::string& name) {
  Statement& row = look.prepared("SELECT site FROM sites WHERE run=? AND name=?").bind(run, name);
  if (row.step()) {
    const std::uint64_t number = row.column_unsigned(0);
    for (std::size_t role = 0; role < layout.roles.size(); ++role) {
      const auto& sites = layout.roles[role].sites;
      const auto found = std::lower_bound(sites.begin(), sites.end(), number);
      if (found == sites.end() || *found != number) continue;
      const auto position = static_cast<std::size_t>(found - sites.begin());
      const std::size_t chunk = layout.roles[role].chunk_sites();
      return {number, role, position / chunk, position % chunk};
    }
  }
  throw NoSuchRecord(fmt::format("the run has no site {}", name), "choose one of the sites it lists");
}

NumericsTable::Range range_of(const SitePlace& place, std::size_t statistic, const NumericsTable::Steps& samples) {
  return {.statistic = static_cast<std::int64_t>(statistic),
          .role = place.role,
          .first_chunk = place.chunk,
          .end_chunk = place.chunk + 1,
          .begin = samples.first_sample,
          .end = samples.first_sample + samples.steps.size()};
}

std::size_t find_role(const SiteLayout& layout, const std::string& name) {
  for (std::size_t role = 0; role < layout.roles.size(); ++role) {
    if (layout.roles[role].name == name) return role;
  }
  throw NoSuchRecord(fmt::format("the run has no sites of role {}", name), "choose one of the roles it lists");
}

std::size_t find_statistic(const std::vector<StatisticDescription>& statistics, const std::string& name) {
  const auto found = std::find_if(statistics.begin(), statistics.end(),
                                  [&](const StatisticDescription& statistic) { return statistic.name == name; });
  if (found != statistics.end()) return static_cast<std::size_t>(found - statistics.begin());
  throw NoSuchRecord(fmt::format("the run has no statistic {}", name), "choose one of the statistics it lists");
}

std::vector<NumericsView::Row> rows_of(Look& look, std::int64_t run, const SiteLayout::Role& role,
                                       std::size_t layers_per_row) {
  std::vector<NumericsView::Row> rows;
  for (std::size_t first = 0; first < role.sites.size(); first += layers_per_row) {
    Statement& site = look.prepared("SELECT layer FROM sites WHERE run=? AND site=?").bind(run, role.sites[first]);
    rows.push_back({site.step() ? site.column_text(0) : std::string(), first,
                    std::min(layers_per_row, role.sites.size() - first)});
  }
  return rows;
}

std::vector<std::uint64_t> first_steps(const NumericsTable::Steps& samples, const ColumnPlan& plan) {
  std::vector<std::uint64_t> steps;
  for (std::size_t column = 0; column < plan.columns; ++column) {
    const std::uint64_t sample = (plan.first_column + column) * plan.samples_per_column;
    steps.push_back(samples.steps[std::max(sample, samples.first_sample) - samples.first_sample]);
  }
  return steps;
}

std::uint64_t step_of(const NumericsTable::Steps& samples, std::uint64_t sample) {
  const std::uint64_t index = sample - std::min(sample, samples.first_sample);
  return samples.steps.empty() ? 0 : samples.steps[std::min<std::uint64_t>(index, samples.steps.size() - 1)];
}

[[noreturn]] void fail_for_damage(const std::string& run, const char* table, std::uint64_t step) {
  throw StoreFailure(
      StoreFailure::Kind::lasting,
      fmt::format("run {}, step {}: a BLOB of the table {} is damaged: its checksum does not match", run, step, table),
      "look at other steps; `quaver export` writes what is not damaged");
}

// An answer that lacked some values without a word would mislead.
NumericsTable::OnDamage refuse_damage(const std::string& run, const NumericsTable::Steps& samples) {
  return [&](std::uint64_t sample) { fail_for_damage(run, "numerics", step_of(samples, sample)); };
}

std::vector<float> transposed(const std::vector<float>& values, std::size_t rows, std::size_t columns) {
  std::vector<float> result(values.size());
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t row = 0; row < rows; ++row) result[row * columns + column] = values[column * rows + row];
  }
  return result;
}

}  // namespace

NumericsView StoreReader::numerics(const std::string& id, const NumericsQuery& query) const {
  Look look(*connections_);
  const std::int64_t run = look.run_key(id);
  const SiteLayout layout = look.layout(run);
  const std::vector<StatisticDescription> statistics = look.statistics(run);
  const std::size_t role_number = find_role(layout, query.role);
  const std::size_t statistic = find_statistic(statistics, query.statistic);
  const SiteLayout::Role& role = layout.roles[role_number];
  NumericsTable::Steps samples;
  const NumericsTable table(look.database(), run, layout, refuse_damage(id, samples));
  samples = table.steps(query.from, query.to);
  const ColumnPlan plan =
      plan_columns(samples.first_sample, samples.steps.size(), std::clamp<std::size_t>(query.columns, 1, most_columns),
                   role.sites.size() * sizeof(float), view_budget);

  NumericsView view;
  view.statistic = query.statistic;
  view.role = query.role;
  view.worse = statistics[statistic].worse;
  const std::size_t rows = std::clamp<std::size_t>(query.rows, 1, most_rows);
  view.layers_per_row = std::max<std::size_t>(1, (role.sites.size() + rows - 1) / rows);
  view.rows = rows_of(look, run, role, view.layers_per_row);
  view.samples_per_column = plan.samples_per_column;
  view.steps = first_steps(samples, plan);
  view.last_step = samples.steps.empty() ? 0 : samples.steps.back();

  // Collected column by column, as the bins come, and transposed at the end.
  std::vector<float> columns(plan.columns * view.rows.size(), not_recorded);
  table.visit({.statistic = static_cast<std::int64_t>(statistic),
               .role = role_number,
               .first_chunk = 0,
               .end_chunk = role.chunks(),
               .begin = samples.first_sample,
               .end = samples.first_sample + samples.steps.size()},
              plan.level, [&](std::uint64_t sample, std::size_t chunk, std::span<const float> values) {
                const std::size_t column = sample / plan.samples_per_column - plan.first_column;
                float* rows_of_column = columns.data() + column * view.rows.size();
                for (std::size_t i = 0; i < values.size(); ++i) {
                  float& cell = rows_of_column[(chunk * role.chunk_sites() + i) / view.layers_per_row];
                  cell = worse_of(view.worse, cell, values[i]);
                }
              });
  view.values = transposed(columns, view.rows.size(), plan.columns);
  return view;
}

SiteHistory StoreReader::history(const std::string& id, const std::string& site, std::size_t points) const {
  Look look(*connections_);
  const std::int64_t run = look.run_key(id);
  const SiteLayout layout = look.layout(run);
  const std::vector<StatisticDescription> statistics = look.statistics(run);
  const SitePlace place = find_site(look, run, layout, site);
  NumericsTable::Steps samples;
  const NumericsTable table(look.database(), run, layout, refuse_damage(id, samples));
  samples = table.steps(0, UINT64_MAX);
  const std::size_t bytes = layout.roles[place.role].chunk_size(place.chunk) * sizeof(float) * statistics.size();
  const ColumnPlan plan = plan_columns(samples.first_sample, samples.steps.size(),
                                       std::clamp<std::size_t>(points, 1, most_columns), bytes, history_budget);
  SiteHistory history;
  history.site = site;
  history.samples_per_point = plan.samples_per_column;
  history.step = first_steps(samples, plan);
  for (std::size_t statistic = 0; statistic < statistics.size(); ++statistic) {
    std::vector<float> values(plan.columns, not_recorded);
    table.visit(range_of(place, statistic, samples), plan.level,
                [&](std::uint64_t sample, std::size_t, std::span<const float> bin) {
                  float& value = values[sample / plan.samples_per_column - plan.first_column];
                  value = worse_of(statistics[statistic].worse, value, bin[place.offset]);
                });
    history.statistics.emplace_back(statistics[statistic].name, std::move(values));
  }
  return history;
}

SiteHistogram StoreReader::histogram(const std::string& id, const std::string& site,
                                     std::optional<std::uint64_t> step) const {
  Look look(*connections_);
  const std::int64_t run = look.run_key(id);
  const SiteLayout layout = look.layout(run);
  const SitePlace place = find_site(look, run, layout, site);
  const HistogramTable histograms(look.database(), run,
                                  [&](std::uint64_t at) { fail_for_damage(id, "histograms", at); });
  SiteHistogram result;
  result.site = site;
  result.steps = histograms.steps();
  if (result.steps.empty()) {
    throw NoSuchRecord("the run has no histograms", "train with train.statistics_every to record them");
  }
  const auto distance = [&](std::uint64_t kept) { return kept > *step ? kept - *step : *step - kept; };
  result.step = !step ? result.steps.back()
                      : *std::min_element(result.steps.begin(), result.steps.end(),
                                          [&](auto a, auto b) { return distance(a) < distance(b); });
  const auto counts = histograms.read(result.step, place.number);
  if (!counts) throw NoSuchRecord(fmt::format("the run has no histogram of {}", site), "choose another site or step");
  result.counts = *counts;

  Statement& state = look.prepared(
                             "SELECT rows, columns, block, policy, recipe, reason FROM site_states WHERE run=? "
                             "AND site=? AND step<=? ORDER BY step DESC LIMIT 1")
                         .bind(run, place.number, result.step);
  if (state.step()) {
    result.state = {state.column_text(0), state.column_text(1), state.column_text(2),
                    state.column_text(3), state.column_text(4), state.column_text(5)};
  }
  NumericsTable::Steps samples;
  const NumericsTable table(look.database(), run, layout, refuse_damage(id, samples));
  samples = table.steps(result.step, result.step);
  const std::vector<StatisticDescription> statistics = look.statistics(run);
  for (std::size_t statistic = 0; statistic < statistics.size(); ++statistic) {
    float value = not_recorded;
    table.visit(range_of(place, statistic, samples), 0,
                [&](std::uint64_t, std::size_t, std::span<const float> bin) { value = bin[place.offset]; });
    result.statistics.emplace_back(statistics[statistic].name, value);
  }
  return result;
}

std::vector<DamagedBlob> StoreReader::damaged_blobs(const std::string& id) const {
  Look look(*connections_);
  const std::int64_t run = look.run_key(id);
  const SiteLayout layout = look.layout(run);
  std::vector<DamagedBlob> damaged;
  NumericsTable::Steps samples;
  const NumericsTable table(look.database(), run, layout, [&](std::uint64_t sample) {
    damaged.push_back({"numerics", step_of(samples, sample)});
  });
  samples = table.steps(0, UINT64_MAX);
  table.check();
  HistogramTable(look.database(), run, [&](std::uint64_t step) {
    damaged.push_back({"histograms", step});
  }).check(layout.sites);
  return damaged;
}

void StoreReader::visit_numerics(const std::string& id, std::span<const std::string> chosen,
                                 const NumericsVisitor& visit) const {
  Look look(*connections_);
  const std::int64_t run = look.run_key(id);
  const SiteLayout layout = look.layout(run);
  const std::vector<StatisticDescription> statistics = look.statistics(run);
  std::vector<std::size_t> numbers;
  for (const std::string& name : chosen) numbers.push_back(find_statistic(statistics, name));
  const NumericsTable table(look.database(), run, layout);
  const NumericsTable::Steps samples = table.steps(0, UINT64_MAX);
  // A group of samples at a time, because they may share rows.
  const std::size_t size = layout.sites * numbers.size();
  std::vector<float> group(samples_per_group * size);
  for (std::size_t first = 0; first < samples.steps.size(); first += samples_per_group) {
    const std::size_t count = std::min<std::size_t>(samples_per_group, samples.steps.size() - first);
    std::fill(group.begin(), group.end(), not_recorded);
    for (std::size_t column = 0; column < numbers.size(); ++column) {
      for (std::size_t r = 0; r < layout.roles.size(); ++r) {
        const SiteLayout::Role& role = layout.roles[r];
        table.visit({.statistic = static_cast<std::int64_t>(numbers[column]),
                     .role = r,
                     .first_chunk = 0,
                     .end_chunk = role.chunks(),
                     .begin = samples.first_sample + first,
                     .end = samples.first_sample + first + count},
                    0, [&](std::uint64_t sample, std::size_t chunk, std::span<const float> values) {
                      float* of_sample = group.data() + (sample - samples.first_sample - first) * size;
                      for (std::size_t i = 0; i < values.size(); ++i) {
                        of_sample[role.sites[chunk * role.chunk_sites() + i] * numbers.size() + column] = values[i];
                      }
                    });
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      visit(samples.steps[first + i], std::span<const float>(group).subspan(i * size, size));
    }
  }
}

}  // namespace quaver
