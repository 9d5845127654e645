// The reference engine: every operation on this machine's CPU, OpenMP over tokens, OpenBLAS for GEMMs. One file per
// group of operations.
#pragma once

#include "engine/cpu/cpu_device.h"
#include "engine/cpu/workspace.h"
#include "engine/engine.h"

namespace quaver {

// The operations, on as many threads as OpenMP and OpenBLAS give.
class CpuOperations final : public Runs<Operations> {
 public:
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

  const Workspace& workspace() const { return workspace_; }

 private:
  Workspace workspace_;
};

// The threads of this process are its owner's: an engine has its own number of them for the time of an operation.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int openmp_before_;
};

class CpuEngine final : public RunsEach<CpuEngine, Engine> {
 public:
  explicit CpuEngine(int threads);

  std::string name() const override;
  Device& device() override { return device_; }

  template <class Operation>
  void each(const Operation& op) {
    const ThreadScope scope(threads_);
    operations_.run(op);
  }

 private:
  int threads_;
  CpuOperations operations_;
  CpuDevice device_;
};

// Rows [first, first + count) of a high-precision matrix as FP32: the matrix itself where it is FP32, else decoded into
// `buffer`.
const float* rows_as_floats(const View& x, Size first, Size count, float* buffer);

}  // namespace quaver
