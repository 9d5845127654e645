// Watches a run and acts: alerts are told of and, where the config asks for it, acted on; a site that keeps overflowing
// is stored in BF16; a loss that diverges is the guard's verdict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "numerics/alerts.h"
#include "train/guard.h"
#include "train/run_log.h"
#include "train/watch_state.h"

namespace quaver {

class RunWatch {
 public:
  RunWatch(Trainer& trainer, RunLog& log)
      : trainer_(trainer), log_(log), guard_(trainer.config().guard), alarms_(trainer.config().alerts) {}

  // After every step: a sampled step's statistics go into the store, and the alarms look at all of it.
  void look_at(const StepReport& report, StepExtras& extras);

  Guard::Verdict judge(const StepReport& report) { return guard_.judge(report.loss, report.skipped); }
  void widen_overflowing_sites();

  bool is_diverging() const { return guard_.state().bad_steps > 0; }
  int rewinds() const { return guard_.state().rewinds; }
  double mean_loss() const { return guard_.running_mean(); }

  WatchState state() const { return {guard_.state(), alarms_.state()}; }
  void restore(const WatchState& state);
  void rewind_to(WatchState state);  // and counts the rewind

 private:
  void raise_alerts(const StepReport& report, const NumericsSample* sample);
  void tell_of(const std::vector<Alert>& raised);
  std::optional<std::string> act_on(const Alert& alert);
  std::optional<std::string> apply(Act act, const Site& site, const std::string& reason);
  std::optional<std::string> widen(const Site& site, const std::string& reason);
  bool recalibrate(const Site& site, const std::string& reason);
  SiteSpec in_bf16(const Site& site) const;

  Trainer& trainer_;
  RunLog& log_;
  Guard guard_;
  Alarms alarms_;
  double usual_seconds_ = 0;  // running mean of steps without full statistics
};

}  // namespace quaver
