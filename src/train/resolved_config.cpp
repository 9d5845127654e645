#include "train/resolved_config.h"

#include <utility>

#include "precision/recipe.h"

namespace quaver {

Config resolve_parametrization(Config config) {
  if (config.model.parametrization == Parametrization::automatic &&
      is_unscaled(make_recipe(config.precision.recipe, config.precision))) {
    config.model.parametrization = Parametrization::umup;
  }
  return config;
}

Config resolve_shape(Config config, const DataShape& data) {
  config = resolve_parametrization(std::move(config));
  config.model = resolved(for_data(config.model, data));
  if (config.train.context == 0) config.train.context = config.model.context;
  return config;
}

Accumulators accumulators_for(AccumulatorChoice choice, const Engine& engine) {
  const auto all = [](Accumulator accumulator) {
    return Accumulators{accumulator, accumulator, accumulator, accumulator};
  };
  switch (choice) {
    case AccumulatorChoice::automatic:
      break;
    case AccumulatorChoice::fp32:
      return all(Accumulator::fp32);
    case AccumulatorChoice::hopper:
      return all(Accumulator::hopper);
    case AccumulatorChoice::hopper_split:
      return all(Accumulator::hopper_split);
    case AccumulatorChoice::fp16:
      return all(Accumulator::fp16);
    case AccumulatorChoice::fp8:
      return all(Accumulator::fp8);
  }
  return engine.accumulators();
}

ScaleRules scale_rules(const Config& config) {
  return {config.precision.history, config.precision.history_rule, config.guard.overflow_percent};
}

Format master_format(const Config& config) {
  return config.optim.master == MasterWeights::f32 ? Format::f32 : Format::bf16;
}

}  // namespace quaver
