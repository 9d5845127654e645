// The order in which a localization stores its units in low precision, worked out by hand.
#include "study/increments.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace quaver {
namespace {

using ::testing::ElementsAre;

constexpr double endless = std::numeric_limits<double>::infinity();

// Units 0, 1 and 2 are the operands of a layer: each of its three products reads two of them.
double thirds(const std::set<std::size_t>& units) {
  const auto both = [&](std::size_t a, std::size_t b) { return units.contains(a) && units.contains(b) ? 1 : 0; };
  return (both(0, 1) + both(0, 2) + both(1, 2)) / 3.0;
}

TEST(ChainOfIncrements, TakesTheCheapestPairOfALayerFirstAndThenTheThird) {
  const auto chain = chain_of({{0, 1, 2}}, {1, 30, 2}, thirds);
  ASSERT_EQ(chain.size(), 2U);
  EXPECT_THAT(chain[0].units, ElementsAre(0, 2));
  EXPECT_DOUBLE_EQ(chain[0].harm, 3);
  EXPECT_DOUBLE_EQ(chain[0].flops, 1.0 / 3);
  EXPECT_DOUBLE_EQ(chain[0].harm_per_flop(), 9);
  EXPECT_THAT(chain[1].units, ElementsAre(1));
  EXPECT_DOUBLE_EQ(chain[1].harm, 30);
  EXPECT_DOUBLE_EQ(chain[1].flops, 2.0 / 3) << "beyond those of the first two";
  EXPECT_DOUBLE_EQ(chain[1].harm_per_flop(), 45);
}

// All three at 6 an operation are cheaper than any two.
TEST(ChainOfIncrements, TakesALayerWholeWhereThatIsCheapest) {
  const auto chain = chain_of({{0, 1, 2}}, {2, 2, 2}, thirds);
  ASSERT_EQ(chain.size(), 1U);
  EXPECT_THAT(chain[0].units, ElementsAre(0, 1, 2));
  EXPECT_DOUBLE_EQ(chain[0].harm, 6);
  EXPECT_DOUBLE_EQ(chain[0].flops, 1);
}

TEST(ChainOfIncrements, TakesTheMostUnitsOfThoseThatCostTheSame) {
  for (const double harm : {0.0, endless}) {
    const auto chain = chain_of({{0, 1, 2}}, {harm, harm, harm}, thirds);
    ASSERT_EQ(chain.size(), 1U) << harm;
    EXPECT_THAT(chain[0].units, ElementsAre(0, 1, 2)) << harm;
  }
}

// The units that bear it least come last and are there all the same.
TEST(ChainOfIncrements, IsOrderedByHarmPerOperation) {
  const std::vector<double> share{0.1, 0.5, 0.2, 0, 0.2};
  const auto flops = [&](const std::set<std::size_t>& units) {
    double sum = 0;
    for (const std::size_t unit : units) sum += share[unit];
    return sum;
  };
  const auto chain = chain_of({{0}, {1}, {2}, {3}, {4}}, {1, 2, endless, 0, 0.4}, flops);
  std::vector<std::size_t> order;
  for (const Increment& increment : chain) {
    ASSERT_EQ(increment.units.size(), 1U);
    order.push_back(increment.units[0]);
  }
  EXPECT_THAT(order, ElementsAre(4, 1, 0, 2, 3)) << "2, 4 and 10 an operation, then those beyond all bounds";
  EXPECT_EQ(chain.back().harm_per_flop(), endless) << "it brings nothing";
}

TEST(ChainOfIncrements, OfNothingIsEmpty) { EXPECT_TRUE(chain_of({}, {}, thirds).empty()); }

}  // namespace
}  // namespace quaver
