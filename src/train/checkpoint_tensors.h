// The tensors of a checkpoint: a model's parameters and its optimizer's state, copied from the engine's memory to the
// host and back.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/engine.h"
#include "optim/optimizer.h"
#include "train/checkpoint_store.h"

namespace quaver {

class CheckpointTensors {
 public:
  // The content points into this object's own copy: valid until the next call. A rank has the data of the parameters
  // that it owns.
  void copy_from(Engine& engine, const Parameters& parameters, Optimizer& optimizer, CheckpointContent& content);

 private:
  std::vector<std::byte> host_;
};

// Throws Error, naming the tensor, where the checkpoint's are of another shape.
void upload_tensors(const Checkpoint& checkpoint, Engine& engine, Parameters& parameters, Optimizer& optimizer);

}  // namespace quaver
