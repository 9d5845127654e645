// How much memory a run needs, from a dry run of its first step: the same model, optimizer and arena as the trainer's,
// on an engine that counts instead of computing. It needs neither the memory nor the device.
#pragma once

#include <functional>

#include "config/config.h"
#include "engine/sizing_engine.h"
#include "models/model.h"

namespace quaver {

// Builds a model, without memory, for a config: the one that its model section describes unless said otherwise.
using ModelFactory = std::function<std::unique_ptr<Model>(const Config&)>;
std::unique_ptr<Model> model_of(const Config& config);

// Bytes by purpose.
struct MemoryPlan {
  Size weights = 0;
  Size quantized_weights = 0;
  Size gradients = 0;
  Size optimizer = 0;
  Size activations = 0;  // kept for backward
  Size scratch = 0;      // of the arena beside them
  Size workspace = 0;    // kept by the engine's operations for themselves
  Size transient = 0;    // the most that one operation takes and gives back
  Size checkpoint = 0;   // the copy that a checkpoint is written from, on the host

  Size fixed() const { return weights + quantized_weights + gradients + optimizer; }
  Size arena() const { return activations + scratch; }
  // What the engine's memory must hold.
  Size engine_total() const { return fixed() + arena() + workspace + transient; }
};

// What the arena must hold for a model whose parameters have places in the sizing engine, or none at all: then the
// workspace of the engine is not counted, and the arena's size is the same.
struct ArenaPlan {
  std::size_t bytes = 0;
  std::size_t saved = 0;  // of them kept for backward
};
ArenaPlan plan_arena(Model& model, const Config& config, SizingEngine& engine);

// The whole run, on one of its ranks. `config` as resolve_shape gives it.
MemoryPlan plan_memory(const Config& config, const Hardware& hardware, const ModelFactory& make_model = model_of,
                       const ShardPlace& place = {});

// Throws Error where the run does not fit into the engine's free memory or train.memory_limit_mb, saying by how much
// and what would fit.
void require_memory(const Config& config, Engine& engine, const ModelFactory& make_model, const ShardPlace& place);

}  // namespace quaver
