// The life of alerts: raised after enough bad readings in a row, counted while they last, cleared after enough healthy
// ones. Rules read metrics and statistics, the ledger remembers. Internal to this module.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "numerics/alerts.h"
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

  // A figure of the past has no successor: the site is stored in another way now.
  void dismiss(const std::string& site, AlertRule rule);

  std::vector<Alert> take_raised() { return std::exchange(raised_, {}); }
  const std::vector<Alert>& cleared() const { return cleared_; }
  std::vector<Alert> active() const;

  void save(std::map<std::string, double>& state) const;
  void restore(const std::map<std::string, double>& state);

 private:
  // A condition that is bad, or was until lately.
  struct Condition {
    Alert alert;
    bool raised = false;
    int bad = 0;      // readings in a row
    int healthy = 0;  // readings in a row
  };
  using Key = std::pair<AlertRule, std::string>;

  void take_bad(Condition& condition, const std::string& site, const Reading& reading);

  std::uint64_t step_ = 0;
  std::map<Key, Condition> conditions_;
  std::vector<Alert> raised_;
  std::vector<Alert> cleared_;
};

// Names and numbers of the saved state: "alarms|<group>|<name>|<field>".
std::string state_key(std::string_view group, std::string_view name, std::string_view field);

struct StateName {
  std::string_view group;
  std::string_view name;
  std::string_view field;
};
bool parse_state_key(std::string_view key, StateName& out);

// A number read from outside as a count: 0 where it is none.
std::uint64_t as_count(double value);

}  // namespace quaver
