// The effect of a plan against its definition, and the confidence bound of its harm against Student's table.
#include "study/sensitivity.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "precision/recipe.h"
#include "train/support.h"

namespace quaver {
namespace {

// One-sided 95 %: the table for up to ten degrees of freedom, and near it beyond.
TEST(HarmAtMost, FollowsStudentsTable) {
  const auto bound = [](Size batches) {
    return Effect{.loss_change = 1, .loss_error = 1, .gradient_cosine = 1, .batches = batches}.harm_at_most(1) - 1;
  };
  EXPECT_NEAR(bound(2), 6.314, 1e-9);
  EXPECT_NEAR(bound(3), 2.920, 1e-9);
  EXPECT_NEAR(bound(4), 2.353, 1e-9);
  EXPECT_NEAR(bound(6), 2.015, 1e-9);
  EXPECT_NEAR(bound(10), 1.833, 1e-9);
  EXPECT_NEAR(bound(11), 1.812, 1e-9);
  EXPECT_NEAR(bound(12), 1.796, 0.02);
  EXPECT_NEAR(bound(31), 1.697, 0.02);
  EXPECT_NEAR(bound(1001), 1.646, 0.002);
  EXPECT_NEAR(bound(1), 6.314, 1e-9) << "one batch tells nothing of its error: the widest of the table";
}

TEST(Harm, IsAShareOfTheLossAndATenthOfWhatTheCosineLacks) {
  const Effect both{.loss_change = 0.1, .loss_error = 0, .gradient_cosine = 0.8, .batches = 4};
  EXPECT_NEAR(both.harm(5), 0.02 + 0.02, 1e-12);
  EXPECT_NEAR(both.harm_at_most(5), 0.02 + 0.02, 1e-12);
  // A change of twice its standard error counts by three quarters.
  const Effect unsure{.loss_change = 0.2, .loss_error = 0.1, .gradient_cosine = 1, .batches = 4};
  EXPECT_NEAR(unsure.harm(2), 0.75 * 0.1, 1e-12);
  const Effect below{.loss_change = -0.5, .loss_error = 0.1, .gradient_cosine = 1, .batches = 4};
  EXPECT_EQ(below.harm(2), 0);
  EXPECT_EQ(below.harm_at_most(2), 0) << "its upper bound is below zero too";
}

class Measured : public ::testing::Test {
 protected:
  Measured() {
    Config config = test::small_config("fp8-current", folder_.path() / "run");
    config.model.context = 16;
    subject_ = open_subject(config, [](const std::string&) {});
  }
  ProbeResult probe(const Plan& plan, Size batch) {
    return subject_->trainer().probe(specs_of(plan), batch, ProbeWhat::gradients);
  }
  Plan reference_plan() { return high_precision_plan(subject_->plan, subject_->config.precision); }

  test::TemporaryFolder folder_;
  std::unique_ptr<Subject> subject_;
};

TEST_F(Measured, TheBaselineIsTheMeanOfItsBatchesWithItsStandardError) {
  Baseline baseline(*subject_, 1, 3);
  std::vector<double> losses;
  for (Size batch = 1; batch <= 3; ++batch) losses.push_back(probe(reference_plan(), batch).loss);
  const double mean = (losses[0] + losses[1] + losses[2]) / 3;
  double squares = 0;
  for (const double loss : losses) squares += (loss - mean) * (loss - mean);
  EXPECT_NEAR(baseline.loss(), mean, 1e-12);
  EXPECT_NEAR(baseline.loss_error(), std::sqrt(squares / 2) / std::sqrt(3.0), 1e-12);
  EXPECT_EQ(Baseline(*subject_, 0, 1).loss_error(), 0);
}

// Paired differences of the losses; cosines of each tensor's gradient, weighed by its elements.
TEST_F(Measured, AnEffectIsThatOfThePlanAgainstHighPrecision) {
  Baseline baseline(*subject_, 0, 2);
  const PlanEffect effect = baseline.effect_of(subject_->plan);
  std::vector<double> changes;
  double cosine = 0, error = 0;
  for (Size batch = 0; batch < 2; ++batch) {
    const ProbeResult exact = probe(reference_plan(), batch);
    const ProbeResult cast = probe(subject_->plan, batch);
    changes.push_back(cast.loss - exact.loss);
    double elements = 0, cosines = 0, squares = 0;
    for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
      const auto& a = exact.gradients[i];
      const auto& b = cast.gradients[i];
      double aa = 0, bb = 0, ab = 0;
      for (std::size_t j = 0; j < a.size(); ++j) {
        aa += static_cast<double>(a[j]) * a[j];
        bb += static_cast<double>(b[j]) * b[j];
        ab += static_cast<double>(a[j]) * b[j];
      }
      if (aa == 0) continue;
      const auto count = static_cast<double>(a.size());
      elements += count;
      cosines += count * ab / std::sqrt(aa * bb);
      squares += count * (aa - 2 * ab + bb) / aa;
    }
    cosine += cosines / elements / 2;
    error += std::sqrt(squares / elements) / 2;
  }
  EXPECT_NEAR(effect.whole.loss_change, (changes[0] + changes[1]) / 2, 1e-9);
  EXPECT_NEAR(effect.whole.loss_error, std::abs(changes[0] - changes[1]) / 2, 1e-9);
  EXPECT_NEAR(effect.whole.gradient_cosine, cosine, 1e-6);
  EXPECT_NEAR(effect.whole.gradient_error, error, 1e-4 * error);
  EXPECT_EQ(effect.whole.batches, 2);
  EXPECT_EQ(effect.layers.size(), 9U);
  EXPECT_GT(effect.layers.at("blocks.0.mlp.up").cosine, 0.9);
  EXPECT_LT(effect.layers.at("blocks.0.mlp.up").cosine, 1);
  const PlanEffect none = baseline.effect_of(reference_plan());
  EXPECT_EQ(none.whole.loss_change, 0);
  EXPECT_NEAR(none.whole.gradient_cosine, 1, 1e-9);
}

}  // namespace
}  // namespace quaver
