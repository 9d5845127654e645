// What the parts of a trainer share: the model on its engine, the memory its steps run in, and the counters that every
// random stream follows from.
#pragma once

#include <memory>
#include <vector>

#include "config/config.h"
#include "models/model.h"
#include "train/batch_source.h"
#include "train/sharded_pass.h"
#include "train/step_memory.h"

namespace quaver {

struct TrainingContext {
  const Config& config;
  Engine& engine;
  Model& model;
  const std::vector<Site*>& sites;  // of the model's book, in its order
  StepMemory& memory;
  WeightGather& weights;
  ShardedPass& sections;
  const Size& step;                       // steps done
  const std::uint32_t& last_weight_cast;  // step of the random streams when the weights were last cast

  ScaleBook& book() const { return model.book(); }
  BatchShape batch_shape() const { return {config.train.batch, config.train.context}; }
  void plan_memory() const { memory.plan(model, config, engine); }

  Step make_step(Pass pass) const;

  // Weights are cast once per step; their streams are those of the step that cast them.
  Casting weight_casting(Detail detail = Detail::counts) const {
    return {.seed = config.train.seed, .step = last_weight_cast, .detail = detail};
  }
};

}  // namespace quaver
