// AdamW: two moments per parameter, in their storage formats.
#pragma once

#include "optim/optimizer.h"

namespace quaver {

class AdamWOptimizer : public Optimizer {
 public:
  AdamWOptimizer(const OptimConfig& config, Parameters& parameters);

 protected:
  // With other slots of those parameters that a derived class updates itself.
  AdamWOptimizer(const OptimConfig& config, Parameters& parameters, const SlotsOf& slots_of);

  void update_parameter(Engine& engine, OptimizerState& state, const Update& update) override;

  static std::vector<OptimizerSlot> moments_of(const Parameter& parameter, MomentFormat format);
  // A slot that is shaped as the parameter.
  static OptimizerSlot moment_of(const Parameter& parameter, MomentFormat format, const char* name);
};

}  // namespace quaver
