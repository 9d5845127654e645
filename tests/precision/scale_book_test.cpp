// The scale book: scales follow the amax history, non-finite values never enter it, and every change can be taken back.
#include "precision/scale_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "precision/layers.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

constexpr const char* site_name = "blocks.0.mlp.up/x";
constexpr const char* gradient_name = "blocks.0.mlp.up/dy";

class ScaleBookTest : public testing::Test {
 protected:
  explicit ScaleBookTest(ScaleRules rules = {}) : book(rules) { fill("fp8-delayed"); }

  void fill(const std::string& recipe) {
    PrecisionConfig config;
    config.recipe = recipe;
    for (const PlanRow& row : make_plan(config, some_layers(1)).rows) book.add(row);
  }
  ScaleEntry& entry(const char* name = site_name) { return book.entry(name); }

  static CastStatistics seen(float amax, std::uint64_t nonfinite = 0, std::uint64_t saturated = 0) {
    CastStatistics statistics;
    statistics.count = 1000;
    statistics.amax = amax;
    statistics.nonfinite = nonfinite;
    statistics.saturated = saturated;
    return statistics;
  }
  void step(float amax, const char* name = site_name) {
    entry(name).site.seen = seen(amax);
    book.end_step(now++);
  }

  ScaleBook book;
  std::uint64_t now = 0;
};

TEST_F(ScaleBookTest, StartsWithoutAScale) {
  for (const auto& each : book.entries()) {
    EXPECT_EQ(each->site.scale, 0.0F);
    EXPECT_EQ(each->site.stream, stream_of(each->site.name.c_str()));
  }
  EXPECT_THROW(book.entry("nowhere/x"), Error);
}

TEST_F(ScaleBookTest, ScaleIsTheFormatsMaxOverTheLargestAmaxOfTheHistory) {
  std::vector<float> amaxes;
  for (int i = 0; i < 60; ++i) {
    amaxes.push_back(1.0F + static_cast<float>(random_word({1, 0, 0}, static_cast<std::uint64_t>(i)) % 1000));
    step(amaxes.back());
    float largest = 0;
    for (std::size_t j = amaxes.size() > 16 ? amaxes.size() - 16 : 0; j < amaxes.size(); ++j) {
      largest = std::max(largest, amaxes[j]);
    }
    ASSERT_EQ(entry().site.scale, 448.0F / largest) << i;
    ASSERT_LE(entry().history.size(), 16U);
  }
  step(3, gradient_name);
  EXPECT_EQ(entry(gradient_name).site.scale, 57344.0F / 3) << "gradients are E5M2";
}

TEST_F(ScaleBookTest, AnOldOutlierLeavesTheHistoryAfterItsLength) {
  step(1000);
  for (int i = 0; i < 15; ++i) step(2);
  EXPECT_EQ(entry().site.scale, 448.0F / 1000);
  step(2);
  EXPECT_EQ(entry().site.scale, 224.0F);
}

TEST_F(ScaleBookTest, ASiteThatSawNothingKeepsItsScale) {
  step(7);
  const float scale = entry().site.scale;
  book.end_step(now++);
  EXPECT_EQ(entry().site.scale, scale);
  EXPECT_EQ(entry().history.size(), 1U);
}

TEST_F(ScaleBookTest, NonFiniteValuesNeverEnterTheHistory) {
  step(7);
  entry().site.seen = seen(5, 3);
  book.end_step(now++);
  for (const float amax : entry().history) EXPECT_TRUE(std::isfinite(amax));
  EXPECT_EQ(entry().site.scale, 64.0F);
  EXPECT_EQ(entry().nonfinite, 3U);
  EXPECT_EQ(entry().overflow_streak, 1);
}

TEST_F(ScaleBookTest, ADiscardedStepLeavesScalesAndHistoryAlone) {
  step(7);
  entry().site.seen = seen(7000, 9);
  book.discard_step();
  EXPECT_EQ(entry().history.size(), 1U);
  EXPECT_EQ(entry().site.scale, 64.0F);
  EXPECT_EQ(entry().site.seen.count, 0U);
  EXPECT_EQ(entry().nonfinite, 9U);
  EXPECT_EQ(entry().elements, 2000U);
  EXPECT_EQ(entry().overflow_streak, 1);
  book.end_step(now++);
  EXPECT_EQ(entry().site.scale, 64.0F);
}

TEST_F(ScaleBookTest, OverflowStreaksCountStepsInARow) {
  for (int i = 1; i <= 3; ++i) {
    entry().site.seen = seen(7, 0, 11);  // 1.1%
    book.end_step(now++);
    EXPECT_EQ(entry().overflow_streak, i);
  }
  entry().site.seen = seen(7, 0, 10);  // 1%: not above the limit
  book.end_step(now++);
  EXPECT_EQ(entry().overflow_streak, 0);
  EXPECT_EQ(entry().saturated, 43U);
}

