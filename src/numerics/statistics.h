// The statistics of a site: their names, what they mean, and one step's sample of all of them. Casts collect most; the
// optimizer and the shadow check add those of weights.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "precision/scale_book.h"

namespace quaver {

enum class Statistic : std::uint8_t {
  scale,
  amax,
  min_nonzero,
  mean,
  std,
  rms,
  kurtosis,
  underflow_percent,
  saturated_percent,
  nonfinite,
  sqnr_db,
  sqnr_deficit_db,  // below what the format gives this tensor at its best scale
  headroom_log2,
  gradient_snr,     // of a weight's gradient over the step's micro-batches: ‖E[g]‖ / std(g)
  update_ratio,     // ‖Δw‖ / ‖w‖
  unmoved_percent,  // weights that the update did not change
  shadow_cosine,    // between the weight's gradient and the same in high precision
  shadow_error,     // ‖difference‖ / ‖gradient in high precision‖
};
inline constexpr std::size_t statistic_count = 18;

// Which way is worse: what a cell that stands for several sites or steps shows.
enum class Worse : std::uint8_t { higher, lower, larger_magnitude };

struct StatisticInfo {
  Statistic statistic;
  std::string_view name;  // "underflow_percent"
  std::string_view unit;  // "%", "dB", "" …
  std::string_view doc;
  Worse worse;
};

const StatisticInfo& info(Statistic statistic);
std::span<const StatisticInfo> all_statistics();  // in the order of the enumeration

// One site's statistics; NaN: not measured.
struct SiteSample {
  SiteSample() { values.fill(std::numeric_limits<float>::quiet_NaN()); }

  float& operator[](Statistic statistic) { return values[static_cast<std::size_t>(statistic)]; }
  float operator[](Statistic statistic) const { return values[static_cast<std::size_t>(statistic)]; }

  std::array<float, statistic_count> values;
};

using Binades = std::array<std::uint64_t, binade_count>;  // as CastStatistics::binades

// All sites at one step, in the scale book's order.
struct NumericsSample {
  std::uint64_t step = 0;
  std::vector<SiteSample> sites;
  std::vector<Binades> binades;
};

// What the casts of the book's latest finished step saw: counts and amax of the whole step; the rest, with the scale
// that was used, of the micro-step with full statistics. Statistics that need Detail::full are NaN where no cast
// collected them; `scale` is then the one of the next step.
NumericsSample sample_of(const ScaleBook& book, std::uint64_t step);

}  // namespace quaver
