#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quaver {

double schedule_share(const OptimConfig& config, Size step, Size steps) {
  const auto total = static_cast<double>(std::max<Size>(steps, 1));
  const auto now = static_cast<double>(step);
  const double warmup = std::floor(config.warmup * total);
  if (now < warmup) return (now + 1) / (warmup + 1);
  const double last = config.final_ratio;
  const auto progress = [&](double from) {
    return std::clamp((now - from) / std::max(1.0, total - 1 - from), 0.0, 1.0);
  };
  switch (config.schedule) {
    case ScheduleShape::constant:
      return 1;
    case ScheduleShape::cosine:
      return last + (1 - last) * 0.5 * (1 + std::cos(std::numbers::pi * progress(warmup)));
    case ScheduleShape::linear:
      return 1 + (last - 1) * progress(warmup);
    case ScheduleShape::wsd:
      return 1 + (last - 1) * progress(std::max(warmup, std::floor(total * (1 - config.decay))));
  }
  return 1;
}

}  // namespace quaver
