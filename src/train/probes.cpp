#include "train/probes.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <unordered_set>

#include "quaver/error.h"

namespace quaver {

namespace {

// What a probe changes about a site beside its formats, to be put back.
struct ProbedSite {
  float scale;
  CastStatistics seen;
};

struct DotProduct {
  double ab = 0;
  double aa = 0;
  double bb = 0;

  void add(double a, double b) {
    ab += a * b;
    aa += a * a;
    bb += b * b;
  }
  void add(const DotProduct& other) {
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

DotProduct dot_product(const std::vector<float>& a, const std::vector<float>& b) {
  DotProduct sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.add(a[i], b[i]);
  return sum;
}

}  // namespace

// Casts the weights of sites that changed, and makes room for what the others now need. Nobody sees these casts.
void Probes::enter_specs(std::span<const SiteSpec> specs) {
  std::unordered_set<const Site*> changed;
  for (std::size_t i = 0; i < context_.sites.size(); ++i) {
    Site* const site = context_.sites[i];
    if (site->spec != specs[i]) changed.insert(site);
    site->spec = specs[i];
  }
  context_.engine.upload_scales(context_.sites);
  std::vector<Parameter*> recast;
  for (Parameter& parameter : context_.model.parameters().all()) {
    if (changed.contains(parameter.site)) recast.push_back(&parameter);
  }
  context_.weights.cast(recast, context_.weight_casting().unobserved());
  context_.weights.gather_casts();
  context_.plan_memory();
}

ProbeResult Probes::probe(std::span<const SiteSpec> specs, Size batch, ProbeWhat what) {
  const std::vector<Site*>& sites = context_.sites;
  if (specs.size() != sites.size()) {
    throw Error(
        fmt::format("a probe names the formats of {} sites, the model has {} sites", specs.size(), sites.size()),
        "give one for each site, in their order");
  }
  context_.engine.wait_for_statistics(sites);
  std::vector<ProbedSite> before;
  std::vector<SiteSpec> own;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    Site& site = *sites[i];
    own.push_back(site.spec);
    before.push_back({site.scale, site.seen});
    if (specs[i] != site.spec) site.scale = 0;  // it was another format's: the cast takes the tensor's own amax
    site.seen = {};
  }
  StepMemory& memory = context_.memory;
  const Size room = memory.capacity();
  const std::size_t moves = context_.model.parameters().storage_moves();
  const std::uint64_t generation = memory.generation();
  enter_specs(specs);
  ProbeResult result = run_probe(batch, what);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    result.seen.push_back(sites[i]->seen);
    sites[i]->scale = before[i].scale;
  }
  enter_specs(own);
  for (std::size_t i = 0; i < sites.size(); ++i) sites[i]->seen = before[i].seen;
  // Graphs captured before hold addresses: they are good where nothing has moved.
  const bool in_place = memory.capacity() == room && context_.model.parameters().storage_moves() == moves;
  if (in_place) memory.return_to(generation);
  return result;
}

ProbeResult Probes::run_probe(Size batch, ProbeWhat what) {
  Engine& engine = context_.engine;
  Model& model = context_.model;
  BatchStorage storage;
  const Batch probed = batches_.training_batch(static_cast<std::uint64_t>(batch), context_.batch_shape(), storage);
  const bool gradients = what == ProbeWhat::gradients;
  Parameters& parameters = model.parameters();
  ProbeResult result;
  if (gradients) result.gradients.resize(parameters.all().size());
  const auto download = [&](const Parameter& parameter, std::vector<float>& gradient) {
    gradient.resize(static_cast<std::size_t>(parameter.count()));
    engine.device().download(parameter.gradient.data, gradient.data(), gradient.size() * sizeof(float));
  };
  context_.sections.plan(0, [&](Size bucket) {
    for (std::size_t i = 0; i < parameters.all().size(); ++i) {
      const Parameter& parameter = parameters.all()[i];
      const bool leaves =
          parameter.has_gradient() && !parameters.lasts(parameter) && parameters.bucket_of(parameter.section) == bucket;
      if (leaves) download(parameter, result.gradients[i]);
    }
    return Device::nowhere;
  });
  tally_.reset();
  parameters.clear_gradients(engine);
  Step step = context_.make_step(gradients ? Pass::train : Pass::evaluate);
  step.casting.detail = Detail::full;
  step.casting.observe = true;
  step.micro_step = static_cast<std::uint32_t>(batch);
  const bool classifies = dynamic_cast<const LanguageModel*>(&model) == nullptr;
  if (classifies) step.correct = tally_.device_correct();
  model.loss(step, probed, loss_scale_.value(), tally_.device_loss_sum());
  context_.sections.plan(0, nullptr);
  tally_.end_group();
  engine.wait_for_statistics(context_.sites);
  const auto rows = static_cast<double>(std::max<Size>(1, rows_with_loss(probed)));
  result.loss = tally_.loss_sum() / rows;
  if (classifies) result.accuracy = static_cast<double>(tally_.correct()) / rows;
  if (!gradients) return result;
  for (std::size_t i = 0; i < parameters.all().size(); ++i) {
    const Parameter& parameter = parameters.all()[i];
    const bool is_there = parameter.has_gradient() && parameters.lasts(parameter);
    if (is_there && !parameter.averages) download(parameter, result.gradients[i]);
    const float unscale = 1 / (loss_scale_.value() * parameter.gradient_ratio);
    for (float& value : result.gradients[i]) value *= unscale;
  }
  parameters.clear_gradients(engine);
  return result;
}

GradientAgreement Probes::shadow_check(const ShadowSpecs& specs, Size batch) {
  const ProbeResult own = probe(specs.own, batch, ProbeWhat::gradients);
  const ProbeResult high = probe(specs.high_precision, batch, ProbeWhat::gradients);
  shadow_step_ = context_.step + 1;
  shadow_.clear();
  DotProduct all;
  for (std::size_t i = 0; i < own.gradients.size(); ++i) {
    const DotProduct product = dot_product(own.gradients[i], high.gradients[i]);
    shadow_.push_back(product.agreement());
    all.add(product);
  }
  return all.agreement();
}

const GradientAgreement* Probes::shadow_of(std::size_t parameter) const {
  return shadow_step_ == context_.step && parameter < shadow_.size() ? &shadow_[parameter] : nullptr;
}

}  // namespace quaver
