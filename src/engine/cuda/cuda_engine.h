// The engine of one NVIDIA GPU: every operation, enqueued on one stream. Fused kernels cast their own results where
// they can (fusion.h); the rest is staged in high precision and cast by the general kernel. One folder per group of
// operations; this class only decides which kernels an operation needs.
#pragma once

#include <cuda_runtime.h>
#include <deque>
#include <unordered_map>

#include "engine/cuda/attention/attention.h"
#include "engine/cuda/attention/heads.h"
#include "engine/cuda/cast/cast.h"
#include "engine/cuda/cast/fused_target.h"
#include "engine/cuda/gemm/gemm.h"
#include "engine/cuda/optimizer/optimizer.h"
#include "engine/cuda/runtime/gpu.h"
#include "engine/cuda/runtime/site_table.h"
#include "engine/cuda/runtime/stream_device.h"
#include "engine/cuda_module.h"

namespace quaver::cuda {

class CudaEngine final : public GpuEngine {
 public:
  explicit CudaEngine(const CudaOptions& options);
  ~CudaEngine() override;

  std::string name() const override;
  Device& device() override { return device_; }
  Support support(const QuantSpec& a, const QuantSpec& b) override { return gemms_.support(a, b); }
  Format high_precision() const override { return high_; }
  Sharing sharing() const override { return Sharing::apart; }
  Accumulators accumulators() const override { return gpu_accumulators(); }
  std::string tuning() const override { return gemms_.tuning(); }
  void fix_tuning(const std::string& text) override { gemms_.fix_tuning(text); }
  void* own_stream() const override { return own_stream_; }
  void on_stream(void* stream, const std::function<void()>& work) override;
  void upload_scales(std::span<Site* const> sites) override { sites_.upload_scales(sites); }
  void fetch_statistics(std::span<Site* const> sites, const std::function<void()>& then) override {
    sites_.fetch_statistics(sites, then);
  }
  void peek_statistics(std::span<Site* const> sites, const std::function<void()>& then) override {
    sites_.peek_statistics(sites, then);
  }
  bool advance_scales(const AdvanceScales& op) override {
    sites_.advance_scales(op);
    return true;
  }

  void run(const FillZero& op) override;
  void run(const Quantize& op) override;
  void run(const Dequantize& op) override;
  void run(const TransposeCodes& op) override;
  void run(const SumColumns& op) override;
  void run(const Gemm& op) override;
  void run(const Embed& op) override;
  void run(const EmbedBackward& op) override;
  void run(const AddNorm& op) override;
  void run(const AddNormBackward& op) override;
  void run(const NormAdd& op) override;
  void run(const NormAddBackward& op) override;
  void run(const Combine& op) override;
  void run(const PrepareHeads& op) override;
  void run(const PrepareHeadsBackward& op) override;
  void run(const Attention& op) override;
  void run(const AttentionBackward& op) override;
  void run(const StoreKeyValues& op) override;
  void run(const AttentionDecode& op) override;
  void run(const Activation& op) override;
  void run(const ActivationBackward& op) override;
  void run(const CrossEntropy& op) override;
  void run(const SumInOrder& op) override;
  void run(const MeasureGradients& op) override;
  void run(const ClipGradients& op) override;
  void run(const AdamW& op) override;
  void run(const Orthogonalize& op) override;
  void run(const Muon& op) override;
  void run(const Patches& op) override;
  void run(const PatchesBackward& op) override;
  void run(const BatchNorm& op) override;
  void run(const BatchNormBackward& op) override;
  void run(const AveragePool& op) override;
  void run(const AveragePoolBackward& op) override;
  void run(const MovingAverage& op) override;

 private:
  bool can_fuse(const QuantizedTensor& out, const Casting& casting) const;
  bool fuses_without_sums(const QuantizedTensor& out, const Casting& casting) const;
  FusedTarget fused_target(const QuantizedTensor& out, const Casting& casting);
  CastTarget cast_target(const QuantizedTensor& out, const Casting& casting);
  FusedTarget high_precision_target(View matrix) const;
  View staging(Size rows, Size cols);
  bool norm_has_room(Size width, int targets);  // gives notice where it has none

  // Has produce(target) write the tensor, directly or through the staging matrix.
  template <class Produce>
  void write(QuantizedTensor& out, const Casting& casting, bool fuse, Produce&& produce);

  // Computes and casts in whole tiles; false: not for this target.
  bool cast_in_tiles(const AddNorm& op);
  bool cast_in_tiles(const ActivationBackward& op);
  void chunk_backward(const CrossEntropy& op, Size first, View logits, const Operand& x_columns);
  CodeMatrix cut_columns(const CodeMatrix& matrix, Size first, Size count);

  int index_;
  Format high_;
  Size logits_limit_;
  Gpu gpu_;
  cudaStream_t own_stream_;
  cudaStream_t latest_stream_;         // that an on_stream used
  cudaEvent_t latest_work_ = nullptr;  // its end
  StreamDevice device_;
  SiteTable sites_;
  Gemms gemms_;
  AttentionLibrary attention_;
  RotaryTables rotary_;
  GradientMeter meter_;
  std::shared_ptr<std::byte> one_;  // the float 1 on the device
};

}  // namespace quaver::cuda
