// The life of alerts: raised after enough bad readings in a row, counted while they last, cleared after enough healthy
// ones. Rules read metrics and statistics, the ledger remembers. Internal to this module.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "numerics/alert_state.h"
#include "numerics/limits.h"

namespace quaver {

// More is worse; clears below a share of the limit.
Verdict above(double value, double limit, double healthy_share);

// How many readings in a row raise and clear.
struct Patience {
  int raise = 1;
  int clear = 1;
};

struct Reading {
  AlertRule rule = AlertRule::nonfinite;
  Verdict verdict = Verdict::healthy;
  double value = 0;
  double threshold = 0;
  Severity severity = Severity::warning;
  Act act = Act::none;
  Patience patience = {};
  std::string detail = {};  // for the text
};

class AlertLedger {
 public:
  void begin_step(std::uint64_t step);
  void take(const std::string& site, const Reading& reading);

  // Forgets the past of a rule whose site is stored in another way now.
  void dismiss(const std::string& site, AlertRule rule);

  std::vector<Alert> take_raised() { return std::exchange(raised_, {}); }
  const std::vector<Alert>& cleared() const { return cleared_; }
  std::vector<Alert> active() const;

  const AlertConditions& conditions() const { return conditions_; }
  void restore(const AlertConditions& conditions);

 private:
  void take_bad(AlertCondition& condition, const std::string& site, const Reading& reading);

  std::uint64_t step_ = 0;
  AlertConditions conditions_;
  std::vector<Alert> raised_;
  std::vector<Alert> cleared_;
};

}  // namespace quaver
