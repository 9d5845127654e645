// Where a statistic of a site stops being healthy and where it is bad. The rules raise alerts by these limits and
// pictures are colored by them, so that the two agree.
#pragma once

#include <optional>

#include "numerics/alerts.h"

namespace quaver {

// borderline: not bad enough to raise an alert, not good enough to clear one.
enum class Verdict : std::uint8_t { healthy, borderline, bad };

// How a site is stored, as far as limits depend on it.
struct SiteStorage {
  Role role = Role::x;
  Format format = Format::f32;
  ScalePolicy policy = ScalePolicy::none;
  bool one_scale = true;  // for the whole tensor, not by row or block
  int layer_bits = 32;    // of the lowest-precision operand of the site's layer
};

// One scale for the tensor that is known before it is cast: delayed or static.
inline bool has_own_scale(const QuantSpec& spec) {
  return spec.policy == ScalePolicy::delayed || spec.policy == ScalePolicy::fixed;
}

SiteStorage storage_of(const Site& site, int layer_bits);

// On one side of what is fine: borderline from `watch` on, bad beyond `bad`.
struct Bound {
  double watch = 0;
  double bad = 0;
};

struct Limits {
  std::optional<Bound> below;
  std::optional<Bound> above;

  bool judges() const { return below || above; }
};

// None where the statistic has no meaning of its own for a site stored this way.
Limits limits_of(Statistic statistic, const SiteStorage& site, const AlertConfig& config);

Verdict verdict_of(double value, const Limits& limits);

// Percent of a site that may underflow; in 8 bits more than that may be harmless, up to nearly all.
double underflow_limit(const SiteStorage& site, const AlertConfig& config);
inline constexpr double nearly_all_percent = 80;

}  // namespace quaver
