#include "study/calibrate.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "comm/agreement.h"
#include "config/dump.h"
#include "numerics/limits.h"
#include "numerics/what_if.h"
#include "study/batch_rounds.h"

namespace quaver {

namespace {

bool wants_scale(const SiteSpec& spec) { return has_own_scale(spec.rows); }

// The plan whose scales are wanted: the config's where its recipe keeps scales, else that of fp8-static.
PrecisionConfig aimed_at(const Subject& subject) {
  PrecisionConfig precision = subject.config.precision;
  const auto& rows = subject.plan.rows;
  if (std::any_of(rows.begin(), rows.end(), [](const PlanRow& row) { return wants_scale(row.spec); })) return precision;
  precision.recipe = "fp8-static";
  return precision;
}

float scale_for(const SiteSpec& spec, float threshold, int margin) {
  QuantSpec side = spec.rows;
  side.margin += margin;
  return tensor_scale_for(side, threshold);
}

// One binade of the histogram: where it begins and ends, and how many elements lie at or above those points.
struct Stretch {
  double low = 0;
  double high = 0;
  double above_low = 0;
  double above_high = 0;

  // log(above) is linear in between; nothing lies above the largest element, which counts half there.
  double log_low() const { return std::log(above_low); }
  double log_high() const { return std::log(std::max(above_high, 0.5)); }

  double above(double magnitude) const {
    const double part = high > low ? (magnitude - low) / (high - low) : 1;
    return std::exp(log_low() + part * (log_high() - log_low()));
  }
  double magnitude(double above) const {
    const double part = (std::log(std::max(above, 0.5)) - log_low()) / (log_high() - log_low());
    return low + std::clamp(part, 0.0, 1.0) * (high - low);
  }
};

// The stretches that hold elements, from the top.
std::vector<Stretch> stretches(const CastStatistics& seen) {
  std::vector<Stretch> list;
  double above = 0;
  for (int b = static_cast<int>(seen.binades.size()) - 1; b >= 0; --b) {
    const auto count = static_cast<double>(seen.binades[static_cast<std::size_t>(b)]);
    if (count == 0) continue;
    const double begin = std::ldexp(1.0, b + lowest_binade);
    Stretch stretch;
    stretch.low = b == 0 ? seen.min_nonzero : std::max<double>(begin, seen.min_nonzero);
    stretch.high = list.empty() ? seen.amax : 2 * begin;
    stretch.above_high = above;
    stretch.above_low = above += count;
    list.push_back(stretch);
  }
  return list;
}

}  // namespace

void check_ranges(const std::vector<SiteRange>& sites) {
  for (const SiteRange& range : sites) {
    if (range.seen.count > range.seen.nonfinite) continue;
    if (range.seen.count > 0) {
      throw AgreedError(range.site + ": no finite value was seen there",
                        "the model has diverged: calibrate an earlier checkpoint, with --step");
    }
    if (!wants_scale(range.spec)) continue;
    throw AgreedError(range.site + ": the engine gathers no statistics of it, so that it has no range",
                      "calibrate with --device cpu");
  }
}

double share_above(const CastStatistics& seen, double magnitude) {
  const std::vector<Stretch> list = stretches(seen);
  if (list.empty() || magnitude >= seen.amax) return 0;
  for (const Stretch& stretch : list) {
    if (magnitude >= stretch.high) return stretch.above_high / list.back().above_low;
    if (magnitude >= stretch.low) return stretch.above(magnitude) / list.back().above_low;
  }
  return 1;
}

float magnitude_at(const CastStatistics& seen, double share) {
  const std::vector<Stretch> list = stretches(seen);
  if (list.empty() || share >= 1) return seen.amax;
  const double above = (1 - share) * list.back().above_low;
  for (const Stretch& stretch : list) {
    if (above < stretch.above_low) return static_cast<float>(stretch.magnitude(above));
  }
  return seen.min_nonzero;
}

PercentileEffect effect_of(const SiteRange& range, double percentile, int margin) {
  PercentileEffect effect;
  effect.percentile = percentile;
  effect.threshold = magnitude_at(range.seen, percentile / 100);
  effect.scale = scale_for(range.spec, effect.threshold, margin);
  const CastPrediction figures = what_if(distribution_of(range.seen), range.spec.rows.format, effect.scale);
  const auto finite = static_cast<double>(range.seen.count - range.seen.nonfinite);
  double nonzero = 0;
  for (const std::uint64_t count : range.seen.binades) nonzero += static_cast<double>(count);
  constexpr double rounding = 1 + 4.0 / (1 << 23);  // of the scale, as CastStatistics::saturated allows it
  const double largest = static_cast<double>(range.format().max) / effect.scale * rounding;
  effect.saturated_percent = finite > 0 ? 100 * share_above(range.seen, largest) * nonzero / finite : 0;
  effect.underflow_percent = figures.underflow_percent;
  effect.sqnr_db = figures.sqnr_db;
  return effect;
}

namespace {

BatchFindings findings_of(Trainer& trainer, const ProbeResult& result, const std::vector<SiteRange>& sites) {
  BatchFindings findings{{result.loss}};
  if (result.accuracy) findings.figures.push_back(*result.accuracy);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const bool weight = sites[i].role == Role::w;
    findings.seen.push_back(weight ? weight_statistics(trainer, sites[i].site, {}) : result.seen[i]);
  }
  return findings;
}

void take_batch(const BatchFindings& findings, Calibration& calibration) {
  calibration.losses.push_back(findings.figures.front());
  if (findings.figures.size() > 1) calibration.accuracies.push_back(findings.figures[1]);
  for (std::size_t i = 0; i < calibration.sites.size(); ++i) {
    SiteRange& range = calibration.sites[i];
    range.seen.merge(findings.seen[i]);
    range.batch_amax.push_back(findings.seen[i].amax);
  }
}

// One batch with every site in high precision. A GPU makes the logits' gradient in place and gathers statistics of it
// only where it is cast: a site that was not seen so is cast with a current scale from then on, which does not change
// the values that statistics are of.
ProbeResult probe_ranges(Trainer& trainer, Size batch, const Calibration& calibration, std::vector<SiteSpec>& specs) {
  const ProbeResult result = trainer.probe(specs, batch, ProbeWhat::gradients);
  bool unseen = false;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const SiteRange& range = calibration.sites[i];
    SiteSpec& spec = specs[i];
    if (range.role == Role::w || !wants_scale(range.spec) || result.seen[i].count > 0) continue;
    if (!is_high_precision(spec.rows)) continue;
    spec = make_recipe("fp8-current", {}).of(range.role);
    unseen = true;
  }
  return unseen ? trainer.probe(specs, batch, ProbeWhat::gradients) : result;
}

