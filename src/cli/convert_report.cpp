// What a conversion says: a table for the terminal, JSON, and an HTML report.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/convert.h"
#include "cli/progress.h"
#include "cli/study.h"
#include "cli/table.h"
#include "report/chart.h"
#include "report/page.h"

namespace quaver {

namespace {

using nlohmann::ordered_json;

std::string shown_sqnr(double db) { return std::isinf(db) ? "exact" : shown(db, "{:.1f}"); }

std::string shown_sqnr_with_unit(double db) { return shown_sqnr(db) + (std::isinf(db) ? "" : " dB"); }

std::string shown_scales(const ScaleRange& scales) {
  if (scales.largest == 0) return "–";
  if (scales.smallest == scales.largest) return shown(scales.largest, "{:.3g}");
  return fmt::format("{:.3g}–{:.3g}", scales.smallest, scales.largest);
}

std::vector<std::vector<std::string>> layer_rows(const ConversionReport& report) {
  std::vector<std::vector<std::string>> rows{
      {"layer", "shape", "SQNR dB", "amax", "underflow %", "saturated %", "scale"}};
  for (const ConvertedLayer& layer : report.conversion.layers) {
    const CastStatistics& seen = layer.statistics;
    rows.push_back({layer_of(layer.name), fmt::format("{}x{}", layer.rows, layer.cols), shown_sqnr(seen.sqnr_db()),
                    shown(seen.amax), shown(seen.underflow_percent(), "{:.3f}"),
                    shown(seen.saturated_percent(), "{:.3f}"), shown_scales(layer.scales)});
  }
  return rows;
}

std::vector<std::vector<std::string>> difference_rows(const ConversionReport& report) {
  std::vector<std::vector<std::string>> rows{{"site", "amax calibrated", "amax here", "binades"}};
  for (const SiteDrift& site : report.check.different) {
    rows.push_back({site.site, shown(site.amax_before), shown(site.amax_now), shown(site.binades, "{:+.2f}")});
  }
  return rows;
}

std::string difference_text(const ConversionReport& report) {
  const CalibrationCheck& check = report.check;
  if (check.compared == 0) return fmt::format("{} has none of the layers that were converted.", report.calibration);
  if (check.different.empty()) return fmt::format("The weights are those of {}.", report.calibration);
  return fmt::format("The weights of {} of {} layers are not those of {}: calibrate again before its scales are used.",
                     check.different.size(), check.compared, report.calibration);
}

const ConvertedLayer* worst_layer(const Conversion& conversion) {
  const auto worst = std::min_element(
      conversion.layers.begin(), conversion.layers.end(),
      [](const ConvertedLayer& a, const ConvertedLayer& b) { return a.statistics.sqnr_db() < b.statistics.sqnr_db(); });
  return worst == conversion.layers.end() ? nullptr : &*worst;
}

report::LineChart sqnr_chart(const ConversionReport& report) {
  report::LineChart chart;
  chart.title = "SQNR of the weights";
  chart.x_label = "layer, in the order of the files";
  chart.y_label = "dB";
  report::Series series{"SQNR", {}, {}};
  for (const ConvertedLayer& layer : report.conversion.layers) {
    const double db = layer.statistics.sqnr_db();
    if (!std::isfinite(db)) continue;
    series.x.push_back(static_cast<double>(&layer - report.conversion.layers.data() + 1));
    series.y.push_back(db);
  }
  chart.series.push_back(std::move(series));
  chart.references.push_back({report.least_sqnr, fmt::format("least, {:g} dB", report.least_sqnr)});
  return chart;
}

report::BarChart amax_chart(const ConversionReport& report) {
  constexpr std::size_t most = 24;
  std::vector<const ConvertedLayer*> layers;
  for (const ConvertedLayer& layer : report.conversion.layers) layers.push_back(&layer);
  const auto ratio = [](const ConvertedLayer* layer) {
    const double rms = layer->statistics.rms();
    return rms > 0 ? layer->statistics.amax / rms : 0.0;
  };
  std::stable_sort(layers.begin(), layers.end(), [&](const auto* a, const auto* b) { return ratio(a) > ratio(b); });
  report::BarChart chart;
  chart.title = "Largest outliers";
  chart.x_label = "amax / rms";
  for (std::size_t i = 0; i < std::min(most, layers.size()); ++i) {
    chart.bars.push_back(
        {layer_of(layers[i]->name), {ratio(layers[i])}, shown_sqnr_with_unit(layers[i]->statistics.sqnr_db())});
  }
  return chart;
}

ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

ordered_json json_of(const ConvertedLayer& layer) {
  const CastStatistics& seen = layer.statistics;
  ordered_json entry{{"name", layer.name},
                     {"rows", layer.rows},
                     {"cols", layer.cols},
                     {"sqnr_db", number(seen.sqnr_db())},
                     {"amax", seen.amax},
                     {"rms", number(seen.rms())},
                     {"underflow_percent", seen.underflow_percent()},
                     {"saturated_percent", seen.saturated_percent()},
                     {"nonfinite", seen.nonfinite}};
  if (layer.scales.largest > 0) {
    entry["scale_min"] = layer.scales.smallest;
    entry["scale_max"] = layer.scales.largest;
  }
  if (!layer.refusal.empty()) entry["refusal"] = layer.refusal;
  return entry;
}

double converted_percent(const Conversion& done) {
  return done.values == 0 ? 0 : 100 * static_cast<double>(done.converted_values) / static_cast<double>(done.values);
}

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

std::string conversion_table(const ConversionReport& report) {
  std::string text;
  if (!report.conversion.layers.empty()) text += aligned(layer_rows(report));
  if (!report.conversion.kept.empty()) {
    text += fmt::format("layers that {}: {}\n",
                        is_quantized(report.format) ? "stay in high precision" : "keep their format",
                        report.conversion.kept.size());
  }
  if (report.calibration.empty()) return text;
  text += difference_text(report) + "\n";
  if (!report.check.different.empty()) text += aligned(difference_rows(report));
  return text;
}

std::string conversion_summary(const ConversionReport& report) {
  const Conversion& done = report.conversion;
  const double read = megabytes(done.bytes_read);
  std::string text =
      fmt::format("{}: {:.1f}% of its {} values in {}; {:.1f} MB read, {:.1f} MB written in {:.1f} s ({:.0f} MB/s)",
                  report.to, converted_percent(done), format_count(static_cast<double>(done.values)),
                  name_of(report.format), read, megabytes(done.bytes_written), report.seconds, read / report.seconds);
  if (const ConvertedLayer* worst = worst_layer(done)) {
    text +=
        fmt::format("\nlowest SQNR: {}, {}", shown_sqnr_with_unit(worst->statistics.sqnr_db()), layer_of(worst->name));
  }
  return text;
}

std::string refused_layers(const ConversionReport& report) {
  constexpr std::size_t most = 5;
  std::string text;
  std::size_t count = 0;
  for (const ConvertedLayer& layer : report.conversion.layers) {
    if (layer.refusal.empty() || ++count > most) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", layer.name, layer.refusal);
  }
  return count > most ? fmt::format("{}; and {} more layers", text, count - most) : text;
}

std::string conversion_json(const ConversionReport& report) {
  const Conversion& done = report.conversion;
  ordered_json layers = ordered_json::array();
  for (const ConvertedLayer& layer : done.layers) layers.push_back(json_of(layer));
  ordered_json result{{"from", report.from},
                      {"to", report.to},
                      {"format", name_of(report.format)},
                      {"written", !done.files.empty()},
                      {"least_sqnr_db", report.least_sqnr},
                      {"values", done.values},
                      {"converted_values", done.converted_values},
                      {"bytes_read", done.bytes_read},
                      {"bytes_written", done.bytes_written},
                      {"seconds", report.seconds},
                      {"high_precision", done.kept},
                      {"layers", std::move(layers)}};
  if (report.calibration.empty()) return result.dump(1, ' ', true, ordered_json::error_handler_t::replace);
  ordered_json different = ordered_json::array();
  for (const SiteDrift& site : report.check.different) {
    different.push_back({{"site", site.site}, {"amax_calibrated", site.amax_before}, {"amax", site.amax_now}});
  }
  result["calibration"] = {{"file", report.calibration}, {"different", std::move(different)}};
  return result.dump(1, ' ', true, ordered_json::error_handler_t::replace);
}

std::string conversion_page(const ConversionReport& report) {
  const Conversion& done = report.conversion;
  report::Page page("Conversion", fmt::format("{} to {}", report.from, name_of(report.format)));
  page.key_values(std::vector<report::KeyValue>{
      {"from", done.from ? fmt::format("{}, {}", report.from, name_of(*done.from)) : report.from},
      {"to", report.to},
      {"layers", fmt::format("{} converted ({:.1f}% of all values), {} more linear layers in high precision",
                             done.layers.size(), converted_percent(done), done.kept.size())},
      {"weights", fmt::format("{} read, {} written", format_bytes(done.bytes_read), format_bytes(done.bytes_written))},
      {"limit", fmt::format("SQNR of at least {:g} dB", report.least_sqnr)}});
  if (const std::string refused = refused_layers(report); !refused.empty()) {
    page.note((done.files.empty() ? "Refused, nothing was written: " : "Written all the same: ") + refused);
  }
  if (!report.calibration.empty()) {
    page.heading("Calibration").paragraph(difference_text(report));
    if (!report.check.different.empty()) page.table(report_table(difference_rows(report)));
  }
  if (!done.layers.empty()) {
    page.heading("What the format costs");
    if (worst_layer(done)->statistics.error2 > 0) page.figure(report::to_svg(sqnr_chart(report)));
    page.figure(report::to_svg(amax_chart(report)), "Outliers set the scale that all other values of a block share.");
    page.heading("Layers").table(report_table(layer_rows(report)));
    page.paragraph(
        "Underflow is the share of values that became zero and were not; saturated that of values beyond what the "
        "format holds. A scale is the factor that codes are multiplied by, from the smallest to the largest.");
  }
  return page.footer("Written by quaver " QUAVER_VERSION).html();
}

}  // namespace quaver
