#include "numerics/limits.h"

#include <algorithm>
#include <cmath>

namespace quaver {

namespace {

bool has_four_bits(const SiteStorage& site) { return info(site.format).storage_bits < 8; }

Limits at_most(double watch, double bad) { return {.below = {}, .above = Bound{watch, bad}}; }
Limits at_least(double watch, double bad) { return {.below = Bound{watch, bad}, .above = {}}; }

// In 8 bits a share above the limit is bad only together with a low SQNR, unless it is nearly all.
Limits underflow_limits(const SiteStorage& site, const AlertConfig& config) {
  const double limit = underflow_limit(site, config);
  return has_four_bits(site) ? at_most(0.7 * limit, limit) : at_most(limit, std::max(limit, nearly_all_percent));
}

// Between too far beyond the format's end and too few binades above its smallest normal number.
Limits headroom_limits(const SiteStorage& site, const AlertConfig& config) {
  if (site.policy == ScalePolicy::current || !site.one_scale) return {};
  const FormatInfo& format = info(site.format);
  const double span = std::log2(format.max / format.min_normal);
  const double least = -std::log2(config.stale_above);
  const double most = span - std::min(config.stale_binades, span / 2);
  return {.below = Bound{least + 1, least}, .above = Bound{most - 1, most}};
}

Limits cosine_limits(const SiteStorage& site, const AlertConfig& config) {
  const double limit = site.layer_bits < 8 ? config.shadow_cosine_4bit : config.shadow_cosine;
  return at_least(limit + 0.2 * (1 - limit), limit);
}

}  // namespace

SiteStorage storage_of(const Site& site, int layer_bits) {
  const QuantSpec& rows = site.spec.rows;
  return {site.role, rows.format, rows.policy, rows.block == block::tensor, layer_bits};
}

double underflow_limit(const SiteStorage& site, const AlertConfig& config) {
  const double of_role = site.role == Role::x   ? config.underflow_x
                         : site.role == Role::w ? config.underflow_w
                                                : config.underflow_dy;
  return has_four_bits(site) ? std::max(of_role, config.underflow_4bit) : of_role;
}

Limits limits_of(Statistic statistic, const SiteStorage& site, const AlertConfig& config) {
  const bool low_precision = is_low_precision(site.format);
  switch (statistic) {
    case Statistic::underflow_percent:
      return low_precision ? underflow_limits(site, config) : Limits{};
    case Statistic::saturated_percent:
      // What a current scale clips is the rounding of the scale.
      return low_precision && site.policy != ScalePolicy::current ? at_most(0.5 * config.saturated, config.saturated)
                                                                  : Limits{};
    case Statistic::nonfinite:
      return at_most(0.5, 0.5);
    case Statistic::sqnr_deficit_db:
      return low_precision ? at_most(0.5 * config.sqnr_deficit, config.sqnr_deficit) : Limits{};
    case Statistic::headroom_log2:
      return low_precision ? headroom_limits(site, config) : Limits{};
    case Statistic::unmoved_percent:
      return site.role == Role::w ? at_most(0.98 * config.unmoved, config.unmoved) : Limits{};
    case Statistic::shadow_cosine:
      return site.role == Role::w ? cosine_limits(site, config) : Limits{};
    case Statistic::scale:
    case Statistic::amax:
    case Statistic::min_nonzero:
    case Statistic::mean:
    case Statistic::std:
    case Statistic::rms:
    case Statistic::kurtosis:
    case Statistic::sqnr_db:
    case Statistic::gradient_snr:
    case Statistic::update_ratio:
    case Statistic::shadow_error:
      return {};
  }
  return {};
}

Verdict verdict_of(double value, const Limits& limits) {
  Verdict verdict = Verdict::healthy;
  const auto worsen = [&](bool bad, bool borderline) {
    verdict = std::max(verdict, bad ? Verdict::bad : borderline ? Verdict::borderline : Verdict::healthy);
  };
  if (limits.below) worsen(value < limits.below->bad, value <= limits.below->watch);
  if (limits.above) worsen(value > limits.above->bad, value >= limits.above->watch);
  return verdict;
}

}  // namespace quaver
