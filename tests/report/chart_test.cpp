#include "report/chart.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>

#include "markup.h"

#include "quaver/error.h"

namespace quaver::report {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
const double nan = std::nan("");
const std::string hostile = "</svg><script>alert(\"1\")</script> & 'x' \" onload=\"y\xFF\x01";

Series ramp(std::string name, std::size_t count) {
  Series series{std::move(name), std::vector<double>(count), std::vector<double>(count)};
  std::iota(series.x.begin(), series.x.end(), 0.0);
  std::iota(series.y.begin(), series.y.end(), 1.0);
  return series;
}

Markup read(const std::string& svg) {
  Markup markup = read_markup(svg);
  EXPECT_EQ(markup.error, "");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_TRUE(markup.named("script").empty());
  const Element& root = markup.elements.at(0);
  EXPECT_EQ(root.attributes.at("role"), "img");
  EXPECT_EQ(markup.elements.at(1).name, "title");
  EXPECT_EQ(markup.elements.at(2).name, "desc");
  return markup;
}

TEST(LineChartTest, PointsGoWhereTheyBelong) {
  LineChart chart;
  chart.series = {{"a", {0, 5, 10}, {0, 10, 0}}};
  const auto drawn = points(read(to_svg(chart)).with_class("main").at(0));
  ASSERT_EQ(drawn.size(), 3U);
  EXPECT_EQ(drawn[0].first, 0);
  EXPECT_NEAR(drawn[1].first, drawn[2].first / 2, 0.1);
  EXPECT_LT(drawn[1].second, drawn[0].second);  // up is smaller
  EXPECT_EQ(drawn[0].second, drawn[2].second);
}

TEST(LineChartTest, HostileTextStaysText) {
  LineChart chart;
  chart.title = chart.x_label = chart.y_label = chart.description = hostile;
  chart.series = {ramp(hostile, 5)};
  chart.references = {{3, hostile}};
  const Markup markup = read(to_svg(chart));
  for (const Element& element : markup.elements) EXPECT_FALSE(element.attributes.contains("onload"));
}

TEST(LineChartTest, EmptyOneAndUndrawableSeriesAreDrawn) {
  EXPECT_NE(to_svg(LineChart{}).find("no data"), std::string::npos);
  for (const Scale scale : {Scale::linear, Scale::log}) {
    LineChart chart;
    chart.y_scale = chart.x_scale = scale;
    chart.smoothing = 0.5;
    chart.series = {{"none", {}, {}},
                    {"one", {3}, {4}},
                    {"same", {3, 3}, {4, 4}},
                    {"bad", {1, 2, 3, nan}, {nan, inf, -inf, 2}},
                    {"huge", {1, 2}, {1e308, -1e308}},
                    {"zero", {0, 0}, {0, 0}}};
    read(to_svg(chart));
  }
}

TEST(LineChartTest, AValueThatIsNotFiniteBreaksTheLineAndIsMarked) {
  LineChart chart;
  chart.series = {{"a", {0, 1, 2, 3, 4, 5}, {1, 2, nan, 2, 1, 1}}};
  const Markup markup = read(to_svg(chart));
  const std::string data = markup.with_class("main").at(0).attributes.at("d");
  EXPECT_EQ(std::count(data.begin(), data.end(), 'M'), 2);
  EXPECT_EQ(markup.with_class("cross").size(), 1U);
  EXPECT_NE(to_svg(chart).find("× not finite"), std::string::npos);
  chart.series[0].y[2] = 1.5;
  EXPECT_TRUE(read(to_svg(chart)).with_class("cross").empty());
}

TEST(LineChartTest, ManyPointsStaySmallAndKeepTheirExtremes) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, 1);
  LineChart chart;
  chart.smoothing = 0.95;
  for (int s = 0; s < 3; ++s) {
    Series series = ramp("s", 100'000);
    for (double& y : series.y) y = noise(random);
    chart.series.push_back(series);
  }
  chart.series[0].y[51'234] = 100;  // one spike in 100,000 points
  const std::string svg = to_svg(chart);
  EXPECT_LT(svg.size(), 300'000U);
  double highest = 1e9;
  for (const auto& [x, y] : points(read(svg).with_class("raw").at(0))) highest = std::min(highest, y);
  EXPECT_LT(highest, 15) << "the spike was thinned away";
}

TEST(LineChartTest, SeriesDifferByDashAsWellAsColor) {
  LineChart chart;
  for (int s = 0; s < 12; ++s) chart.series.push_back(ramp("s" + std::to_string(s), 3));
  std::set<std::string> looks;
  for (const Element& path : read(to_svg(chart)).with_class("main")) looks.insert(path.attributes.at("class"));
  EXPECT_EQ(looks.size(), 12U);
}

TEST(LineChartTest, LabelsDoNotOverlap) {
  LineChart chart;
  for (int s = 0; s < 9; ++s) chart.series.push_back({"name " + std::to_string(s), {0, 1}, {1, 1 + 0.001 * s}});
  std::vector<double> heights;
  for (const Element& text : read(to_svg(chart)).named("text")) {
    if (text.text.starts_with("name ")) heights.push_back(std::stod(text.attributes.at("y")));
  }
  ASSERT_EQ(heights.size(), 9U);
  std::sort(heights.begin(), heights.end());
  for (std::size_t i = 1; i < heights.size(); ++i) EXPECT_GE(heights[i] - heights[i - 1], 14.9);
}

TEST(LineChartTest, SizesAndLimitsAreChecked) {
  LineChart chart;
  chart.series = {{"a", {1, 2}, {1}}};
  EXPECT_THROW(to_svg(chart), Error);
  chart.series = {ramp("a", 4)};
  for (const double bad : {1.0, -0.1, nan}) {
    chart.smoothing = bad;
    EXPECT_THROW(to_svg(chart), Error);
  }
  chart.smoothing = 0;
  chart.y_min = 5;
  chart.y_max = 5;
  EXPECT_THROW(to_svg(chart), Error);
  chart.y_max.reset();
  chart.y_min = 1000;  // above all data
  read(to_svg(chart));
  chart.y_scale = Scale::log;
  chart.y_min = 0;
  EXPECT_THROW(to_svg(chart), Error);
}

TEST(Smooth, AveragesWithoutBiasAndSkipsWhatIsNotFinite) {
  const std::vector<double> same(20, 3.5);
  for (const double value : smooth(same, 0.9)) EXPECT_NEAR(value, 3.5, 1e-12);
  const auto averaged = smooth({1, nan, 3}, 0.5);
  EXPECT_EQ(averaged[0], 1);
  EXPECT_TRUE(std::isnan(averaged[1]));
  EXPECT_NEAR(averaged[2], (0.5 * 0.5 * 1 + 0.5 * 3) / 0.75, 1e-12);
}

TEST(BarChartTest, LengthsAreProportionalToValues) {
  BarChart chart;
  chart.unit = Unit::bytes;
  chart.bars = {{"bf16", {4096}, ""}, {"fp8", {2048}, "0.50×"}};
  const auto bars = read(to_svg(chart)).with_class("bar");
  ASSERT_EQ(bars.size(), 2U);
  EXPECT_NEAR(std::stod(bars[0].attributes.at("width")), 2 * std::stod(bars[1].attributes.at("width")), 0.2);
}

TEST(BarChartTest, PartsStackEndToEnd) {
  BarChart chart;
  chart.parts = {"weights", "optimizer", "activations"};
  chart.bars = {{"run", {1, 2, 3}, ""}};
  std::vector<Element> bars;
  for (const Element& rect : read(to_svg(chart)).with_class("bar")) {
    if (rect.attributes.at("height") == "17") bars.push_back(rect);
  }
  ASSERT_EQ(bars.size(), 3U);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_NEAR(std::stod(bars[i - 1].attributes.at("x")) + std::stod(bars[i - 1].attributes.at("width")),
                std::stod(bars[i].attributes.at("x")), 0.15);
  }
}

TEST(BarChartTest, OddValuesAreDrawnAndWrongSizesRefused) {
  BarChart chart;
  EXPECT_NE(to_svg(chart).find("no data"), std::string::npos);
  chart.title = chart.x_label = hostile;
  chart.bars = {{hostile, {nan}, hostile}, {"b", {-inf}, ""}, {"c", {-2}, ""}, {"d", {0}, ""}, {"e", {3}, ""}};
  read(to_svg(chart));
  chart.bars = {{"a", {1, 2}, ""}};
  EXPECT_THROW(to_svg(chart), Error);
  chart.parts = {"x", "y"};
  read(to_svg(chart));
  chart.bars[0].values[0] = -1;
  EXPECT_THROW(to_svg(chart), Error);
}

TEST(HeatGridTest, CategoriesShareColorsAndValuesShareARamp) {
  HeatGrid grid;
  grid.rows = {"r0", "r1"};
  grid.columns = {"c0", "c1"};
  grid.categories = {"bf16", "e4m3"};
  grid.cells = {{"e4m3", {}, "", ""}, {"bf16", {}, "", ""}, {"e4m3", {}, "", ""}, {"", {}, "", ""}};
  const Markup markup = read(to_svg(grid));
  std::vector<std::string> colors;
  for (const Element& rect : markup.with_class("cell")) {
    if (rect.attributes.at("height") == "23") colors.push_back(rect.attributes.at("class"));
  }
  EXPECT_EQ(colors, (std::vector<std::string>{"cell s1", "cell s0", "cell s1"}));
  EXPECT_EQ(markup.with_class("blank").size(), 1U);

  grid.categories.clear();
  grid.cells = {{"", 1.0, "", ""}, {"", 2.0, "", ""}, {"", 3.0, "", ""}, {"", nan, "", ""}};
  std::vector<double> strengths;
  const Markup values = read(to_svg(grid));
  for (const Element& rect : values.with_class("heat")) {
    if (rect.attributes.at("height") == "23") strengths.push_back(std::stod(rect.attributes.at("fill-opacity")));
  }
  ASSERT_EQ(strengths.size(), 3U);
  EXPECT_LT(strengths[0], strengths[1]);
  EXPECT_LT(strengths[1], strengths[2]);
  EXPECT_EQ(values.with_class("odd").size(), 1U);
}

TEST(HeatGridTest, HostileEmptyAndWrongGrids) {
  HeatGrid grid;
  EXPECT_NE(to_svg(grid).find("no data"), std::string::npos);
  grid.title = hostile;
  grid.rows = {hostile};
  grid.columns = {hostile};
  EXPECT_THROW(to_svg(grid), Error);
  grid.cells = {{hostile, {}, hostile, hostile}};
  read(to_svg(grid));
}

TEST(StandaloneSvg, CarriesItsStyle) {
  LineChart chart;
  chart.series = {ramp("a", 3)};
  const Markup markup = read_markup(standalone_svg(to_svg(chart)));
  EXPECT_EQ(markup.error, "");
  ASSERT_EQ(markup.named("style").size(), 1U);
  EXPECT_EQ(markup.named("style")[0].parent, "svg");
  EXPECT_THROW(standalone_svg("<p>"), Error);
}

}  // namespace
}  // namespace quaver::report
