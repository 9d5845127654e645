#include "optim/muon.h"

namespace quaver {

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, Parameters& parameters) {
  switch (config.optimizer) {
    case OptimizerKind::muon:
      return std::make_unique<MuonOptimizer>(config, parameters);
    case OptimizerKind::adamw:
      break;
  }
  return std::make_unique<AdamWOptimizer>(config, parameters);
}

}  // namespace quaver
