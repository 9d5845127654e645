// Rules on the metrics of every step. Internal to this module.
#pragma once

#include "numerics/alert_ledger.h"
#include "numerics/alert_state.h"

namespace quaver {

class RunRules {
 public:
  void look(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);

  const RunMemory& memory() const { return memory_; }
  void restore(const RunMemory& memory) { memory_ = memory; }

 private:
  void look_at_loss(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);
  void look_at_gradient(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);
  void look_at_scale_and_skips(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);
  void look_at_embedding(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger);

  RunMemory memory_;
};

}  // namespace quaver
