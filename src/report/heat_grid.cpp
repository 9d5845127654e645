#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "quaver/error.h"
#include "report/chart.h"
#include "report/svg.h"
#include "report/theme.h"

namespace quaver::report {
namespace {

constexpr double cell_font = 11;
constexpr double cell_height = 23;
constexpr double slant = 40 * 3.14159265358979 / 180;

struct GridLayout {
  double label_width, cell_width, left, top, header_height, width, height;
  bool slanted;
};

Extent value_extent(const HeatGrid& grid) {
  Extent extent(grid.value_scale);
  for (const Cell& cell : grid.cells) {
    if (cell.value && cell.category.empty()) extent.include(*cell.value);
  }
  return extent;
}

// On a linear scale all cells share a unit and its decimals, so that they can be compared at a glance.
std::string value_text(const HeatGrid& grid, const Extent& extent, double value) {
  const double largest = std::max(std::abs(extent.low()), std::abs(extent.high()));
  if (grid.value_scale == Scale::log || !std::isfinite(value) || largest == 0) return format_value(value, grid.unit);
  const DisplayUnit display = display_unit(grid.unit, largest);
  const int decimals = std::clamp(2 - static_cast<int>(std::floor(std::log10(largest / display.divisor))), 0, 6);
  return format_fixed(value / display.divisor, decimals);
}

std::string shown_text(const HeatGrid& grid, const Extent& extent, const Cell& cell) {
  if (!cell.text.empty()) return cell.text;
  if (!cell.category.empty()) return cell.category;
  return cell.value ? value_text(grid, extent, *cell.value) : "";
}

std::vector<std::string> legend_of(const HeatGrid& grid) {
  std::vector<std::string> names = grid.categories;
  for (const Cell& cell : grid.cells) {
    if (!cell.category.empty() && std::find(names.begin(), names.end(), cell.category) == names.end()) {
      names.push_back(cell.category);
    }
  }
  return names;
}

GridLayout lay_out(const HeatGrid& grid, const Extent& extent, bool has_legend) {
  GridLayout layout{};
  for (const std::string& row : grid.rows) layout.label_width = std::max(layout.label_width, text_width(row, font));
  layout.label_width = std::min(layout.label_width, 0.3 * grid.width);
  layout.left = layout.label_width + 10;
  double widest = 0;
  for (const Cell& cell : grid.cells) widest = std::max(widest, text_width(shown_text(grid, extent, cell), cell_font));
  double longest = 0;
  for (const std::string& column : grid.columns) longest = std::max(longest, text_width(column, font));
  const auto columns = static_cast<double>(std::max<std::size_t>(grid.columns.size(), 1));
  const double comfortable = std::clamp(std::max(widest, std::min(longest, 90.0)) + 14, 30.0, 120.0);
  layout.cell_width = std::max(9.0, std::min(comfortable, (grid.width - layout.left) / columns));
  layout.slanted = longest + 6 > layout.cell_width;
  longest = std::min(longest, 130.0);
  layout.header_height = layout.slanted ? longest * std::sin(slant) + 18 : 22;
  layout.top = (grid.title.empty() ? 4 : 30) + (has_legend ? 24 : 0) + layout.header_height;
  const double overhang = layout.slanted ? longest * std::cos(slant) : 0;
  layout.width = std::max(grid.width, layout.left + columns * layout.cell_width + overhang - layout.cell_width / 2);
  layout.height = layout.top + cell_height * static_cast<double>(std::max<std::size_t>(grid.rows.size(), 1)) + 6;
  return layout;
}

void draw_headers(SvgWriter& svg, const HeatGrid& grid, const GridLayout& layout) {
  for (std::size_t c = 0; c < grid.columns.size(); ++c) {
    const double middle = layout.left + (static_cast<double>(c) + 0.5) * layout.cell_width;
    if (layout.slanted) {
      const std::string turn =
          fmt::format("transform=\"rotate(-40 {} {})\"", coordinate(middle), coordinate(layout.top - 6));
      svg.fitted_text({middle, layout.top - 6, 130, font}, grid.columns[c], "muted", Anchor::start, turn);
    } else {
      svg.text(middle, layout.top - 8, grid.columns[c], "muted", Anchor::middle);
    }
  }
  for (std::size_t r = 0; r < grid.rows.size(); ++r) {
    const double y = layout.top + cell_height * static_cast<double>(r) + 16;
    svg.fitted_text({layout.label_width, y, layout.label_width, font}, grid.rows[r], "", Anchor::end);
  }
}

// From barely tinted at the low end to full color at the high end.
double strength(const Axis& axis, double value) { return 0.06 + 0.84 * std::clamp(axis.pixel(value), 0.0, 1.0); }

void draw_category_legend(SvgWriter& svg, const std::vector<std::string>& names, double y) {
  double x = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    svg.rect({x, y, 16, 12}, "cell " + fill_class(i));
    svg.fitted_text({x + 22, y + 10, 160, font}, names[i]);
    x += 22 + std::min(text_width(names[i], font), 160.0) + 18;
  }
}

void draw_value_legend(SvgWriter& svg, const HeatGrid& grid, const Extent& extent, double y) {
  const double largest = std::max(std::abs(extent.low()), std::abs(extent.high()));
  const std::string suffix =
      grid.value_scale == Scale::log || largest == 0 ? "" : display_unit(grid.unit, largest).suffix;
  const std::string low = value_text(grid, extent, extent.low()) + suffix;
  svg.text(0, y + 10, low, "muted");
  const double left = text_width(low, font) + 8;
  for (int i = 0; i < 8; ++i) {
    svg.rect({left + 16 * i, y, 16, 12}, "heat", "", fmt::format("fill-opacity=\"{:.2f}\"", 0.06 + 0.84 * i / 7));
  }
  svg.text(left + 136, y + 10, value_text(grid, extent, extent.high()) + suffix, "muted");
}

// What the cells of a grid are drawn by.
struct CellStyle {
  std::vector<std::string> names;  // of the categories
  Extent extent;
  Axis axis;
  GridLayout layout;
};

void draw_cell(SvgWriter& svg, const HeatGrid& grid, const CellStyle& style, std::size_t row, std::size_t column) {
  const auto& [names, extent, axis, layout] = style;
  const Cell& cell = grid.cells[row * grid.columns.size() + column];
  const double x = layout.left + static_cast<double>(column) * layout.cell_width;
  const double y = layout.top + static_cast<double>(row) * cell_height;
  const std::string text = shown_text(grid, extent, cell);
  const std::string tooltip = fmt::format("{} · {}{}{}{}{}", grid.rows[row], grid.columns[column],
                                          text.empty() ? "" : ": ", text, cell.note.empty() ? "" : " — ", cell.note);
  std::string classes = "blank";
  std::string attributes;
  std::string text_classes = "small";
  double inset = 2;
  if (!cell.category.empty()) {
    const auto found = std::find(names.begin(), names.end(), cell.category);
    classes = "cell " + fill_class(static_cast<std::size_t>(found - names.begin()));
    inset = 0;
  } else if (cell.value && Extent::drawable(grid.value_scale, *cell.value)) {
    const double opacity = strength(axis, *cell.value);
    classes = "heat";
    attributes = fmt::format("fill-opacity=\"{:.2f}\"", opacity);
    if (opacity > 0.75) text_classes += " inverse";
    inset = 0;
  } else if (cell.value) {
    classes = "odd";
  }
  svg.rect({x + inset, y + inset, layout.cell_width - 2 * inset, cell_height - 2 * inset}, classes, tooltip,
           attributes);
  if (text_width(text, cell_font) <= layout.cell_width - 4) {
    svg.text(x + layout.cell_width / 2, y + 15.5, text, text_classes, Anchor::middle, "pointer-events=\"none\"");
  }
}

}  // namespace

