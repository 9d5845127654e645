#include "numerics/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quaver::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const AlertConfig usual;

TEST(Limits, OfUnderflowAreLooserWhereTheNoiseDecides) {
  const SiteStorage e4m3{.role = Role::dy, .format = Format::e4m3, .policy = ScalePolicy::delayed};
  const Limits eight = limits_of(Statistic::underflow_percent, e4m3, usual);
  EXPECT_EQ(eight.above->watch, 10);
  EXPECT_EQ(eight.above->bad, 80);
  EXPECT_FALSE(eight.below);
  const SiteStorage e2m1{.role = Role::dy, .format = Format::e2m1, .policy = ScalePolicy::current, .one_scale = false};
  const Limits four = limits_of(Statistic::underflow_percent, e2m1, usual);
  EXPECT_EQ(four.above->watch, 42);
  EXPECT_EQ(four.above->bad, 60);
}

TEST(Limits, OfHeadroomLieOnBothSides) {
  const SiteStorage e4m3{.role = Role::x, .format = Format::e4m3, .policy = ScalePolicy::fixed};
  const Limits limits = limits_of(Statistic::headroom_log2, e4m3, usual);
  EXPECT_EQ(limits.below->bad, -2);
  EXPECT_EQ(limits.below->watch, -1);
  EXPECT_NEAR(limits.above->bad, std::log2(448.0) + 6 - 4, 1e-6) << "from 448 to four binades above 2^-6";
  EXPECT_EQ(verdict_of(-2.1, limits), Verdict::bad);
  EXPECT_EQ(verdict_of(-1.5, limits), Verdict::borderline);
  EXPECT_EQ(verdict_of(0, limits), Verdict::healthy);
  EXPECT_EQ(verdict_of(11, limits), Verdict::bad);
}

TEST(Limits, AreNoneForHighPrecisionAndCurrentScaling) {
  const SiteStorage high{.role = Role::x, .format = Format::bf16};
  for (const Statistic one : {Statistic::underflow_percent, Statistic::saturated_percent, Statistic::sqnr_deficit_db,
                              Statistic::headroom_log2, Statistic::amax}) {
    EXPECT_FALSE(limits_of(one, high, usual).judges());
  }
  EXPECT_EQ(verdict_of(1e9, {}), Verdict::healthy);
  const SiteStorage current{.role = Role::x, .format = Format::e4m3, .policy = ScalePolicy::current};
  EXPECT_FALSE(limits_of(Statistic::saturated_percent, current, usual).judges());
  EXPECT_TRUE(limits_of(Statistic::sqnr_deficit_db, current, usual).judges());
  EXPECT_TRUE(limits_of(Statistic::nonfinite, high, usual).judges());
}

TEST(Limits, OfWeightsAreForWeights) {
  const SiteStorage x{.role = Role::x, .format = Format::e4m3, .layer_bits = 8};
  const SiteStorage w{.role = Role::w, .format = Format::e4m3, .layer_bits = 4};
  EXPECT_FALSE(limits_of(Statistic::unmoved_percent, x, usual).judges());
  EXPECT_EQ(limits_of(Statistic::unmoved_percent, w, usual).above->bad, 99.5);
  EXPECT_EQ(limits_of(Statistic::shadow_cosine, w, usual).below->bad, 0.7);
}

Site site_stored(Role role, Format format, ScalePolicy policy) {
  Site site;
  site.role = role;
  site.spec.rows.format = format;
  site.spec.rows.policy = policy;
  return site;
}

TEST(Remedies, AreForTheRecipeInUse) {
  const Site fixed = site_stored(Role::x, Format::e4m3, ScalePolicy::fixed);
  EXPECT_THAT(remedy_of(AlertRule::saturation, &fixed), HasSubstr("quaver calibrate"));
  EXPECT_THAT(remedy_of(AlertRule::saturation, &fixed), Not(HasSubstr("history")));
  const Site delayed = site_stored(Role::dy, Format::e4m3, ScalePolicy::delayed);
  EXPECT_THAT(remedy_of(AlertRule::saturation, &delayed), HasSubstr("Reset the amax history"));
  EXPECT_THAT(remedy_of(AlertRule::saturation, &delayed), Not(HasSubstr("alibrate")));
  EXPECT_THAT(remedy_of(AlertRule::underflow, &delayed), HasSubstr("e5m2"));
  const Site unit = site_stored(Role::x, Format::e4m3, ScalePolicy::none);
  EXPECT_THAT(remedy_of(AlertRule::stale_scale, &unit), HasSubstr("unit variance"));
  EXPECT_THAT(remedy_of(AlertRule::underflow, &unit), Not(HasSubstr("e5m2")));
}

TEST(Remedies, EveryRuleHasOneForEverySiteItMayStrike) {
  for (const RuleInfo& rule : all_alert_rules()) {
    for (const ScalePolicy policy :
         {ScalePolicy::none, ScalePolicy::current, ScalePolicy::delayed, ScalePolicy::fixed}) {
      const bool judged = rule.rule != AlertRule::stale_scale && rule.rule != AlertRule::saturation;
      if (policy == ScalePolicy::current && !judged) continue;
      const Site site = site_stored(Role::w, Format::e4m3, policy);
      EXPECT_FALSE(remedy_of(rule.rule, &site).empty()) << rule.name;
    }
    EXPECT_FALSE(rule.seen_in.empty());
  }
}

}  // namespace
}  // namespace quaver::test
