// AdamW: two moments per parameter, in their storage formats.
#pragma once

#include "optim/optimizer.h"

namespace quaver {

class AdamWOptimizer final : public Optimizer {
 public:
  AdamWOptimizer(const OptimConfig& config, Parameters& parameters);

 protected:
  void update_parameter(Engine& engine, OptimizerState& state, const Update& update) override;
};

}  // namespace quaver
