#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numeric>
#include <utility>

#include "quaver/error.h"
#include "report/chart.h"
#include "report/svg.h"
#include "report/theme.h"

namespace quaver::report {
namespace {

constexpr double row_height = 28;
constexpr double bar_height = 17;

void check(const BarChart& chart) {
  const std::size_t parts = std::max<std::size_t>(chart.parts.size(), 1);
  for (const Bar& bar : chart.bars) {
    if (bar.values.size() != parts) {
      throw Error(fmt::format("chart '{}': bar '{}' has {} values for {} parts", chart.title, bar.name,
                              bar.values.size(), parts),
                  "give one value per part");
    }
    if (parts > 1 && std::any_of(bar.values.begin(), bar.values.end(), [](double v) { return v < 0; })) {
      throw Error(fmt::format("chart '{}': bar '{}' stacks a negative value", chart.title, bar.name),
                  "stack quantities that add up, or draw one part");
    }
  }
}

double total(const Bar& bar) { return std::accumulate(bar.values.begin(), bar.values.end(), 0.0); }

std::string end_label(const Bar& bar, Unit unit) { return format_value(total(bar), unit); }

// Where each name of the legend goes, and how tall it is: rows as wide as the chart.
struct Legend {
  std::vector<std::pair<double, double>> places;
  double height = 0;
};

Legend lay_out_legend(const BarChart& chart) {
  Legend legend;
  if (chart.parts.size() < 2) return legend;
  double x = 0;
  double y = 0;
  for (const std::string& part : chart.parts) {
    const double width = 17 + std::min(text_width(part, font), 180.0) + 18;
    if (x > 0 && x + width > chart.width) {
      x = 0;
      y += 18;
    }
    legend.places.emplace_back(x, y);
    x += width;
  }
  legend.height = y + 24;
  return legend;
}

void draw_legend(SvgWriter& svg, const BarChart& chart, const Legend& legend, double top) {
  for (std::size_t i = 0; i < legend.places.size(); ++i) {
    const auto [x, y] = legend.places[i];
    svg.rect({x, top + y, 11, 11}, "bar " + fill_class(i));
    svg.fitted_text({x + 17, top + y + 10, 180, font}, chart.parts[i]);
  }
}

void draw_bar(SvgWriter& svg, const BarChart& chart, const Bar& bar, const Axis& axis, double left, double y) {
  double start = 0;
  for (std::size_t i = 0; i < bar.values.size(); ++i) {
    const double value = bar.values[i];
    if (!Extent::drawable(Scale::linear, value)) continue;
    const double from = axis.pixel(std::min(start, start + value));
    const double to = axis.pixel(std::max(start, start + value));
    const std::string part = chart.parts.empty() ? "" : fmt::format(" · {}", chart.parts[i]);
    if (to > from) {
      svg.rect({left + from, y, to - from, bar_height}, "bar " + fill_class(i),
               fmt::format("{}{}: {}", bar.name, part, format_value(value, chart.unit)));
    }
    start += value;
  }
  const double end = left + axis.pixel(std::max(0.0, std::isfinite(start) ? start : 0.0));
  const std::string label = end_label(bar, chart.unit);
  svg.text(end + 6, y + 13, label);
  if (!bar.note.empty()) svg.text(end + 6 + text_width(label, font) + 8, y + 13, bar.note, "muted");
}

std::string describe(const BarChart& chart) {
  if (!chart.description.empty()) return chart.description;
  std::string text = chart.x_label + ".";
  for (const Bar& bar : chart.bars) text += fmt::format(" {}: {}.", bar.name, end_label(bar, chart.unit));
  return text;
}

}  // namespace

std::string to_svg(const BarChart& chart) {
  check(chart);
  Extent extent(Scale::linear);
  extent.include(0);
  double name_width = 0;
  double label_width = 0;
  for (const Bar& bar : chart.bars) {
    extent.include(total(bar));
    name_width = std::max(name_width, text_width(bar.name, font));
    label_width = std::max(label_width, text_width(end_label(bar, chart.unit) + bar.note, font) + 20);
  }
  name_width = std::min(name_width, 0.3 * chart.width);
  const double left = name_width + 12;
  const double width = std::max(80.0, chart.width - left - std::min(label_width, 0.3 * chart.width));
  const Axis axis =
      Axis(Scale::linear, chart.unit, extent.low(), extent.high() > extent.low() ? extent.high() : 1, 0, width);

  const Legend legend = lay_out_legend(chart);
  const double legend_top = chart.title.empty() ? 4 : 30;
  const double top = legend_top + legend.height;
  const double bottom = top + row_height * static_cast<double>(std::max<std::size_t>(chart.bars.size(), 1));
  SvgWriter svg("bars", chart.width, bottom + (chart.x_label.empty() ? 22 : 40), chart.title, describe(chart));
  svg.fitted_text({0, 16, chart.width, 13.5}, chart.title, "title");
  draw_legend(svg, chart, legend, legend_top);
  for (const Tick& tick : axis.ticks(static_cast<int>(width / 100))) {
    const double at = left + axis.pixel(tick.value);
    svg.line(at, top, at, bottom, tick.value == 0 ? "axis" : "grid");
    svg.text(at, bottom + 16, tick.label, "muted", Anchor::middle);
  }
  svg.fitted_text({left + width / 2, bottom + 34, width, font}, chart.x_label, "muted", Anchor::middle);
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const double y = top + row_height * static_cast<double>(i) + (row_height - bar_height) / 2;
    svg.fitted_text({name_width, y + 13, name_width, font}, chart.bars[i].name, "", Anchor::end);
    draw_bar(svg, chart, chart.bars[i], axis, left, y);
  }
  if (chart.bars.empty()) svg.text(left + width / 2, top + 18, "no data", "muted", Anchor::middle);
  return svg.finish();
}

}  // namespace quaver::report
