#include "numerics/run_rules.h"

#include <cmath>
#include <fmt/format.h>

namespace quaver {

namespace {

constexpr double least_loss_deviation = 0.005;    // of the mean: large batches have hardly any noise
constexpr double least_gradient_deviation = 0.1;  // of the logarithm

// Before a level has settled it is no measure: the loss is compared with the lowest so far, the norm with the mean of
// its logarithm so far, upward alone, by deviations that no ordinary start exceeds by far.
constexpr double first_readings = 5;
constexpr double early_loss_deviation = 0.04;      // of the lowest: the limit of 6 is a rise by a quarter
constexpr double early_gradient_deviation = 0.35;  // of the logarithm: the limit of 6 is a factor of 8

// A reading far beyond the limit needs no second one.
Patience patience_for(double distance, double limit, const AlertConfig& config) {
  return {distance > 2 * limit ? 1 : config.steps, config.clear_steps};
}

}  // namespace

void RunRules::look(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  look_at_scale_and_skips(metrics, config, ledger);
  look_at_loss(metrics, config, ledger);
  look_at_gradient(metrics, config, ledger);
  look_at_embedding(metrics, config, ledger);
  // Minus infinity: no attention took place.
  if (std::isnan(metrics.max_logit) || metrics.max_logit == -HUGE_VAL) return;
  ledger.take("", {.rule = AlertRule::attention_logits,
                   .verdict = above(metrics.max_logit, config.max_logit, 0.8),
                   .value = metrics.max_logit,
                   .threshold = config.max_logit,
                   .severity = metrics.max_logit > 10 * config.max_logit ? Severity::critical : Severity::warning,
                   .patience = {config.steps, config.clear_steps}});
}

void RunRules::look_at_loss(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  const bool broken = metrics.skipped && !std::isfinite(metrics.loss);
  ledger.take("", {.rule = AlertRule::nonfinite,
                   .verdict = broken ? Verdict::bad : Verdict::healthy,
                   .value = 1,
                   .severity = Severity::critical,
                   .patience = {1, config.clear_steps},
                   .detail = ", the loss"});
  if (metrics.skipped || !std::isfinite(metrics.loss)) return;
  const double least = least_loss_deviation * std::abs(loss_.mean);
  const bool settled = loss_.count >= config.settling_steps;
  if (settled || loss_.count >= first_readings) {
    const double expected = settled ? loss_.expected() : lowest_loss_;
    const double distance = settled ? loss_.distance(metrics.loss, least)
                                    : (metrics.loss - lowest_loss_) / (early_loss_deviation * std::abs(lowest_loss_));
    ledger.take("", {.rule = AlertRule::loss_spike,
                     .verdict = above(distance, config.loss_deviations, 0.5),
                     .value = distance,
                     .threshold = config.loss_deviations,
                     .patience = patience_for(distance, config.loss_deviations, config),
                     .detail = fmt::format(": {:.4f} against {:.4f}", metrics.loss, expected)});
  }
  lowest_loss_ = loss_.count > 0 ? std::min(lowest_loss_, metrics.loss) : metrics.loss;
  loss_.add(metrics.loss, least);
}

void RunRules::look_at_gradient(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  if (metrics.skipped || !(metrics.gradient_norm > 0) || !std::isfinite(metrics.gradient_norm)) return;
  const double log_norm = std::log(metrics.gradient_norm);
  const bool settled = gradient_.count >= config.settling_steps;
  if (settled || gradient_.count >= first_readings) {
    const double expected = settled ? gradient_.expected() : gradient_.mean;
    const double distance = settled ? gradient_.distance(log_norm, least_gradient_deviation)
                                    : std::max(0.0, log_norm - expected) / early_gradient_deviation;
    ledger.take("", {.rule = AlertRule::gradient_norm,
                     .verdict = above(std::abs(distance), config.gradient_deviations, 0.5),
                     .value = distance,
                     .threshold = config.gradient_deviations,
                     .patience = patience_for(std::abs(distance), config.gradient_deviations, config),
                     .detail = fmt::format(": {:.4g} against {:.4g}", metrics.gradient_norm, std::exp(expected))});
  }
  gradient_.add(log_norm, least_gradient_deviation);
}

// A loss scale of 1 is a floor only to one that has been higher.
void RunRules::look_at_scale_and_skips(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  highest_loss_scale_ = std::max(highest_loss_scale_, std::isfinite(metrics.loss_scale) ? metrics.loss_scale : 0);
  const bool on_floor = metrics.loss_scale <= 1 && highest_loss_scale_ > 1;
  ledger.take("", {.rule = AlertRule::loss_scale_floor,
                   .verdict = on_floor ? Verdict::bad : Verdict::healthy,
                   .value = metrics.loss_scale,
                   .threshold = 1,
                   .severity = Severity::critical,
                   .patience = {1, config.clear_steps}});
  skipped_ = metrics.skipped ? skipped_ + 1 : 0;
  const bool many = skipped_ >= config.skipped_steps;
  const double alarming = 5.0 * config.skipped_steps;
  ledger.take("", {.rule = AlertRule::skipped_steps,
                   .verdict = many           ? Verdict::bad
                              : skipped_ > 0 ? Verdict::borderline
                                             : Verdict::healthy,
                   .value = skipped_,
                   .threshold = static_cast<double>(config.skipped_steps),
                   .severity = skipped_ >= alarming ? Severity::critical : Severity::warning,
                   .patience = {1, config.clear_steps}});
}

void RunRules::look_at_embedding(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  if (metrics.skipped || !std::isfinite(metrics.embedding_rms)) return;
  if (!embedding_.known(metrics.embedding_rms, config.baseline_samples)) return;
  const double share = metrics.embedding_rms / embedding_.start();
  ledger.take("embed", {.rule = AlertRule::embedding_collapse,
                        .verdict = share < config.collapse          ? Verdict::bad
                                   : share < 1.25 * config.collapse ? Verdict::borderline
                                                                    : Verdict::healthy,
                        .value = share,
                        .threshold = config.collapse,
                        .patience = {config.steps, config.clear_steps},
                        .detail = ": the token table"});
}

void RunRules::save(std::map<std::string, double>& state) const {
  each_field(*this, [&](std::string_view field, double value) {
    if (value != 0 && std::isfinite(value)) state[state_key("run", "", field)] = value;
  });
}

void RunRules::restore(const std::map<std::string, double>& state) {
  *this = {};
  each_field(*this, [&](std::string_view field, double& value) {
    const auto found = state.find(state_key("run", "", field));
    if (found != state.end() && std::isfinite(found->second)) value = found->second;
  });
}

}  // namespace quaver
