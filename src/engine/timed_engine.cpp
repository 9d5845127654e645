#include "engine/timed_engine.h"

namespace quaver {

std::string_view name_of(KernelKind kind) {
  switch (kind) {
    case KernelKind::product_forward:
      return "products, forward";
    case KernelKind::product_input_gradient:
      return "products, input gradient";
    case KernelKind::product_weight_gradient:
      return "products, weight gradient";
    case KernelKind::attention:
      return "attention";
    case KernelKind::norm:
      return "norms";
    case KernelKind::activation:
      return "activations";
    case KernelKind::cast:
      return "casts";
    case KernelKind::loss:
      return "head and loss";
    case KernelKind::embedding:
      return "embedding";
    case KernelKind::heads:
      return "heads";
    case KernelKind::optimizer:
      return "optimiser";
    case KernelKind::copy:
      return "copies";
  }
  return "";
}

double TimedEngine::total_seconds() const {
  double total = 0;
  for (const KernelTime& time : times_) total += time.seconds;
  return total;
}

KernelKind TimedEngine::kind_of(const Matmul& op) const {
  if (op.accumulate) return KernelKind::product_weight_gradient;
  return direction_ == Direction::forward ? KernelKind::product_forward : KernelKind::product_input_gradient;
}

// A recording would hide the operations from us.
void TimedEngine::repeat(std::uint64_t key, const std::function<void()>& work) {
  if (mode_ == Mode::idle) {
    engine_.repeat(key, work);
  } else {
    work();
  }
}

void TimedEngine::upload(const void* host, void* device, std::size_t bytes) {
  timed(KernelKind::copy, [&] { engine_.upload(host, device, bytes); });
}
void TimedEngine::download(const void* device, void* host, std::size_t bytes) {
  timed(KernelKind::copy, [&] { engine_.download(device, host, bytes); });
}
void TimedEngine::publish(std::span<Site* const> sites) {
  timed(KernelKind::copy, [&] { engine_.publish(sites); });
}
void TimedEngine::collect(std::span<Site* const> sites) {
  timed(KernelKind::copy, [&] { engine_.collect(sites); });
}

void TimedEngine::fill_zero(View x) {
  timed(KernelKind::copy, [&] { engine_.fill_zero(x); });
}
void TimedEngine::quantize(View x, QuantizedTensor& out, const Casting& casting, float factor) {
  timed(KernelKind::cast, [&] { engine_.quantize(x, out, casting, factor); });
}
void TimedEngine::sum_columns(View x, View sums) {
  timed(KernelKind::cast, [&] { engine_.sum_columns(x, sums); });
}
void TimedEngine::matmul(const Matmul& op) {
  timed(kind_of(op), [&] { engine_.matmul(op); });
}
void TimedEngine::embed(const Embed& op) {
  direction_ = Direction::forward;
  timed(KernelKind::embedding, [&] { engine_.embed(op); });
}
void TimedEngine::embed_backward(const EmbedBackward& op) {
  timed(KernelKind::embedding, [&] { engine_.embed_backward(op); });
}
void TimedEngine::add_norm(const AddNorm& op) {
  timed(KernelKind::norm, [&] { engine_.add_norm(op); });
}
void TimedEngine::add_norm_backward(const AddNormBackward& op) {
  timed(KernelKind::norm, [&] { engine_.add_norm_backward(op); });
}
void TimedEngine::norm_add(const NormAdd& op) {
  timed(KernelKind::norm, [&] { engine_.norm_add(op); });
}
void TimedEngine::norm_add_backward(const NormAddBackward& op) {
  timed(KernelKind::norm, [&] { engine_.norm_add_backward(op); });
}
void TimedEngine::combine(const Combine& op) {
  timed(KernelKind::copy, [&] { engine_.combine(op); });
}
void TimedEngine::prepare_heads(const PrepareHeads& op) {
  timed(KernelKind::heads, [&] { engine_.prepare_heads(op); });
}
void TimedEngine::prepare_heads_backward(const PrepareHeadsBackward& op) {
  timed(KernelKind::heads, [&] { engine_.prepare_heads_backward(op); });
}
void TimedEngine::attention(const Attention& op) {
  timed(KernelKind::attention, [&] { engine_.attention(op); });
}
void TimedEngine::attention_backward(const AttentionBackward& op) {
  timed(KernelKind::attention, [&] { engine_.attention_backward(op); });
}
void TimedEngine::activation(const Activation& op) {
  timed(KernelKind::activation, [&] { engine_.activation(op); });
}
void TimedEngine::activation_backward(const ActivationBackward& op) {
  timed(KernelKind::activation, [&] { engine_.activation_backward(op); });
}
void TimedEngine::cross_entropy(const CrossEntropy& op) {
  direction_ = Direction::backward;
  timed(KernelKind::loss, [&] { engine_.cross_entropy(op); });
}
void TimedEngine::measure_gradients(const MeasureGradients& op) {
  timed(KernelKind::optimizer, [&] { engine_.measure_gradients(op); });
}
void TimedEngine::adamw(const AdamW& op) {
  timed(KernelKind::optimizer, [&] { engine_.adamw(op); });
}

}  // namespace quaver
