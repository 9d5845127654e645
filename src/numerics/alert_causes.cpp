#include "numerics/alert_causes.h"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace quaver {

namespace {

// Sites are sampled every ten steps or so and need a few bad samples, the run is checked every step: alerts of one
// cause are raised up to this many steps apart.
constexpr std::uint64_t near_steps = 60;

std::string_view layer_of(const Alert& alert) { return std::string_view(alert.site).substr(0, alert.site.rfind('/')); }

// Lower explains higher.
int depth(AlertRule rule) {
  switch (rule) {
    case AlertRule::nonfinite:
      return 0;
    case AlertRule::broken_scale:
      return 1;
    case AlertRule::weight_jump:
    case AlertRule::frozen_scale:
      return 2;
    case AlertRule::stale_scale:
      return 3;
    case AlertRule::norm_growth:
    case AlertRule::embedding_collapse:
      return 4;
    case AlertRule::saturation:
    case AlertRule::underflow:
      return 5;
    case AlertRule::sqnr_deficit:
      return 6;
    case AlertRule::unmoved_weights:
      return 7;
    case AlertRule::shadow_cosine:
    case AlertRule::gradient_snr:
      return 8;
    case AlertRule::attention_logits:
    case AlertRule::loss_scale_floor:
      return 9;
    case AlertRule::skipped_steps:
    case AlertRule::gradient_norm:
    case AlertRule::loss_spike:
      return 10;
  }
  return 10;
}

bool overlap(const Alert& a, const Alert& b) {
  return a.step <= b.last_step + near_steps && b.step <= a.last_step + near_steps;
}

// Of the run as a whole: whatever went wrong in a site shows in it, but only about when it went wrong. Weights that do
// not move lift nothing.
bool explains_run(const Alert& cause, const Alert& symptom) {
  const std::uint64_t apart = std::max(cause.step, symptom.step) - std::min(cause.step, symptom.step);
  return apart <= near_steps && cause.rule != AlertRule::unmoved_weights && cause.rule != AlertRule::gradient_snr;
}

bool explains(const Alert& cause, const Alert& symptom) {
  if (depth(cause.rule) > depth(symptom.rule) || !overlap(cause, symptom)) return false;
  if (symptom.site.empty()) return explains_run(cause, symptom);
  if (cause.site.empty()) return false;
  if (cause.site == symptom.site) return depth(cause.rule) < depth(symptom.rule);
  // Non-finite values spread through everything that follows.
  if (cause.rule == AlertRule::nonfinite) return cause.step <= symptom.step;
  return layer_of(cause) == layer_of(symptom) && depth(cause.rule) <= depth(AlertRule::sqnr_deficit) &&
         depth(symptom.rule) > depth(AlertRule::sqnr_deficit);
}

}  // namespace

std::vector<std::size_t> causes_of(std::span<const Alert> alerts) {
  // The deepest first; among equals the most severe, then the earliest.
  std::vector<std::size_t> order(alerts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Alert &one = alerts[a], &other = alerts[b];
    if (depth(one.rule) != depth(other.rule)) return depth(one.rule) < depth(other.rule);
    if (one.site.empty() != other.site.empty()) return other.site.empty();
    if (one.severity != other.severity) return one.severity > other.severity;
    return one.step < other.step;
  });
  std::vector<std::size_t> causes(alerts.size());
  std::vector<std::size_t> roots;
  for (const std::size_t index : order) {
    const auto found = std::find_if(roots.begin(), roots.end(),
                                    [&](std::size_t root) { return explains(alerts[root], alerts[index]); });
    causes[index] = found == roots.end() ? index : *found;
    if (found == roots.end()) roots.push_back(index);
  }
  return causes;
}

}  // namespace quaver
