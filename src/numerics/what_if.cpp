#include "numerics/what_if.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr int pieces = 8;                   // of a binade
constexpr double rounding_slack = 0x1p-20;  // as CastStatistics::saturated: the rounding of a scale is no saturation

// Elements spread evenly over the magnitudes low … high.
struct Piece {
  double low;
  double high;
  double mass;
};

double total(const Binades& binades) {
  double sum = 0;
  for (const std::uint64_t count : binades) sum += static_cast<double>(count);
  return sum;
}

bool usable(double x) { return std::isfinite(x) && x > 0; }

// The binades that hold anything, and their ends where amax and min_nonzero cut the outermost.
struct Extent {
  int first = 0;
  int last = 0;
  double low = 0;
  double high = 0;
  bool knows_largest = false;
};

std::optional<Extent> extent_of(const Distribution& d) {
  const auto filled = [](std::uint64_t count) { return count > 0; };
  const auto first = std::find_if(d.binades.begin(), d.binades.end(), filled);
  if (first == d.binades.end()) return std::nullopt;
  const auto last = std::find_if(d.binades.rbegin(), d.binades.rend(), filled);
  Extent extent;
  extent.first = static_cast<int>(first - d.binades.begin());
  extent.last = binade_count - 1 - static_cast<int>(last - d.binades.rbegin());
  extent.low = std::ldexp(1.0, extent.first + lowest_binade);
  extent.high = std::ldexp(1.0, extent.last + lowest_binade + 1);
  // The outermost binades also count what lies beyond them. A value that contradicts the histogram is ignored.
  const double lowest = extent.first == 0 ? 0 : extent.low;
  const double highest = extent.last == binade_count - 1 ? HUGE_VAL : extent.high;
  if (usable(d.min_nonzero) && d.min_nonzero >= lowest && d.min_nonzero < extent.high) extent.low = d.min_nonzero;
  extent.knows_largest = usable(d.amax) && d.amax <= highest &&
                         d.amax >= std::max(extent.low, std::ldexp(1.0, extent.last + lowest_binade));
  if (extent.knows_largest) extent.high = d.amax;
  return extent;
}

// ln of the density of log2|x| at t binades from the middle of a bin, up to a constant: a parabola through the counts
// of the bin and its neighbors; at the ends of the data a line through the one neighbor there is, since what lies
// beyond is empty for another reason.
struct LogDensity {
  double slope = std::numbers::ln2;  // even in x
  double curvature = 0;

  double operator()(double t) const { return slope * t + curvature * t * t; }
};

struct Part {  // of a bin that holds data
  int bin;
  double log_low;
  double log_high;
  double count;

  double middle() const { return bin + lowest_binade + 0.5; }
};

LogDensity density_in(const Binades& binades, const Extent& extent, const Part& part) {
  constexpr double empty_bin = 0.25;  // an empty bin between filled ones is a small expectation, not none
  constexpr double steepest = 8;
  if (extent.first == extent.last) return {};
  const auto level = [&](int bin) {
    return std::log(std::max(static_cast<double>(binades[static_cast<std::size_t>(bin)]), empty_bin));
  };
  const double width = std::max(part.log_high - part.log_low, 1e-3);
  const double here = std::log(std::max(part.count, empty_bin) / width);
  const double shift = (part.log_low + part.log_high) / 2 - part.middle();
  if (part.bin == extent.first) {
    return {std::clamp((level(part.bin + 1) - here) / (1 - shift), -steepest, steepest), 0};
  }
  if (part.bin == extent.last) {
    return {std::clamp((here - level(part.bin - 1)) / (1 + shift), -steepest, steepest), 0};
  }
  const double below = level(part.bin - 1), above = level(part.bin + 1);
  return {std::clamp((above - below) / 2, -steepest, steepest),
          std::clamp((above - 2 * here + below) / 2, -steepest, steepest)};
}

void add_pieces(const Part& part, const LogDensity& density, std::vector<Piece>& out) {
  const bool clamped = part.bin == 0 || part.bin == binade_count - 1;  // may span many binades: even in the logarithm
  const double width = (part.log_high - part.log_low) / pieces;
  double weights[pieces];
  double sum = 0;
  for (int i = 0; i < pieces; ++i) {
    weights[i] = clamped ? 1.0 : std::exp(density(part.log_low + (i + 0.5) * width - part.middle()));
    sum += weights[i];
  }
  for (int i = 0; i < pieces; ++i) {
    const double low = std::exp2(part.log_low + i * width), high = std::exp2(part.log_low + (i + 1) * width);
    out.push_back({low, std::max(low, high), part.count * weights[i] / sum});
  }
}

