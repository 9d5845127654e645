// The level that a metric keeps, and the level from which it started.
#include "numerics/running_level.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace quaver::test {
namespace {

// 4 then 8: the mean moves half of the way and the lag takes the other half, so that 8 is what is expected next; the
// variance is half of the square of 4.
TEST(RunningLevel, FollowsATrend) {
  RunningLevel level;
  level.add(4, 0.01);
  EXPECT_EQ(level.expected(), 4);
  EXPECT_EQ(level.deviation(0.01), 0.01);
  level.add(8, 0.01);
  EXPECT_EQ(level.mean, 6);
  EXPECT_EQ(level.expected(), 8);
  EXPECT_EQ(level.variance, 8);
  EXPECT_NEAR(level.distance(8 + 2 * std::sqrt(8.0), 0.01), 2, 1e-12);
}

// After ten readings a far one counts as three deviations, and moves the mean by a fiftieth after fifty.
TEST(RunningLevel, HoldsFarReadingsBack) {
  RunningLevel level;
  for (int i = 0; i < 60; ++i) level.add(1, 0.1);
  level.add(100, 0.1);
  EXPECT_NEAR(level.mean, 1 + 0.02 * 0.3, 1e-12);
  EXPECT_NEAR(level.lag, 0.02 * 0.3, 1e-12);
  EXPECT_NEAR(level.variance, 0.02 * 0.09, 1e-12);
  RunningLevel young;
  for (int i = 0; i < 9; ++i) young.add(1, 0.1);
  young.add(100, 0.1);
  EXPECT_NEAR(young.mean, 1 + 0.1 * 99, 1e-9) << "not held back yet";
}

TEST(StartingLevel, IsTheGeometricMeanOfTheFirstReadingsAboveZero) {
  StartingLevel start;
  for (const double reading : {2.0, 0.0, -1.0, std::numeric_limits<double>::infinity(), 8.0}) {
    EXPECT_FALSE(start.known(reading, 2));
  }
  EXPECT_TRUE(start.known(1000, 2));
  EXPECT_NEAR(start.start(), 4, 1e-12);
}

}  // namespace
}  // namespace quaver::test
