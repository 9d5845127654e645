#include "numerics/alert_causes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quaver::test {
namespace {

using ::testing::ElementsAre;

Alert alert_of(AlertRule rule, const std::string& site, std::uint64_t step, std::uint64_t last_step = 0) {
  Alert alert;
  alert.rule = rule;
  alert.site = site;
  alert.step = step;
  alert.last_step = std::max(step, last_step);
  return alert;
}

TEST(AlertCauses, AScaleThatDoesNotFitExplainsWhatItsSiteSuffers) {
  const std::vector<Alert> alerts{alert_of(AlertRule::sqnr_deficit, "a/x", 30, 200),
                                  alert_of(AlertRule::saturation, "a/x", 3, 200),
                                  alert_of(AlertRule::stale_scale, "a/x", 30, 200)};
  EXPECT_THAT(causes_of(alerts), ElementsAre(2, 2, 2));
}

TEST(AlertCauses, OfALayerTheDirectionOfItsGradientFollowsItsInput) {
  const std::vector<Alert> alerts{
      alert_of(AlertRule::shadow_cosine, "a/w", 40), alert_of(AlertRule::saturation, "a/x", 30, 50),
      alert_of(AlertRule::shadow_cosine, "b/w", 40), alert_of(AlertRule::underflow, "a/dy", 30, 50)};
  EXPECT_THAT(causes_of(alerts), ElementsAre(1, 1, 2, 3)) << "saturation explains no underflow elsewhere";
}

TEST(AlertCauses, TheRunSuffersWhatASiteDoesAboutThen) {
  const std::vector<Alert> alerts{alert_of(AlertRule::loss_spike, "", 100), alert_of(AlertRule::gradient_norm, "", 98),
                                  alert_of(AlertRule::saturation, "a/w", 120, 130),
                                  alert_of(AlertRule::loss_spike, "", 181)};
  EXPECT_THAT(causes_of(alerts), ElementsAre(2, 2, 2, 3)) << "61 steps later is another matter";
  EXPECT_THAT(causes_of(std::vector<Alert>{alerts[0], alert_of(AlertRule::unmoved_weights, "a/w", 100)}),
              ElementsAre(0, 1))
      << "weights that rest lift no loss";
}

TEST(AlertCauses, WhatIsNotFiniteExplainsAllThatFollows) {
  const std::vector<Alert> alerts{
      alert_of(AlertRule::skipped_steps, "", 12), alert_of(AlertRule::nonfinite, "b/w", 10, 40),
      alert_of(AlertRule::nonfinite, "", 10, 40), alert_of(AlertRule::saturation, "c/x", 11),
      alert_of(AlertRule::saturation, "c/dy", 9)};
  EXPECT_THAT(causes_of(alerts), ElementsAre(1, 1, 1, 1, 4));
}

TEST(AlertCauses, AmongEqualsTheGravestExplains) {
  std::vector<Alert> alerts{alert_of(AlertRule::saturation, "a/x", 95), alert_of(AlertRule::saturation, "b/x", 100),
                            alert_of(AlertRule::loss_spike, "", 100)};
  alerts[1].severity = Severity::critical;
  EXPECT_THAT(causes_of(alerts), ElementsAre(0, 1, 1));
  EXPECT_TRUE(causes_of({}).empty());
}

}  // namespace
}  // namespace quaver::test
