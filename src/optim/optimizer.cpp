#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "comm/agreement.h"
#include "precision/plan.h"
#include "quaver/error.h"

namespace quaver {

namespace {

double multiplier_for(const std::map<std::string, double>& patterns, const std::string& name) {
  double multiplier = 1;
  for (const auto& [pattern, value] : patterns) {
    if (matches(pattern, name)) multiplier *= value;
  }
  return multiplier;
}

void check_patterns(const char* key, const std::map<std::string, double>& patterns, const Parameters& parameters) {
  for (const auto& [pattern, value] : patterns) {
    bool used = false;
    for (const Parameter& parameter : parameters.all()) used = used || matches(pattern, parameter.name);
    if (used) continue;
    throw Error(
        fmt::format("{}: the pattern \"{}\" matches no parameter", key, pattern),
        fmt::format("parameters are named {}, …, {}", parameters.all().front().name, parameters.all().back().name));
  }
}

Clip engine_clip(ClipMode mode) {
  switch (mode) {
    case ClipMode::none:
      return Clip::none;
    case ClipMode::global_norm:
      return Clip::global_norm;
    case ClipMode::group_norm:
      return Clip::group_norm;
    case ClipMode::value:
      break;
  }
  return Clip::value;
}

Size aligned(Size bytes) { return (bytes + 255) / 256 * 256; }

// Block scales follow the tensor's own, which is padded to four floats.
Size scale_bytes(const OptimizerSlot& slot) { return aligned((slot.scale_count() + 4) * 4); }

Size slot_bytes(const OptimizerSlot& slot) { return aligned(slot.values.code_bytes()) + scale_bytes(slot); }

void place(OptimizerSlot& slot, std::byte*& next, Engine& engine) {
  CodeMatrix& values = slot.values;
  values.codes = next;
  next += aligned(values.code_bytes());
  auto* floats = reinterpret_cast<float*>(next);
  values.tensor_scale = floats;
  const float one = 1;
  engine.device().upload(&one, values.tensor_scale, sizeof(one));
  values.block_scales = slot.scale_count() > 0 ? floats + 4 : nullptr;
  next += scale_bytes(slot);
}

}  // namespace

Size OptimizerSlot::scale_count() const {
  return values.has_block_scales() ? values.scale_rows() * values.scale_cols() : 0;
}

Size OptimizerSlot::stored_bytes() const { return values.code_bytes() + 4 * scale_count(); }

void freeze(Parameters& parameters, const OptimConfig& config) {
  check_patterns("optim.learning_rate_of", config.learning_rate_of, parameters);
  const bool adapted = std::ranges::any_of(parameters.all(), &Parameter::adapter);
  for (Parameter& parameter : parameters.all()) {
    const bool fixed = adapted && !parameter.adapter;
    parameter.frozen = fixed || parameter.averages || multiplier_for(config.learning_rate_of, parameter.name) == 0;
  }
}

Optimizer::Optimizer(const OptimConfig& config, Parameters& parameters, const SlotsOf& slots_of)
    : config_(config), parameters_(&parameters) {
  freeze(parameters, config);
  check_patterns("optim.weight_decay_of", config.weight_decay_of, parameters);
  for (Parameter& parameter : parameters.all()) {
    OptimizerState state;
    state.parameter = &parameter;
    if (!parameter.frozen) {
      state.slots = slots_of(parameter);
      trained_.push_back(states_.size());
    }
    state.learning_rate_factor =
        parameter.learning_rate_factor * multiplier_for(config.learning_rate_of, parameter.name);
    const bool decays = parameter.kind != ParameterKind::vector;
    state.decay_factor = decays ? multiplier_for(config.weight_decay_of, parameter.name) : 0.0;
    states_.push_back(std::move(state));
  }
  if (trained_.empty()) {
    throw Error("optim.learning_rate_of freezes every parameter", "leave some of them with a factor above 0");
  }
}

Size Optimizer::planned_bytes() const {
  Size total = 0;
  for (const OptimizerState& state : states_) {
    if (!state.parameter->kept) continue;
    for (const OptimizerSlot& slot : state.slots) total += slot_bytes(slot);
  }
  return total;
}

Size Optimizer::stored_bytes() const {
  Size total = 0;
  for (const OptimizerState& state : states_) {
    if (!state.parameter->kept) continue;
    for (const OptimizerSlot& slot : state.slots) total += slot.stored_bytes();
  }
  return total;
}

void Optimizer::allocate(Engine& engine, Communicator& ranks) {
  ranks_ = &ranks;
  memory_ = engine.device().allocate(static_cast<std::size_t>(planned_bytes()));
  std::byte* next = memory_.get();
  for (OptimizerState& state : states_) {
    if (!state.parameter->kept) continue;
    for (OptimizerSlot& slot : state.slots) place(slot, next, engine);
  }
  place_measures();
  const auto measures = static_cast<std::size_t>(rank_measures_ * measuring_ranks());
  statistics_ =
      engine.device().allocate(sizeof(GradientSummary) + (measures + states_.size()) * sizeof(GradientMeasure) +
                               states_.size() * (sizeof(UpdateStatistics) + sizeof(double) + sizeof(float)));
}

void Optimizer::place_measures() {
  shared_ = parameters_->place().has(ShardMode::optimizer);
  std::vector<Size> counts(static_cast<std::size_t>(measuring_ranks()));
  const auto rank_of = [this](const OptimizerState& state) {
    return static_cast<std::size_t>(shared_ ? state.parameter->owner : 0);
  };
  places_.clear();
  for (const std::size_t i : trained_) places_.push_back(counts[rank_of(states_[i])]++);
  rank_measures_ = *std::max_element(counts.begin(), counts.end());
  for (std::size_t k = 0; k < trained_.size(); ++k) {
    places_[k] += static_cast<Size>(rank_of(states_[trained_[k]])) * rank_measures_;
  }
}

UpdateStatistics* Optimizer::device_updates() const {
  return reinterpret_cast<UpdateStatistics*>(statistics_.get() + sizeof(GradientSummary));
}

double* Optimizer::device_squares() const { return reinterpret_cast<double*>(device_updates() + states_.size()); }

GradientMeasure* Optimizer::device_noted() const {
  return reinterpret_cast<GradientMeasure*>(device_squares() + states_.size());
}

GradientMeasure* Optimizer::device_measures() const { return device_noted() + states_.size(); }

float* Optimizer::device_factors() const {
  return reinterpret_cast<float*>(device_measures() + rank_measures_ * measuring_ranks());
}

void Optimizer::read_squares(Engine& engine, const UseSquares& use) const {
  const std::size_t count = trained_.size();
  engine.device().read(device_squares(), count * sizeof(double), [this, use, count](const std::byte* data) {
    const auto* measured = reinterpret_cast<const double*>(data);
    std::vector<double> squares(states_.size());
    for (std::size_t k = 0; k < count; ++k) squares[trained_[k]] = measured[k];
    use(std::move(squares));
  });
}

void Optimizer::note_squares(Engine& engine, const std::function<bool(const Parameter&)>& part) {
  GradientMeasure* measures = device_noted() + noted_.size();
  std::vector<View> gradients;
  std::vector<float> ratios;
  for (const std::size_t i : trained_) {
    const Parameter& parameter = *states_[i].parameter;
    if (!part(parameter)) continue;
    noted_.push_back(i);
    gradients.push_back(parameter.gradient);
    ratios.push_back(parameter.gradient_ratio);
  }
  if (!gradients.empty()) engine.run(MeasureGradients{gradients, ratios, measures});
}

void Optimizer::read_noted(Engine& engine, float unscale, const UseSquares& use) {
  const std::vector<std::size_t> noted = std::exchange(noted_, {});
  engine.device().read(device_noted(), noted.size() * sizeof(GradientMeasure),
                       [use, unscale, noted, all = states_.size()](const std::byte* data) {
                         const auto* measures = reinterpret_cast<const GradientMeasure*>(data);
                         std::vector<double> squares(all);
                         for (std::size_t i = 0; i < noted.size(); ++i) {
                           const double norm = std::sqrt(measures[i].square) * unscale;
                           squares[noted[i]] = norm * norm;
                         }
                         use(std::move(squares));
                       });
}

void Optimizer::measure(Engine& engine, float unscale) {
  std::vector<View> gradients;
  std::vector<float> ratios;
  for (const std::size_t i : trained_) {
    const Parameter& parameter = *states_[i].parameter;
    if (!parameter.kept) continue;
    gradients.push_back(parameter.gradient_sum);
    ratios.push_back(parameter.gradient_ratio);
  }
  GradientMeasure* own = device_measures() + (shared_ ? parameters_->place().rank * rank_measures_ : 0);
  if (!gradients.empty()) engine.run(MeasureGradients{gradients, ratios, own});
  if (shared_) {
    ranks_->all_gather(device_measures(), static_cast<std::size_t>(rank_measures_) * sizeof(GradientMeasure));
  }
  engine.run(ClipGradients{.measures = device_measures(),
                           .places = places_,
                           .unscale = unscale,
                           .clip = engine_clip(config_.clip),
                           .limit = static_cast<float>(config_.clip_limit),
                           .factors = device_factors(),
                           .squares = device_squares(),
                           .summary = device_summary()});
  engine.device().read(device_summary(), sizeof(summary_),
                       [this](const std::byte* data) { std::memcpy(&summary_, data, sizeof(summary_)); });
}

void Optimizer::update(Engine& engine, const OptimizerStep& step) {
  ++updates_;
  for (std::size_t k = 0; k < trained_.size(); ++k) {
    OptimizerState& state = states_[trained_[k]];
    if (!state.parameter->kept) continue;
    const float ratio = state.parameter->gradient_ratio;
    update_parameter(
        engine, state,
        {.step = step,
         .gradient_factor = device_factors() + k,
         .summary = device_summary(),
         .value_limit = config_.clip == ClipMode::value ? static_cast<float>(config_.clip_limit) * ratio : 0.0F,
         .statistics = device_updates() + k});
  }
  update_averages(engine, step.micro_batches);
  for (const OptimizerState& state : states_) {  // scales move on with those of other weights
    if (state.parameter->frozen) parameters_->cast(*state.parameter, engine, *step.casting);
  }
  const std::size_t count = trained_.size();
  engine.device().read(device_updates(), count * sizeof(UpdateStatistics), [this, count](const std::byte* data) {
    const auto* updates = reinterpret_cast<const UpdateStatistics*>(data);
    for (std::size_t k = 0; k < count; ++k) states_[trained_[k]].update = updates[k];
  });
}

void Optimizer::update_averages(Engine& engine, Size micro_batches) {
  for (const OptimizerState& state : states_) {
    const Parameter& parameter = *state.parameter;
    if (!parameter.averages || !parameter.kept) continue;
    engine.run(MovingAverage{.average = parameter.master,
                             .sum = parameter.gradient_sum,
                             .share = 1.0F / static_cast<float>(micro_batches),
                             .summary = device_summary()});
  }
}

void Optimizer::share_updates() {
  if (!shared_) return;
  std::vector<UpdateStatistics> mine(static_cast<std::size_t>(rank_measures_));
  const Size first = parameters_->place().rank * rank_measures_;
  for (std::size_t k = 0; k < trained_.size(); ++k) {
    const OptimizerState& state = states_[trained_[k]];
    if (state.parameter->kept) mine[static_cast<std::size_t>(places_[k] - first)] = state.update;
  }
  const std::vector<UpdateStatistics> all = gathered(*ranks_, mine);
  for (std::size_t k = 0; k < trained_.size(); ++k) {
    states_[trained_[k]].update = all[static_cast<std::size_t>(places_[k])];
  }
}

}  // namespace quaver
