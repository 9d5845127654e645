// The norm of all gradients, what is not finite among them, and the factors that clip them.
#include <limits>

#include "engine/support.h"

namespace quaver::test {
namespace {

struct Measured {
  GradientSummary summary;
  std::vector<float> factors;
  std::vector<double> squares;
};

class MeasureGradientsTest : public testing::Test {
 protected:
  MeasureGradientsTest() {
    list.push_back(random_matrix(3, 5, 1, 2));
    list.push_back(random_matrix(1, 1, 2));
    list.push_back(random_matrix(200, 333, 3, 0.01F));  // more than one chunk of the sum
  }
  Measured measure(Clip clip, float limit, float unscale = 1) {
    std::vector<View> views;
    for (Matrix& gradient : list) views.push_back(gradient.view());
    Measured result{{}, std::vector<float>(list.size(), -1), std::vector<double>(list.size(), -1)};
    std::vector<GradientMeasure> measures(list.size());
    engine->run(MeasureGradients{.gradients = views, .ratios = ratios, .measures = measures.data()});
    engine->run(ClipGradients{.measures = measures.data(),
                              .places = places,
                              .unscale = unscale,
                              .clip = clip,
                              .limit = limit,
                              .factors = result.factors.data(),
                              .squares = result.squares.data(),
                              .summary = &result.summary});
    return result;
  }
  double norm_of(std::size_t i) const {
    return std::sqrt(dot(list[i].doubles(), list[i].doubles())) / static_cast<double>(ratios[i]);
  }
  double norm() const { return std::hypot(norm_of(0), norm_of(1), norm_of(2)); }

  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  std::vector<Matrix> list;
  std::vector<float> ratios{1, 1, 1};
  std::vector<Size> places{0, 1, 2};
};

TEST_F(MeasureGradientsTest, ClippingFindsEachMeasureAtItsPlace) {
  const Measured before = measure(Clip::group_norm, 0.5F);
  std::swap(list[0], list[2]);
  places = {2, 1, 0};
  const Measured after = measure(Clip::group_norm, 0.5F);
  EXPECT_EQ(after.squares, before.squares);
  EXPECT_EQ(after.factors, before.factors);
  EXPECT_EQ(after.summary.norm, before.summary.norm) << "added in the order of the gradients, wherever they lie";
}

TEST_F(MeasureGradientsTest, SquaresAreThoseOfEachUnscaledTrueGradient) {
  ratios = {1, 4, 0.5F};
  const Measured measured = measure(Clip::global_norm, 1, 0.25F);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const double want = 0.25 * norm_of(i) * 0.25 * norm_of(i);
    EXPECT_NEAR(measured.squares[i], want, 1e-6 * want) << i;
  }
}

TEST_F(MeasureGradientsTest, NormIsThatOfTheUnscaledTrueGradients) {
  EXPECT_NEAR(measure(Clip::none, 1).summary.norm, norm(), 1e-6 * norm());
  EXPECT_NEAR(measure(Clip::none, 1, 0.25F).summary.norm, 0.25 * norm(), 1e-6 * norm());
  ratios = {2, 0.5F, 10};
  EXPECT_NEAR(measure(Clip::none, 1).summary.norm, norm(), 1e-6 * norm());
}

TEST_F(MeasureGradientsTest, WithoutClippingFactorsOnlyUnscale) {
  for (const Clip clip : {Clip::none, Clip::value}) {
    for (const float factor : measure(clip, 1e-3F, 0.125F).factors) EXPECT_EQ(factor, 0.125F);
  }
}

TEST_F(MeasureGradientsTest, GlobalClippingGivesTheLimitAsNorm) {
  ratios = {2, 1, 3};
  const float limit = static_cast<float>(norm() / 7);
  const Measured got = measure(Clip::global_norm, limit);
  EXPECT_NEAR(got.summary.norm, norm(), 1e-6 * norm()) << "reported before clipping";
  double clipped = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(got.factors[i], got.factors[0]) << "the direction stays";
    clipped += std::pow(static_cast<double>(got.factors[i]) * norm_of(i), 2);
  }
  EXPECT_NEAR(std::sqrt(clipped), limit, 1e-4 * static_cast<double>(limit));
  for (const float factor : measure(Clip::global_norm, static_cast<float>(norm() * 1.01)).factors) EXPECT_EQ(factor, 1);
}

TEST_F(MeasureGradientsTest, GroupClippingLimitsEachParameterOnItsOwn) {
  const float limit = 3;
  const Measured got = measure(Clip::group_norm, limit, 0.5F);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const double own = 0.5 * norm_of(i);
    const double want = 0.5 * std::min(1.0, static_cast<double>(limit) / own);
    EXPECT_NEAR(got.factors[i], want, 1e-5 * want) << i;
  }
  EXPECT_LT(got.factors[0], 0.5F);
  EXPECT_EQ(got.factors[1], 0.5F);
}

TEST_F(MeasureGradientsTest, CountsEveryNonFiniteElement) {
  EXPECT_EQ(measure(Clip::global_norm, 1).summary.nonfinite, 0U);
  list[0](0, 0) = std::numeric_limits<float>::quiet_NaN();
  list[2](199, 332) = std::numeric_limits<float>::infinity();
  list[2](0, 0) = -std::numeric_limits<float>::infinity();
  for (const Clip clip : {Clip::none, Clip::global_norm, Clip::group_norm, Clip::value}) {
    EXPECT_EQ(measure(clip, 1).summary.nonfinite, 3U);
  }
}

TEST_F(MeasureGradientsTest, LargeFiniteGradientsDoNotOverflowTheNorm) {
  list[0](0, 0) = 3e38F;
  list[2](3, 3) = -3e38F;
  const Measured got = measure(Clip::global_norm, 1);
  EXPECT_EQ(got.summary.nonfinite, 0U);
  EXPECT_NEAR(got.summary.norm, 3e38 * std::sqrt(2.0), 1e33);
  EXPECT_GT(got.factors[0], 0);
}

TEST_F(MeasureGradientsTest, ZeroGradientsAreNotDividedBy) {
  for (Matrix& gradient : list) std::fill(gradient.values.begin(), gradient.values.end(), 0.0F);
  for (const Clip clip : {Clip::global_norm, Clip::group_norm}) {
    const Measured got = measure(clip, 1);
    EXPECT_EQ(got.summary.norm, 0);
    for (const float factor : got.factors) EXPECT_EQ(factor, 1);
  }
}

}  // namespace
}  // namespace quaver::test
