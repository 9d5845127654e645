#include "numerics/alert_state.h"

#include <algorithm>
#include <cmath>

#include "numerics/alert_text.h"

namespace quaver {

namespace {

constexpr std::string_view prefix = "alarms|";

using Numbers = std::map<std::string, double>;

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

// Memory is const or not, as the caller has it.
template <typename Memory, typename Visit>
void each_field_of_run(Memory& run, Visit visit) {
  visit("loss_count", run.loss.count);
  visit("loss_mean", run.loss.mean);
  visit("loss_lag", run.loss.lag);
  visit("loss_variance", run.loss.variance);
  visit("lowest_loss", run.lowest_loss);
  visit("gradient_count", run.gradient.count);
  visit("gradient_mean", run.gradient.mean);
  visit("gradient_lag", run.gradient.lag);
  visit("gradient_variance", run.gradient.variance);
  visit("embedding_count", run.embedding.count);
  visit("embedding_log", run.embedding.log_sum);
  visit("highest_loss_scale", run.highest_loss_scale);
  visit("skipped", run.skipped);
}

template <typename Memory, typename Visit>
void each_field_of_site(Memory& site, Visit visit) {
  visit("rms_count", site.rms.count);
  visit("rms_log", site.rms.log_sum);
  visit("amax_count", site.amax.count);
  visit("amax_log", site.amax.log_sum);
  visit("snr_count", site.snr.count);
  visit("snr_log", site.snr.log_sum);
  visit("snr_square", site.snr_square);
  visit("scale", site.scale);
  visit("unchanged", site.unchanged);
  visit("peak", site.peak);
  visit("peak_before", site.peak_before);
  visit("filled", site.filled);
  visit("zeros", site.zeros);
  visit("amax_before", site.amax_before);
}

void write_condition(Numbers& numbers, std::string_view rule, const std::string& site, const AlertCondition& state) {
  const auto put = [&](std::string_view field, double value) {
    if (std::isfinite(value)) numbers[state_key(rule, site, field)] = value;
  };
  put("raised", state.raised ? 1 : 0);
  put("bad", state.bad);
  put("healthy", state.healthy);
  put("severity", static_cast<double>(state.alert.severity));
  put("step", static_cast<double>(state.alert.step));
  put("last_step", static_cast<double>(state.alert.last_step));
  put("count", static_cast<double>(state.alert.count));
  put("value", state.alert.value);
  put("threshold", state.alert.threshold);
  put("act", static_cast<double>(state.alert.act));
}

void read_condition(AlertCondition& state, std::string_view field, double value) {
  Alert& alert = state.alert;
  if (field == "raised") state.raised = value > 0;
  if (field == "bad") state.bad = as_int(value);
  if (field == "healthy") state.healthy = as_int(value);
  if (field == "severity") alert.severity = as_enum(value, Severity::critical);
  if (field == "step") alert.step = as_count(value);
  if (field == "last_step") alert.last_step = as_count(value);
  if (field == "count") alert.count = as_count(value);
  if (field == "value") alert.value = value;
  if (field == "threshold") alert.threshold = value;
  if (field == "act") alert.act = as_enum(value, Act::reset_history);
}

}  // namespace

std::uint64_t as_count(double value) { return value >= 1 && value < 0x1p63 ? static_cast<std::uint64_t>(value) : 0; }

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

std::map<std::string, double> to_numbers(const AlarmState& state) {
  Numbers numbers;
  for (const auto& [key, condition] : state.conditions) {
    write_condition(numbers, info(key.first).name, key.second, condition);
  }
  const auto put = [&](const std::string& key, double value) {
    if (value != 0 && std::isfinite(value)) numbers[key] = value;
  };
  each_field_of_run(state.run, [&](std::string_view field, double value) { put(state_key("run", "", field), value); });
  for (const auto& [site, memory] : state.sites) {
    each_field_of_site(memory, [&, &name = site](std::string_view field, double value) {
      put(state_key("site", name, field), value);
    });
  }
  return numbers;
}

AlarmState parse_alarm_state(const std::map<std::string, double>& numbers) {
  AlarmState state;
  for (const auto& [key, number] : numbers) {
    StateName name;
    if (!parse_state_key(key, name)) continue;
    const auto take = [&, &from = number](std::string_view field, double& value) {
      if (field == name.field) value = from;
    };
    if (const RuleInfo* rule = rule_named(name.group)) {
      read_condition(state.conditions[{rule->rule, std::string(name.name)}], name.field, number);
    } else if (name.group == "run" && name.name.empty() && std::isfinite(number)) {
      each_field_of_run(state.run, take);
    } else if (name.group == "site" && std::isfinite(number)) {
      each_field_of_site(state.sites[std::string(name.name)], take);
    }
  }
  for (auto& [key, condition] : state.conditions) {
    Alert& alert = condition.alert;
    alert.rule = key.first;
    alert.site = key.second;
    alert.text = alert_text(alert.rule, alert.site, alert.value, alert.threshold, "");
  }
  return state;
}

}  // namespace quaver
