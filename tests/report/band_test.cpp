// The band around a line: as far from it as the deviation says, parted where it cannot be drawn.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <sstream>

#include "markup.h"

#include "quaver/error.h"
#include "report/chart.h"

namespace quaver::report {
namespace {

// The y coordinates of a path, and how many pieces it has.
struct Drawn {
  std::vector<double> y;
  std::ptrdiff_t pieces = 0;
};

Drawn drawn(const Element& path) {
  std::string data = path.attributes.at("d");
  Drawn found{{}, std::count(data.begin(), data.end(), 'M')};
  for (char& c : data) c = c == 'M' || c == 'L' || c == 'Z' ? ' ' : c;
  std::istringstream numbers(data);
  for (double x = 0, y = 0; numbers >> x >> y;) found.y.push_back(y);
  return found;
}

TEST(LineChartBand, ReachesOneDeviationUpAndDown) {
  LineChart chart;
  chart.series = {{"mean", {0, 100}, {10, 10}, {2, 2}}, {"above", {0, 100}, {12, 12}}, {"below", {0, 100}, {8, 8}}};
  const Markup markup = read_markup(to_svg(chart));
  ASSERT_EQ(markup.with_class("band").size(), 1U);
  const Drawn band = drawn(markup.with_class("band")[0]);
  const auto level = [&](std::size_t i) { return drawn(markup.with_class("main").at(i)).y.at(0); };
  EXPECT_EQ(band.y, (std::vector<double>{level(1), level(1), level(2), level(2)}));
  EXPECT_EQ(band.pieces, 1);
}

TEST(LineChartBand, IsWithinTheChart) {
  LineChart chart;
  chart.series = {{"mean", {0, 1}, {1, 1}, {50, 50}}};
  const Markup markup = read_markup(to_svg(chart));
  const Drawn band = drawn(markup.with_class("band").at(0));
  EXPECT_GE(*std::min_element(band.y.begin(), band.y.end()), 0);
  EXPECT_GT(band.y[3] - band.y[0], 100) << "the axis makes room for it";
}

TEST(LineChartBand, IsPartedWhereItCannotBeDrawn) {
  LineChart chart;
  chart.y_scale = Scale::log;
  chart.series = {{"mean", {0, 10, 20, 30, 40}, {1, 1, 1, 1, 1}, {0.5, 0.5, 2, 0.5, 0.5}}};
  EXPECT_EQ(drawn(read_markup(to_svg(chart)).with_class("band").at(0)).pieces, 2) << "1 − 2 has no logarithm";
  chart.y_scale = Scale::linear;
  chart.series[0].y[2] = std::nan("");
  EXPECT_EQ(drawn(read_markup(to_svg(chart)).with_class("band").at(0)).pieces, 2);
}

TEST(LineChartBand, IsThereOnlyWhereDeviationsAre) {
  LineChart chart;
  chart.series = {{"a", {0, 1}, {1, 2}}};
  EXPECT_TRUE(read_markup(to_svg(chart)).with_class("band").empty());
  chart.series[0].deviation = {1};
  EXPECT_THROW(to_svg(chart), Error);
}

}  // namespace
}  // namespace quaver::report
