#include "numerics/alert_ledger.h"

#include <algorithm>

#include "numerics/alert_text.h"

namespace quaver {

Verdict above(double value, double limit, double healthy_share) {
  if (value > limit) return Verdict::bad;
  return value < healthy_share * limit ? Verdict::healthy : Verdict::borderline;
}

void AlertLedger::begin_step(std::uint64_t step) {
  step_ = step;
  cleared_.clear();
}

void AlertLedger::take(const std::string& site, const Reading& reading) {
  auto found = conditions_.find({reading.rule, site});
  if (reading.verdict == Verdict::bad) {
    if (found == conditions_.end()) found = conditions_.try_emplace({reading.rule, site}).first;
    take_bad(found->second, site, reading);
    return;
  }
  if (found == conditions_.end()) return;
  AlertCondition& condition = found->second;
  condition.bad = 0;
  condition.healthy = reading.verdict == Verdict::healthy ? condition.healthy + 1 : 0;
  if (condition.raised && condition.healthy < reading.patience.clear) return;
  if (condition.raised) cleared_.push_back(condition.alert);
  conditions_.erase(found);
}

void AlertLedger::take_bad(AlertCondition& condition, const std::string& site, const Reading& reading) {
  Alert& alert = condition.alert;
  condition.healthy = 0;
  ++condition.bad;
  alert.rule = reading.rule;
  alert.site = site;
  alert.severity = reading.severity;
  alert.value = reading.value;
  alert.threshold = reading.threshold;
  alert.act = reading.act;
  alert.last_step = step_;
  alert.text = alert_text(reading.rule, site, reading.value, reading.threshold, reading.detail);
  if (condition.raised) {
    ++alert.count;
  } else if (condition.bad >= reading.patience.raise) {
    condition.raised = true;
    alert.step = step_;
    alert.count = 1;
    raised_.push_back(alert);
  }
}

void AlertLedger::dismiss(const std::string& site, AlertRule rule) {
  const auto found = conditions_.find({rule, site});
  if (found == conditions_.end()) return;
  if (found->second.raised) cleared_.push_back(found->second.alert);
  conditions_.erase(found);
}

std::vector<Alert> AlertLedger::active() const {
  std::vector<Alert> result;
  for (const auto& [key, condition] : conditions_) {
    if (condition.raised) result.push_back(condition.alert);
  }
  std::stable_sort(result.begin(), result.end(), [](const Alert& a, const Alert& b) { return a.step < b.step; });
  return result;
}

void AlertLedger::restore(const AlertConditions& conditions) {
  conditions_ = conditions;
  raised_.clear();
  cleared_.clear();
}

}  // namespace quaver
