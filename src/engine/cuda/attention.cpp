#include "engine/cuda/attention.h"

#include <cstdlib>

#include "engine/cuda/attention_kernels.h"
#include "quaver/error.h"

namespace quaver::cuda {

AttentionLibrary::AttentionLibrary(Gpu& gpu) : gpu_(gpu) {
  const char* wish = std::getenv("QUAVER_ATTENTION");
  if (wish != nullptr && std::string(wish) == "own") {
    why_own_ = "QUAVER_ATTENTION=own";
    return;
  }
  try {
    cudnn_ = std::make_unique<CudnnAttention>(gpu, Determinism::required);
  } catch (const Error& error) {
    why_own_ = error.what();
    gpu.notice("attention runs on kernels slower than cuDNN's: " + why_own_ + "; " + error.remedy());
  }
}

std::string AttentionLibrary::describe() const {
  return cudnn_ ? "cuDNN " + cudnn_->version() : "own kernels (" + why_own_ + ")";
}

bool AttentionLibrary::takes(Pass pass, const HeadLayout& layout, Format format) {
  if (!cudnn_ || format != Format::bf16) return false;
  const std::string& obstacle = cudnn_->obstacle(pass, layout);
  if (obstacle.empty()) return true;
  gpu_.notice("attention runs on kernels slower than cuDNN's: " + obstacle);
  return false;
}

void AttentionLibrary::forward(const Attention& op) {
  if (takes(Pass::forward, op.layout, op.qkv.format)) {
    cudnn_->forward(op);
  } else {
    own_attention(gpu_, op);
  }
  if (op.max_logit != nullptr) raise_to_largest(gpu_, op.log_sum, op.max_logit);
}

void AttentionLibrary::backward(const AttentionBackward& op) {
  if (takes(Pass::backward, op.layout, op.qkv.format)) {
    cudnn_->backward(op);
  } else {
    own_attention_backward(gpu_, op);
  }
}

}  // namespace quaver::cuda