TEST_F(ScaleBookTest, LogsAScaleOnlyWhenItHasMovedByTwo) {
  step(8);
  const std::size_t logged = entry().changes.size();
  EXPECT_EQ(logged, 1U);
  step(9);
  step(12);
  EXPECT_EQ(entry().changes.size(), logged);
  step(16);
  ASSERT_EQ(entry().changes.size(), logged + 1);
  EXPECT_EQ(entry().changes.back().step, now - 1);
  EXPECT_EQ(entry().changes.back().scale_after, 448.0F / 16);
}

TEST_F(ScaleBookTest, OnlyDelayedSitesGetScales) {
  ScaleBook other;
  PrecisionConfig config;
  for (const char* recipe : {"fp8-current", "fp8-static", "fp8-unit", "nvfp4", "bf16"}) {
    config.recipe = recipe;
    config.wide_tail = 0;
    Site& site = other.add(make_plan(config, some_layers(1)).at(site_name));
    site.scale = recipe == std::string("fp8-static") ? 5.0F : 0.0F;
    const float before = site.scale;
    site.seen = seen(3);
    other.end_step(0);
    EXPECT_EQ(site.scale, before) << recipe;
  }
}

TEST_F(ScaleBookTest, SettingAScaleIsLoggedAndTakenBack) {
  step(7);
  book.set_scale(site_name, 5, 40, "by hand");
  EXPECT_EQ(entry().site.scale, 5.0F);
  const ScaleChange change = entry().changes.back();
  EXPECT_EQ(change.step, 40U);
  EXPECT_EQ(change.scale_before, 64.0F);
  EXPECT_EQ(change.scale_after, 5.0F);
  EXPECT_EQ(change.reason, "by hand");
  book.roll_back(site_name, 41);
  EXPECT_EQ(entry().site.scale, 64.0F);
  EXPECT_THAT(entry().changes.back().reason, testing::HasSubstr("by hand"));
  EXPECT_EQ(entry().changes.back().step, 41U);
}

TEST_F(ScaleBookTest, SettingASpecForgetsTheScaleAndIsTakenBackExactly) {
  step(7);
  const SiteSpec before = entry().site.spec;
  const SiteSpec bf16{{.format = Format::bf16}, {.format = Format::bf16}};
  book.set_spec(site_name, bf16, 9, "overflowed");
  EXPECT_EQ(entry().site.spec, bf16);
  EXPECT_EQ(entry().site.scale, 0.0F);
  EXPECT_EQ(entry().changes.back().spec_before, before);
  EXPECT_EQ(entry().changes.back().spec_after, bf16);
  book.roll_back(site_name, 10);
  EXPECT_EQ(entry().site.spec, before);
  EXPECT_EQ(entry().site.scale, 64.0F);
}

TEST_F(ScaleBookTest, ResettingTheHistoryMakesTheNextCastACurrentOne) {
  step(1000);
  book.reset_history(site_name, 5, "stale");
  EXPECT_TRUE(entry().history.empty());
  EXPECT_EQ(entry().site.scale, 0.0F);
  EXPECT_EQ(entry().changes.back().reason, "stale");
  step(7);
  EXPECT_EQ(entry().site.scale, 64.0F) << "nothing of the old history is left";
}

TEST_F(ScaleBookTest, AResetHistoryIsTakenBackWithItsValues) {
  step(1000);
  step(7);
  const std::deque<float> before = entry().history;
  const float scale = entry().site.scale;
  book.reset_history(site_name, 5, "stale");
  ScaleBook copy;
  PrecisionConfig config;
  config.recipe = "fp8-delayed";
  for (const PlanRow& row : make_plan(config, some_layers(1)).rows) copy.add(row);
  copy.from_json(book.to_json(), ScaleBook::Import::everything, 5);
  for (ScaleBook* each : {&book, &copy}) {
    EXPECT_EQ(each->roll_back(site_name, 6), "stale");
    EXPECT_EQ(each->entry(site_name).history, before);
    EXPECT_EQ(each->entry(site_name).site.scale, scale);
  }
}

TEST_F(ScaleBookTest, TakesBackWhatSomebodyDidPastAutomaticUpdates) {
  step(7);
  const SiteSpec first = entry().site.spec;
  SiteSpec second = first;
  second.rows.format = second.columns.format = Format::e5m2;
  book.set_spec(site_name, second, 2, "first act");
  book.set_scale(site_name, 3, 3, "second act");
  step(7000);  // logged: the scale moved by more than two
  ASSERT_EQ(entry().changes.back().cause, ChangeCause::history);
  EXPECT_EQ(book.roll_back(site_name, 5), "second act");
  EXPECT_EQ(book.roll_back(site_name, 6), "first act");
  EXPECT_EQ(entry().site.spec, first);
  EXPECT_FALSE(book.can_roll_back(site_name));
  EXPECT_THROW(book.roll_back(site_name, 7), Error);
}

