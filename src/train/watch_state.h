// What the guard and the alarms of a run remember. It travels in the run's checkpoints, as numbers with names.
#pragma once

#include <map>
#include <string>

#include "numerics/alert_state.h"
#include "train/guard.h"

namespace quaver {

struct WatchState {
  Guard::State guard;
  AlarmState alarms;
};

std::map<std::string, double> to_numbers(const WatchState& state);

// What is missing or cannot be read is as in a run that has not begun.
WatchState parse_watch_state(const std::map<std::string, double>& numbers);

}  // namespace quaver
