#include "optim/optimizer.h"

#include <cmath>
#include <fmt/format.h>
#include <map>

#include "precision/plan.h"
#include "quaver/error.h"

namespace quaver {

namespace {

QuantSpec moment_spec(MomentFormat format, ParameterKind kind) {
  if (kind == ParameterKind::vector || format == MomentFormat::f32) return {.format = Format::f32};
  // Stochastic: a moment changes by less than the distance of two codes, and rounding to the nearest would freeze it.
  if (format == MomentFormat::bf16) return {.format = Format::bf16, .rounding = Rounding::stochastic};
  return {
      .format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current, .rounding = Rounding::stochastic};
}

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

Size scale_count(const CodeMatrix& matrix) {
  return matrix.has_block_scales() ? matrix.scale_rows() * matrix.scale_cols() : 0;
}

Size aligned(Size bytes) { return (bytes + 255) / 256 * 256; }

Size moment_bytes(const CodeMatrix& matrix) {
  return aligned(matrix.code_bytes()) + aligned((scale_count(matrix) + 4) * 4);
}

void place(CodeMatrix& matrix, std::byte*& next, Engine& engine) {
  matrix.codes = next;
  next += aligned(matrix.code_bytes());
  auto* floats = reinterpret_cast<float*>(next);
  matrix.tensor_scale = floats;
  const float one = 1;
  engine.upload(&one, matrix.tensor_scale, sizeof(one));
  matrix.block_scales = scale_count(matrix) > 0 ? floats + 4 : nullptr;
  next += aligned((scale_count(matrix) + 4) * 4);
}

}  // namespace

Optimizer::Optimizer(const OptimConfig& config, Parameters& parameters) : config_(config), parameters_(parameters) {
  check_patterns("optim.learning_rate_of", config.learning_rate_of, parameters);
  check_patterns("optim.weight_decay_of", config.weight_decay_of, parameters);
  for (Parameter& parameter : parameters.all()) {
    OptimizerState state;
    state.parameter = &parameter;
    state.moment1.spec = moment_spec(config.moments, parameter.kind);
    state.moment1.rows = parameter.rows;
    state.moment1.cols = parameter.cols;
    state.moment2_root = state.moment1;
    state.learning_rate_factor =
        parameter.learning_rate_factor * multiplier_for(config.learning_rate_of, parameter.name);
    const bool decays = parameter.kind != ParameterKind::vector;
    state.decay_factor = decays ? multiplier_for(config.weight_decay_of, parameter.name) : 0.0;
    states_.push_back(state);
  }
}

Size Optimizer::planned_bytes() const {
  Size total = 0;
  for (const OptimizerState& state : states_) total += moment_bytes(state.moment1) + moment_bytes(state.moment2_root);
  return total;
}

void Optimizer::allocate(Engine& engine) {
  memory_ = engine.allocate(static_cast<std::size_t>(planned_bytes()));
  std::byte* next = memory_.get();
  for (OptimizerState& state : states_) {
    place(state.moment1, next, engine);
    place(state.moment2_root, next, engine);
  }
  figures_ = engine.allocate(sizeof(GradientSummary) +
                             states_.size() * (sizeof(UpdateStatistics) + sizeof(double) + sizeof(float)));
}

UpdateStatistics* Optimizer::device_updates() const {
  return reinterpret_cast<UpdateStatistics*>(figures_.get() + sizeof(GradientSummary));
}

double* Optimizer::device_squares() const { return reinterpret_cast<double*>(device_updates() + states_.size()); }

float* Optimizer::device_factors() const { return reinterpret_cast<float*>(device_squares() + states_.size()); }

std::vector<double> Optimizer::gradient_squares(Engine& engine) const {
  std::vector<double> squares(states_.size());
  engine.download(device_squares(), squares.data(), squares.size() * sizeof(double));
  return squares;
}

GradientSummary Optimizer::measure(Engine& engine, float unscale) {
  std::vector<View> gradients;
  std::vector<float> ratios;
  for (const OptimizerState& state : states_) {
    gradients.push_back(state.parameter->gradient);
    ratios.push_back(state.parameter->gradient_ratio);
  }
  engine.measure_gradients({.gradients = gradients,
                            .ratios = ratios,
                            .unscale = unscale,
                            .clip = engine_clip(config_.clip),
                            .limit = static_cast<float>(config_.clip_limit),
                            .factors = device_factors(),
                            .squares = device_squares(),
                            .summary = device_summary()});
  engine.download(device_summary(), &summary_, sizeof(summary_));
  return summary_;
}

void Optimizer::update(Engine& engine, const OptimizerStep& step) {
  if (summary_.nonfinite != 0) return;
  ++updates_;
  const double t = static_cast<double>(updates_);
  const Rounding rounding = config_.master == MasterWeights::f32 ? Rounding::nearest_even : Rounding::stochastic;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    OptimizerState& state = states_[i];
    Parameter& parameter = *state.parameter;
    const float value_limit =
        config_.clip == ClipMode::value ? static_cast<float>(config_.clip_limit) * parameter.gradient_ratio : 0.0F;
    engine.adamw(
        {.weight = parameter.weight,
         .gradient = parameter.gradient,
         .moment1 = state.moment1,
         .moment2_root = state.moment2_root,
         .gradient_factor = device_factors() + i,
         .summary = device_summary(),
         .value_limit = value_limit,
         .learning_rate = static_cast<float>(step.learning_rate * state.learning_rate_factor),
         .beta1 = static_cast<float>(config_.beta1),
         .beta2 = static_cast<float>(config_.beta2),
         .epsilon = static_cast<float>(config_.epsilon),
         .decay = static_cast<float>(step.decay * state.decay_factor),
         .bias_correction1 = static_cast<float>(1 - std::pow(config_.beta1, t)),
         .bias_correction2 = static_cast<float>(1 - std::pow(config_.beta2, t)),
         .rounding = rounding,
         .random = {step.casting->seed, static_cast<std::uint32_t>(step.step), stream_of(parameter.name.c_str())},
         .statistics = device_updates() + i,
         .quantized = parameter.quantized.valid() ? &parameter.quantized : nullptr,
         .casting = step.casting});
  }
  std::vector<UpdateStatistics> updates(states_.size());
  engine.download(device_updates(), updates.data(), updates.size() * sizeof(UpdateStatistics));
  for (std::size_t i = 0; i < states_.size(); ++i) states_[i].update = updates[i];
}

}  // namespace quaver
