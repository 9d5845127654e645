// What happens to query and key heads between the projection and attention: RMS norm of each head, and rotary
// embedding. Everything is done in one pass over the matrix, in place where wanted.
#pragma once

#include <map>
#include <tuple>

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

// cos and sin of position · frequency, [sequence × head_size/2] pairs in device memory, made when they are first asked
// for, which must not be during the capture of a CUDA graph.
class RotaryTables {
 public:
  RotaryTables() = default;
  ~RotaryTables();
  RotaryTables(const RotaryTables&) = delete;
  RotaryTables& operator=(const RotaryTables&) = delete;

  const float2* find(Gpu& gpu, const PrepareHeads& op);

 private:
  using Key = std::tuple<Size, Size, float, RotaryScaling>;
  std::map<Key, float2*> tables_;
};

void prepare_heads(Gpu& gpu, RotaryTables& tables, const PrepareHeads& op);
void prepare_heads_backward(Gpu& gpu, RotaryTables& tables, const PrepareHeadsBackward& op);

}  // namespace quaver::cuda
