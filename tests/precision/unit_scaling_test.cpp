// The factors of unit scaling: their formulas, and what they promise about variances.
#include "precision/unit_scaling.h"

#include <cmath>
#include <gtest/gtest.h>

#include "formats/random.h"

namespace quaver::test {
namespace {

TEST(UnitScaling, LinearFactorsAreInverseRootsOfTheirFans) {
  const OpFactors linear = unit_linear(64, 256, 1000);
  EXPECT_FLOAT_EQ(linear.output, 1.0F / 8);
  EXPECT_FLOAT_EQ(linear.input_gradient, 1.0F / 16);
  EXPECT_NEAR(linear.weight_gradient, 1 / std::sqrt(1000.0), 1e-8);
  const OpFactors head = unit_head(64, 1024, 100);
  EXPECT_FLOAT_EQ(head.output, 1.0F / 64);
  EXPECT_FLOAT_EQ(head.input_gradient, 1.0F / 32);
  EXPECT_FLOAT_EQ(head.weight_gradient, 0.1F);
}

TEST(UnitScaling, EmbeddingNormAndLossFactors) {
  EXPECT_NEAR(unit_embedding_gradient(800, 200), 2, 1e-6);
  EXPECT_NEAR(unit_norm_gradient(400), 0.05, 1e-8);
  EXPECT_NEAR(unit_loss_gradient(50), 50 / std::sqrt(49.0), 1e-6);
  EXPECT_TRUE(std::isfinite(unit_loss_gradient(1)));
}

// The activations' factors give unit variance for N(0, 1) inputs: what the constants in the table are.
TEST(UnitScaling, ActivationFactorsUndoTheirVariance) {
  constexpr int n = 200000;
  std::vector<float> x(2 * n);
  random_normals({7, 0, 0}, 0, x.data(), 2 * n);
  double gelu2 = 0;
  double gelu1 = 0;
  double slope2 = 0;
  double swiglu2 = 0;
  for (int i = 0; i < n; ++i) {
    const double v = x[static_cast<std::size_t>(i)];
    const double up = x[static_cast<std::size_t>(n + i)];
    const double cdf = 0.5 * std::erfc(-v / std::sqrt(2.0));
    const double slope = cdf + v * std::exp(-v * v / 2) / std::sqrt(2 * std::acos(-1.0));
    gelu1 += v * cdf;
    gelu2 += v * cdf * v * cdf;
    slope2 += slope * slope;
    const double gated = v / (1 + std::exp(-v)) * up;
    swiglu2 += gated * gated;
  }
  const double gelu_std = std::sqrt(gelu2 / n - gelu1 / n * gelu1 / n);
  EXPECT_NEAR(unit_gelu().output * gelu_std, 1, 0.05);
  EXPECT_NEAR(unit_gelu().input_gradient * std::sqrt(slope2 / n), 1, 0.05);
  EXPECT_NEAR(unit_relu().output * std::sqrt(0.5 - 0.5 / std::acos(-1.0)), 1, 1e-3);
  EXPECT_NEAR(unit_relu().input_gradient * std::sqrt(0.5), 1, 1e-3);
  EXPECT_NEAR(unit_swiglu().output * std::sqrt(swiglu2 / n), 1, 0.05);
}

TEST(UnitScaling, ResidualFactorsKeepUnitVariance) {
  for (const Size layers : {1, 2, 4, 12, 48}) {
    for (Size branch = 0; branch < 2 * layers; ++branch) {
      for (const double alpha : {0.5, 1.0, 2.0}) {
        const ResidualFactors f = umup_residual(branch, layers, alpha, 0.7);
        EXPECT_NEAR(f.keep * f.keep + f.add * f.add, 1, 1e-6);
        EXPECT_GT(f.add, 0);
      }
    }
    const ResidualFactors f = munit_residual(layers, 0);
    EXPECT_NEAR(f.keep * f.keep + f.add * f.add, 1, 1e-6);
  }
}

// Unrolled, the end of the stream is a weighted sum of the embedding and all branches: branches of a kind weigh the
// same, the kinds as attention_ratio says, and all together √2 · α_res against the embedding.
TEST(UnitScaling, UmupBranchesOfAKindWeighTheSame) {
  const Size layers = 6;
  const double ratio = 0.5;
  std::vector<double> weight;
  double embedding = 1;
  for (Size branch = 0; branch < 2 * layers; ++branch) {
    const ResidualFactors f = umup_residual(branch, layers, 1.5, ratio);
    for (double& w : weight) w *= f.keep;
    embedding *= f.keep;
    weight.push_back(f.add);
  }
  for (std::size_t i = 2; i < weight.size(); ++i) EXPECT_NEAR(weight[i], weight[i % 2], 1e-6) << i;
  EXPECT_NEAR(weight[0] / weight[1], ratio, 1e-6);
  double branches = 0;
  for (const double w : weight) branches += w * w;
  EXPECT_NEAR(std::sqrt(branches) / embedding, 1.5 * std::sqrt(2.0), 1e-5);
}

TEST(UnitScaling, MunitTauFallsWithDepth) {
  const auto tau = [](Size layers) {
    const float add = munit_residual(layers, 0).add;
    return add * add;
  };
  EXPECT_NEAR(tau(4), 0.4, 1e-6);
  EXPECT_NEAR(tau(40), 0.1, 1e-6);
  EXPECT_NEAR(tau(1), 0.4, 1e-6);
  EXPECT_NEAR(tau(100), 0.1, 1e-6);
  for (Size layers = 5; layers <= 40; ++layers) EXPECT_LT(tau(layers), tau(layers - 1)) << layers;
  const ResidualFactors given = munit_residual(12, 0.36);
  EXPECT_NEAR(given.add, 0.6, 1e-6);
  EXPECT_NEAR(given.keep, 0.8, 1e-6);
}

}  // namespace
}  // namespace quaver::test
