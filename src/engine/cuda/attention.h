// Attention on the GPU: cuDNN for BF16 where it is installed and has a plan for the shape, our own kernels elsewhere.
// QUAVER_ATTENTION=own forces the latter. Each gives the same bits whenever it is given the same input.
#pragma once

#include <memory>
#include <string>

#include "engine/cuda/attention_cudnn.h"
#include "engine/cuda/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

class AttentionLibrary {
 public:
  explicit AttentionLibrary(Gpu& gpu);

  void forward(const Attention& op);
  void backward(const AttentionBackward& op);

  std::string describe() const;  // "cuDNN 9.19.0", or "own kernels (…)" with the reason

 private:
  bool takes(Pass pass, const HeadLayout& layout, Format format);

  Gpu& gpu_;
  std::unique_ptr<CudnnAttention> cudnn_;
  std::string why_own_;
};

}  // namespace quaver::cuda
