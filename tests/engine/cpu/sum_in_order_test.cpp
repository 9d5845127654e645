// Sums whose order is part of what they are.
#include "engine/support.h"

namespace quaver::test {
namespace {

Matrix filled(Size rows, Size cols, std::vector<float> values) {
  Matrix matrix(rows, cols);
  matrix.values = std::move(values);
  return matrix;
}

// 1 + 2^25 loses the 1; in another order it would not.
TEST(SumInOrder, AddsStrictlyInTheOrderOfTheParts) {
  constexpr float large = 33554432;
  const auto engine = make_cpu_engine(2);
  Matrix parts = filled(3, 2, {1, large, large, -large, -large, 1});
  Matrix sum(1, 2, 5);
  engine->run(SumInOrder{.parts = parts.view(), .sum = sum.view()});
  EXPECT_EQ(sum.values, (std::vector<float>{0, 1}));
}

TEST(SumInOrder, GoesOnFromTheSumItHas) {
  const auto engine = make_cpu_engine(2);
  Matrix all = random_matrix(5, 40001, 3);
  Matrix whole(1, all.cols);
  engine->run(SumInOrder{.parts = all.view(), .sum = whole.view()});
  Matrix first = filled(2, all.cols, {all.values.begin(), all.values.begin() + 2 * all.cols});
  Matrix rest = filled(3, all.cols, {all.values.begin() + 2 * all.cols, all.values.end()});
  Matrix sum(1, all.cols);
  engine->run(SumInOrder{.parts = first.view(), .sum = sum.view()});
  engine->run(SumInOrder{.parts = rest.view(), .sum = sum.view(), .accumulate = true});
  EXPECT_EQ(sum.values, whole.values);
}

TEST(SumInOrder, OfOnePartIsThatPartToTheSignOfZero) {
  const auto engine = make_cpu_engine(1);
  Matrix part(1, 1, -0.0F);
  Matrix sum(1, 1, 7);
  engine->run(SumInOrder{.parts = part.view(), .sum = sum.view()});
  EXPECT_TRUE(std::signbit(sum.values[0]));
}

}  // namespace
}  // namespace quaver::test
