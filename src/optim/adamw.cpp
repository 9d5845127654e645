#include "optim/adamw.h"

#include <cmath>

namespace quaver {

namespace {

QuantSpec moment_spec(MomentFormat format, ParameterKind kind) {
  if (kind == ParameterKind::vector || format == MomentFormat::f32) return {.format = Format::f32};
  // Stochastic: a moment changes by less than the distance of two codes, and rounding to the nearest would freeze it.
  if (format == MomentFormat::bf16) return {.format = Format::bf16, .rounding = Rounding::stochastic};
  return {
      .format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current, .rounding = Rounding::stochastic};
}

// v is stored as its square root: that halves the range it needs, and is what the update divides by.
enum Slot : std::size_t { moment1, moment2_root };

}  // namespace

OptimizerSlot AdamWOptimizer::moment_of(const Parameter& parameter, MomentFormat format, const char* name) {
  CodeMatrix values;
  values.spec = moment_spec(format, parameter.kind);
  values.rows = parameter.rows;
  values.cols = parameter.cols;
  return {name, values};
}

std::vector<OptimizerSlot> AdamWOptimizer::moments_of(const Parameter& parameter, MomentFormat format) {
  return {moment_of(parameter, format, "m"), moment_of(parameter, format, "v_root")};
}

AdamWOptimizer::AdamWOptimizer(const OptimConfig& config, Parameters& parameters, const SlotsOf& slots_of)
    : Optimizer(config, parameters, slots_of) {}

AdamWOptimizer::AdamWOptimizer(const OptimConfig& config, Parameters& parameters)
    : AdamWOptimizer(config, parameters,
                     [&](const Parameter& parameter) { return moments_of(parameter, config.moments); }) {}

void AdamWOptimizer::update_parameter(Engine& engine, OptimizerState& state, const Update& update) {
  Parameter& parameter = *state.parameter;
  const OptimizerStep& step = update.step;
  const Casting unseen = step.casting->unobserved();
  const double t = static_cast<double>(updates());
  engine.run(
      AdamW{.weight = parameter.master,
            .gradient = parameter.gradient_sum,
            .moment1 = state.slots[moment1].values,
            .moment2_root = state.slots[moment2_root].values,
            .gradient_factor = update.gradient_factor,
            .summary = update.summary,
            .value_limit = update.value_limit,
            .learning_rate = static_cast<float>(step.learning_rate * state.learning_rate_factor),
            .beta1 = static_cast<float>(config().beta1),
            .beta2 = static_cast<float>(config().beta2),
            .epsilon = static_cast<float>(config().epsilon),
            .decay = static_cast<float>(step.decay * state.decay_factor),
            .bias_correction1 = static_cast<float>(1 - std::pow(config().beta1, t)),
            .bias_correction2 = static_cast<float>(1 - std::pow(config().beta2, t)),
            .rounding = config().master == MasterWeights::f32 ? Rounding::nearest_even : Rounding::stochastic,
            .random = {step.casting->seed, static_cast<std::uint32_t>(step.step), stream_of(parameter.name.c_str())},
            .statistics = update.statistics,
            .quantized = parameter.cast_target().valid() ? &parameter.cast_target() : nullptr,
            .casting = parameter.is_cast() ? step.casting : &unseen});
}

}  // namespace quaver
