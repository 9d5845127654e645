// Attention by cuDNN: plans for BF16 and FP16, made at the first call of each shape and kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

// required: the backward pass keeps the gradients of all scores of a chunk of sequences in memory and multiplies them
// in a fixed order. preferred_speed: it adds the queries' gradients up with atomics, in no fixed order.
enum class Determinism : std::uint8_t { required, preferred_speed };

enum class Pass : std::uint8_t { forward, backward };

class CudnnAttention {
 public:
  CudnnAttention(Gpu& gpu, Determinism determinism);  // throws Error where cuDNN is not available
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Why cuDNN cannot compute this pass on heads in BF16 or FP16 laid out so; empty where it can. Makes the plans.
  const std::string& obstacle(Pass pass, const HeadLayout& layout, Format format);

  // Only where there is no obstacle, and all matrices in that format. max_logit is ignored.
  void forward(const Attention& op);
  void backward(const AttentionBackward& op);

  bool deterministic() const;
  std::string version() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quaver::cuda
