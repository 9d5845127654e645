#include "numerics/site_rules.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "quaver/error.h"

namespace quaver {

namespace {

bool known(double x) { return !std::isnan(x); }

std::string layer_of(const std::string& site) { return site.substr(0, site.rfind('/')); }

// Embedding and head: where a loss of size is a loss of tokens.
bool faces_tokens(const std::string& site) { return site.starts_with("head") || site.starts_with("embed"); }

// Less is worse; clears above a multiple of the limit.
Verdict below(double value, double limit, double healthy_multiple) {
  if (value < limit) return Verdict::bad;
  return value > healthy_multiple * limit ? Verdict::healthy : Verdict::borderline;
}

bool usable_scale(const ScaleEntry& entry) {
  const float scale = entry.site.scale;
  const bool good = std::isfinite(scale) && scale >= 0 && scale < std::numeric_limits<float>::max();
  return good && std::all_of(entry.history.begin(), entry.history.end(),
                             [](float amax) { return std::isfinite(amax) && amax >= 0; });
}

void check_broken_scale(const ScaleEntry& entry, AlertLedger& ledger) {
  if (!is_low_precision(entry.site.spec.rows.format) || !has_own_scale(entry.site.spec.rows)) {
    ledger.dismiss(entry.site.name, AlertRule::broken_scale);
    return;
  }
  const bool usable = usable_scale(entry);
  ledger.take(entry.site.name, {.rule = AlertRule::broken_scale,
                                .verdict = usable ? Verdict::healthy : Verdict::bad,
                                .value = entry.site.scale,
                                .severity = Severity::critical,
                                .act = Act::reset_history,
                                .detail = usable ? "" : fmt::format(": {:g}", entry.site.scale)});
}

// Where non-finite values began. Forward runs through the book's layers from first to last, backward the other way
// round.
const ScaleEntry* origin_of_nonfinite(const ScaleBook& book) {
  std::vector<const ScaleEntry*> order;
  for (const auto& entry : book.entries()) {
    if (entry->last_step.nonfinite > 0) order.push_back(entry.get());
  }
  const auto is_forward = [](const ScaleEntry* entry) { return entry->site.role != Role::dy; };
  const auto first = std::find_if(order.begin(), order.end(), is_forward);
  if (first != order.end()) return *first;
  return order.empty() ? nullptr : order.back();
}

// Gradients that overflow under a loss scale are how an adaptive one finds its value: only when it does not end.
void check_nonfinite(const StepMetrics& metrics, const ScaleBook& book, const AlertConfig& config,
                     AlertLedger& ledger) {
  const ScaleEntry* origin = origin_of_nonfinite(book);
  std::size_t sites = 0;
  for (const auto& entry : book.entries()) {
    const bool finite = entry->last_step.nonfinite == 0;
    sites += finite ? 0 : 1;
    if (entry.get() == origin) continue;
    ledger.take(entry->site.name, {.rule = AlertRule::nonfinite,
                                   .verdict = finite ? Verdict::healthy : Verdict::borderline,
                                   .patience = {1, config.clear_steps}});
  }
  if (origin == nullptr) return;
  const bool expected = origin->site.role == Role::dy && metrics.skipped && metrics.loss_scale > 1;
  ledger.take(origin->site.name, {.rule = AlertRule::nonfinite,
                                  .verdict = Verdict::bad,
                                  .value = static_cast<double>(origin->last_step.nonfinite),
                                  .severity = Severity::critical,
                                  .patience = {expected ? config.steps : 1, config.clear_steps},
                                  .detail = sites > 1 ? fmt::format(", and {} more sites have some", sites - 1) : ""});
}

// Counts of every step: a burst between two samples is seen too.
void check_saturation(const ScaleEntry& entry, const AlertConfig& config, AlertLedger& ledger) {
  const SiteStorage storage = storage_of(entry.site, info(entry.site.spec.rows.format).storage_bits);
  const Limits limits = limits_of(Statistic::saturated_percent, storage, config);
  if (!limits.judges()) {
    ledger.dismiss(entry.site.name, AlertRule::saturation);
    return;
  }
  if (entry.last_step.count == 0) return;
  const double clipped = entry.last_step.saturated_percent();
  ledger.take(entry.site.name, {.rule = AlertRule::saturation,
                                .verdict = verdict_of(clipped, limits),
                                .value = clipped,
                                .threshold = config.saturated,
                                .severity = clipped > 20 * config.saturated ? Severity::critical : Severity::warning,
                                .act = storage.policy == ScalePolicy::delayed ? Act::reset_history : Act::widen_to_bf16,
                                .patience = {config.steps, config.clear_steps},
                                .detail = fmt::format(" in {}", info(storage.format).name)});
}

std::unordered_map<std::string, int> lowest_bits_by_layer(const ScaleBook& book) {
  std::unordered_map<std::string, int> bits;
  for (const auto& entry : book.entries()) {
    const int own = info(entry->site.spec.rows.format).storage_bits;
    const auto [found, added] = bits.try_emplace(layer_of(entry->site.name), own);
    found->second = std::min(found->second, own);
  }
  return bits;
}

}  // namespace

// Every step.
void SiteRules::check_step(const StepMetrics& metrics, const ScaleBook& book, const AlertConfig& config,
                           AlertLedger& ledger) {
  check_nonfinite(metrics, book, config, ledger);
  for (const auto& entry : book.entries()) {
    check_broken_scale(*entry, ledger);
    if (metrics.skipped) continue;
    SiteMemory& memory = memories_[entry->site.name];
    follow_scale(*entry, memory);
    check_frozen_scale(*entry, memory, config, ledger);
    check_saturation(*entry, config, ledger);
  }
}

void SiteRules::follow_scale(const ScaleEntry& entry, SiteMemory& memory) {
  const Site& site = entry.site;
  if (site.spec.rows.policy != ScalePolicy::delayed || entry.last_step.count == 0) {
    memory.unchanged = memory.peak = memory.peak_before = memory.filled = memory.zeros = 0;
    return;
  }
  memory.unchanged = memory.scale == site.scale ? memory.unchanged + 1 : 0;
  memory.scale = std::isfinite(site.scale) ? site.scale : 0;
  memory.zeros = entry.last_step.amax == 0 ? memory.zeros + 1 : 0;
  constexpr std::size_t least = 16;
  if (memory.filled >= static_cast<double>(std::max(entry.history.size(), least))) {
    memory.peak_before = memory.peak;
    memory.peak = memory.filled = 0;
  }
  memory.peak = std::max<double>(memory.peak, entry.last_step.amax);
  memory.filled += 1;
}

// A scale that is a function of its history changes with it, and stays the same for longer than the history's length
// only if the tensor's largest value does. What is judged is whether it still fits, so power-of-two scales may rest.
void SiteRules::check_frozen_scale(const ScaleEntry& entry, const SiteMemory& memory, const AlertConfig& config,
                                   AlertLedger& ledger) {
  const Site& site = entry.site;
  if (site.spec.rows.policy != ScalePolicy::delayed || !is_low_precision(site.spec.rows.format)) {
    ledger.dismiss(site.name, AlertRule::frozen_scale);
    return;
  }
  const double limit = std::max<double>(config.frozen_steps, static_cast<double>(entry.history.size()) + 1);
  const double due = tensor_scale_for(site.spec.rows, static_cast<float>(std::max(memory.peak, memory.peak_before)));
  const double off = memory.scale > 0 ? std::max(memory.scale / due, due / memory.scale) : HUGE_VAL;
  const bool zeros = memory.zeros >= limit;
  const bool moved = memory.unchanged >= limit && off >= config.frozen_factor;
  std::string detail;
  if (zeros) {
    detail = ": the tensor has been all zeros";
  } else if (moved) {
    detail = memory.scale > 0 ? fmt::format(" and is off by a factor of {:.3g}", off) : ": it has never been set";
  }
  ledger.take(site.name, {.rule = AlertRule::frozen_scale,
                          .verdict = zeros || moved ? Verdict::bad : Verdict::healthy,
                          .value = zeros ? memory.zeros : memory.unchanged,
                          .threshold = limit,
                          .act = zeros ? Act::none : Act::reset_history,
                          .detail = detail});
}

void SiteRules::check_sample(const StepMetrics& metrics, const ScaleBook& book, const NumericsSample& sample,
                             const AlertConfig& config, AlertLedger& ledger) {
  if (sample.sites.size() != book.entries().size()) {
    throw Error(fmt::format("a sample of {} sites was compared with a scale book of {}", sample.sites.size(),
                            book.entries().size()),
                "take the sample from the same book");
  }
  const auto bits = lowest_bits_by_layer(book);
  for (std::size_t i = 0; i < sample.sites.size(); ++i) {
    const ScaleEntry& entry = *book.entries()[i];
    const SampledSite at{entry,  sample.sites[i], memories_[entry.site.name],
                         config, ledger,          bits.at(layer_of(entry.site.name))};
    check_range(at);
    check_stale_scale(at);
    check_growth_and_collapse(at);
    if (entry.site.role == Role::w) check_weight(at, metrics);
  }
}

void SiteRules::check_range(const SampledSite& at) {
  if (!is_low_precision(at.format())) {
    at.ledger.dismiss(at.site().name, AlertRule::underflow);
    at.ledger.dismiss(at.site().name, AlertRule::sqnr_deficit);
    return;
  }
  check_underflow(at);
  check_sqnr_deficit(at);
}

// Half of an activation may become zero and nothing be lost, if it is the half that a GELU left near zero: the noise of
// the cast tells.
void SiteRules::check_underflow(const SampledSite& at) {
  const double lost = at.sample[Statistic::underflow_percent];
  const double sqnr = at.sample[Statistic::sqnr_db];
  if (!known(lost)) return;
  const bool four_bits = info(at.format()).storage_bits < 8;
  const double limit = underflow_limit(at.storage(), at.config);
  const bool harmless = !four_bits && sqnr >= at.config.harmless_sqnr && lost < nearly_all_percent;
  const bool e4m3_gradient = at.site().role == Role::dy && at.format() == Format::e4m3;
  const std::string noise = known(sqnr) ? fmt::format(" at {:.0f} dB", sqnr) : "";
  at.take({.rule = AlertRule::underflow,
           .verdict = harmless ? Verdict::healthy : above(lost, limit, 0.7),
           .value = lost,
           .threshold = limit,
           .severity = lost > nearly_all_percent ? Severity::critical : Severity::warning,
           .act = e4m3_gradient ? Act::gradient_to_e5m2 : Act::widen_to_bf16,
           .patience = at.patience(),
           .detail = fmt::format(" in {}{}", info(at.format()).name, noise)});
}

// Far more noise than the format need make is a scale that does not fit, whatever its policy.
void SiteRules::check_sqnr_deficit(const SampledSite& at) {
  const double deficit = at.sample[Statistic::sqnr_deficit_db];
  if (!known(deficit)) return;
  const double limit = at.config.sqnr_deficit;
  at.take({.rule = AlertRule::sqnr_deficit,
           .verdict = verdict_of(deficit, at.limits(Statistic::sqnr_deficit_db)),
           .value = deficit,
           .threshold = limit,
           .severity = deficit > 2 * limit ? Severity::critical : Severity::warning,
           .act = at.storage().policy == ScalePolicy::delayed ? Act::reset_history : Act::widen_to_bf16,
           .patience = at.patience(),
           .detail = fmt::format(" in {}, at {:.0f} dB", info(at.format()).name, at.sample[Statistic::sqnr_db])});
}

// Does the scale that was used fit the tensor?
void SiteRules::check_stale_scale(const SampledSite& at) {
  const double amax = at.sample[Statistic::amax];
  const double scale = at.sample[Statistic::scale];
  const Limits limits = at.limits(Statistic::headroom_log2);
  if (!limits.judges()) {
    at.ledger.dismiss(at.site().name, AlertRule::stale_scale);
    return;
  }
  if (!(amax > 0) || !std::isfinite(amax) || !(scale > 0)) return;
  const double headroom = std::log2(info(at.format()).max) - std::log2(amax) - std::log2(scale);
  at.take({.rule = AlertRule::stale_scale,
           .verdict = verdict_of(headroom, limits),
           .value = headroom,
           .threshold = headroom < 0 ? limits.below->bad : limits.above->bad,
           .act = at.storage().policy == ScalePolicy::delayed ? Act::reset_history : Act::widen_to_bf16,
           .patience = at.patience(),
           .detail = fmt::format(": largest value {:.3g}, scale {:.3g}", amax, scale)});
}

// Activations that grow, embeddings and heads that shrink, each against its own start.
void SiteRules::check_growth_and_collapse(const SampledSite& at) {
  const AlertConfig& config = at.config;
  const double rms = at.sample[Statistic::rms];
  const double amax = at.sample[Statistic::amax];
  const bool rms_known = std::isfinite(rms);
  const bool collapses = faces_tokens(at.site().name) && at.site().role != Role::dy;
  const bool grows = at.site().role == Role::x;
  if (!collapses && !grows) return;
  const bool compare_rms = rms_known && at.memory.rms.known(rms, config.baseline_samples);
  if (grows && compare_rms) {
    const double factor = rms / at.memory.rms.start();
    at.take({.rule = AlertRule::norm_growth,
             .verdict = above(factor, config.growth, 0.7),
             .value = factor,
             .threshold = config.growth,
             .act = is_low_precision(at.format()) ? Act::widen_to_bf16 : Act::none,
             .patience = at.patience()});
  }
  if (!collapses) return;
  // Weights are cast without full statistics: their largest value stands in where nobody filled in the rms.
  const bool compare_amax = !rms_known && std::isfinite(amax) && at.memory.amax.known(amax, config.baseline_samples);
  if (!compare_rms && !compare_amax) return;
  const double share = compare_rms ? rms / at.memory.rms.start() : amax / at.memory.amax.start();
  at.take({.rule = AlertRule::embedding_collapse,
           .verdict = below(share, config.collapse, 1.25),
           .value = share,
           .threshold = config.collapse,
           .act = is_low_precision(at.format()) ? Act::widen_to_bf16 : Act::none,
           .patience = at.patience(),
           .detail = compare_rms ? ": root mean square" : ": largest value"});
}

// Weights grow many times over in the course of a run, but not within a few steps.
void SiteRules::check_weight_jump(const SampledSite& at) {
  const double amax = at.sample[Statistic::amax];
  const double before = std::exchange(at.memory.amax_before, std::isfinite(amax) ? amax : 0);
  if (!(before > 0) || !std::isfinite(amax) || !at.memory.amax.known(amax, at.config.baseline_samples)) return;
  at.take({.rule = AlertRule::weight_jump,
           .verdict = above(amax / before, at.config.weight_jump, 0.5),
           .value = amax / before,
           .threshold = at.config.weight_jump,
           .severity = amax / before > 10 * at.config.weight_jump ? Severity::critical : Severity::warning,
           .patience = {1, at.config.clear_samples}});
}

// Statistics of a weight's gradient and update.
void SiteRules::check_weight(const SampledSite& at, const StepMetrics& metrics) {
  const AlertConfig& config = at.config;
  check_weight_jump(at);
  const double unmoved = at.sample[Statistic::unmoved_percent];
  if (known(unmoved) && metrics.learning_rate > 0) {
    at.take({.rule = AlertRule::unmoved_weights,
             .verdict = verdict_of(unmoved, at.limits(Statistic::unmoved_percent)),
             .value = unmoved,
             .threshold = config.unmoved,
             .patience = at.patience()});
  }
  const double cosine = at.sample[Statistic::shadow_cosine];
  if (known(cosine)) {
    const Limits limits = at.limits(Statistic::shadow_cosine);
    const double limit = limits.below->bad;
    at.take({.rule = AlertRule::shadow_cosine,
             .verdict = verdict_of(cosine, limits),
             .value = cosine,
             .threshold = limit,
             .severity = cosine < limit / 2 ? Severity::critical : Severity::warning,
             .act = at.layer_bits < 16 ? Act::widen_to_bf16 : Act::none,
             .patience = {std::min(config.samples, 2), config.clear_samples}});
  }
  const double snr = at.sample[Statistic::gradient_snr];
  if (std::isfinite(snr) && at.memory.snr.known(snr, config.baseline_samples)) {
    const double start = at.memory.snr.start();
    double& square = at.memory.snr_square;
    if (square == 0) square = start * start;
    square += 0.3 * (snr * snr - square);
    const double share = std::sqrt(square) / start;
    at.take({.rule = AlertRule::gradient_snr,
             .verdict = below(share, 1 / config.snr_fall, 1.5),
             .value = share,
             .threshold = 1 / config.snr_fall,
             .patience = at.patience()});
  }
}

}  // namespace quaver
