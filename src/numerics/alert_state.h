// What alarms remember from step to step, and its form in a checkpoint: finite numbers under
// "alarms|<group>|<name>|<field>", so that a resumed run does not raise everything anew.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "numerics/alerts.h"
#include "numerics/running_level.h"

namespace quaver {

// A condition that is bad, or was until lately.
struct AlertCondition {
  Alert alert;
  bool raised = false;
  int bad = 0;      // readings in a row
  int healthy = 0;  // readings in a row
};
using AlertConditions = std::map<std::pair<AlertRule, std::string>, AlertCondition>;  // by rule and site

// Of the rules on the metrics of every step.
struct RunMemory {
  RunningLevel loss;
  double lowest_loss = 0;  // so far
  RunningLevel gradient;   // of the logarithm of the norm
  StartingLevel embedding;
  double highest_loss_scale = 0;
  double skipped = 0;  // steps in a row
};

// Of the rules on one site.
struct SiteMemory {
  StartingLevel rms;
  StartingLevel amax;
  StartingLevel snr;
  double snr_square = 0;  // running mean of the square: a single step's SNR is an estimate, and often zero
  double scale = 0;       // a delayed scale as last seen …
  double unchanged = 0;   // … and for how many steps it has been that
  double peak = 0;        // largest amax of the latest steps, and of those before
  double peak_before = 0;
  double filled = 0;       // steps in `peak`
  double amax_before = 0;  // at the sample before
  double zeros = 0;        // steps in a row in which the tensor was all zero
};
using SiteMemories = std::unordered_map<std::string, SiteMemory>;

struct AlarmState {
  AlertConditions conditions;
  RunMemory run;
  SiteMemories sites;
};

std::map<std::string, double> to_numbers(const AlarmState& state);

// The numbers may hold more than the alarms'; what cannot be read is passed over.
AlarmState parse_alarm_state(const std::map<std::string, double>& numbers);

// A number read from outside as a count: 0 where it is none.
std::uint64_t as_count(double value);

// Internal to this module: the name of a number, and its parts.
std::string state_key(std::string_view group, std::string_view name, std::string_view field);

struct StateName {
  std::string_view group;
  std::string_view name;
  std::string_view field;
};
bool parse_state_key(std::string_view key, StateName& out);

}  // namespace quaver
