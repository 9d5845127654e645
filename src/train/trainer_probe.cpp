// Looks at the model without training it: one micro-batch under other formats, and the comparison of a step's gradients
// with those of high precision.
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/trainer.h"

namespace quaver {

namespace {

// What a probe changes about a site beside its formats, to be put back.
struct ProbedSite {
  float scale;
  CastStatistics seen;
};

struct Product {
  double ab = 0;
  double aa = 0;
  double bb = 0;

  void add(double a, double b) {
    ab += a * b;
    aa += a * a;
    bb += b * b;
  }
  void add(const Product& other) {
    ab += other.ab;
    aa += other.aa;
    bb += other.bb;
  }
  // Of a against b, which is the truth.
  GradientAgreement agreement() const {
    if (!(aa > 0) || !(bb > 0)) return {};
    return {ab / std::sqrt(aa * bb), std::sqrt(std::max(0.0, aa - 2 * ab + bb) / bb)};
  }
};

Product product_of(const std::vector<float>& a, const std::vector<float>& b) {
  Product sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.add(a[i], b[i]);
  return sum;
}

}  // namespace

std::vector<SiteSpec> Trainer::specs() const {
  std::vector<SiteSpec> all;
  for (const Site* site : sites_) all.push_back(site->spec);
  return all;
}

std::vector<SiteSpec> Trainer::wide_specs() const {
  const Recipe wide = make_recipe(engine_.high_precision() == Format::f32 ? "fp32" : "bf16", config_.precision);
  std::vector<SiteSpec> all;
  for (const Site* site : sites_) all.push_back(wide.of(site->role));
  return all;
}

// Casts the weights of sites that changed, and makes room for what the others now need. Nobody sees these casts.
void Trainer::enter_specs(std::span<const SiteSpec> specs) {
  std::unordered_set<const Site*> changed;
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    if (sites_[i]->spec != specs[i]) changed.insert(sites_[i]);
    sites_[i]->spec = specs[i];
  }
  engine_.upload_scales(sites_);
  for (Parameter& parameter : model_->parameters().all()) {
    if (!changed.contains(parameter.site)) continue;
    model_->parameters().quantize(parameter, engine_, weight_casting().unobserved());
  }
  plan_memory();
}

ProbeResult Trainer::probe(std::span<const SiteSpec> specs, Size batch, ProbeWhat what) {
  if (specs.size() != sites_.size()) {
    throw Error("a probe names the formats of " + std::to_string(specs.size()) + " sites, the model has " +
                    std::to_string(sites_.size()),
                "give one for each site, in their order");
  }
  engine_.wait_for_statistics(sites_);
  std::vector<ProbedSite> before;
  const std::vector<SiteSpec> own = this->specs();
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    Site& site = *sites_[i];
    before.push_back({site.scale, site.seen});
    if (specs[i] != site.spec) site.scale = 0;  // it was another format's: the cast takes the tensor's own amax
    site.seen = {};
  }
  const Size room = memory_.capacity();
  const std::uint64_t generation = memory_.generation();
  enter_specs(specs);
  ProbeResult result = run_probe(batch, what);
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    result.seen.push_back(sites_[i]->seen);
    sites_[i]->scale = before[i].scale;
  }
  enter_specs(own);
  for (std::size_t i = 0; i < sites_.size(); ++i) sites_[i]->seen = before[i].seen;
  if (memory_.capacity() == room) memory_.return_to(generation);
  return result;
}

ProbeResult Trainer::run_probe(Size batch, ProbeWhat what) {
  BatchStorage storage;
  const Batch probed = batches_->training_batch(static_cast<std::uint64_t>(batch), batch_shape(), storage);
  const bool gradients = what == ProbeWhat::gradients;
  tally_.reset();
  model_->parameters().clear_gradients(engine_);
  Step step = make_step(gradients ? Pass::train : Pass::evaluate);
  step.casting.detail = Detail::full;
  step.casting.observe = true;
  step.micro_step = static_cast<std::uint32_t>(batch);
  model_->loss(step, probed, loss_scale_.value(), tally_.device_loss_sum());
  engine_.wait_for_statistics(sites_);
  ProbeResult result;
  result.loss = read_loss_sum() / static_cast<double>(step.tokens());
  if (!gradients) return result;
  for (const Parameter& parameter : model_->parameters().all()) {
    std::vector<float>& gradient = result.gradients.emplace_back(static_cast<std::size_t>(parameter.count()));
    engine_.device().download(parameter.gradient.data, gradient.data(), gradient.size() * sizeof(float));
    const float unscale = 1 / (loss_scale_.value() * parameter.gradient_ratio);
    for (float& value : gradient) value *= unscale;
  }
  model_->parameters().clear_gradients(engine_);
  return result;
}

GradientAgreement Trainer::shadow_check() {
  const ProbeResult own = probe(specs(), batch_index(), ProbeWhat::gradients);
  const ProbeResult wide = probe(wide_specs(), batch_index(), ProbeWhat::gradients);
  shadow_ = {};
  shadow_.step = step_ + 1;
  Product all;
  for (std::size_t i = 0; i < own.gradients.size(); ++i) {
    const Product product = product_of(own.gradients[i], wide.gradients[i]);
    shadow_.parameters.push_back(product.agreement());
    all.add(product);
  }
  return all.agreement();
}

double Trainer::embedding_rms() const {
  for (const OptimizerState& state : optimizer_->states()) {
    if (state.parameter->kind != ParameterKind::embedding || state.update.count == 0) continue;
    return std::sqrt(state.update.weight2 / static_cast<double>(state.update.count));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

NumericsSample Trainer::numerics() const {
  NumericsSample sample = sample_of(book_, static_cast<std::uint64_t>(step_));
  std::unordered_map<const Site*, std::size_t> places;
  for (std::size_t i = 0; i < sites_.size(); ++i) places[sites_[i]] = i;
  const auto& states = optimizer_->states();
  for (std::size_t i = 0; i < states.size(); ++i) {
    const OptimizerState& state = states[i];
    if (state.parameter->site == nullptr) continue;
    SiteFigures& figures = sample.sites[places.at(state.parameter->site)];
    const UpdateStatistics& update = state.update;
    if (update.weight2 > 0) {
      figures[Statistic::update_ratio] = static_cast<float>(std::sqrt(update.update2 / update.weight2));
    }
    if (update.count > 0) {
      figures[Statistic::unmoved_percent] =
          static_cast<float>(100.0 * static_cast<double>(update.unmoved) / static_cast<double>(update.count));
    }
    if (noise_.knows(i)) figures[Statistic::gradient_snr] = static_cast<float>(noise_.of(i));
    if (shadow_.step == step_ && i < shadow_.parameters.size()) {
      figures[Statistic::shadow_cosine] = static_cast<float>(shadow_.parameters[i].cosine);
      figures[Statistic::shadow_error] = static_cast<float>(shadow_.parameters[i].error);
    }
  }
  return sample;
}

}  // namespace quaver
