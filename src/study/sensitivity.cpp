#include "study/sensitivity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "comm/agreement.h"

namespace quaver {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::optional<double> known(double value) { return std::isnan(value) ? std::nullopt : std::optional(value); }

// Student's t, one-sided 95 %, by degrees of freedom.
double t_quantile(Size degrees) {
  constexpr std::array<double, 10> table{6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812};
  if (degrees < 1) return table.front();
  if (degrees <= static_cast<Size>(table.size())) return table[static_cast<std::size_t>(degrees - 1)];
  return 1.645 + 1.55 / static_cast<double>(degrees);  // within 0.02 from 10 degrees on
}

struct Mean {
  double value = 0;
  double error = 0;
};

Mean mean_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (count - 1) / count) : 0};
}

// What of the gradients is kept between plans: the rest is computed again.
constexpr std::size_t most_kept_bytes = std::size_t{2} << 30U;

std::size_t bytes_of(const std::vector<std::vector<float>>& gradients) {
  std::size_t bytes = 0;
  for (const auto& gradient : gradients) bytes += gradient.size() * sizeof(float);
  return bytes;
}

std::string layer_of(const std::string& site) { return site.substr(0, site.rfind('/')); }

}  // namespace

double Effect::harm(double loss) const {
  if (!std::isfinite(loss_change) || !std::isfinite(gradient_error)) return infinity;
  const double signal = loss_change > 0 ? loss_change * std::max(0.0, 1 - std::pow(loss_error / loss_change, 2)) : 0;
  return signal / loss + descent_per_efold * (1 - gradient_cosine);
}

double Effect::harm_at_most(double loss) const {
  if (!std::isfinite(loss_change) || !std::isfinite(gradient_error)) return infinity;
  const double most = std::max(0.0, loss_change + t_quantile(batches - 1) * loss_error);
  return most / loss + descent_per_efold * (1 - gradient_cosine);
}

GradientMatch match_of(const std::vector<float>& exact, const std::vector<float>& other) {
  double exact2 = 0;
  double other2 = 0;
  double product = 0;
  double difference2 = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double a = exact[i];
    const double b = other[i];
    exact2 += a * a;
    other2 += b * b;
    product += a * b;
    difference2 += (b - a) * (b - a);
  }
  if (!std::isfinite(other2)) return {0, infinity};
  if (exact2 == 0) return {1, 0};
  const double cosine = other2 > 0 ? product / std::sqrt(exact2 * other2) : 0;
  return {std::clamp(cosine, -1.0, 1.0), std::sqrt(difference2 / exact2)};
}

Baseline::Baseline(Subject& subject, Size first, Size batches, const StudyProgress& progress)
    : subject_(subject),
      progress_(progress),
      high_precision_(high_precision_plan(subject.plan, subject.config.precision)),
      first_batch_(next_batch(subject.trainer(), first)) {
  std::size_t kept = 0;
  const auto measure = [&](Size batch) {
    ProbeResult result = probe(high_precision_, batch);
    kept += bytes_of(result.gradients);
    if (kept <= most_kept_bytes) kept_.emplace(batch, std::move(result.gradients));
    return BatchFindings{{result.loss, result.accuracy.value_or(not_a_number)}};
  };
  const auto take = [&](Size, const BatchFindings& findings) {
    losses_.push_back(findings.figures[0]);
    accuracies_.push_back(findings.figures[1]);
  };
  measure_batches(subject, progress, {batches, measure, take});
  if (std::isfinite(loss())) return;
  throw AgreedError(subject.source + ": the loss is not finite even in high precision",
                    "the model has diverged: take an earlier checkpoint, with --step");
}

ProbeResult Baseline::probe(const Plan& plan, Size batch) const {
  Trainer& trainer = subject_.trainer();
  return trainer.probe(specs_of(plan), first_batch_ + batch, ProbeWhat::gradients);
}

