// The loss scale falls on overflow, rises after a clean window, and stays within its bounds.
#include "precision/loss_scale.h"

#include <gtest/gtest.h>

namespace quaver::test {
namespace {

TEST(LossScale, HalvesOnOverflow) {
  LossScale scale(LossScaling::adaptive, 8, 100);
  EXPECT_EQ(scale.value(), 256.0F);
  scale.after_step(false);
  EXPECT_EQ(scale.value(), 128.0F);
  scale.after_step(false);
  EXPECT_EQ(scale.value(), 64.0F);
}

TEST(LossScale, DoublesAfterAWindowOfCleanSteps) {
  LossScale scale(LossScaling::adaptive, 8, 5);
  for (int i = 0; i < 4; ++i) scale.after_step(true);
  EXPECT_EQ(scale.value(), 256.0F);
  scale.after_step(true);
  EXPECT_EQ(scale.value(), 512.0F);
  EXPECT_EQ(scale.clean_steps(), 0);
}

TEST(LossScale, AnOverflowStartsTheWindowAgain) {
  LossScale scale(LossScaling::adaptive, 8, 5);
  for (int i = 0; i < 4; ++i) scale.after_step(true);
  scale.after_step(false);
  for (int i = 0; i < 4; ++i) scale.after_step(true);
  EXPECT_EQ(scale.value(), 128.0F);
  scale.after_step(true);
  EXPECT_EQ(scale.value(), 256.0F);
}

TEST(LossScale, StaysBetweenOneAndTwoToThe32) {
  LossScale scale(LossScaling::adaptive, 3, 1);
  for (int i = 0; i < 10; ++i) scale.after_step(false);
  EXPECT_EQ(scale.value(), 1.0F);
  for (int i = 0; i < 100; ++i) scale.after_step(true);
  EXPECT_EQ(scale.value(), 4294967296.0F);
  EXPECT_EQ(LossScale(LossScaling::fixed, 99, 1).log2(), 32);
  EXPECT_EQ(LossScale(LossScaling::fixed, -5, 1).log2(), 0);
}

TEST(LossScale, FixedNeverMovesAndOffIsOne) {
  LossScale fixed(LossScaling::fixed, 6, 1);
  LossScale off(LossScaling::off, 6, 1);
  for (const bool finite : {true, false, true, true}) {
    fixed.after_step(finite);
    off.after_step(finite);
  }
  EXPECT_EQ(fixed.value(), 64.0F);
  EXPECT_EQ(off.value(), 1.0F);
}

TEST(LossScale, RestoredStateContinuesAsIfNothingHappened) {
  LossScale straight(LossScaling::adaptive, 8, 3);
  straight.after_step(false);
  straight.after_step(true);
  straight.after_step(true);
  LossScale resumed(LossScaling::adaptive, 20, 3);
  resumed.restore(straight.log2(), straight.clean_steps());
  straight.after_step(true);
  resumed.after_step(true);
  EXPECT_EQ(resumed.value(), straight.value());
  EXPECT_EQ(resumed.clean_steps(), straight.clean_steps());
}

}  // namespace
}  // namespace quaver::test
