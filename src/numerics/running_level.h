// The usual level of a metric: a running mean with deviation, and a baseline to compare with. Internal to this
// module.
#pragma once

#include <algorithm>
#include <cmath>

namespace quaver {

// Exponential mean and deviation. The mean of a falling metric lags behind it; `lag` is by how much, so that a trend
// is no deviation. A reading far away moves all of them only a little: a spike does not hide the next, and a lasting
// change of level becomes the usual in the end.
struct RunningLevel {
  double count = 0;
  double mean = 0;
  double lag = 0;
  double variance = 0;

  double expected() const { return mean + lag; }
  double deviation(double least) const { return std::max(std::sqrt(variance), least); }

  // Deviations between x and what was to be expected.
  double distance(double x, double least) const { return (x - expected()) / deviation(least); }

  void add(double x, double least) {
    constexpr double memory = 0.98;  // about fifty readings
    constexpr double far = 3;        // deviations
    constexpr double settled = 10;   // readings before far ones are held back
    const double share = std::max(1 - memory, 1 / (count + 1));
    double surprise = x - expected();
    if (count >= settled) surprise = std::clamp(surprise, -far * deviation(least), far * deviation(least));
    if (count > 0) variance += share * (surprise * surprise - variance);
    mean += share * (lag + surprise);
    if (count > 0) lag += share * surprise;
    count += 1;
  }
};

// Geometric mean of the first readings above zero.
struct StartingLevel {
  double count = 0;
  double log_sum = 0;

  // Takes x while it is one of the first; true where there is a start to compare later readings with.
  bool known(double x, int readings) {
    if (count >= readings) return true;
    if (x > 0 && std::isfinite(x)) {
      log_sum += std::log(x);
      count += 1;
    }
    return false;
  }

  double start() const { return std::exp(log_sum / count); }
};

}  // namespace quaver