std::string to_svg(const HeatGrid& grid) {
  if (grid.cells.size() != grid.rows.size() * grid.columns.size()) {
    throw Error(fmt::format("grid '{}': {} cells for {} rows of {} columns", grid.title, grid.cells.size(),
                            grid.rows.size(), grid.columns.size()),
                "give one cell per row and column; a cell may be blank");
  }
  const Extent extent = value_extent(grid);
  const std::vector<std::string> names = legend_of(grid);
  const CellStyle style{.names = names,
                        .extent = extent,
                        .axis = Axis::over(extent, grid.value_scale, grid.unit, 0, 0, 1),
                        .layout = lay_out(grid, extent, !names.empty() || !extent.empty())};
  const GridLayout& layout = style.layout;
  const std::string description = !grid.description.empty() ? grid.description
                                                            : fmt::format("A grid of {} rows and {} columns.",
                                                                          grid.rows.size(), grid.columns.size());
  SvgWriter svg("cells", layout.width, layout.height, grid.title, description);
  svg.fitted_text({0, 16, grid.width, 13.5}, grid.title, "title");
  const double legend_top = grid.title.empty() ? 4 : 28;
  if (!names.empty()) {
    draw_category_legend(svg, names, legend_top);
  } else if (!extent.empty()) {
    draw_value_legend(svg, grid, extent, legend_top);
  }
  draw_headers(svg, grid, layout);
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    for (std::size_t column = 0; column < grid.columns.size(); ++column) {
      draw_cell(svg, grid, style, row, column);
    }
  }
  if (grid.cells.empty()) svg.text(layout.left, layout.top + 16, "no data", "muted");
  return svg.finish();
}

std::string standalone_svg(std::string_view svg) {
  const auto end = svg.find('>');
  if (!svg.starts_with("<svg") || end == std::string_view::npos) {
    throw Error("this text is not a chart made by to_svg", "pass what to_svg returned");
  }
  return fmt::format("{}<style>{}</style>{}", svg.substr(0, end + 1), chart_css(), svg.substr(end + 1));
}

}  // namespace quaver::report