double Baseline::loss() const { return mean_of(losses_).value; }
double Baseline::loss_error() const { return mean_of(losses_).error; }
std::optional<double> Baseline::accuracy() const { return known(mean_of(accuracies_).value); }

const Baseline::Gradients& Baseline::gradients(Size batch) {
  if (const auto kept = kept_.find(batch); kept != kept_.end()) return kept->second;
  if (recomputed_batch_ != batch) recomputed_ = probe(high_precision_, batch).gradients;
  recomputed_batch_ = batch;
  return recomputed_;
}

namespace {

// A parameter's match as figures of a batch; a gradient that is zero in high precision has a weight of 0.
constexpr std::size_t figures_per_parameter = 3;

void add_match(const std::vector<float>& exact, const std::vector<float>& other, std::vector<double>& figures) {
  const bool says_nothing = std::all_of(exact.begin(), exact.end(), [](float g) { return g == 0; });
  const GradientMatch match = match_of(exact, other);
  figures.insert(figures.end(), {match.cosine, match.error, says_nothing ? 0.0 : static_cast<double>(exact.size())});
}

}  // namespace

// Adds each layer's match to the effect; returns the model's.
GradientMatch Baseline::take_matches(std::span<const double> figures, PlanEffect& effect) const {
  double elements = 0;
  GradientMatch sum{0, 0};
  for (const Parameter& parameter : subject_.trainer().model().parameters().all()) {
    const GradientMatch match{figures[0], figures[1]};
    const double count = figures[2];
    figures = figures.subspan(figures_per_parameter);
    if (count == 0) continue;
    elements += count;
    sum.cosine += count * match.cosine;
    sum.error += count * match.error * match.error;
    if (parameter.site == nullptr) continue;
    GradientMatch& layer = effect.layers.try_emplace(layer_of(parameter.site->name), GradientMatch{0, 0}).first->second;
    layer.cosine += match.cosine / static_cast<double>(losses_.size());
    layer.error += match.error / static_cast<double>(losses_.size());
  }
  if (elements == 0) return {1, 0};
  return {sum.cosine / elements, std::sqrt(sum.error / elements)};
}

BatchFindings Baseline::compare(const Plan& plan, Size batch) {
  const Gradients& exact = gradients(batch);
  ProbeResult result = probe(plan, batch);
  BatchFindings findings{{result.loss, result.accuracy.value_or(not_a_number)}, std::move(result.seen)};
  for (std::size_t i = 0; i < exact.size(); ++i) add_match(exact[i], result.gradients[i], findings.figures);
  return findings;
}

PlanEffect Baseline::effect_of(const Plan& plan) {
  PlanEffect effect;
  std::vector<double> changes;
  std::vector<double> accuracy_changes;
  effect.whole.gradient_cosine = 0;
  const auto batches = static_cast<double>(losses_.size());
  const auto take = [&](Size batch, const BatchFindings& findings) {
    const GradientMatch match = take_matches(std::span(findings.figures).subspan(2), effect);
    changes.push_back(findings.figures[0] - losses_[static_cast<std::size_t>(batch)]);
    accuracy_changes.push_back(findings.figures[1] - accuracies_[static_cast<std::size_t>(batch)]);
    effect.whole.gradient_cosine += match.cosine / batches;
    effect.whole.gradient_error += match.error / batches;
    std::size_t index = 0;
    for (const auto& entry : subject_.trainer().book().entries()) {
      effect.sites[entry->site.name].merge(findings.seen[index++]);
    }
  };
  const auto measure = [&](Size batch) { return compare(plan, batch); };
  measure_batches(subject_, progress_, {static_cast<Size>(losses_.size()), measure, take});
  const Mean change = mean_of(changes);
  effect.whole.loss_change = change.value;
  effect.whole.loss_error = change.error;
  effect.whole.accuracy_change = known(mean_of(accuracy_changes).value);
  effect.whole.batches = static_cast<Size>(losses_.size());
  return effect;
}

}  // namespace quaver
