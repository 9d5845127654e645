#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <utility>

#include "quaver/error.h"
#include "report/chart.h"
#include "report/svg.h"
#include "report/theme.h"

namespace quaver::report {
namespace {

constexpr double label_height = 15;
constexpr double column_width = 1.5;  // pixels; points that share a column are thinned to its extremes

constexpr const char* no_data = " (no data)";

struct Point {
  double x;
  double y;
};
using Segment = std::vector<Point>;

struct PlotLayout {
  double left, top, width, height, label_room;
};

void check(const LineChart& chart) {
  for (const Series& series : chart.series) {
    if (series.x.size() != series.y.size()) {
      throw Error(fmt::format("chart '{}': series '{}' has {} x values and {} y values", chart.title, series.name,
                              series.x.size(), series.y.size()),
                  "give every point both coordinates");
    }
    if (!series.deviation.empty() && series.deviation.size() != series.y.size()) {
      throw Error(fmt::format("chart '{}': series '{}' has {} points and {} deviations", chart.title, series.name,
                              series.y.size(), series.deviation.size()),
                  "give every point a deviation, or none");
    }
  }
  if (!(chart.smoothing >= 0 && chart.smoothing < 1)) {
    throw Error(fmt::format("chart '{}': smoothing {} is outside [0, 1)", chart.title, chart.smoothing),
                "use 0 for none, 0.9 for the last ten points or so");
  }
  const auto usable = [&](const std::optional<double>& limit) {
    return !limit || Extent::drawable(chart.y_scale, *limit);
  };
  if (!usable(chart.y_min) || !usable(chart.y_max) || (chart.y_min && chart.y_max && *chart.y_min >= *chart.y_max)) {
    throw Error(fmt::format("chart '{}': the limits of y do not make a range", chart.title),
                "give a lower limit below the upper one, both positive on a logarithmic scale");
  }
}

Axis y_axis(const LineChart& chart, const Extent& extent, double top_to_bottom) {
  const Axis fitted = Axis::over(extent, chart.y_scale, chart.y_unit, 0.04, top_to_bottom, 0);
  double low = chart.y_min.value_or(fitted.low());
  double high = chart.y_max.value_or(fitted.high());
  if (low >= high) (chart.y_min ? high : low) = chart.y_min ? low : high;  // all data beyond the one given limit
  return {chart.y_scale, chart.y_unit, low, high, top_to_bottom, 0};
}

bool drawable(const Series& series, std::size_t i, const Axis& x, const Axis& y) {
  return Extent::drawable(x.scale(), series.x[i]) && Extent::drawable(y.scale(), series.y[i]);
}

// Pieces of the line between values that cannot be drawn, in pixels.
std::vector<Segment> segments(const Series& series, const Axis& x, const Axis& y) {
  std::vector<Segment> pieces;
  bool open = false;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (!drawable(series, i, x, y)) {
      open = false;
      continue;
    }
    if (!open) pieces.emplace_back();
    open = true;
    pieces.back().push_back({x.pixel(series.x[i]), y.pixel(series.y[i])});
  }
  return pieces;
}

// Of the points in one pixel column keeps the first, lowest, highest and last: the drawn line is the same.
Segment thinned(const Segment& points) {
  Segment kept;
  for (std::size_t begin = 0; begin < points.size();) {
    const double column = std::floor(points[begin].x / column_width);
    std::size_t end = begin;
    std::size_t low = begin;
    std::size_t high = begin;
    for (; end < points.size() && std::floor(points[end].x / column_width) == column; ++end) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
    }
    std::vector<std::size_t> order{begin, std::min(low, high), std::max(low, high), end - 1};
    order.erase(std::unique(order.begin(), order.end()), order.end());
    for (const std::size_t i : order) kept.push_back(points[i]);
    begin = end;
  }
  return kept;
}

std::string path_data(const std::vector<Segment>& pieces) {
  std::string data;
  for (const Segment& piece : pieces) {
    if (piece.size() < 2) continue;
    char command = 'M';
    std::string last;
    for (const Point& point : thinned(piece)) {
      std::string at = fmt::format("{} {}", coordinate(point.x), coordinate(point.y));
      if (at == last) continue;
      data += command;
      data += at;
      last = std::move(at);
      command = 'L';
    }
  }
  return data;
}

