#include "report/axis.h"

#include <algorithm>
#include <cmath>

namespace quaver::report {
namespace {

constexpr double largest = 1e300;
constexpr double smallest = 1e-300;
constexpr int most_ticks = 50;

double transform(Scale scale, double value) { return scale == Scale::log ? std::log10(value) : value; }

// The 1, 2 or 5 × 10ⁿ that divides the range into about the wanted number of parts.
double nice_step(double range, int wanted) {
  const double rough = range / std::max(wanted, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double ratio = rough / power;
  return (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10) * power;
}

}  // namespace

bool Extent::drawable(Scale scale, double value) {
  if (!std::isfinite(value) || std::abs(value) > largest) return false;
  return scale == Scale::linear || value >= smallest;
}

void Extent::include(double value) {
  if (!drawable(scale_, value)) return;
  low_ = count_ == 0 ? value : std::min(low_, value);
  high_ = count_ == 0 ? value : std::max(high_, value);
  ++count_;
}

Axis::Axis(Scale scale, Unit unit, double low, double high, double first_pixel, double last_pixel)
    : scale_(scale), unit_(unit), low_(low), high_(high), first_pixel_(first_pixel), last_pixel_(last_pixel) {
  const double magnitude = std::max(std::abs(low_), std::abs(high_));
  if (high_ - low_ > 1e-12 * magnitude && high_ - low_ > smallest) return;
  if (scale_ == Scale::log) {
    low_ /= 2;
    high_ *= 2;
  } else {
    const double half = magnitude > smallest ? 0.05 * magnitude : 1;
    low_ -= half;
    high_ += half;
  }
}

Axis Axis::over(const Extent& extent, Scale scale, Unit unit, double padding, double first_pixel, double last_pixel) {
  if (extent.empty()) {
    return scale == Scale::log ? Axis(scale, unit, 1, 10, first_pixel, last_pixel)
                               : Axis(scale, unit, 0, 1, first_pixel, last_pixel);
  }
  if (scale == Scale::log) {
    const double factor = std::pow(extent.high() / extent.low(), padding);
    const bool usable = std::isfinite(factor);
    return {scale,
            unit,
            usable ? extent.low() / factor : extent.low(),
            usable ? extent.high() * factor : extent.high(),
            first_pixel,
            last_pixel};
  }
  const double pad = padding * (extent.high() - extent.low());
  return {scale, unit, extent.low() - pad, extent.high() + pad, first_pixel, last_pixel};
}

double Axis::pixel(double value) const {
  const double low = transform(scale_, low_);
  const double high = transform(scale_, high_);
  const double share = (transform(scale_, value) - low) / (high - low);
  // Far outside (a user's limits against wild data) the exact place no longer matters; SVG numbers must stay small.
  return first_pixel_ + std::clamp(share, -10.0, 10.0) * (last_pixel_ - first_pixel_);
}

std::vector<Tick> Axis::ticks(int wanted) const {
  if (scale_ == Scale::log && high_ / low_ >= 5) return log_ticks(wanted);
  return linear_ticks(wanted);
}

std::vector<Tick> Axis::linear_ticks(int wanted) const {
  const DisplayUnit display = display_unit(unit_, std::max(std::abs(low_), std::abs(high_)));
  const double step = nice_step((high_ - low_) / display.divisor, wanted);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  const double slack = 1e-9 * step;
  const double first = std::ceil((low_ / display.divisor - slack) / step);
  std::vector<Tick> marks;
  for (int i = 0; i < most_ticks; ++i) {
    const double shown = (first + i) * step;
    if (shown > high_ / display.divisor + slack) break;
    const bool zero = std::abs(shown) < slack && unit_ == Unit::none;
    marks.push_back({shown * display.divisor, zero ? "0" : format_fixed(shown, decimals) + display.suffix});
  }
  return marks;
}

std::vector<Tick> Axis::log_ticks(int wanted) const {
  std::vector<Tick> marks;
  const double base = unit_ == Unit::bytes ? 2 : 10;
  const double first = std::log(low_) / std::log(base);
  const double last = std::log(high_) / std::log(base);
  const int stride = std::max(1, static_cast<int>(std::ceil((last - first) / std::max(wanted, 1))));
  const bool subdivide = base == 10 && last - first < 0.5 * wanted;
  for (int exponent = static_cast<int>(std::floor(first)); exponent <= last + 1e-9; ++exponent) {
    if (exponent % stride != 0) continue;
    for (const double multiple : {1.0, 2.0, 5.0}) {
      if (multiple > 1 && !subdivide) break;
      const double value = multiple * std::pow(base, exponent);
      if (value < low_ * (1 - 1e-9) || value > high_ * (1 + 1e-9)) continue;
      marks.push_back({value, format_value(value, unit_)});
    }
  }
  return marks;
}

}  // namespace quaver::report
