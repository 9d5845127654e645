// How far and how long a run trained until its loss was as low as a given one.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "train/run.h"

namespace quaver {

// The mean of the losses over the last `window` steps, at each step that has as many before it. A single step's loss
// depends on its batch more than on how far the run is.
std::vector<LossPoint> running_mean(std::span<const LossPoint> losses, Size window);

// The first point that is not above the loss; nothing: it is not reached.
std::optional<LossPoint> first_at_most(std::span<const LossPoint> curve, double loss);

// What one run needed to reach the final training loss of another.
struct TimeToLoss {
  Size steps = 0;
  double tokens = 0;  // or images
  double seconds = 0;
  double tokens_ratio = 1;              // to what the other run itself needed
  std::optional<double> seconds_ratio;  // the same; nothing where that took no time
};

// Both losses are running means over the steps that the other's final training loss is a mean of, so the other reaches
// it in its last step at the latest. Nothing: it is not reached, or there are no losses.
std::optional<TimeToLoss> time_to_loss_of(const RunResult& other, const RunResult& run);

}  // namespace quaver
