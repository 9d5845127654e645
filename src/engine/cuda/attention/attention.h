// Attention on the GPU. In BF16 and FP16 by cuDNN where it is installed and has a plan for the shape, but for most
// backward passes on Hopper, where a kernel of ours is faster (attention_sizes.h); all else, and packed rows, by our
// own kernels: FP32 in FP32, or on TF32 tensor cores. QUAVER_ATTENTION=own does without cuDNN, QUAVER_ATTENTION=cudnn
// with it wherever it can. Each gives the same bits for the same input.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/cuda/attention/attention_cudnn.h"
#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

class AttentionLibrary {
 public:
  // float_as: what matrices in FP32 are multiplied in, f32 or tf32.
  AttentionLibrary(Gpu& gpu, Format float_as);

  void forward(const Attention& op);
  void backward(const AttentionBackward& op);

  std::string describe() const;  // "cuDNN 9.19.0", or "own kernels (…)" with the reason

 private:
  enum class Wish : std::uint8_t { fastest, own, cudnn };

  bool hopper_takes(const HeadLayout& layout, Format format) const;
  bool cudnn_takes(Pass pass, const HeadLayout& layout, Format format);
  template <class Operation>
  bool runs_packed(const Operation& op);  // by our own kernels, which alone know documents
  void tell_what_is_slower(Pass pass, const HeadLayout& layout, Format format);

  Gpu& gpu_;
  Format float_as_;
  Wish wish_ = Wish::fastest;
  std::unique_ptr<CudnnAttention> cudnn_;
  std::string why_own_;
};

}  // namespace quaver::cuda