void draw_line(SvgWriter& svg, const std::vector<Segment>& pieces, const std::string& classes,
               const std::string& attributes = "") {
  const std::string data = path_data(pieces);
  if (!data.empty()) svg.path(data, "line " + classes, attributes);
  for (const Segment& piece : pieces) {
    if (piece.size() == 1) svg.dot(piece[0].x, piece[0].y, 2.5, "fill " + classes);
  }
}

// The band around a line: its upper edge, then its lower edge backward. Points that cannot be drawn part it.
void draw_band(SvgWriter& svg, const Series& series, const Axis& x, const Axis& y, const std::string& classes) {
  Series low = series;
  Series high = series;
  for (std::size_t i = 0; i < series.deviation.size(); ++i) {
    high.y[i] += series.deviation[i];
    low.y[i] -= series.deviation[i];
    const bool is_drawable = drawable(high, i, x, y) && drawable(low, i, x, y);
    if (!is_drawable) high.y[i] = low.y[i] = NAN;
  }
  const std::vector<Segment> above = segments(high, x, y);
  const std::vector<Segment> below = segments(low, x, y);
  std::string data;
  for (std::size_t piece = 0; piece < above.size(); ++piece) {
    char command = 'M';
    const auto add = [&](const Point& point) {
      data += fmt::format("{}{} {}", command, coordinate(point.x), coordinate(point.y));
      command = 'L';
    };
    for (const Point& point : thinned(above[piece])) add(point);
    const Segment lower = thinned(below[piece]);
    std::for_each(lower.rbegin(), lower.rend(), add);
    data += 'Z';
  }
  if (!data.empty()) svg.path(data, "band " + classes);
}

// Where values are not finite: a cross at the top edge where a run of them begins, and dots to where it ends.
bool draw_crosses(SvgWriter& svg, const Series& series, const Axis& x, std::size_t row, const std::string& classes) {
  const double y = 7 + 11 * static_cast<double>(row);
  std::string crosses;
  std::string runs;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (std::isfinite(series.y[i]) || !Extent::drawable(x.scale(), series.x[i])) continue;
    const double from = x.pixel(series.x[i]);
    double to = from;
    // Runs closer together than a cross is wide are one run to the eye.
    for (; i + 1 < series.x.size(); ++i) {
      if (!Extent::drawable(x.scale(), series.x[i + 1]) || x.pixel(series.x[i + 1]) > to + 8) break;
      if (!std::isfinite(series.y[i + 1])) to = x.pixel(series.x[i + 1]);
    }
    crosses += fmt::format("M{} {}l6 6m-6 0l6 -6", coordinate(from - 3), coordinate(y - 3));
    if (to > from + 6) runs += fmt::format("M{} {}H{}", coordinate(from + 6), coordinate(y), coordinate(to));
  }
  const std::string color = classes.substr(0, classes.find(' '));
  if (!crosses.empty()) svg.path(crosses, "cross " + color);
  if (!runs.empty()) svg.path(runs, "run " + color);
  return !crosses.empty();
}

void draw_axes(SvgWriter& svg, const LineChart& chart, const PlotLayout& layout, const Axis& x, const Axis& y) {
  const double bottom = layout.top + layout.height;
  const double right = layout.left + layout.width;
  for (const Tick& tick : y.ticks(std::max(2, static_cast<int>(layout.height / 50)))) {
    const double at = layout.top + y.pixel(tick.value);
    svg.line(layout.left, at, right, at, "grid");
    svg.text(layout.left - 8, at + 4, tick.label, "muted", Anchor::end);
  }
  for (const Tick& tick : x.ticks(std::max(2, static_cast<int>(layout.width / 90)))) {
    const double at = layout.left + x.pixel(tick.value);
    svg.line(at, bottom, at, bottom + 5, "axis");
    svg.text(at, bottom + 18, tick.label, "muted", Anchor::middle);
  }
  svg.line(layout.left, bottom, right, bottom, "axis");
  svg.fitted_text({layout.left + layout.width / 2, bottom + 36, layout.width, font}, chart.x_label, "muted",
                  Anchor::middle);
  for (const ReferenceLine& reference : chart.references) {
    if (!Extent::drawable(y.scale(), reference.y) || reference.y < y.low() || reference.y > y.high()) continue;
    const double at = layout.top + y.pixel(reference.y);
    svg.line(layout.left, at, right, at, "ref");
    svg.fitted_text({layout.left + 4, at - 4, layout.width / 2, 11}, reference.label, "muted small");
  }
}