TEST_F(ScaleBookTest, WordsOfAReasonDecideNothing) {
  step(7);
  book.set_scale(site_name, 3, 2, "amax history");
  book.set_scale(site_name, 5, 3, "took back: nothing");
  EXPECT_EQ(book.roll_back(site_name, 4), "took back: nothing");
  EXPECT_EQ(book.roll_back(site_name, 5), "amax history");
  EXPECT_FALSE(book.can_roll_back(site_name));
}

TEST_F(ScaleBookTest, ASampleThatWasNotTakenLeavesNoOlderOne) {
  entry().site.seen = seen(3);
  entry().site.seen.full = true;
  book.take_samples();
  EXPECT_EQ(entry().sampled.amax, 3);
  entry().site.seen = seen(5);  // counts alone, as of a weight that a skipped step did not cast again
  book.take_samples();
  EXPECT_EQ(entry().sampled.count, 0U);
}

TEST_F(ScaleBookTest, APlanOfOtherSitesOrAnotherOrderIsRefused) {
  PrecisionConfig config;
  config.recipe = "mxfp8";
  Plan plan = make_plan(config, some_layers(1));
  book.apply(plan);
  EXPECT_EQ(entry().site.spec, plan.at(site_name).spec);
  EXPECT_TRUE(entry().changes.empty());
  std::swap(plan.rows[0], plan.rows[1]);
  EXPECT_THROW(book.apply(plan), Error);
  EXPECT_THROW(book.apply(make_plan(config, some_layers(2))), Error);
}

TEST_F(ScaleBookTest, AStaticScaleIsFittedToTheHistoryAndTakenBack) {
  SiteSpec fixed = entry().site.spec;
  fixed.rows.policy = fixed.columns.policy = ScalePolicy::fixed;
  book.set_spec(site_name, fixed, 0, "static");
  book.set_scale(site_name, 16, 0, "calibrated");
  EXPECT_FALSE(book.recalibrate(site_name, 0, "too early")) << "nothing was seen";
  step(0);
  EXPECT_FALSE(book.recalibrate(site_name, 1, "at rest"));
  step(0.25F);
  step(1);
  step(0.5F);
  EXPECT_EQ(entry().site.scale, 16.0F) << "steps do not move a static scale";
  ASSERT_TRUE(book.recalibrate(site_name, 4, "drifted"));
  EXPECT_EQ(entry().site.scale, 224.0F) << "448 is twice the largest value";
  EXPECT_EQ(entry().changes.back().reason, "drifted");
  EXPECT_EQ(entry().changes.back().scale_before, 16.0F);
  step(1.9F);
  EXPECT_FALSE(book.recalibrate(site_name, 5, "by less than two"));
  step(2);
  EXPECT_TRUE(book.recalibrate(site_name, 6, "by two"));
  step(std::numeric_limits<float>::max());
  ASSERT_TRUE(book.recalibrate(site_name, 7, "the largest there is"));
  EXPECT_GT(entry().site.scale, 0.0F);
  EXPECT_EQ(book.roll_back(site_name, 8), "the largest there is");
  EXPECT_EQ(book.roll_back(site_name, 8), "by two");
  EXPECT_EQ(entry().site.scale, 224.0F);
}

TEST_F(ScaleBookTest, OnlyStaticScalesAreRecalibrated) {
  step(1);
  entry().site.scale = 1;
  EXPECT_FALSE(book.recalibrate(site_name, 1, "delayed"));
  EXPECT_EQ(entry().site.scale, 1.0F);
}

TEST_F(ScaleBookTest, NothingToTakeBackIsAnError) {
  EXPECT_THROW(book.roll_back(site_name, 0), Error);
  EXPECT_THROW(book.roll_back("nowhere/x", 0), Error);
}

class MostRecent : public ScaleBookTest {
 protected:
  MostRecent() : ScaleBookTest({.history = 4, .rule = HistoryRule::most_recent}) {}
};

TEST_F(MostRecent, ScaleFollowsTheLastAmax) {
  for (const float amax : {100.0F, 2.0F, 50.0F, 7.0F}) {
    step(amax);
    EXPECT_EQ(entry().site.scale, 448.0F / amax);
  }
}

TEST_F(MostRecent, AStepWithoutAFiniteValueKeepsTheLastGoodScale) {
  step(7);
  entry().site.seen = seen(0, 1000);  // every element was inf or NaN
  book.end_step(now++);
  EXPECT_EQ(entry().site.scale, 64.0F);
  EXPECT_EQ(entry().nonfinite, 1000U);
}

}  // namespace
}  // namespace quaver::test
