// What happens to query and key heads between the projection and attention: RMS norm of each head, and rotary
// embedding. Everything is done in one pass over the matrix, in place where wanted.
#pragma once

#include <map>
#include <tuple>

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

// cos and sin of position · theta^(−2i/head_size), [sequence × head_size/2] pairs in device memory, made when they are
// first asked for, which must not be during the capture of a CUDA graph.
class RotaryTables {
 public:
  RotaryTables() = default;
  ~RotaryTables();
  RotaryTables(const RotaryTables&) = delete;
  RotaryTables& operator=(const RotaryTables&) = delete;

  const float2* find(Gpu& gpu, Size sequence, Size head_size, float theta);

 private:
  using Key = std::tuple<Size, Size, float>;
  std::map<Key, float2*> tables_;
};

void prepare_heads(Gpu& gpu, RotaryTables& tables, const PrepareHeads& op);
void prepare_heads_backward(Gpu& gpu, RotaryTables& tables, const PrepareHeadsBackward& op);

}  // namespace quaver::cuda
