// Rules on the metrics of every step. Internal to this module.
#pragma once

#include "numerics/alert_ledger.h"
#include "numerics/alert_state.h"

namespace quaver {

class RunRules {
 public:
  void check(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);

  const RunMemory& memory() const { return memory_; }
  void restore(const RunMemory& memory) { memory_ = memory; }

 private:
  void check_loss(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);
  void check_gradient_norm(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);
  void check_loss_scale_and_skips(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);
  void check_embedding(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);

  RunMemory memory_;
};

}  // namespace quaver
