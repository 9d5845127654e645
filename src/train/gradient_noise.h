// The signal-to-noise ratio of gradients: ‖E[g]‖² and the summed variance of one micro-batch's gradient, from the
// squared norms of the first micro-batch's and of the mean of all.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "formats/quant_spec.h"

namespace quaver {

class GradientNoise {
 public:
  explicit GradientNoise(Size micro_batches) : micro_batches_(static_cast<double>(micro_batches)) {}

  // One square per parameter, of the latest sampled step. There is no noise to see in a single micro-batch: then
  // `first` is empty.
  void take_first(std::vector<double> squares) { first_ = std::move(squares); }
  void take_mean(std::vector<double> squares) { mean_ = std::move(squares); }

  const std::vector<double>& first() const { return first_; }

  bool knows(std::size_t parameter) const { return parameter < first_.size(); }
  double of(std::size_t parameter) const { return ratio(first_[parameter], mean_[parameter]); }

  // Of all gradients together; NaN where it is not known.
  double overall() const {
    if (first_.empty()) return std::numeric_limits<double>::quiet_NaN();
    return ratio(std::accumulate(first_.begin(), first_.end(), 0.0), std::accumulate(mean_.begin(), mean_.end(), 0.0));
  }

 private:
  double ratio(double first, double mean) const {
    const double noise = (first - mean) * micro_batches_ / (micro_batches_ - 1);
    const double signal = mean - noise / micro_batches_;
    if (!(noise > 0)) return std::numeric_limits<double>::quiet_NaN();
    return std::sqrt(std::max(0.0, signal) / noise);
  }

  double micro_batches_;
  std::vector<double> first_;
  std::vector<double> mean_;
};

}  // namespace quaver
