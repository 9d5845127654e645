// Which of a run's alerts are symptoms of another: a scale that does not fit saturates its tensor, adds noise, turns
// gradients aside and lifts the loss, and all of these raise alerts. A reader wants the scale first.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "numerics/alerts.h"

namespace quaver {

// For each alert the place in `alerts` of the one it is a symptom of; its own place where it is none. A cause is never
// a symptom itself. Alerts of one run.
std::vector<std::size_t> causes_of(std::span<const Alert> alerts);

}  // namespace quaver