// The largest element is known exactly, and in a heavy tail it may carry most of the sum of squares: a piece of its
// own.
std::vector<Piece> pieces_of(const Binades& binades, const Extent& extent) {
  std::vector<Piece> result;
  result.reserve(static_cast<std::size_t>((extent.last - extent.first + 1) * pieces) + 1);
  for (int bin = extent.first; bin <= extent.last; ++bin) {
    auto count = static_cast<double>(binades[static_cast<std::size_t>(bin)]);
    if (bin == extent.last && extent.knows_largest) count -= 1;
    if (count <= 0) continue;
    const double log_low = bin == extent.first ? std::log2(extent.low) : bin + lowest_binade;
    const double log_high = bin == extent.last ? std::log2(extent.high) : bin + lowest_binade + 1;
    const Part part{bin, log_low, std::max(log_low, log_high), count};
    add_pieces(part, density_in(binades, extent, part), result);
  }
  if (extent.knows_largest) result.push_back({extent.high, extent.high, 1});
  return result;
}

bool is_point(const Piece& piece) { return piece.high <= piece.low; }

// ∫ of the piece's density times (x − center)² over low … high, which lie in the piece.
double second_moment(const Piece& piece, double low, double high, double center) {
  const double a = low - center, b = high - center;
  if (is_point(piece)) return piece.mass * a * a;
  return piece.mass * ((high - low) / (piece.high - piece.low)) * (a * a + a * b + b * b) / 3;
}

double mass_between(const Piece& piece, double low, double high) {
  if (is_point(piece)) return piece.low >= low && piece.low < high ? piece.mass : 0.0;
  const double overlap = std::min(piece.high, high) - std::max(piece.low, low);
  return overlap > 0 ? piece.mass * overlap / (piece.high - piece.low) : 0.0;
}

struct Losses {
  double signal2 = 0;
  double error2 = 0;
  double underflowed = 0;
  double saturated = 0;
};

// The non-negative values of a low-precision format, ascending.
std::vector<double> grid_of(Format format) {
  std::vector<double> values;
  for (std::uint32_t code = 0;; ++code) {
    values.push_back(decode(format, code));
    if (values.back() >= info(format).max) return values;
  }
}

const std::vector<double>& grid(Format format) {
  static const auto grids = [] {
    std::map<Format, std::vector<double>> made;
    for (const Format each : all_formats) {
      if (is_low_precision(each)) made.emplace(each, grid_of(each));
    }
    return made;
  }();
  return grids.at(format);
}

// Squared error of stochastic rounding between neighbors a and b of the grid: (x − a)(b − x), which is
// ((b − a)/2)² − (x − middle)².
double stochastic_error(const Piece& piece, double low, double high, double a, double b) {
  const double half = (b - a) / 2;
  return std::max(0.0, half * half * mass_between(piece, low, high) - second_moment(piece, low, high, (a + b) / 2));
}

// Share of the piece's elements between low and high, below u, that stochastic rounding takes to zero: 1 − x/u.
double stochastic_zeros(const Piece& piece, double low, double high, double u) {
  return mass_between(piece, low, high) * (1 - (low + high) / (2 * u));
}

// Elements of one magnitude (in units of codes).
void cast_point(const Piece& piece, Format format, Rounding rounding, Losses& losses) {
  const double x = piece.low, max = info(format).max;
  const bool between = x < max && rounding == Rounding::stochastic && is_low_precision(format);
  if (!between) {
    const double q = x < max ? decode(format, encode(format, static_cast<float>(x))) : max;
    losses.error2 += piece.mass * (x - q) * (x - q);
    losses.underflowed += q == 0 ? piece.mass : 0;
    losses.saturated += x > max * (1 + rounding_slack) ? piece.mass : 0;
    return;
  }
  const auto next = std::upper_bound(grid(format).begin(), grid(format).end(), x);
  const double a = *(next - 1), b = *next;
  losses.error2 += piece.mass * (x - a) * (b - x);
  losses.underflowed += a == 0 ? piece.mass * (1 - x / b) : 0;
}

// One piece (in units of codes) over a grid of values. Between two neighbors of the grid, nearest rounding has its
// cell boundary in the middle.
void cast_on_grid(const Piece& piece, const std::vector<double>& values, Rounding rounding, Losses& losses) {
  auto next = std::upper_bound(values.begin(), values.end(), piece.low);
  double low = piece.low;
  while (next != values.end() && low < piece.high) {
    const double a = *(next - 1), b = *next, middle = (a + b) / 2, high = std::min(piece.high, b);
    if (rounding == Rounding::stochastic) {
      losses.error2 += stochastic_error(piece, low, high, a, b);
      if (a == 0) losses.underflowed += stochastic_zeros(piece, low, high, b);
    } else {
      const double turn = std::clamp(middle, low, high);
      losses.error2 += second_moment(piece, low, turn, a) + second_moment(piece, turn, high, b);
      if (a == 0) losses.underflowed += mass_between(piece, low, turn);
    }
    low = high;
    ++next;
  }
  const double max = values.back();
  if (piece.high <= max) return;
  const double start = std::max(piece.low, max);
  losses.error2 += second_moment(piece, start, piece.high, max);
  losses.saturated += mass_between(piece, start, HUGE_VAL);
}

