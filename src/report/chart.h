// Charts as inline SVG: lines, horizontal bars, points, and a grid of colored cells. They need no script; colors and
// type come from the page's style sheet (or from standalone_svg), follow the light or dark preference and are safe for
// color-blind readers, and lines differ by dash as well. Every text may be hostile: it is escaped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/axis.h"
#include "report/text.h"

namespace quaver::report {

// x and y have the same length. A value that is not finite breaks the line and is marked with a cross at the top edge:
// in low precision that is the point of the figure.
struct Series {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> deviation = {};  // half the height of a band around the line, a value per point; empty: none
};

struct ReferenceLine {
  double y;
  std::string label;
};

struct LineChart {
  std::string title;
  std::string description;  // for readers who cannot see the figure; made from the series where empty
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  Scale x_scale = Scale::linear;
  Scale y_scale = Scale::linear;
  Unit x_unit = Unit::none;
  Unit y_unit = Unit::none;
  double smoothing = 0;         // weight of the past in an exponential average, in [0, 1); the raw line stays, faint
  std::optional<double> y_min;  // limits of the view; by default all that is there
  std::optional<double> y_max;
  std::vector<ReferenceLine> references;
  double width = 760;
  double height = 340;
};

// Horizontal bars, each made of one value per part. With one part (parts may then be empty) values may be negative.
struct Bar {
  std::string name;
  std::vector<double> values;
  std::string note;  // follows the value, in a quieter tone: "0.41×"
};

struct BarChart {
  std::string title;
  std::string description;
  std::string x_label;
  std::vector<std::string> parts;  // names of the stacked pieces, for example weights, optimizer, activations
  std::vector<Bar> bars;
  Unit unit = Unit::none;
  double width = 760;
};

// Points on two logarithmic scales below lines that bound them, each with a shape and color of its group.
struct Mark {
  double x = 0;
  double y = 0;
  std::string note;  // shown on hovering
};

struct MarkGroup {
  std::string name;
  std::vector<Mark> marks;
};

struct Bound {
  std::string name;  // written before its last bend
  std::vector<double> x;
  std::vector<double> y;
};

struct ScatterChart {
  std::string title;
  std::string description;
  std::string x_label;
  std::string y_label;
  std::vector<MarkGroup> groups;
  std::vector<Bound> bounds;
  double width = 760;
  double height = 420;
};

// A cell is colored by its category, or by its value where it has one and no category; neither leaves it blank.
struct Cell {
  std::string category;
  std::optional<double> value;
  std::string text;  // shown in the cell where it fits; by default the category or the value
  std::string note;  // shown on hovering
};

struct HeatGrid {
  std::string title;
  std::string description;
  std::vector<std::string> rows;
  std::vector<std::string> columns;
  std::vector<Cell> cells;              // row by row, rows × columns
  std::vector<std::string> categories;  // order of the legend; categories not named here follow as they appear
  Scale value_scale = Scale::linear;
  Unit unit = Unit::none;
  double width = 760;
};

// Throw Error where sizes disagree (x against y, cells against rows × columns, values against parts).
std::string to_svg(const ScatterChart& chart);
std::string to_svg(const LineChart& chart);
std::string to_svg(const BarChart& chart);
std::string to_svg(const HeatGrid& grid);

// The chart as a file of its own, with the style sheet inside.
std::string standalone_svg(std::string_view svg);

// An exponential average with the start corrected for; values that are not finite stay as they are and are not
// averaged.
std::vector<double> smooth(const std::vector<double>& values, double weight);

}  // namespace quaver::report
