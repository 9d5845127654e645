#include "train/watch_state.h"

#include <algorithm>
#include <limits>

namespace quaver {

std::map<std::string, double> to_numbers(const WatchState& state) {
  std::map<std::string, double> numbers{{"guard.mean", state.guard.mean},
                                        {"guard.bad_steps", state.guard.bad_steps},
                                        {"guard.skipped_steps", state.guard.skipped_steps},
                                        {"guard.rewinds", state.guard.rewinds},
                                        {"guard.seen", static_cast<double>(state.guard.seen)}};
  numbers.merge(to_numbers(state.alarms));
  return numbers;
}

WatchState parse_watch_state(const std::map<std::string, double>& numbers) {
  const auto number = [&](const char* key) {
    const auto found = numbers.find(key);
    return found == numbers.end() ? 0.0 : found->second;
  };
  const auto count = [&](const char* key) {
    constexpr std::uint64_t most = std::numeric_limits<int>::max();
    return static_cast<int>(std::min(as_count(number(key)), most));
  };
  return {.guard = {.mean = number("guard.mean"),
                    .bad_steps = count("guard.bad_steps"),
                    .skipped_steps = count("guard.skipped_steps"),
                    .rewinds = count("guard.rewinds"),
                    .seen = static_cast<std::int64_t>(as_count(number("guard.seen")))},
          .alarms = parse_alarm_state(numbers)};
}

}  // namespace quaver
