#include "cli/time_to_loss.h"

#include <algorithm>

namespace quaver {

std::vector<LossPoint> running_mean(std::span<const LossPoint> losses, Size window) {
  std::vector<LossPoint> means;
  std::vector<double> sums{0};  // of the losses before each point: the same points give the same mean, to the bit
  for (const LossPoint& point : losses) sums.push_back(sums.back() + point.loss);
  std::size_t first = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    while (losses[first].step <= losses[i].step - window) ++first;
    if (losses[i].step - window < losses.front().step - 1) continue;
    const double mean = (sums[i + 1] - sums[first]) / static_cast<double>(i + 1 - first);
    means.push_back({losses[i].step, mean, losses[i].seconds});
  }
  return means;
}

std::optional<LossPoint> first_at_most(std::span<const LossPoint> curve, double loss) {
  const auto found = std::ranges::find_if(curve, [loss](const LossPoint& point) { return point.loss <= loss; });
  return found == curve.end() ? std::nullopt : std::optional(*found);
}

std::optional<TimeToLoss> time_to_loss_of(const RunResult& other, const RunResult& run) {
  const Size window = final_steps(other.steps);
  const std::vector<LossPoint> reference = running_mean(other.losses, window);
  if (reference.empty()) return std::nullopt;
  const double target = reference.back().loss;
  const auto own = first_at_most(running_mean(run.losses, window), target);
  const auto from = first_at_most(reference, target);
  if (!own || !from) return std::nullopt;
  TimeToLoss found;
  found.steps = own->step;
  found.tokens = static_cast<double>(own->step) * static_cast<double>(run.tokens_per_step);
  found.seconds = own->seconds;
  const double tokens = static_cast<double>(from->step) * static_cast<double>(other.tokens_per_step);
  if (tokens > 0) found.tokens_ratio = found.tokens / tokens;
  if (from->seconds > 0) found.seconds_ratio = own->seconds / from->seconds;
  return found;
}

}  // namespace quaver