// Moves labels apart, keeping their order and staying between top and bottom.
void spread(std::vector<std::pair<double, std::size_t>>& labels, double top, double bottom) {
  std::stable_sort(labels.begin(), labels.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  double next = top;
  for (auto& [y, index] : labels) {
    y = std::max(y, next);
    next = y + label_height;
  }
  double limit = bottom;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
    auto& [y, index] = *label;
    y = std::min(y, limit);
    limit = y - label_height;
  }
}

// Names beside the ends of their lines, each with a piece of its line.
void draw_labels(SvgWriter& svg, const LineChart& chart, const PlotLayout& layout,
                 const std::vector<std::optional<double>>& ends) {
  std::vector<std::pair<double, std::size_t>> labels;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    labels.emplace_back(layout.top + std::clamp(ends[i].value_or(layout.height), 0.0, layout.height), i);
  }
  spread(labels, layout.top + 4, layout.top + layout.height);
  const double x = layout.left + layout.width + 8;
  for (const auto& [y, i] : labels) {
    svg.line(x, y, x + 22, y, "line " + series_classes(i));
    const std::string name = ends[i] ? chart.series[i].name : chart.series[i].name + no_data;
    svg.fitted_text({x + 28, y + 4, layout.label_room, font}, name, ends[i] ? "" : "muted");
  }
}

PlotLayout lay_out(const LineChart& chart, const Extent& y_extent) {
  double names = 0;
  for (const Series& series : chart.series) {
    names = std::max(names, text_width(series.x.empty() ? series.name + no_data : series.name, font));
  }
  PlotLayout layout{};
  layout.label_room = chart.series.empty() ? 0 : std::min(names, 0.28 * chart.width);
  layout.top = 14 + (chart.title.empty() ? 0 : 18) + (chart.y_label.empty() ? 0 : 20);
  const auto count = static_cast<double>(chart.series.size());
  layout.height = std::max({chart.height - layout.top - 46, count * label_height, 60.0});
  double tick_width = 0;
  for (const Tick& tick : y_axis(chart, y_extent, layout.height).ticks(static_cast<int>(layout.height / 50))) {
    tick_width = std::max(tick_width, text_width(tick.label, font));
  }
  layout.left = tick_width + 12;
  layout.width = std::max(80.0, chart.width - layout.left - (chart.series.empty() ? 12 : layout.label_room + 40));
  return layout;
}

std::string describe(const LineChart& chart) {
  if (!chart.description.empty()) return chart.description;
  std::string text = fmt::format("{} against {}.", chart.y_label, chart.x_label);
  for (const Series& series : chart.series) {
    text += series.y.empty() ? fmt::format(" {}: no data.", series.name)
                             : fmt::format(" {}: {} points, from {} to {}.", series.name, series.y.size(),
                                           format_value(series.y.front(), chart.y_unit),
                                           format_value(series.y.back(), chart.y_unit));
  }
  return text;
}

std::string_view unit_name(Unit unit) {
  switch (unit) {
    case Unit::bytes:
      return "bytes";
    case Unit::seconds:
      return "seconds";
    case Unit::percent:
      return "percent";
    case Unit::none:
      break;
  }
  return "none";
}

