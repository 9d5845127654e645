// What studies make of values that are not numbers, tensors without gradient, and weights of any size.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "precision/recipe.h"
#include "study/doctor.h"
#include "study/sensitivity.h"
#include "train/support.h"

namespace quaver {
namespace {

// The CPU engine, as far as a GEMM needs it, with one value of the result replaced.
class SpoilingEngine final : public RunsEach<SpoilingEngine, Engine> {
 public:
  SpoilingEngine(Size place, float value) : place_(place), value_(value) {}

  std::string name() const override { return "spoiling"; }
  Device& device() override { return engine_->device(); }

  template <class Operation>
  void each(const Operation& op) {
    engine_->run(op);
    if constexpr (std::is_same_v<Operation, Gemm>) op.out.f32()[place_] = value_;
  }

 private:
  std::unique_ptr<Engine> engine_ = make_cpu_engine(1);
  Size place_;
  float value_;
};

constexpr Size spoiled_extent = 16;

// The first element, one in the middle of a row that is looked at, the last of the last such row.
TEST(SpoiledProduct, IsNotGoodWhateverValueIsNoNumber) {
  for (const Size place : {Size{0}, 7 * spoiled_extent + 3, 14 * spoiled_extent + 15}) {
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      SpoilingEngine spoiling(place, value);
      const GemmCheck alone = check_gemm(spoiling, spoiled_extent, 0x1p-11);
      EXPECT_FALSE(alone.good()) << place << ' ' << value;
      EXPECT_GT(alone.error, 1e29) << place << ' ' << value;
      EXPECT_EQ(alone.failure, "");
      const auto reference = make_cpu_engine(1);
      const GemmCheck against = check_gemm(spoiling, *reference, spoiled_extent, 0x1p-11);
      EXPECT_GT(against.error, 1e29) << place << ' ' << value;
      EXPECT_EQ(against.different_values, 0) << "operands are as they should be";
    }
  }
}

TEST(SpoiledProduct, IsAsWrongAsItsWorstValue) {
  SpoilingEngine far(0, 1e6F), near(0, 1e3F);
  const double error = check_gemm(far, spoiled_extent, 0x1p-11).error;
  EXPECT_FALSE(check_gemm(far, spoiled_extent, 0x1p-11).good());
  EXPECT_NEAR(error / check_gemm(near, spoiled_extent, 0x1p-11).error, 1000, 10);
}

// Behind a weight of zeros no gradient arrives: the tensors before it say nothing about a plan.
TEST(TensorsWithoutGradient, DoNotCount) {
  const auto subject = open_subject(test::miniature_config("mxfp4"), [](const std::string&) {});
  Trainer& trainer = subject->trainer();
  Parameters& parameters = trainer.model().parameters();
  Parameter& down = parameters.find("blocks.0.mlp.down.weight");
  std::fill_n(down.weight.f32(), down.count(), 0.0F);
  parameters.quantize(down, trainer.engine(), Casting{});
  const PlanEffect effect = Baseline(*subject, 0, 1).effect_of(subject->plan);
  EXPECT_FALSE(effect.layers.contains("blocks.0.mlp.up"));
  EXPECT_TRUE(effect.layers.contains("blocks.0.mlp.down"));
  EXPECT_TRUE(effect.layers.contains("blocks.1.mlp.up"));

  const auto gradients = [&](const Plan& plan) {
    return trainer.probe(specs_of(plan), next_batch(trainer, 0), ProbeWhat::gradients).gradients;
  };
  const auto exact = gradients(high_precision_plan(subject->plan, subject->config.precision));
  const auto cast = gradients(subject->plan);
  double elements = 0, cosine = 0, error2 = 0;
  Size without = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (std::count(exact[i].begin(), exact[i].end(), 0.0F) == static_cast<std::ptrdiff_t>(exact[i].size())) {
      ++without;
      continue;
    }
    const GradientMatch match = match_of(exact[i], cast[i]);
    const auto count = static_cast<double>(exact[i].size());
    elements += count;
    cosine += count * match.cosine;
    error2 += count * match.error * match.error;
  }
  EXPECT_EQ(without, 4) << "weight and bias of up, gain and shift of the norm before it";
  EXPECT_NEAR(effect.whole.gradient_cosine, cosine / elements, 1e-12);
  EXPECT_NEAR(effect.whole.gradient_error, std::sqrt(error2 / elements), 1e-12);
  ASSERT_LT(effect.whole.gradient_cosine, 0.999);
}

// E4M3 holds nothing above 448; a weight's own scale brings it there, however large or small it is, also where a run
// would take the scale from the steps before.
TEST(WeightsOfAnySize, AreCastWithTheirOwnScale) {
  const auto subject = open_subject(test::miniature_config("mxfp4"), [](const std::string&) {});
  Parameter& weight = subject->trainer().model().parameters().find("blocks.0.mlp.up.weight");
  for (const char* recipe : {"fp8-current", "fp8-delayed", "fp8-static"}) {
    const QuantSpec spec = make_recipe(recipe, {}).of(Role::w).rows;
    const auto statistics = [&] { return weight_statistics(subject->trainer(), "blocks.0.mlp.up/w", spec); };
    const CastStatistics before = statistics();
    for (const float factor : {0x1p12F, 0x1p-24F, 0x1p12F}) {  // the last one takes it back
      for (Size i = 0; i < weight.count(); ++i) weight.weight.f32()[i] *= factor;
      const CastStatistics scaled = statistics();
      EXPECT_EQ(scaled.saturated, 0U) << recipe << ' ' << factor;
      EXPECT_EQ(scaled.underflowed, before.underflowed) << recipe << ' ' << factor;
      EXPECT_NEAR(scaled.sqnr_db(), before.sqnr_db(), 1e-6) << recipe << ' ' << factor;
    }
  }
}

}  // namespace
}  // namespace quaver
