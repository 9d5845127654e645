#include "engine/cuda/attention/attention.h"

#include <cstdlib>

#include "engine/cuda/attention/attention_hopper.h"
#include "engine/cuda/attention/attention_kernels.h"
#include "engine/cuda/attention/attention_sizes.h"
#include "quaver/error.h"

namespace quaver::cuda {

AttentionLibrary::AttentionLibrary(Gpu& gpu, Format float_as) : gpu_(gpu), float_as_(float_as) {
  const char* value = std::getenv("QUAVER_ATTENTION");
  const std::string wish = value == nullptr ? "" : value;
  if (wish == "own") {
    wish_ = Wish::own;
    why_own_ = "QUAVER_ATTENTION=own";
    return;
  }
  if (wish == "cudnn") {
    wish_ = Wish::cudnn;
  } else if (!wish.empty()) {
    throw Error("QUAVER_ATTENTION=" + wish + " is not known", "choose own or cudnn, or leave it unset for the fastest");
  }
  try {
    cudnn_ = std::make_unique<CudnnAttention>(gpu, Determinism::required);
  } catch (const Error& error) {
    if (wish_ == Wish::cudnn) throw;
    why_own_ = error.what();
    gpu.notice("attention runs on kernels slower than cuDNN's: " + why_own_ + "; " + error.remedy());
  }
}

std::string AttentionLibrary::describe() const {
  return cudnn_ ? "cuDNN " + cudnn_->version() : "own kernels (" + why_own_ + ")";
}

bool AttentionLibrary::hopper_takes(const HeadLayout& layout, Format format) const {
  return is_fast_attention_format(format) && layout.tokens() > 0 &&
         hopper_attention_supports(gpu_.architecture(), layout);
}

template <class Operation>
bool AttentionLibrary::runs_packed(const Operation& op) {
  if (op.document_starts.empty()) return false;
  if (cudnn_ && is_fast_attention_format(op.qkv.format)) {
    gpu_.notice("attention runs on kernels slower than cuDNN's: rows hold several documents (data.pack)");
  }
  return true;
}

bool AttentionLibrary::cudnn_takes(Pass pass, const HeadLayout& layout, Format format) {
  return cudnn_ && is_fast_attention_format(format) && cudnn_->obstacle(pass, layout, format).empty();
}

void AttentionLibrary::tell_what_is_slower(Pass pass, const HeadLayout& layout, Format format) {
  if (!cudnn_ || !is_fast_attention_format(format)) return;
  gpu_.notice("attention runs on kernels slower than cuDNN's: " + cudnn_->obstacle(pass, layout, format));
}

void AttentionLibrary::forward(const Attention& op) {
  if (runs_packed(op)) {
    own_attention(gpu_, op, float_as_);
  } else if (cudnn_takes(Pass::forward, op.layout, op.qkv.format)) {
    cudnn_->forward(op);
  } else {
    tell_what_is_slower(Pass::forward, op.layout, op.qkv.format);
    own_attention(gpu_, op, float_as_);
  }
  if (op.max_logit != nullptr) raise_to_largest(gpu_, op.log_sum, op.max_logit);
}

void AttentionLibrary::backward(const AttentionBackward& op) {
  if (runs_packed(op)) return own_attention_backward(gpu_, op, float_as_);
  const bool hopper = hopper_takes(op.layout, op.qkv.format);
  const bool faster = hopper && wish_ == Wish::fastest && hopper_attention_is_faster(op.layout);
  if (!faster && cudnn_takes(Pass::backward, op.layout, op.qkv.format)) {
    cudnn_->backward(op);
  } else if (hopper) {
    hopper_attention_backward(gpu_, op);
  } else {
    tell_what_is_slower(Pass::backward, op.layout, op.qkv.format);
    own_attention_backward(gpu_, op, float_as_);
  }
}

}  // namespace quaver::cuda
