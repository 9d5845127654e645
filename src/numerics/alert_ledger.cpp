#include "numerics/alert_ledger.h"

#include <algorithm>
#include <cmath>

#include "numerics/alert_text.h"

namespace quaver {

namespace {

constexpr std::string_view prefix = "alarms|";

int as_int(double value) { return static_cast<int>(std::min<std::uint64_t>(as_count(value), 1'000'000'000)); }

template <typename Enum>
Enum as_enum(double value, Enum last) {
  return static_cast<Enum>(std::min<std::uint64_t>(as_count(value), static_cast<std::uint64_t>(last)));
}

const RuleInfo* rule_named(std::string_view name) {
  for (const RuleInfo& rule : all_alert_rules()) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

}  // namespace

Verdict above(double value, double limit, double healthy_share) {
  if (value > limit) return Verdict::bad;
  return value < healthy_share * limit ? Verdict::healthy : Verdict::borderline;
}

std::string state_key(std::string_view group, std::string_view name, std::string_view field) {
  std::string key(prefix);
  key.append(group).append("|").append(name).append("|").append(field);
  return key;
}

bool parse_state_key(std::string_view key, StateName& out) {
  if (key.substr(0, prefix.size()) != prefix) return false;
  key.remove_prefix(prefix.size());
  const std::size_t first = key.find('|');
  const std::size_t last = key.rfind('|');
  if (first == std::string_view::npos || first == last) return false;
  out = {key.substr(0, first), key.substr(first + 1, last - first - 1), key.substr(last + 1)};
  return true;
}

std::uint64_t as_count(double value) { return value >= 1 && value < 0x1p63 ? static_cast<std::uint64_t>(value) : 0; }

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
  Condition& condition = found->second;
  condition.bad = 0;
  condition.healthy = reading.verdict == Verdict::healthy ? condition.healthy + 1 : 0;
  if (condition.raised && condition.healthy < reading.patience.clear) return;
  if (condition.raised) cleared_.push_back(condition.alert);
  conditions_.erase(found);
}

void AlertLedger::take_bad(Condition& condition, const std::string& site, const Reading& reading) {
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

void AlertLedger::save(std::map<std::string, double>& state) const {
  for (const auto& [key, condition] : conditions_) {
    const Alert& alert = condition.alert;
    const auto put = [&, &rule = key.first, &site = key.second](std::string_view field, double value) {
      if (std::isfinite(value)) state[state_key(info(rule).name, site, field)] = value;
    };
    put("raised", condition.raised ? 1 : 0);
    put("bad", condition.bad);
    put("healthy", condition.healthy);
    put("severity", static_cast<double>(alert.severity));
    put("step", static_cast<double>(alert.step));
    put("last_step", static_cast<double>(alert.last_step));
    put("count", static_cast<double>(alert.count));
    put("value", alert.value);
    put("threshold", alert.threshold);
    put("act", static_cast<double>(alert.act));
  }
}

void AlertLedger::restore(const std::map<std::string, double>& state) {
  conditions_.clear();
  raised_.clear();
  cleared_.clear();
  for (const auto& [key, value] : state) {
    StateName name;
    if (!parse_state_key(key, name)) continue;
    const RuleInfo* rule = rule_named(name.group);
    if (rule == nullptr) continue;
    Condition& condition = conditions_[{rule->rule, std::string(name.name)}];
    Alert& alert = condition.alert;
    if (name.field == "raised") condition.raised = value > 0;
    if (name.field == "bad") condition.bad = as_int(value);
    if (name.field == "healthy") condition.healthy = as_int(value);
    if (name.field == "severity") alert.severity = as_enum(value, Severity::critical);
    if (name.field == "step") alert.step = as_count(value);
    if (name.field == "last_step") alert.last_step = as_count(value);
    if (name.field == "count") alert.count = as_count(value);
    if (name.field == "value") alert.value = value;
    if (name.field == "threshold") alert.threshold = value;
    if (name.field == "act") alert.act = as_enum(value, Act::reset_history);
  }
  for (auto& [key, condition] : conditions_) {
    Alert& alert = condition.alert;
    alert.rule = key.first;
    alert.site = key.second;
    alert.text = alert_text(alert.rule, alert.site, alert.value, alert.threshold, "");
  }
}

}  // namespace quaver
