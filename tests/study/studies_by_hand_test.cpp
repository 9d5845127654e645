// Figures of the studies worked out by hand: the batches a plan is judged on, memory
// that adds up, and what a recipe's products run as together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "engine/sizing_engine.h"
#include "study/calibrate.h"
#include "study/doctor.h"
#include "study/estimate.h"
#include "study/localize.h"
#include "study/support.h"
#include "train/support.h"

namespace quaver {
namespace {

Config study_config(const std::string& recipe) {
  Config config = test::small_config(recipe, "");
  config.model.context = 16;
  config.train.accumulation = 1;
  return config;
}

// A plan is chosen by the first batches and judged on others.
TEST(StudyBaseline, PlansAreJudgedOnBatchesThatDidNotChooseThem) {
  constexpr Size batches = 2;
  const auto subject = open_subject(study_config("mxfp4"), test::ignore);
  const Localization found =
      localize(*subject, {.batches = batches, .warmup_steps = 0, .budget = 1, .grouping = Grouping::block});
  ASSERT_EQ(found.trials.size(), 1U) << "everything in low precision";
  EXPECT_NEAR(found.baseline_loss, Baseline(*subject, 0, batches).loss(), 1e-12);
  const Effect effect = Baseline(*subject, batches, batches).effect_of(subject->plan).whole;
  EXPECT_NEAR(found.trials[0].effect.loss_change, effect.loss_change, 1e-12);
  EXPECT_NEAR(found.trials[0].effect.gradient_cosine, effect.gradient_cosine, 1e-12);
  const Effect chosen_by = Baseline(*subject, 0, batches).effect_of(subject->plan).whole;
  EXPECT_GT(std::abs(chosen_by.loss_change - effect.loss_change), 1e-9);
}

// All of one binade, from 1 to 1.75: nothing lies beyond the largest value, though the binade goes on to 2.
TEST(PercentileByHand, TheTopBinadeEndsAtTheLargestValue) {
  std::vector<float> values;
  for (int i = 0; i < 100; ++i) values.push_back(1 + 0.0075F * static_cast<float>(i));
  values.push_back(1.75F);
  const CastStatistics seen = test::statistics_of(values);
  EXPECT_LE(magnitude_at(seen, 0.999999), 1.75F);
  EXPECT_LE(magnitude_at(seen, 0.99), 1.75F);
  EXPECT_GE(magnitude_at(seen, 0.000001), 1.0F);
  EXPECT_EQ(share_above(seen, 1.75), 0);
  EXPECT_EQ(share_above(seen, 0.99), 1);
  EXPECT_LT(share_above(seen, 1.7499), 0.01);
}

// Batches are spread over the warm-up from its first step to its last.
TEST(CalibrationByHand, BatchesAreSpreadOverTheWarmUp) {
  const auto steps = [](Size batches, Size warmup) {
    const auto subject = open_subject(study_config("fp8-static"), test::ignore);
    return calibrate(*subject, {.batches = batches, .warmup_steps = warmup}).steps;
  };
  EXPECT_THAT(steps(3, 4), testing::ElementsAre(0, 2, 4));
  EXPECT_THAT(steps(2, 5), testing::ElementsAre(0, 5));
  EXPECT_THAT(steps(1, 2), testing::ElementsAre(2));
  EXPECT_THAT(steps(2, 0), testing::ElementsAre(0, 0));
}

Estimate memory_of(const std::vector<std::string>& flags, const std::string& gpu) {
  std::vector<std::string> all{"data.kind=synthetic", "preset=tiny",      "model.layers=2", "model.width=64",
                               "model.heads=2",       "model.context=64", "train.batch=4",  "train.threads=1"};
  all.insert(all.end(), flags.begin(), flags.end());
  return estimate(load_config({.files = {}, .texts = {}, .flags = all}),
                  {.gpu = gpu, .gpu_memory = std::nullopt, .timing = Timing::leave_out});
}

// A checkpoint is copied to the host: to the memory that the CPU engine uses, not to a GPU's.
TEST(MemoryByHand, TheCopyOfACheckpointIsOnTheHost) {
  const Estimate here = memory_of({"train.device=cpu"}, "");
  ASSERT_GT(here.plan.checkpoint, 0);
  EXPECT_EQ(here.needed, here.plan.engine_total() + here.overhead + here.plan.checkpoint);
  EXPECT_EQ(here.host_needed, here.needed);
  const Estimate there = memory_of({}, "h100");
  EXPECT_EQ(there.needed, there.plan.engine_total() + there.overhead);
  EXPECT_GE(there.host_needed, there.plan.checkpoint);
  EXPECT_LT(there.host_needed, there.plan.checkpoint + (Size{4} << 30));
}

// An engine that multiplies operands of E4M3 as they lie and no others.
class OfE4m3Only final : public test::IdleEngine {
 public:
  Support support(const QuantSpec& a, const QuantSpec& b) override {
    if (a.format == Format::e4m3 && b.format == Format::e4m3) return {SupportLevel::native, "as they are"};
    return {SupportLevel::emulated, "decoded"};
  }
};

// fp8-delayed has gradients in E5M2: its forward product is native here and both backward products are not.
TEST(RecipeSupportByHand, IsThatOfTheWorstProduct) {
  OfE4m3Only engine;
  const Support mixed = recipe_support(engine, "fp8-delayed");
  EXPECT_EQ(mixed.level, SupportLevel::emulated);
  EXPECT_EQ(mixed.how, "forward as they are; input gradient decoded; weight gradient decoded");
  const Support bf16 = recipe_support(engine, "bf16");
  EXPECT_EQ(bf16.level, SupportLevel::emulated);
  EXPECT_EQ(bf16.how, "decoded");
}

}  // namespace
}  // namespace quaver
