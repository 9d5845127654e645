// How weights are updated: AdamW or Muon, their storage formats, the learning-rate schedule and clipping.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "formats/quant_spec.h"

namespace quaver {

enum class OptimizerKind : std::uint8_t { adamw, muon };
enum class ScheduleShape : std::uint8_t { constant, cosine, linear, wsd };  // wsd: warm-up, stable, decay
enum class MasterWeights : std::uint8_t { f32, bf16_stochastic };
enum class MomentFormat : std::uint8_t { f32, bf16, fp8 };
enum class ClipMode : std::uint8_t { none, global_norm, group_norm, value };  // group: each parameter on its own

struct OptimConfig {
  OptimizerKind optimizer = OptimizerKind::adamw;  // muon: of hidden matrices; AdamW of all other parameters
  double learning_rate = 1e-3;
  double unit_learning_rate = 1;  // in place of learning_rate for unit-scaled models, whose weights have unit variance
  double final_ratio = 0.1;       // learning rate at the end, as a share of the peak
  ScheduleShape schedule = ScheduleShape::cosine;
  double warmup = 0.07;  // share of the steps
  double decay = 0.2;    // wsd: share of the steps that decay
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  std::string muon_matrices = "*";  // patterns of the hidden matrices that Muon updates, separated by commas
  double muon_momentum = 0.95;
  Size muon_steps = 5;        // of Newton–Schulz
  double weight_decay = 0.1;  // matrices only; norms and biases are never decayed
  ClipMode clip = ClipMode::global_norm;
  double clip_limit = 1.0;
  MasterWeights master = MasterWeights::f32;
  MomentFormat moments = MomentFormat::f32;
  std::map<std::string, double> learning_rate_of;  // pattern of parameter names → multiplier
  std::map<std::string, double> weight_decay_of;   // pattern of parameter names → multiplier
};

}  // namespace quaver
