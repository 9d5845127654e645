// The reference engine: every operation of engine.h on this machine's processors, OpenMP over tokens, OpenBLAS for
// products. One file per group of operations.
#pragma once

#include "engine/cpu/workspace.h"
#include "engine/engine.h"

namespace quaver {

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(int threads);

  std::string name() const override;
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void upload(const void* host, void* device, std::size_t bytes) override;
  void download(const void* device, void* host, std::size_t bytes) override;

  std::size_t free_memory() const override;
  std::size_t workspace_bytes() const override { return workspace_.bytes(); }

  void fill_zero(View x) override;
  void quantize(View x, QuantizedTensor& out, const Casting& casting, float factor = 1) override;
  void sum_columns(View x, View sums) override;
  void matmul(const Matmul& op) override;
  void embed(const Embed& op) override;
  void embed_backward(const EmbedBackward& op) override;
  void add_norm(const AddNorm& op) override;
  void add_norm_backward(const AddNormBackward& op) override;
  void norm_add(const NormAdd& op) override;
  void norm_add_backward(const NormAddBackward& op) override;
  void combine(const Combine& op) override;
  void prepare_heads(const PrepareHeads& op) override;
  void prepare_heads_backward(const PrepareHeadsBackward& op) override;
  void attention(const Attention& op) override;
  void attention_backward(const AttentionBackward& op) override;
  void activation(const Activation& op) override;
  void activation_backward(const ActivationBackward& op) override;
  void cross_entropy(const CrossEntropy& op) override;
  void measure_gradients(const MeasureGradients& op) override;
  void adamw(const AdamW& op) override;

 private:
  int threads_;
  Workspace workspace_;
};

// Rows [first, first + count) of a wide matrix as FP32: the matrix itself where it is FP32, else decoded into `buffer`.
const float* rows_as_floats(const View& x, Size first, Size count, float* buffer);

}  // namespace quaver
