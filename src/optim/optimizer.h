// AdamW over a model's parameters: moments in their storage formats, learning rates and decay by pattern, clipping.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/parameter.h"
#include "optim/optim_config.h"

namespace quaver {

struct OptimizerStep {
  Size step = 0;             // from 0
  double learning_rate = 0;  // peak times schedule
  double decay = 0;          // share of the weight taken away, before the pattern's multiplier
  float unscale = 1;         // undoes loss scale and accumulation
  const Casting* casting;    // of the weights into their sites
};

// Moments and update figures of one parameter.
struct OptimizerState {
  Parameter* parameter = nullptr;
  CodeMatrix moment1;
  CodeMatrix moment2_root;  // √v: halves the range that v needs, and is what the update divides by
  double learning_rate_factor = 1;
  double decay_factor = 1;
  UpdateStatistics update;  // of the last update, on the host
};

class Optimizer {
 public:
  // Throws Error when a pattern of the config matches no parameter.
  Optimizer(const OptimConfig& config, Parameters& parameters);

  void allocate(Engine& engine);

  // Norm of the gradients, clipping, and — where every gradient is finite — the update. The caller has the scales of
  // the weights' sites ready by then.
  GradientSummary measure(Engine& engine, float unscale);
  void update(Engine& engine, const OptimizerStep& step);

  // The squared norm of each parameter's true gradient, as last measured.
  std::vector<double> gradient_squares(Engine& engine) const;

  std::vector<OptimizerState>& states() { return states_; }
  Size planned_bytes() const;

  // Updates that took effect: Adam's bias correction counts these, not the skipped ones.
  Size updates() const { return updates_; }
  void restore_updates(Size updates) { updates_ = updates; }

 private:
  OptimConfig config_;
  Parameters& parameters_;
  std::vector<OptimizerState> states_;
  GradientSummary summary_;  // as last downloaded
  Size updates_ = 0;
  std::shared_ptr<std::byte> memory_;   // moments
  std::shared_ptr<std::byte> figures_;  // GradientSummary, then UpdateStatistics, squares and factors of all parameters

  GradientSummary* device_summary() const { return reinterpret_cast<GradientSummary*>(figures_.get()); }
  UpdateStatistics* device_updates() const;
  double* device_squares() const;
  float* device_factors() const;
};

}  // namespace quaver
