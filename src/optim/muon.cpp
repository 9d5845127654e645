#include "optim/muon.h"

#include <algorithm>
#include <fmt/format.h>

#include "precision/plan.h"
#include "quaver/error.h"

namespace quaver {

namespace {

constexpr const char* momentum = "momentum";

bool is_hidden_matrix(const Parameter& parameter) { return !parameter.projections.empty(); }

bool is_chosen(const std::vector<std::string>& patterns, const Parameter& parameter) {
  const auto fits = [&](const std::string& pattern) { return matches(pattern, parameter.name); };
  return is_hidden_matrix(parameter) && std::ranges::any_of(patterns, fits);
}

bool is_muons(const OptimizerState& state) { return !state.slots.empty() && state.slots.front().name == momentum; }

// The patterns of the config, each of which matches some hidden matrix.
std::vector<std::string> checked_patterns(const OptimConfig& config, const Parameters& parameters) {
  std::vector<std::string> patterns = patterns_in(config.muon_matrices);
  if (patterns.empty()) {
    throw Error("optim.muon_matrices is empty", "name the hidden matrices that Muon updates: \"*\" is all of them");
  }
  const auto first = std::ranges::find_if(parameters.all(), is_hidden_matrix);
  if (first == parameters.all().end()) {
    throw Error("optim.optimizer = \"muon\": the model has no hidden matrix", "set optim.optimizer = \"adamw\"");
  }
  for (const std::string& pattern : patterns) {
    const auto used = [&](const Parameter& parameter) { return is_chosen({pattern}, parameter); };
    if (std::ranges::any_of(parameters.all(), used)) continue;
    throw Error(fmt::format("optim.muon_matrices: the pattern \"{}\" matches no hidden matrix", pattern),
                fmt::format("they are the matrices within blocks, such as {}", first->name));
  }
  return patterns;
}

}  // namespace

MuonOptimizer::MuonOptimizer(const OptimConfig& config, Parameters& parameters)
    : AdamWOptimizer(config, parameters,
                     [&, patterns = checked_patterns(config, parameters)](const Parameter& parameter) {
                       if (!is_chosen(patterns, parameter)) return moments_of(parameter, config.moments);
                       return std::vector<OptimizerSlot>{moment_of(parameter, config.moments, momentum)};
                     }) {
  if (std::ranges::none_of(states(), is_muons)) {
    throw Error("optim.optimizer = \"muon\": every matrix that it would update is frozen",
                "set optim.optimizer = \"adamw\", or leave some of them trainable; adapters (lora.rank) are AdamW's");
  }
}

void MuonOptimizer::update_parameter(Engine& engine, OptimizerState& state, const Update& update) {
  if (!is_muons(state)) return AdamWOptimizer::update_parameter(engine, state, update);
  Parameter& parameter = *state.parameter;
  const OptimizerStep& step = update.step;
  const Casting unseen = step.casting->unobserved();
  engine.run(
      Muon{.weight = parameter.master,
           .gradient = parameter.gradient_sum,
           .projections = parameter.projections,
           .momentum = state.slots.front().values,
           .gradient_factor = update.gradient_factor,
           .summary = update.summary,
           .value_limit = update.value_limit,
           .learning_rate = static_cast<float>(step.learning_rate * state.learning_rate_factor),
           .beta = static_cast<float>(config().muon_momentum),
           .steps = config().muon_steps,
           .decay = static_cast<float>(step.decay * state.decay_factor),
           .rounding = config().master == MasterWeights::f32 ? Rounding::nearest_even : Rounding::stochastic,
           .random = {step.casting->seed, static_cast<std::uint32_t>(step.step), stream_of(parameter.name.c_str())},
           .statistics = update.statistics,
           .quantized = parameter.cast_target().valid() ? &parameter.cast_target() : nullptr,
           .casting = parameter.is_cast() ? step.casting : &unseen});
}

}  // namespace quaver
