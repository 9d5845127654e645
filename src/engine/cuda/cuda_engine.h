// The engine of one NVIDIA GPU: every operation of engine.h, enqueued on one stream. What can be cast on the way is
// written by fused kernels; the rest is staged as a wide matrix and cast by the general kernel. One file per group of
// operations; this class only decides which of them a call needs.
#pragma once

#include <cuda_runtime.h>
#include <deque>
#include <unordered_map>

#include "engine/cuda/attention.h"
#include "engine/cuda/cast.h"
#include "engine/cuda/fused_target.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/heads.h"
#include "engine/cuda/optimizer.h"
#include "engine/cuda/product.h"
#include "engine/cuda/recordings.h"
#include "engine/cuda/site_table.h"
#include "engine/cuda/uploads.h"
#include "engine/cuda_module.h"

namespace quaver::cuda {

class CudaEngine final : public Engine {
 public:
  explicit CudaEngine(const CudaOptions& options);
  ~CudaEngine() override;

  std::string name() const override;
  Hardware hardware() const override { return {.kind = HardwareKind::gpu, .architecture = gpu_.architecture()}; }
  Support support(const QuantSpec& a, const QuantSpec& b) override { return products_.support(a, b); }
  Format wide_format() const override { return wide_; }
  Sharing sharing() const override { return Sharing::apart; }
  Accumulators accumulators() const override { return cuda::gpu_accumulators(); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void upload(const void* host, void* device, std::size_t bytes) override;
  void download(const void* device, void* host, std::size_t bytes) override;
  void synchronize() override { gpu_.synchronize(); }
  std::size_t free_memory() const override;
  std::size_t workspace_bytes() const override { return gpu_.workspace_bytes(); }
  void publish(std::span<Site* const> sites) override { sites_.publish(sites); }
  void collect(std::span<Site* const> sites) override { sites_.collect(sites); }
  void repeat(std::uint64_t key, const std::function<void()>& work) override { recordings_.repeat(key, work); }

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
  bool can_fuse(const QuantizedTensor& out, const Casting& casting) const;
  FusedTarget fused_target(const QuantizedTensor& out, const Casting& casting);
  CastTarget cast_target(const QuantizedTensor& out, const Casting& casting);
  View staging(Size rows, Size cols);
  bool norm_has_room(Size width, int targets);  // says so where it has not

  // Has produce(target) write the tensor, directly or by way of the staging matrix.
  template <class Produce>
  void write(QuantizedTensor& out, const Casting& casting, bool fuse, Produce&& produce);

  void chunk_backward(const CrossEntropy& op, Size first, View logits, const Operand& x_columns);
  CodeMatrix cut_columns(const CodeMatrix& matrix, Size first, Size count);

  Format wide_;
  Size logits_limit_;
  Gpu gpu_;
  SiteTable sites_;
  Uploads uploads_;
  Recordings recordings_;
  Products products_;
  AttentionLibrary attention_;
  RotaryTables rotary_;
  GradientMeter meter_;
  std::shared_ptr<std::byte> one_;  // the float 1 on the device
};

}  // namespace quaver::cuda
