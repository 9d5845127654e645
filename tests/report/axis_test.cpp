#include "report/axis.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <set>

namespace quaver::report {
namespace {

std::vector<std::string> labels(const Axis& axis, int wanted) {
  std::vector<std::string> texts;
  for (const Tick& tick : axis.ticks(wanted)) texts.push_back(tick.label);
  return texts;
}

TEST(Axis, MarksRoundNumbers) {
  EXPECT_EQ(labels(Axis(Scale::linear, Unit::none, 0, 1, 0, 100), 5),
            (std::vector<std::string>{"0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(labels(Axis(Scale::linear, Unit::none, 0, 50'000, 0, 100), 5),
            (std::vector<std::string>{"0", "10k", "20k", "30k", "40k", "50k"}));
  EXPECT_EQ(labels(Axis(Scale::linear, Unit::none, 0, 3e-4, 0, 100), 3),
            (std::vector<std::string>{"0", "1e−4", "2e−4", "3e−4"}));
  EXPECT_EQ(labels(Axis(Scale::linear, Unit::bytes, 0, 3 * 1024.0 * 1024, 0, 100), 3),
            (std::vector<std::string>{"0 MiB", "1 MiB", "2 MiB", "3 MiB"}));
  EXPECT_EQ(labels(Axis(Scale::log, Unit::none, 1e-6, 1e2, 0, 100), 4),
            (std::vector<std::string>{"1e−6", "1e−4", "0.01", "1", "100"}));
  EXPECT_EQ(labels(Axis(Scale::log, Unit::none, 1, 20, 0, 100), 6),
            (std::vector<std::string>{"1", "2", "5", "10", "20"}));
}

TEST(Axis, MapsTheEndsToTheEndsAndKeepsOrder) {
  for (const Scale scale : {Scale::linear, Scale::log}) {
    const Axis axis(scale, Unit::none, 2, 200, 300, 10);
    EXPECT_NEAR(axis.pixel(2), 300, 1e-9);
    EXPECT_NEAR(axis.pixel(200), 10, 1e-9);
    EXPECT_LT(axis.pixel(21), axis.pixel(20));
  }
  EXPECT_NEAR(Axis(Scale::log, Unit::none, 1, 100, 0, 100).pixel(10), 50, 1e-9);
}

// Whatever the range: ticks are inside it, ascending, distinct in label, and neither absent nor too many.
TEST(Axis, TicksAreSoundOverAllRanges) {
  std::mt19937_64 random(6);
  std::uniform_real_distribution<double> exponent(-250, 250);
  std::uniform_real_distribution<double> relative(-11, 4);
  std::uniform_real_distribution<double> sign(-1, 1);
  for (int round = 0; round < 20'000; ++round) {
    const Scale scale = round % 2 == 0 ? Scale::linear : Scale::log;
    const Unit unit = static_cast<Unit>(round / 2 % 4);
    double low = std::pow(10.0, round % 5 == 0 ? exponent(random) : exponent(random) / 40);
    if (scale == Scale::linear && sign(random) < 0) low = -low;
    const double high = low + std::abs(low) * std::pow(10.0, relative(random));
    const Axis axis(scale, unit, low, high, 0, 100);
    const auto marks = axis.ticks(6);
    ASSERT_LE(marks.size(), 30U);
    ASSERT_GE(marks.size(), scale == Scale::linear ? 2U : 0U) << low << " " << high;
    std::set<std::string> seen;
    for (std::size_t i = 0; i < marks.size(); ++i) {
      ASSERT_GE(axis.pixel(marks[i].value), -1e-3);
      ASSERT_LE(axis.pixel(marks[i].value), 100 + 1e-3);
      ASSERT_TRUE(i == 0 || marks[i].value > marks[i - 1].value);
      ASSERT_TRUE(seen.insert(marks[i].label).second) << marks[i].label << " twice in " << low << " " << high;
    }
  }
}

TEST(Axis, ASingleValueGetsARangeAroundIt) {
  for (const double value : {0.0, 1e-310, 3.0, -7e200, 1e300}) {
    Extent extent(Scale::linear);
    extent.include(value);
    const Axis axis = Axis::over(extent, Scale::linear, Unit::none, 0.05, 0, 100);
    EXPECT_NEAR(axis.pixel(value), 50, 1);
    EXPECT_GE(axis.ticks(5).size(), 1U);
  }
  Extent extent(Scale::log);
  extent.include(5);
  EXPECT_NEAR(Axis::over(extent, Scale::log, Unit::none, 0, 0, 100).pixel(5), 50, 1e-9);
}

TEST(Extent, LeavesOutWhatCannotBeDrawn) {
  Extent linear(Scale::linear);
  Extent log(Scale::log);
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity(), 1e305, -3.0, 0.0, 2.0, 8.0}) {
    linear.include(value);
    log.include(value);
  }
  EXPECT_EQ(linear.low(), -3);
  EXPECT_EQ(linear.high(), 8);
  EXPECT_EQ(log.low(), 2);
  EXPECT_EQ(log.high(), 8);
  EXPECT_TRUE(Extent(Scale::linear).empty());
}

}  // namespace
}  // namespace quaver::report
