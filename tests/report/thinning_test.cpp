// A long line is thinned to the pixels there are, and looks the same: no spike and no dip is lost.
#include <algorithm>
#include <gtest/gtest.h>
#include <sstream>

#include "markup.h"

#include "report/chart.h"

namespace quaver::report {
namespace {

std::vector<std::pair<double, double>> drawn(const Series& series) {
  LineChart chart;
  chart.series = {series};
  return points(read_markup(to_svg(chart)).with_class("main").at(0));
}

// Flat, with a point up and a point down three steps later, both in the column of many others.
TEST(ThinnedLine, KeepsSpikesAndDips) {
  constexpr std::size_t count = 100'000, up = 50'004, down = 50'007;
  Series series{"a", std::vector<double>(count), std::vector<double>(count, 0.0)};
  for (std::size_t i = 0; i < count; ++i) series.x[i] = static_cast<double>(i);
  series.y[up] = 10;
  series.y[down] = -10;
  const auto line = drawn(series);
  EXPECT_LT(line.size(), 5000U);
  // The same extent drawn with as few points as it takes.
  const auto few = drawn({"a", {0, static_cast<double>(up), static_cast<double>(down), count - 1.0}, {0, 10, -10, 0}});
  ASSERT_EQ(few.size(), 4U);
  for (const auto& point : few) {
    EXPECT_TRUE(std::any_of(line.begin(), line.end(),
                            [&](const auto& other) {
                              return std::abs(other.first - point.first) < 0.11 &&
                                     std::abs(other.second - point.second) < 0.11;
                            }))
        << point.first << " " << point.second;
  }
  EXPECT_TRUE(std::is_sorted(line.begin(), line.end(), [](const auto& a, const auto& b) { return a.first < b.first; }))
      << "in the order of time";
}

}  // namespace
}  // namespace quaver::report
