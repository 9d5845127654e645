// Rules on the metrics of every step. Internal to this module.
#pragma once

#include <map>
#include <string>

#include "numerics/alert_ledger.h"
#include "numerics/running_level.h"

namespace quaver {

class RunRules {
 public:
  void look(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);

  void save(std::map<std::string, double>& state) const;
  void restore(const std::map<std::string, double>& state);

 private:
  void look_at_loss(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);
  void look_at_gradient(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);
  void look_at_scale_and_skips(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);
  void look_at_embedding(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);

  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit("loss_count", self.loss_.count);
    visit("loss_mean", self.loss_.mean);
    visit("loss_lag", self.loss_.lag);
    visit("loss_variance", self.loss_.variance);
    visit("lowest_loss", self.lowest_loss_);
    visit("gradient_count", self.gradient_.count);
    visit("gradient_mean", self.gradient_.mean);
    visit("gradient_lag", self.gradient_.lag);
    visit("gradient_variance", self.gradient_.variance);
    visit("embedding_count", self.embedding_.count);
    visit("embedding_log", self.embedding_.log_sum);
    visit("highest_loss_scale", self.highest_loss_scale_);
    visit("skipped", self.skipped_);
  }

  RunningLevel loss_;
  double lowest_loss_ = 0;  // so far
  RunningLevel gradient_;   // of the logarithm of the norm
  Baseline embedding_;
  double highest_loss_scale_ = 0;
  double skipped_ = 0;  // steps in a row
};

}  // namespace quaver
