#include <algorithm>
#include <array>
#include <fmt/core.h>

#include "quaver/error.h"
#include "report/chart.h"
#include "report/svg.h"
#include "report/theme.h"

namespace quaver::report {
namespace {

constexpr double legend_line = 18;
constexpr double bound_label = 13;

struct ScatterLayout {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

// A circle, a square, a diamond, triangles and a cross, of the same area about (0, 0).
std::string shape_at(std::size_t group, double x, double y) {
  constexpr std::array shapes{"m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z",
                              "m-3.2 -3.2h6.4v6.4h-6.4z",
                              "m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z",
                              "m0 -4.4l4.2 7.4h-8.4z",
                              "m0 4.4l4.2 -7.4h-8.4z",
                              "m-1.4 -4.2h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8v-2.8h2.8z"};
  return fmt::format("M{} {}{}", coordinate(x), coordinate(y), shapes[group % shapes.size()]);
}

bool is_drawable(double x, double y) { return Extent::drawable(Scale::log, x) && Extent::drawable(Scale::log, y); }

void check_bounds(const ScatterChart& chart) {
  for (const Bound& bound : chart.bounds) {
    if (bound.x.size() == bound.y.size()) continue;
    throw Error(fmt::format("chart '{}': line '{}' has {} x values and {} y values", chart.title, bound.name,
                            bound.x.size(), bound.y.size()),
                "give every point both coordinates");
  }
}

void draw_scatter_axes(SvgWriter& svg, const ScatterChart& chart, const ScatterLayout& at, const Axis& x,
                       const Axis& y) {
  const double bottom = at.top + at.height;
  const double right = at.left + at.width;
  for (const Tick& tick : y.ticks(6)) {
    const double level = at.top + y.pixel(tick.value);
    svg.line(at.left, level, right, level, "grid");
    svg.text(at.left - 8, level + 4, tick.label, "muted", Anchor::end);
  }
  for (const Tick& tick : x.ticks(8)) {
    const double place = at.left + x.pixel(tick.value);
    svg.line(place, at.top, place, bottom, "grid");
    svg.text(place, bottom + 18, tick.label, "muted", Anchor::middle);
  }
  svg.line(at.left, bottom, right, bottom, "axis");
  svg.fitted_text({at.left + at.width / 2, bottom + 36, at.width, font}, chart.x_label, "muted", Anchor::middle);
}

struct BoundName {
  double y = 0;
  double x = 0;
  std::string text;
};

// Before the last bends of the lines, above all points: the highest as high as its line, the others not on it.
void draw_bound_names(SvgWriter& svg, const ScatterChart& chart, const ScatterLayout& at, const Axis& x,
                      const Axis& y) {
  std::vector<BoundName> names;
  for (const Bound& bound : chart.bounds) {
    if (bound.y.size() < 2) continue;
    const std::size_t bend = bound.y.size() - 2;
    if (!is_drawable(bound.x[bend], bound.y[bend])) continue;
    names.push_back({at.top + y.pixel(bound.y[bend]) + 4, at.left + x.pixel(bound.x[bend]) - 8, bound.name});
  }
  std::ranges::sort(names, {}, &BoundName::y);
  double next = 0;
  for (BoundName& name : names) {
    name.y = std::max(name.y, next);
    next = name.y + bound_label;
    svg.fitted_text({name.x, name.y, name.x - at.left, 11}, name.text, "muted small", Anchor::end);
  }
}

double draw_legend(SvgWriter& svg, const ScatterChart& chart, double top) {
  double x = 0;
  double y = top;
  for (std::size_t i = 0; i < chart.groups.size(); ++i) {
    const double width = text_width(chart.groups[i].name, font) + 34;
    if (x > 0 && x + width > chart.width) {
      x = 0;
      y += legend_line;
    }
    svg.path(shape_at(i, x + 6, y - 4), "mark " + fill_class(i));
    svg.text(x + 15, y, chart.groups[i].name);
    x += width;
  }
  return y;
}

std::string describe_scatter(const ScatterChart& chart) {
  if (!chart.description.empty()) return chart.description;
  std::string text = fmt::format("{} against {}.", chart.y_label, chart.x_label);
  for (const MarkGroup& group : chart.groups) text += fmt::format(" {}: {} points.", group.name, group.marks.size());
  for (const Bound& bound : chart.bounds) text += fmt::format(" Line: {}.", bound.name);
  return text;
}

}  // namespace

std::string to_svg(const ScatterChart& chart) {
  check_bounds(chart);
  Extent x_extent(Scale::log);
  Extent y_extent(Scale::log);
  const auto include = [&](double x, double y) {
    if (!is_drawable(x, y)) return;
    x_extent.include(x);
    y_extent.include(y);
  };
  for (const MarkGroup& group : chart.groups) {
    for (const Mark& mark : group.marks) include(mark.x, mark.y);
  }
  for (const Bound& bound : chart.bounds) {
    for (std::size_t i = 0; i < bound.x.size(); ++i) include(bound.x[i], bound.y[i]);
  }
  SvgWriter svg("points", chart.width, chart.height, chart.title, describe_scatter(chart));
  svg.fitted_text({0, 16, chart.width, 13.5}, chart.title, "title");
  const double legend = draw_legend(svg, chart, 40);
  svg.fitted_text({0, legend + 24, chart.width, font}, chart.y_label, "muted");
  const double top = legend + 36;
  const double height = std::max(80.0, chart.height - top - 44);
  const Axis y = Axis::over(y_extent, Scale::log, Unit::none, 0.05, height, 0);
  double tick_width = 0;
  for (const Tick& tick : y.ticks(6)) tick_width = std::max(tick_width, text_width(tick.label, font));
  const ScatterLayout at{tick_width + 12, top, std::max(80.0, chart.width - tick_width - 20), height};
  const Axis x = Axis::over(x_extent, Scale::log, Unit::none, 0.03, 0, at.width);
  draw_scatter_axes(svg, chart, at, x, y);
  svg.begin_clip({at.left, at.top, at.width, at.height});
  for (const Bound& bound : chart.bounds) {
    std::string data;
    for (std::size_t i = 0; i < bound.x.size(); ++i) {
      if (!is_drawable(bound.x[i], bound.y[i])) continue;
      data += fmt::format("{}{} {}", data.empty() ? 'M' : 'L', coordinate(x.pixel(bound.x[i])),
                          coordinate(y.pixel(bound.y[i])));
    }
    if (!data.empty()) svg.path(data, "bound", "", bound.name);
  }
  for (std::size_t i = 0; i < chart.groups.size(); ++i) {
    for (const Mark& mark : chart.groups[i].marks) {
      if (!is_drawable(mark.x, mark.y)) continue;
      svg.path(shape_at(i, x.pixel(mark.x), y.pixel(mark.y)), "mark " + fill_class(i), "", mark.note);
    }
  }
  svg.end_clip();
  draw_bound_names(svg, chart, at, x, y);
  if (x_extent.empty()) {
    svg.text(at.left + at.width / 2, at.top + at.height / 2, "no data", "muted", Anchor::middle);
  }
  return svg.finish();
}

}  // namespace quaver::report
