// The reference engine: every operation on this machine's CPU, OpenMP over tokens, OpenBLAS for GEMMs. One file per
// group of operations.
#pragma once

#include "engine/cpu/cpu_device.h"
#include "engine/cpu/workspace.h"
#include "engine/engine.h"

namespace quaver {

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(int threads);

  std::string name() const override;
  Device& device() override { return device_; }

  void run(const FillZero& op) override;
  void run(const Quantize& op) override;
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
  void run(const Activation& op) override;
  void run(const ActivationBackward& op) override;
  void run(const CrossEntropy& op) override;
  void run(const MeasureGradients& op) override;
  void run(const AdamW& op) override;

 private:
  int threads_;
  Workspace workspace_;
  CpuDevice device_;
};

// Rows [first, first + count) of a high-precision matrix as FP32: the matrix itself where it is FP32, else decoded into
// `buffer`.
const float* rows_as_floats(const View& x, Size first, Size count, float* buffer);

}  // namespace quaver
