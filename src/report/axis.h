// One axis of a chart: from values to pixels, and round numbers to mark on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/text.h"

namespace quaver::report {

enum class Scale : std::uint8_t { linear, log };

// The extent of the values that can be drawn on a scale.
class Extent {
 public:
  explicit Extent(Scale scale) : scale_(scale) {}

  // Finite, not absurd (beyond 1e300 differences overflow), and positive on a logarithmic scale.
  static bool drawable(Scale scale, double value);

  void include(double value);
  bool empty() const { return count_ == 0; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  Scale scale_;
  std::size_t count_ = 0;
  double low_ = 0;
  double high_ = 0;
};

struct Tick {
  double value;
  std::string label;
};

class Axis {
 public:
  // Maps [low, high] to [first_pixel, last_pixel], which may run either way. A range too narrow to divide is widened.
  Axis(Scale scale, Unit unit, double low, double high, double first_pixel, double last_pixel);

  // An axis over an extent with `padding` (a fraction of it) left free at both ends; [0, 1] where it is empty, [1, 10]
  // on a logarithmic scale.
  static Axis over(const Extent& extent, Scale scale, Unit unit, double padding, double first_pixel, double last_pixel);

  double pixel(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }
  Scale scale() const { return scale_; }
  Unit unit() const { return unit_; }

  // About `wanted` round values inside the range, ascending, with labels that tell them apart.
  std::vector<Tick> ticks(int wanted) const;

 private:
  std::vector<Tick> linear_ticks(int wanted) const;
  std::vector<Tick> log_ticks(int wanted) const;

  Scale scale_;
  Unit unit_;
  double low_;
  double high_;
  double first_pixel_;
  double last_pixel_;
};

}  // namespace quaver::report
