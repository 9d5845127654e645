// A run that never was: sites with statistics as a healthy run has them, step by step, into which tests plant failures.
#pragma once

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>

#include "numerics/alerts.h"
#include "numerics/specs.h"

namespace quaver::test {

class PlantedRun;

// Changes what a healthy step looked like.
struct Plant {
  std::function<void(StepMetrics&)> step = nullptr;   // the run's metrics
  std::function<void(ScaleBook&)> casts = nullptr;    // what sites saw, before the book takes it
  std::function<void(ScaleBook&)> scales = nullptr;   // the book afterward
  std::function<void(PlantedRun&)> sample = nullptr;  // the sample's statistics
};

class PlantedRun {
 public:
  explicit PlantedRun(const AlertConfig& config = {}, std::uint64_t seed = 1) : alarms(config), random_(seed) {
    const QuantSpec bf16{.format = Format::bf16};
    for (const char* layer : {"blocks.0.attn.qkv", "blocks.0.mlp.up", "blocks.1.mlp.down"})
      add(layer, delayed_e4m3, delayed_e5m2);
    add("head", bf16, bf16);
  }

  void add(const std::string& layer, const QuantSpec& forward, const QuantSpec& backward) {
    for (const Role role : {Role::x, Role::w, Role::dy}) {
      const QuantSpec& spec = role == Role::dy ? backward : forward;
      const std::string name = layer + "/" + std::string(name_of(role));
      book.add({.site = name, .layer = layer, .role = role, .recipe = {}, .reason = {}, .spec = {spec, spec}});
      level_[name] = role == Role::x ? 2.0 : role == Role::w ? 0.1 : 1e-4;
    }
  }

  ScaleEntry& entry(const std::string& site) { return book.entry(site); }

  SiteSample& site_sample(const std::string& site) {
    for (std::size_t i = 0; i < sample.sites.size(); ++i) {
      if (book.entries()[i]->site.name == site) return sample.sites[i];
    }
    throw std::runtime_error(site);
  }

  // A healthy step with noise. Every `every`th is sampled.
  std::vector<Alert> step(const Plant& plant = {}) {
    StepMetrics now = healthy_step();
    if (plant.step) plant.step(now);
    for (const auto& entry : book.entries()) cast(*entry);
    if (plant.casts) plant.casts(book);
    if (now.skipped) {
      book.discard_step();
    } else {
      book.end_step(now.step);
    }
    if (plant.scales) plant.scales(book);
    const bool sampled = (now.step - 1) % every == 0;
    if (sampled) {
      sample = sample_of(book, now.step);
      for (std::size_t i = 0; i < sample.sites.size(); ++i) fill(*book.entries()[i], sample.sites[i]);
      if (plant.sample) plant.sample(*this);
    }
    std::vector<Alert> raised = alarms.watch(now, book, sampled ? &sample : nullptr);
    all.insert(all.end(), raised.begin(), raised.end());
    return raised;
  }

  void steps(int count, const Plant& plant = {}) {
    for (int i = 0; i < count; ++i) step(plant);
  }

  double normal(double mean = 0, double std = 1) { return std::normal_distribution<double>(mean, std)(random_); }

  ScaleBook book;
  Alarms alarms;
  NumericsSample sample;
  std::vector<Alert> all;  // raised so far
  std::uint64_t every = 5;
  std::uint64_t step_number = 0;

 private:
  // Noise as runs have it: the loss nearly normal, the gradient norm with a heavy tail, a loss scale that overflows now
  // and then.
  StepMetrics healthy_step() {
    const double t = static_cast<double>(++step_number);
    std::student_t_distribution<double> heavy(5);
    StepMetrics now;
    now.step = step_number;
    now.loss = 3 + 5 * std::exp(-t / 300) + normal(0, 0.05);
    now.gradient_norm = std::exp(-0.5 + std::exp(-t / 100) + 0.25 * heavy(random_));
    now.learning_rate = 1e-3;
    now.loss_scale = 256;
    now.max_logit = 20 + 10 * (1 - std::exp(-t / 1000)) + std::abs(normal(0, 5));
    now.embedding_rms = 0.02 * (1 + t / 2000) * (1 + normal(0, 0.01));
    now.skipped = random_() % 200 == 0;
    return now;
  }

  // Activations grow by a factor of 4, gradients fall to a tenth; both wander about that by a factor of 2.
  double level_of(const Site& site) {
    const double late = 1 - std::exp(-static_cast<double>(step_number) / 1500);
    const double trend = site.role == Role::x ? 1 + 3 * late : site.role == Role::dy ? 1 / (1 + 9 * late) : 1;
    return level_.at(site.name) * trend * std::exp(wander_[site.name]);
  }

  // The largest value jumps about its level; a few elements saturate where it outruns the scale.
  void cast(ScaleEntry& entry) {
    double& wander = wander_[entry.site.name];
    wander += normal(0, 0.02) - 0.002 * wander;
    const double level = level_of(entry.site);
    CastStatistics& seen = entry.site.seen;
    seen.count = 100'000;
    seen.amax = static_cast<float>(level * std::exp(normal(0, 0.3)));
    const double over = entry.site.scale * seen.amax / info(entry.site.spec.rows.format).max;
    if (over > 1) seen.saturated = static_cast<std::uint64_t>(100 * (over - 1));
    seen.underflowed = static_cast<std::uint64_t>(std::clamp(normal(3000, 1500), 0.0, 1e5));
    if (!is_low_precision(entry.site.spec.rows.format)) seen.underflowed = seen.saturated = 0;
  }

  void fill(const ScaleEntry& entry, SiteSample& row) {
    row[Statistic::rms] = static_cast<float>(level_of(entry.site) / 5 * std::exp(normal(0, 0.1)));
    if (entry.site.role != Role::w) return;
    row[Statistic::rms] = static_cast<float>(0.02 * std::exp(normal(0, 0.01)));
    row[Statistic::unmoved_percent] = static_cast<float>(std::clamp(normal(60, 20), 0.0, 98.0));
    row[Statistic::update_ratio] = 1e-3F;
    row[Statistic::shadow_cosine] = static_cast<float>(1 - 0.02 * std::exp(normal(0, 0.4)));
    row[Statistic::gradient_snr] = static_cast<float>(0.3 * std::exp(normal(0, 0.4)));
  }

  std::map<std::string, double> level_;   // at the start
  std::map<std::string, double> wander_;  // logarithm
  std::mt19937_64 random_;
};

}  // namespace quaver::test
