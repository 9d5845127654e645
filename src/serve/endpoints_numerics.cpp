// Numerics of a run: one statistic over sites and steps, and the histogram of one site.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "numerics/what_if.h"
#include "serve/endpoints.h"
#include "serve/json_text.h"

namespace quaver {

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "matrices are sent as they are in memory");

constexpr std::uint64_t last_step = std::numeric_limits<std::int64_t>::max();

const char* aggregate_name(WorseWay worse) {
  switch (worse) {
    case WorseWay::higher:
      return "max";
    case WorseWay::lower:
      return "min";
    case WorseWay::larger_magnitude:
      return "absmax";
  }
  return "max";
}

// From the first step of a column to that of the next; of a single column, all its steps.
std::uint64_t steps_per_column(const NumericsView& view) {
  if (view.steps.size() > 1) return view.steps[1] - view.steps[0];
  return view.steps.empty() ? 1 : view.last_step - view.steps[0] + 1;
}

json header_of(const NumericsView& view) {
  json rows = json::array();
  json names = json::array();
  for (const NumericsView::Row& row : view.rows) {
    rows.push_back({{"layer", row.layer}, {"first", row.first}, {"count", row.count}});
    names.push_back(row.layer);
  }
  return {{"statistic", view.statistic},
          {"role", view.role},
          {"rows", std::move(rows)},
          {"row_names", std::move(names)},
          {"steps", view.steps},
          {"last_step", view.last_step},
          {"steps_per_column", steps_per_column(view)},
          {"samples_per_column", view.samples_per_column},
          {"layers_per_row", view.layers_per_row},
          {"aggregate", aggregate_name(view.worse)}};
}

std::optional<Format> format_named(const std::string& name) {
  for (const Format format : all_formats) {
    if (info(format).name == name) return format;
  }
  return std::nullopt;
}

SiteSample figures_of(const SiteHistogram& histogram) {
  SiteSample figures;
  for (const auto& [name, value] : histogram.statistics) {
    for (const StatisticInfo& statistic : all_statistics()) {
      if (statistic.name == name) figures[statistic.statistic] = value;
    }
  }
  return figures;
}

bool is_scale(float scale) { return std::isfinite(scale) && scale > 0; }

// Under current scaling the scale fits the amax. Blockwise scales differ within the tensor: there is no one range to
// draw.
json range_of(const SiteHistogram& histogram, const Distribution& distribution, float scale) {
  const auto format = format_named(histogram.state.rows);
  if (!format) return nullptr;
  if (!is_scale(scale)) {
    if (is_low_precision(*format) && histogram.state.block != "tensor") return nullptr;
    scale = natural_scale(distribution, *format);
    if (!is_scale(scale)) return nullptr;
  }
  const FormatRange range = format_range(*format, scale);
  return {{"zero_below", range.lowest}, {"subnormal_below", range.smallest_normal}, {"max", range.largest}};
}

// Every format with its best scale.
json what_if_rows(const Distribution& distribution) {
  json rows = json::array();
  for (const Format format : what_if_formats()) {
    const CastPrediction figures = what_if(distribution, format);
    rows.push_back({{"format", info(format).name},
                    {"scale", figures.scale},
                    {"underflow_percent", figures.underflow_percent},
                    {"saturated_percent", figures.saturated_percent},
                    {"sqnr_db", figures.sqnr_db}});
  }
  return rows;
}

// What the cast of that step did, with the scale it used.
json as_stored(const SiteSample& sample) {
  return {{"scale", sample[Statistic::scale]},
          {"underflow_percent", sample[Statistic::underflow_percent]},
          {"saturated_percent", sample[Statistic::saturated_percent]},
          {"sqnr_db", sample[Statistic::sqnr_db]}};
}

}  // namespace

std::string numerics_body(const StoreReader& store, const std::string& run, const Query& query) {
  NumericsQuery wanted;
  wanted.statistic = name_in(query, "statistic");
  wanted.role = name_in(query, "role");
  wanted.from = query.number("from", 0, 0, last_step);
  wanted.to = query.number("to", last_step, 0, last_step);
  wanted.columns = query.number("columns", 1200, 1, 4096);
  wanted.rows = query.number("rows", 800, 1, 4096);
  const NumericsView view = store.numerics(run, wanted);

  std::string header = json_text(header_of(view));
  header.append((4 - header.size() % 4) % 4, ' ');
  const auto length = static_cast<std::uint32_t>(header.size());
  const std::size_t bytes = view.values.size() * sizeof(float);
  std::string body(sizeof length, '\0');
  body.reserve(body.size() + header.size() + bytes);
  std::memcpy(body.data(), &length, sizeof length);
  body += header;
  body.append(reinterpret_cast<const char*>(view.values.data()), bytes);
  return body;
}

std::string histogram_body(const StoreReader& store, const std::string& run, const Query& query) {
  std::optional<std::uint64_t> step;
  if (query.text("step")) step = query.number("step", 0, 0, last_step);
  const SiteHistogram histogram = store.histogram(run, name_in(query, "site"), step);
  const SiteSample figures = figures_of(histogram);
  const Distribution distribution = distribution_of(figures, histogram.counts);
  const float scale = figures[Statistic::scale];
  return json_text({{"site", histogram.site},
                    {"step", histogram.step},
                    {"steps", histogram.steps},
                    {"first_binade", first_binade},
                    {"counts", histogram.counts},
                    {"format", histogram.state.rows},
                    {"scale", scale},
                    {"range", range_of(histogram, distribution, scale)},
                    {"as_stored", as_stored(figures)},
                    {"what_if", what_if_rows(distribution)}});
}

}  // namespace quaver
