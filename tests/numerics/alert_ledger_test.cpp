// How many readings raise an alert, how many clear it, and what a pause does to the count.
#include "numerics/alert_ledger.h"

#include <gtest/gtest.h>

namespace quaver::test {
namespace {

Reading reading_of(Verdict verdict, Patience patience) {
  return {.rule = AlertRule::saturation, .verdict = verdict, .patience = patience};
}

class Ledger : public testing::Test {
 protected:
  // How many are raised, and how many cleared, by one reading.
  std::pair<std::size_t, std::size_t> take(Verdict verdict, Patience patience = {3, 4}) {
    ledger.begin_step(++step);
    ledger.take("a/x", reading_of(verdict, patience));
    return {ledger.take_raised().size(), ledger.cleared().size()};
  }
  void take_many(int count, Verdict verdict) {
    for (int i = 0; i < count; ++i) take(verdict);
  }

  const std::pair<std::size_t, std::size_t> nothing{0, 0}, raised{1, 0}, cleared{0, 1};
  AlertLedger ledger;
  std::uint64_t step = 0;
};

TEST_F(Ledger, RaisesAtTheLastOfTheBadReadingsInARow) {
  EXPECT_EQ(take(Verdict::bad), nothing);
  EXPECT_EQ(take(Verdict::bad), nothing);
  EXPECT_EQ(take(Verdict::bad), raised);
  EXPECT_EQ(take(Verdict::bad), nothing) << "once";
  ASSERT_EQ(ledger.active().size(), 1U);
  EXPECT_EQ(ledger.active()[0].step, 3U);
  EXPECT_EQ(ledger.active()[0].last_step, 4U);
  EXPECT_EQ(ledger.active()[0].count, 2U);
}

TEST_F(Ledger, AReadingThatIsNotBadBeginsTheRowAnew) {
  for (const Verdict other : {Verdict::borderline, Verdict::healthy}) {
    take_many(2, Verdict::bad);
    EXPECT_EQ(take(other), nothing);
    EXPECT_EQ(take(Verdict::bad), nothing);
    EXPECT_EQ(take(Verdict::bad), nothing);
    take(Verdict::healthy);
  }
  EXPECT_TRUE(ledger.active().empty());
}

TEST_F(Ledger, ClearsAtTheLastOfTheHealthyReadingsInARow) {
  take_many(3, Verdict::bad);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(take(Verdict::healthy), nothing) << i;
  EXPECT_EQ(ledger.active().size(), 1U);
  EXPECT_EQ(take(Verdict::healthy), cleared);
  EXPECT_TRUE(ledger.active().empty());
  EXPECT_EQ(take(Verdict::healthy), nothing);
}

TEST_F(Ledger, HealthyReadingsWithOthersBetweenThemDoNotClear) {
  take_many(3, Verdict::bad);
  for (const Verdict other : {Verdict::borderline, Verdict::bad}) {
    take_many(3, Verdict::healthy);
    EXPECT_EQ(take(other), nothing);
    take_many(3, Verdict::healthy);
    EXPECT_EQ(ledger.active().size(), 1U);
    take(Verdict::borderline);
  }
  take_many(3, Verdict::healthy);
  EXPECT_EQ(take(Verdict::healthy), cleared);
}

TEST_F(Ledger, WhatIsDismissedIsClearedAtOnce) {
  take_many(3, Verdict::bad);
  ledger.begin_step(++step);
  ledger.dismiss("b/x", AlertRule::saturation);
  ledger.dismiss("a/x", AlertRule::underflow);
  EXPECT_EQ(ledger.active().size(), 1U);
  ledger.dismiss("a/x", AlertRule::saturation);
  EXPECT_TRUE(ledger.active().empty());
  EXPECT_EQ(ledger.cleared().size(), 1U);
  take_many(2, Verdict::bad);
  ledger.dismiss("a/x", AlertRule::saturation);
  EXPECT_TRUE(ledger.cleared().empty()) << "it had not been raised";
  EXPECT_EQ(take(Verdict::bad), nothing) << "and its readings are forgotten";
}

}  // namespace
}  // namespace quaver::test
