// Muon: hidden matrices move along their momentum with its singular values made equal. AdamW updates all other
// parameters, and the hidden matrices that optim.muon_matrices leaves out.
#pragma once

#include "optim/adamw.h"

namespace quaver {

class MuonOptimizer final : public AdamWOptimizer {
 public:
  // Throws Error where a pattern of optim.muon_matrices matches no hidden matrix, or nothing is left for Muon to train.
  MuonOptimizer(const OptimConfig& config, Parameters& parameters);

 protected:
  void update_parameter(Engine& engine, OptimizerState& state, const Update& update) override;
};

}  // namespace quaver