// What the read-out script needs to turn pixels back into values.
std::string script_data(const PlotLayout& layout, const Axis& x, const Axis& y) {
  const auto axis = [](const Axis& a) {
    return fmt::format("{:.9g} {:.9g} {} {}", a.low(), a.high(), a.scale() == Scale::log ? "log" : "linear",
                       unit_name(a.unit()));
  };
  return fmt::format("data-plot=\"{} {} {} {}\" data-x=\"{}\" data-y=\"{}\"", coordinate(layout.left),
                     coordinate(layout.top), coordinate(layout.width), coordinate(layout.height), axis(x), axis(y));
}

void draw_footnotes(SvgWriter& svg, const LineChart& chart, const PlotLayout& layout, bool crosses) {
  std::size_t lost = 0;
  for (const Series& series : chart.series) {
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      const bool finite = std::isfinite(series.x[i]) && std::isfinite(series.y[i]);
      lost += finite && !(Extent::drawable(chart.x_scale, series.x[i]) && Extent::drawable(chart.y_scale, series.y[i]));
    }
  }
  std::string text = crosses ? "× not finite" : "";
  if (lost > 0) text += fmt::format("{}{} values outside a logarithmic scale", crosses ? ", " : "", lost);
  if (!text.empty()) svg.text(layout.left, layout.top + layout.height + 36, text, "muted small");
}

}  // namespace

std::vector<double> smooth(const std::vector<double>& values, double weight) {
  std::vector<double> averaged(values);
  double sum = 0;
  double total_weight = 0;
  for (double& value : averaged) {
    if (!std::isfinite(value)) continue;
    sum = weight * sum + (1 - weight) * value;
    total_weight = weight * total_weight + (1 - weight);
    value = sum / total_weight;
  }
  return averaged;
}

std::string to_svg(const LineChart& chart) {
  check(chart);
  Extent x_extent(chart.x_scale);
  Extent y_extent(chart.y_scale);
  for (const Series& series : chart.series) {
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      x_extent.include(series.x[i]);
      if (!Extent::drawable(chart.x_scale, series.x[i])) continue;
      y_extent.include(series.y[i]);
      if (series.deviation.empty()) continue;
      y_extent.include(series.y[i] - series.deviation[i]);
      y_extent.include(series.y[i] + series.deviation[i]);
    }
  }
  for (const ReferenceLine& reference : chart.references) y_extent.include(reference.y);

  const PlotLayout layout = lay_out(chart, y_extent);
  const Axis x = Axis::over(x_extent, chart.x_scale, chart.x_unit, 0, 0, layout.width);
  const Axis y = y_axis(chart, y_extent, layout.height);
  SvgWriter svg("lines", chart.width, layout.top + layout.height + 46, chart.title, describe(chart),
                script_data(layout, x, y));
  svg.fitted_text({0, 16, chart.width, 13.5}, chart.title, "title");
  svg.fitted_text({0, layout.top - 14, chart.width, font}, chart.y_label, "muted");
  draw_axes(svg, chart, layout, x, y);

  std::vector<std::optional<double>> ends;
  std::size_t cross_rows = 0;
  svg.begin_clip({layout.left, layout.top, layout.width, layout.height});
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    if (!chart.series[i].deviation.empty()) draw_band(svg, chart.series[i], x, y, fill_class(i));
  }
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    if (chart.smoothing > 0) draw_line(svg, segments(chart.series[i], x, y), "raw " + series_classes(i));
  }
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    Series series = chart.series[i];
    cross_rows += draw_crosses(svg, series, x, cross_rows, series_classes(i)) ? 1 : 0;
    if (chart.smoothing > 0) series.y = smooth(series.y, chart.smoothing);
    const auto pieces = segments(series, x, y);
    draw_line(svg, pieces, "main " + series_classes(i), fmt::format("data-name=\"{}\"", escape(series.name)));
    ends.push_back(pieces.empty() ? std::nullopt : std::optional(pieces.back().back().y));
  }
  svg.end_clip();
  if (x_extent.empty() || y_extent.empty()) {
    svg.text(layout.left + layout.width / 2, layout.top + layout.height / 2, "no data", "muted", Anchor::middle);
  }
  draw_labels(svg, chart, layout, ends);
  draw_footnotes(svg, chart, layout, cross_rows > 0);
  return svg.finish();
}

}  // namespace quaver::report
