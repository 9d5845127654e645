// Points below lines that bound them, on two logarithmic scales.
#include <cmath>
#include <gtest/gtest.h>

#include "markup.h"

#include "quaver/error.h"
#include "report/chart.h"

namespace quaver::report {
namespace {

const std::string hostile_note = "</svg><script>alert(\"1\")</script> & 'x'";

ScatterChart roofline() {
  ScatterChart chart;
  chart.title = "Roofline";
  chart.x_label = "operations per byte";
  chart.y_label = "TFLOP/s";
  chart.groups = {{"GEMMs", {{100, 10, "up"}, {10, 1, "down"}}}, {"casts", {{0.1, 0.01, hostile_note}}}};
  chart.bounds = {{"memory", {0.1, 100, 1000}, {0.1, 100, 100}}};
  return chart;
}

// Where a mark or line begins.
std::pair<double, double> start_of(const Element& path) {
  std::istringstream data(path.attributes.at("d").substr(1));
  std::pair<double, double> at;
  data >> at.first >> at.second;
  return at;
}

TEST(ScatterChartTest, FactorsAreDistances) {
  const Markup markup = read_markup(to_svg(roofline()));
  ASSERT_EQ(markup.error, "");
  std::vector<Element> marks = markup.with_class("mark");
  ASSERT_EQ(marks.size(), 5) << "two of them in the legend";
  marks.erase(marks.begin(), marks.begin() + 2);
  const auto up = start_of(marks[0]);
  const auto down = start_of(marks[1]);
  const auto cast = start_of(marks[2]);
  EXPECT_NEAR(down.first - cast.first, 2 * (up.first - down.first), 0.3);
  EXPECT_NEAR(cast.second - down.second, 2 * (down.second - up.second), 0.3);
  EXPECT_GT(down.second, up.second) << "up is smaller";
  const auto line = start_of(markup.with_class("bound").at(0));
  EXPECT_NEAR(line.first, cast.first, 0.1);
  EXPECT_LT(line.second, cast.second) << "the bound is above the point";
}

TEST(ScatterChartTest, PointsSayWhatTheyAreAndNothingElse) {
  const std::string svg = to_svg(roofline());
  const Markup markup = read_markup(svg);
  EXPECT_EQ(markup.error, "");
  EXPECT_TRUE(markup.named("script").empty());
  EXPECT_NE(svg.find("<title>up</title>"), std::string::npos);
  EXPECT_NE(svg.find("&lt;script&gt;"), std::string::npos);
  EXPECT_NE(svg.find("GEMMs: 2 points"), std::string::npos) << "for readers who cannot see it";
}

TEST(ScatterChartTest, GroupsDifferByShapeToo) {
  const std::vector<Element> marks = read_markup(to_svg(roofline())).with_class("mark");
  const auto shape = [](const Element& mark) {
    const std::string& data = mark.attributes.at("d");
    return data.substr(data.find('m'));
  };
  EXPECT_NE(shape(marks[0]), shape(marks[1]));
  EXPECT_EQ(shape(marks[0]), shape(marks[2]));
  EXPECT_NE(marks[0].attributes.at("class"), marks[1].attributes.at("class"));
}

TEST(ScatterChartTest, WhatCannotBeDrawnIsLeftOut) {
  ScatterChart chart = roofline();
  chart.groups[0].marks.push_back({0, 1, "none"});
  chart.groups[0].marks.push_back({1, std::nan(""), "none"});
  const std::string svg = to_svg(chart);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(read_markup(svg).with_class("mark").size(), 5);
  EXPECT_NE(to_svg(ScatterChart{}).find("no data"), std::string::npos);
  chart.bounds[0].y.pop_back();
  EXPECT_THROW(to_svg(chart), Error);
}

}  // namespace
}  // namespace quaver::report
