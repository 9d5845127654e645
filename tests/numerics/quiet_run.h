// A run without noise, in which nothing is raised but what a test sets: for the exact limits of the rules.
#pragma once

#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

#include "numerics/alerts.h"
#include "numerics/specs.h"

namespace quaver::test {

class QuietRun : public testing::Test {
 protected:
  QuietRun() {
    add("blocks.0.mlp.up", delayed_e4m3, delayed_e5m2);
    now.learning_rate = 1e-3;
  }

  void add(const std::string& layer, const QuantSpec& forward, const QuantSpec& backward) {
    for (const Role role : {Role::x, Role::w, Role::dy}) {
      const QuantSpec& spec = role == Role::dy ? backward : forward;
      book.add({.site = layer + "/" + std::string(name_of(role)),
                .layer = layer,
                .role = role,
                .recipe = {},
                .reason = {},
                .spec = {spec, spec}});
      sample.sites.emplace_back();
      sample.binades.emplace_back();
    }
  }

  float& value_of(const std::string& site, Statistic statistic) {
    for (std::size_t i = 0; i < sample.sites.size(); ++i) {
      if (book.entries()[i]->site.name == site) return sample.sites[i][statistic];
    }
    throw std::runtime_error(site);
  }

  std::vector<Alert> watch() {
    ++now.step;
    return alarms.watch(now, book, &sample);
  }

  // Samples until an alert is raised; 0: never within `most`.
  int samples_until_raised(int most = 40) {
    for (int i = 1; i <= most; ++i) {
      const std::vector<Alert> raised = watch();
      if (raised.empty()) continue;
      last = raised.front();
      return i;
    }
    return 0;
  }
  int samples_until_cleared(int most = 40) {
    for (int i = 1; i <= most; ++i) {
      watch();
      if (!alarms.cleared().empty()) return i;
    }
    return 0;
  }

  struct Levels {
    double inside, beyond, borderline, healthy;
    int raised_after = 3;  // samples
  };

  // A statistic of a sample: just inside the limit nothing is raised; just beyond, after three; between limit and
  // healthy nothing clears; in health, after five.
  void expect_limits(const std::string& site, Statistic statistic, AlertRule rule, const Levels& levels) {
    SCOPED_TRACE(info(rule).name);
    float& value = value_of(site, statistic);
    value = static_cast<float>(levels.inside);
    EXPECT_EQ(samples_until_raised(), 0) << "inside";
    value = static_cast<float>(levels.beyond);
    ASSERT_EQ(samples_until_raised(), levels.raised_after) << "beyond";
    EXPECT_EQ(last.rule, rule);
    EXPECT_EQ(last.site, site);
    value = static_cast<float>(levels.borderline);
    EXPECT_EQ(samples_until_cleared(), 0) << "borderline";
    value = static_cast<float>(levels.healthy);
    EXPECT_EQ(samples_until_cleared(), 5) << "healthy";
  }

  // The same for a metric of every step: after three and after twenty.
  void expect_step_limits(double& value, AlertRule rule, const Levels& levels) {
    SCOPED_TRACE(info(rule).name);
    value = levels.inside;
    EXPECT_EQ(samples_until_raised(), 0) << "inside";
    value = levels.beyond;
    ASSERT_EQ(samples_until_raised(), 3) << "beyond";
    EXPECT_EQ(last.rule, rule);
    value = levels.borderline;
    EXPECT_EQ(samples_until_cleared(), 0) << "borderline";
    value = levels.healthy;
    EXPECT_EQ(samples_until_cleared(), 20) << "healthy";
  }

  const std::string x = "blocks.0.mlp.up/x", w = "blocks.0.mlp.up/w", dy = "blocks.0.mlp.up/dy";
  ScaleBook book;
  Alarms alarms{AlertConfig{}};
  NumericsSample sample;
  StepMetrics now;
  Alert last;
};

}  // namespace quaver::test
