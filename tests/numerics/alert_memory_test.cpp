// What the rules remember from step to step, and when they forget it.
#include <gtest/gtest.h>

#include "numerics/alerts.h"

namespace quaver {
namespace {

// A site with a delayed scale that fits its tensor, step by step.
class AlertMemory : public testing::Test {
 protected:
  AlertMemory() {
    const QuantSpec e4m3{.format = Format::e4m3, .policy = ScalePolicy::delayed};
    book_.add({.site = "blocks.0.mlp.up/x",
               .layer = "blocks.0.mlp.up",
               .role = Role::x,
               .recipe = {},
               .reason = {},
               .spec = {e4m3, e4m3}});
    entry().last_step.count = 100;
    now_.loss = 2;
    fit(1);
  }

  ScaleEntry& entry() { return book_.entry("blocks.0.mlp.up/x"); }
  void fit(float amax) {
    entry().last_step.amax = amax;
    entry().site.scale = 448 / std::max(amax, 1e-3F);
  }

  // Rules raised by so many steps.
  std::vector<AlertRule> steps(int count) {
    std::vector<AlertRule> raised;
    for (int i = 0; i < count; ++i) {
      ++now_.step;
      if (restless_) entry().site.scale *= now_.step % 2 == 0 ? 1.001F : 1 / 1.001F;
      for (const Alert& alert : alarms_.watch(now_, book_)) raised.push_back(alert.rule);
    }
    return raised;
  }

  ScaleBook book_;
  Alarms alarms_{AlertConfig{}};
  StepMetrics now_;
  bool restless_ = false;  // the scale moves a little in every step
};

using Rules = std::vector<AlertRule>;

// A scale that moves begins its count anew; what it is measured by is the largest value of two histories.
TEST_F(AlertMemory, AScaleThatMovesIsNotFrozen) {
  steps(40);
  entry().last_step.amax = 100;  // far beyond what the scale was made for
  EXPECT_EQ(steps(24), Rules{});
  entry().site.scale *= 1.001F;
  EXPECT_EQ(steps(64), Rules{}) << "63 steps without a change and the one that changed it";
  EXPECT_EQ(steps(1), Rules{AlertRule::frozen_scale});
}

// A skipped step tells nothing of scales: neither that they rest nor that they move.
TEST_F(AlertMemory, SkippedStepsDoNotCount) {
  restless_ = true;
  entry().last_step.amax = 0;
  EXPECT_EQ(steps(63), Rules{});
  now_.skipped = true;
  EXPECT_EQ(steps(2), Rules{});
  now_.skipped = false;
  EXPECT_EQ(steps(1), Rules{AlertRule::frozen_scale});
}

// Three skipped steps in a row, and not three in all.
TEST_F(AlertMemory, AStepThatIsNotSkippedBeginsTheCountAnew) {
  for (const int skipped : {2, 2, 2}) {
    now_.skipped = true;
    EXPECT_EQ(steps(skipped), Rules{});
    now_.skipped = false;
    EXPECT_EQ(steps(1), Rules{});
  }
  now_.skipped = true;
  EXPECT_EQ(steps(3), Rules{AlertRule::skipped_steps});
}

}  // namespace
}  // namespace quaver
