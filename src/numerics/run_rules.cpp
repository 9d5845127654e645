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

void RunRules::check(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  check_loss_scale_and_skips(metrics, config, ledger);
  check_loss(metrics, config, ledger);
  check_gradient_norm(metrics, config, ledger);
  check_embedding(metrics, config, ledger);
  // Minus infinity: no attention took place.
  if (std::isnan(metrics.max_logit) || metrics.max_logit == -HUGE_VAL) return;
  ledger.take("", {.rule = AlertRule::attention_logits,
                   .verdict = above(metrics.max_logit, config.max_logit, 0.8),
                   .value = metrics.max_logit,
                   .threshold = config.max_logit,
                   .severity = metrics.max_logit > 10 * config.max_logit ? Severity::critical : Severity::warning,
                   .patience = {config.steps, config.clear_steps}});
}

void RunRules::check_loss(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  const bool broken = metrics.skipped && !std::isfinite(metrics.loss);
  ledger.take("", {.rule = AlertRule::nonfinite,
                   .verdict = broken ? Verdict::bad : Verdict::healthy,
                   .value = 1,
                   .severity = Severity::critical,
                   .patience = {1, config.clear_steps},
                   .detail = ", the loss"});
  if (metrics.skipped || !std::isfinite(metrics.loss)) return;
  const double least = least_loss_deviation * std::abs(memory_.loss.mean);
  const bool settled = memory_.loss.count >= config.settling_steps;
  if (settled || memory_.loss.count >= first_readings) {
    const double expected = settled ? memory_.loss.expected() : memory_.lowest_loss;
    const double distance =
        settled ? memory_.loss.distance(metrics.loss, least)
                : (metrics.loss - memory_.lowest_loss) / (early_loss_deviation * std::abs(memory_.lowest_loss));
    ledger.take("", {.rule = AlertRule::loss_spike,
                     .verdict = above(distance, config.loss_deviations, 0.5),
                     .value = distance,
                     .threshold = config.loss_deviations,
                     .patience = patience_for(distance, config.loss_deviations, config),
                     .detail = fmt::format(": {:.4f} against {:.4f}", metrics.loss, expected)});
  }
  memory_.lowest_loss = memory_.loss.count > 0 ? std::min(memory_.lowest_loss, metrics.loss) : metrics.loss;
  memory_.loss.add(metrics.loss, least);
}

void RunRules::check_gradient_norm(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  if (metrics.skipped || !(metrics.gradient_norm > 0) || !std::isfinite(metrics.gradient_norm)) return;
  const double log_norm = std::log(metrics.gradient_norm);
  const bool settled = memory_.gradient.count >= config.settling_steps;
  if (settled || memory_.gradient.count >= first_readings) {
    const double expected = settled ? memory_.gradient.expected() : memory_.gradient.mean;
    const double distance = settled ? memory_.gradient.distance(log_norm, least_gradient_deviation)
                                    : std::max(0.0, log_norm - expected) / early_gradient_deviation;
    ledger.take("", {.rule = AlertRule::gradient_norm,
                     .verdict = above(std::abs(distance), config.gradient_deviations, 0.5),
                     .value = distance,
                     .threshold = config.gradient_deviations,
                     .patience = patience_for(std::abs(distance), config.gradient_deviations, config),
                     .detail = fmt::format(": {:.4g} against {:.4g}", metrics.gradient_norm, std::exp(expected))});
  }
  memory_.gradient.add(log_norm, least_gradient_deviation);
}

// A loss scale of 1 is a floor only to one that has been higher.
void RunRules::check_loss_scale_and_skips(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  memory_.highest_loss_scale =
      std::max(memory_.highest_loss_scale, std::isfinite(metrics.loss_scale) ? metrics.loss_scale : 0);
  const bool on_floor = metrics.loss_scale <= 1 && memory_.highest_loss_scale > 1;
  ledger.take("", {.rule = AlertRule::loss_scale_floor,
                   .verdict = on_floor ? Verdict::bad : Verdict::healthy,
                   .value = metrics.loss_scale,
                   .threshold = 1,
                   .severity = Severity::critical,
                   .patience = {1, config.clear_steps}});
  memory_.skipped = metrics.skipped ? memory_.skipped + 1 : 0;
  const bool many = memory_.skipped >= config.skipped_steps;
  const double alarming = 5.0 * config.skipped_steps;
  ledger.take("", {.rule = AlertRule::skipped_steps,
                   .verdict = many                  ? Verdict::bad
                              : memory_.skipped > 0 ? Verdict::borderline
                                                    : Verdict::healthy,
                   .value = memory_.skipped,
                   .threshold = static_cast<double>(config.skipped_steps),
                   .severity = memory_.skipped >= alarming ? Severity::critical : Severity::warning,
                   .patience = {1, config.clear_steps}});
}

void RunRules::check_embedding(const StepMetrics& metrics, const AlertConfig& config, AlertLedger& ledger) {
  if (metrics.skipped || !std::isfinite(metrics.embedding_rms)) return;
  if (!memory_.embedding.known(metrics.embedding_rms, config.baseline_samples)) return;
  const double share = metrics.embedding_rms / memory_.embedding.start();
  ledger.take("embed", {.rule = AlertRule::embedding_collapse,
                        .verdict = share < config.collapse          ? Verdict::bad
                                   : share < 1.25 * config.collapse ? Verdict::borderline
                                                                    : Verdict::healthy,
                        .value = share,
                        .threshold = config.collapse,
                        .patience = {config.steps, config.clear_steps},
                        .detail = ": the token table"});
}

}  // namespace quaver
