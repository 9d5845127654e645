#include "numerics/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/what_if.h"

namespace quaver {

namespace {

constexpr StatisticInfo statistics[] = {
    {Statistic::scale, "scale", "",
     "what the tensor is multiplied by before the cast; none for current and block scales", Worse::larger_magnitude},
    {Statistic::amax, "amax", "", "largest magnitude", Worse::higher},
    {Statistic::min_nonzero, "min_nonzero", "", "smallest magnitude that is not zero", Worse::lower},
    {Statistic::mean, "mean", "", "mean", Worse::larger_magnitude},
    {Statistic::std, "std", "", "standard deviation", Worse::higher},
    {Statistic::rms, "rms", "", "root of the mean square", Worse::higher},
    {Statistic::kurtosis, "kurtosis", "", "about zero: 3 for a normal distribution, more with outliers", Worse::higher},
    {Statistic::underflow_percent, "underflow_percent", "%", "non-zero elements that the cast made zero",
     Worse::higher},
    {Statistic::saturated_percent, "saturated_percent", "%", "elements beyond the format's largest value",
     Worse::higher},
    {Statistic::nonfinite, "nonfinite", "", "infinities and NaNs", Worse::higher},
    {Statistic::sqnr_db, "sqnr_db", "dB", "signal to quantization noise ratio", Worse::lower},
    {Statistic::sqnr_deficit_db, "sqnr_deficit_db", "dB",
     "how far the SQNR is below that of this tensor in this format with its best single scale; 0 where it is no worse",
     Worse::higher},
    {Statistic::headroom_log2, "headroom_log2", "bits", "binades from the scaled amax to the format's largest value",
     Worse::lower},
    {Statistic::gradient_snr, "gradient_snr", "", "‖mean‖ / deviation of the weight's gradient over micro-batches",
     Worse::lower},
    {Statistic::update_ratio, "update_ratio", "", "‖Δw‖ / ‖w‖ of the last update", Worse::higher},
    {Statistic::unmoved_percent, "unmoved_percent", "%", "weights that the last update did not change", Worse::higher},
    {Statistic::shadow_cosine, "shadow_cosine", "", "between the weight's gradient and the same in high precision",
     Worse::lower},
    {Statistic::shadow_error, "shadow_error", "", "relative error of the weight's gradient against high precision",
     Worse::higher},
};
static_assert(std::size(statistics) == statistic_count);

// Block and current scales differ from cast to cast: there is no single value.
float scale_of(const Site& site, float scale) {
  if (scale > 0) return scale;
  return site.spec.rows.policy == ScalePolicy::none ? 1.0F : std::numeric_limits<float>::quiet_NaN();
}

// What rounding to the format leaves of values spread over its normal numbers.
double usual_sqnr(Format format) {
  switch (format) {
    case Format::e3m4:
    case Format::int8:
      return 37;
    case Format::e4m3:
    case Format::e2m3:
      return 31;
    case Format::e5m2:
    case Format::e3m2:
      return 25;
    default:
      return 18;
  }
}

// In dB. An SQNR near the usual one needs no explanation, and the model of the cast is slow: it is skipped.
double deficit(const QuantSpec& rows, const CastStatistics& look) {
  const double found = look.sqnr_db();
  if (found >= usual_sqnr(rows.format) - 3) return 0;
  const double best = what_if(distribution_of(look), rows.format, rows.rounding).sqnr_db;
  return std::isfinite(best) ? std::max(0.0, best - found) : std::numeric_limits<double>::quiet_NaN();
}

// Counts are those of the whole step, the rest those of the micro-step with full statistics.
void fill(SiteSample& sample, const Site& site, const CastStatistics& step, const CastStatistics& look, float scale) {
  const auto set = [&](Statistic statistic, double value) { sample[statistic] = static_cast<float>(value); };
  set(Statistic::scale, scale_of(site, scale));
  if (step.count == 0) return;
  set(Statistic::amax, step.amax);
  set(Statistic::underflow_percent, step.underflow_percent());
  set(Statistic::saturated_percent, step.saturated_percent());
  set(Statistic::nonfinite, static_cast<double>(step.nonfinite));
  if (step.amax > 0) {
    set(Statistic::headroom_log2,
        std::log2(info(site.spec.rows.format).max) - std::log2(step.amax) - std::log2(scale_of(site, scale)));
  }
  if (!look.full) return;
  if (look.amax > 0) set(Statistic::min_nonzero, look.min_nonzero);
  set(Statistic::mean, look.mean());
  set(Statistic::std, look.std());
  set(Statistic::rms, look.rms());
  set(Statistic::kurtosis, look.kurtosis());
  set(Statistic::sqnr_db, look.sqnr_db());
  if (is_low_precision(site.spec.rows.format)) set(Statistic::sqnr_deficit_db, deficit(site.spec.rows, look));
}

}  // namespace

const StatisticInfo& info(Statistic statistic) { return statistics[static_cast<std::size_t>(statistic)]; }

std::span<const StatisticInfo> all_statistics() { return statistics; }

NumericsSample sample_of(const ScaleBook& book, std::uint64_t step) {
  NumericsSample sample;
  sample.step = step;
  sample.sites.resize(book.entries().size());
  sample.binades.resize(book.entries().size());
  for (std::size_t i = 0; i < sample.sites.size(); ++i) {
    const ScaleEntry& entry = *book.entries()[i];
    const bool looked = entry.sampled.full;
    const CastStatistics& look = looked ? entry.sampled : entry.last_step;
    fill(sample.sites[i], entry.site, entry.last_step, look, looked ? entry.sampled_scale : entry.site.scale);
    sample.binades[i] = look.binades;
  }
  return sample;
}

}  // namespace quaver
