// An engine that does nothing: a step run on it, over an arena without memory, tells how much memory a real one needs.
#pragma once

#include "engine/engine.h"

namespace quaver {

class PlanningEngine final : public Engine {
 public:
  explicit PlanningEngine(const Engine& planned) : wide_(planned.wide_format()), sharing_(planned.sharing()) {}

  std::string name() const override { return "planning"; }
  Format wide_format() const override { return wide_; }
  Sharing sharing() const override { return sharing_; }
  std::shared_ptr<std::byte> allocate(std::size_t) override { return nullptr; }
  void upload(const void*, void*, std::size_t) override {}
  void download(const void*, void*, std::size_t) override {}

  void fill_zero(View) override {}
  std::size_t free_memory() const override { return 0; }
  std::size_t workspace_bytes() const override { return 0; }
  void quantize(View, QuantizedTensor&, const Casting&, float) override {}
  void sum_columns(View, View) override {}
  void matmul(const Matmul&) override {}
  void embed(const Embed&) override {}
  void embed_backward(const EmbedBackward&) override {}
  void add_norm(const AddNorm&) override {}
  void add_norm_backward(const AddNormBackward&) override {}
  void norm_add(const NormAdd&) override {}
  void norm_add_backward(const NormAddBackward&) override {}
  void combine(const Combine&) override {}
  void prepare_heads(const PrepareHeads&) override {}
  void prepare_heads_backward(const PrepareHeadsBackward&) override {}
  void attention(const Attention&) override {}
  void attention_backward(const AttentionBackward&) override {}
  void activation(const Activation&) override {}
  void activation_backward(const ActivationBackward&) override {}
  void cross_entropy(const CrossEntropy&) override {}
  void measure_gradients(const MeasureGradients&) override {}
  void adamw(const AdamW&) override {}

 private:
  Format wide_;
  Sharing sharing_;
};

}  // namespace quaver