void choose_scale(SiteRange& range, const CalibrateOptions& options) {
  range.threshold = magnitude_at(range.seen, options.percentile / 100);
  if (wants_scale(range.spec)) range.scale = scale_for(range.spec, range.threshold, options.margin);
}

}  // namespace

Calibration calibrate(Subject& subject, const CalibrateOptions& options) {
  Trainer& trainer = subject.trainer();
  const PrecisionConfig precision = aimed_at(subject);
  const Plan plan = make_plan(precision, trainer.model().layers());
  Calibration calibration;
  calibration.recipe = precision.recipe;
  calibration.source = subject.source;
  calibration.hash = fingerprint(subject.config);
  calibration.percentile = options.percentile;
  calibration.margin = options.margin;
  calibration.first_step = trainer.steps_done();
  calibration.tokens = options.batches * subject.tokens_per_batch();
  calibration.unit = unit_of(subject.config.data.kind);
  for (const PlanRow& row : plan.rows) calibration.sites.push_back({row.site, row.layer, row.role, row.spec, {}, {}});
  std::vector<SiteSpec> specs = specs_of(high_precision_plan(plan, {}));
  const Size left = std::max<Size>(0, trainer.config().train.steps - trainer.steps_done());
  const Size warmup = std::min(options.warmup_steps, left);
  const Size total = options.batches + warmup;
  const auto step_of = [&](Size batch) {  // the first one at the start, the last one after the warm-up
    return calibration.first_step + (options.batches > 1 ? warmup * batch / (options.batches - 1) : warmup);
  };
  const auto done = [&](Size batches) { return trainer.steps_done() - calibration.first_step + batches; };
  const auto measure = [&](Size batch) {
    for (; trainer.steps_done() < step_of(batch); options.progress.at(done(batch), total)) trainer.step();
    return findings_of(trainer, probe_ranges(trainer, next_batch(trainer, batch), calibration, specs),
                       calibration.sites);
  };
  const auto take = [&](Size batch, const BatchFindings& findings) {
    calibration.steps.push_back(step_of(batch));
    take_batch(findings, calibration);
    options.progress.at(done(batch + 1), total);
  };
  measure_batches(subject, options.progress, {options.batches, measure, take});
  calibration.last_step = step_of(options.batches - 1);
  check_ranges(calibration.sites);
  for (SiteRange& range : calibration.sites) choose_scale(range, options);
  return calibration;
}

}  // namespace quaver
