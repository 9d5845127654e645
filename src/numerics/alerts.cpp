#include "numerics/alerts.h"

#include <fmt/format.h>

#include "numerics/alert_ledger.h"
#include "numerics/alert_state.h"
#include "numerics/run_rules.h"
#include "numerics/site_rules.h"
#include "quaver/error.h"

namespace quaver {

namespace {

void check(const AlertConfig& c) {
  const std::pair<const char*, double> at_least_one[] = {{"samples", c.samples},
                                                         {"clear_samples", c.clear_samples},
                                                         {"steps", c.steps},
                                                         {"clear_steps", c.clear_steps},
                                                         {"frozen_steps", c.frozen_steps},
                                                         {"frozen_factor", c.frozen_factor},
                                                         {"stale_above", c.stale_above},
                                                         {"settling_steps", c.settling_steps},
                                                         {"skipped_steps", c.skipped_steps},
                                                         {"baseline_samples", c.baseline_samples},
                                                         {"growth", c.growth},
                                                         {"weight_jump", c.weight_jump},
                                                         {"snr_fall", c.snr_fall}};
  for (const auto& [name, value] : at_least_one) {
    if (!(value >= 1)) throw Error(fmt::format("alert threshold {} is {}", name, value), "it must be 1 or more");
  }
  const std::pair<const char*, double> positive[] = {{"underflow_x", c.underflow_x},
                                                     {"underflow_w", c.underflow_w},
                                                     {"underflow_dy", c.underflow_dy},
                                                     {"underflow_4bit", c.underflow_4bit},
                                                     {"harmless_sqnr", c.harmless_sqnr},
                                                     {"sqnr_deficit", c.sqnr_deficit},
                                                     {"saturated", c.saturated},
                                                     {"stale_binades", c.stale_binades},
                                                     {"loss_deviations", c.loss_deviations},
                                                     {"gradient_deviations", c.gradient_deviations},
                                                     {"max_logit", c.max_logit},
                                                     {"unmoved", c.unmoved},
                                                     {"collapse", c.collapse}};
  for (const auto& [name, value] : positive) {
    if (!(value > 0)) throw Error(fmt::format("alert threshold {} is {}", name, value), "it must be above 0");
  }
  for (const double cosine : {c.shadow_cosine, c.shadow_cosine_4bit}) {
    if (!(cosine >= -1 && cosine <= 1)) {
      throw Error(fmt::format("alert threshold shadow_cosine is {}", cosine), "a cosine lies between -1 and 1");
    }
  }
}

}  // namespace

class Alarms::Watcher {
 public:
  explicit Watcher(const AlertConfig& thresholds) : config(thresholds) { check(config); }

  AlertConfig config;
  AlertLedger ledger;
  RunRules run;
  SiteRules sites;
};

Alarms::Alarms(const AlertConfig& config) : watcher_(std::make_unique<Watcher>(config)) {}
Alarms::~Alarms() = default;
Alarms::Alarms(Alarms&&) noexcept = default;
Alarms& Alarms::operator=(Alarms&&) noexcept = default;

std::vector<Alert> Alarms::watch(const StepMetrics& metrics, const ScaleBook& book, const NumericsSample* sample) {
  Watcher& w = *watcher_;
  if (!w.config.enabled) return {};
  w.ledger.begin_step(metrics.step);
  w.run.check(metrics, w.config, w.ledger);
  w.sites.check_step(metrics, book, w.config, w.ledger);
  // What a skipped step's casts saw is the accident, not the tensor.
  if (sample != nullptr && !metrics.skipped) w.sites.check_sample(metrics, book, *sample, w.config, w.ledger);
  return w.ledger.take_raised();
}

std::vector<Alert> Alarms::active() const { return watcher_->ledger.active(); }

const std::vector<Alert>& Alarms::cleared() const { return watcher_->ledger.cleared(); }

AlarmState Alarms::state() const {
  return {watcher_->ledger.conditions(), watcher_->run.memory(), watcher_->sites.memories()};
}

void Alarms::restore(const AlarmState& state) {
  watcher_->ledger.restore(state.conditions);
  watcher_->run.restore(state.run);
  watcher_->sites.restore(state.sites);
}

}  // namespace quaver
