// The parameters of a checkpoint as the tensors of a Hugging Face model. Low-rank adapters are merged into the weights
// that they belong to, or stand apart as PEFT has them: a fused layer's A belongs to each of its parts, with rows of B.
#pragma once

#include <optional>
#include <vector>

#include "interop/hf_layout.h"
#include "io/safetensors.h"

namespace quaver {

struct AdapterTensors {
  HfTensor a;  // [rank × in]
  HfTensor b;  // [out × rank]
};

class CheckpointWeights {
 public:
  // Throws Error where a tensor is missing, of a type that is no parameter's, or of another size than the model's.
  CheckpointWeights(const ModelConfig& model, const SafetensorsFile& file);

  const std::vector<HfTensor>& tensors() const { return tensors_; }
  // Of a tensor of the model, in the file's layout: W + alpha / rank · B·A, in FP32, where it has an adapter.
  std::vector<float> values(const HfTensor& tensor) const;

  std::optional<AdapterTensors> adapter_of(const HfTensor& tensor) const;
  std::vector<float> adapter_values(const HfTensor& factor) const;

 private:
  void check_size(const HfTensor& last) const;  // the parameter must end where its last tensor does

  ModelConfig model_;
  const SafetensorsFile& file_;
  std::vector<HfTensor> tensors_;
};

}  // namespace quaver