// One piece in a format with too many values to walk: a step's error is uniform within it.
void cast_finely(const Piece& piece, const FormatInfo& format, Rounding rounding, Losses& losses) {
  const double zero_below = format.min_subnormal / 2.0;
  const double vanish = std::clamp(zero_below, piece.low, piece.high);
  const double end = std::clamp<double>(format.max, vanish, piece.high);
  losses.underflowed += mass_between(piece, 0, zero_below);
  losses.error2 += second_moment(piece, piece.low, vanish, 0);
  const int exponent = std::max(std::ilogb((vanish + end) / 2), 1 - format.bias);
  const double step = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double share = rounding == Rounding::stochastic ? 1.0 / 6 : 1.0 / 12;
  losses.error2 += share * step * step * mass_between(piece, vanish, end);
  if (piece.high <= format.max) return;
  losses.error2 += second_moment(piece, std::max<double>(piece.low, format.max), piece.high, format.max);
  losses.saturated += mass_between(piece, format.max, HUGE_VAL);
}

Losses cast(const std::vector<Piece>& parts, Format format, double scale, Rounding rounding) {
  Losses losses;
  for (const Piece& part : parts) {
    const Piece scaled{part.low * scale, part.high * scale, part.mass};
    losses.signal2 += second_moment(scaled, scaled.low, scaled.high, 0);
    if (format == Format::f32) continue;
    if (is_point(scaled)) {
      cast_point(scaled, format, rounding, losses);
    } else if (is_low_precision(format)) {
      cast_on_grid(scaled, grid(format), rounding, losses);
    } else {
      cast_finely(scaled, info(format), rounding, losses);
    }
  }
  return losses;
}

// Zeros are not in the histogram. Where they are not counted either, the true mean square tells: zeros make it smaller
// than that of the histogram. The model's own error must not be taken for zeros, hence the threshold.
double elements_of(const Distribution& d, double nonzero, double signal2) {
  constexpr double certainly_zeros = 1.2;
  if (d.count >= nonzero) return d.count;
  if (!usable(d.rms)) return nonzero;
  const double elements = signal2 / (d.rms * d.rms);
  return std::isfinite(elements) && elements > certainly_zeros * nonzero ? elements : nonzero;
}

}  // namespace

Distribution distribution_of(const CastStatistics& seen) {
  Distribution d;
  if (!seen.full) return d;
  d.binades = seen.binades;
  d.amax = seen.amax;
  d.min_nonzero = std::isfinite(seen.min_nonzero) ? seen.min_nonzero : 0.0F;
  d.count = static_cast<double>(seen.count - seen.nonfinite);
  d.rms = seen.rms();
  return d;
}

Distribution distribution_of(const SiteSample& sample, const Binades& binades) {
  const auto known = [&](Statistic statistic) { return usable(sample[statistic]) ? sample[statistic] : 0.0F; };
  Distribution d;
  d.binades = binades;
  d.amax = known(Statistic::amax);
  d.min_nonzero = known(Statistic::min_nonzero);
  d.rms = known(Statistic::rms);
  return d;
}

float natural_scale(const Distribution& distribution, Format format) {
  if (!is_low_precision(format)) return 1;
  const std::optional<Extent> extent = extent_of(distribution);
  QuantSpec spec;
  spec.format = format;
  spec.policy = ScalePolicy::current;
  return extent ? tensor_scale_for(spec, static_cast<float>(extent->high)) : 1.0F;
}

CastPrediction what_if(const Distribution& distribution, Format format, Rounding rounding) {
  return what_if(distribution, format, natural_scale(distribution, format), rounding);
}

CastPrediction what_if(const Distribution& distribution, Format format, float scale, Rounding rounding) {
  if (!usable(scale)) {
    throw Error("a scale of " + std::to_string(scale) + " cannot be cast with", "give a positive, finite scale");
  }
  CastPrediction result;
  result.format = format;
  result.scale = scale;
  const std::optional<Extent> extent = extent_of(distribution);
  if (!extent) {
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    result.underflow_percent = result.saturated_percent = result.sqnr_db = result.headroom_log2 = none;
    return result;
  }
  const Losses losses = cast(pieces_of(distribution.binades, *extent), format, scale, rounding);
  const double signal2 = losses.signal2 / scale / scale;
  const double elements = elements_of(distribution, total(distribution.binades), signal2);
  result.underflow_percent = 100 * losses.underflowed / elements;
  result.saturated_percent = 100 * losses.saturated / elements;
  result.sqnr_db =
      losses.error2 > 0 ? 10 * std::log10(losses.signal2 / losses.error2) : std::numeric_limits<double>::infinity();
  result.headroom_log2 = std::log2(info(format).max) - std::log2(extent->high) - std::log2(scale);
  return result;
}

std::span<const Format> what_if_formats() {
  static constexpr Format formats[] = {Format::e2m1, Format::e4m3, Format::e5m2, Format::f16, Format::bf16};
  return formats;
}

FormatRange format_range(Format format, float scale) {
  if (!usable(scale)) {
    throw Error("a scale of " + std::to_string(scale) + " gives a format no range", "give a positive, finite scale");
  }
  const FormatInfo& f = info(format);
  const double shift = std::log2(scale);
  return {std::log2(f.min_subnormal) - 1 - shift, std::log2(f.min_normal) - shift, std::log2(f.max) - shift};
}

}  // namespace quaver
