#include "interop/checkpoint_weights.h"

#include <fmt/format.h>

#include "interop/tensor_values.h"
#include "interop/weight_format.h"
#include "quaver/error.h"

namespace quaver {

namespace {

constexpr std::string_view weight_end = ".weight";

StoredParameter stored(const SafetensorsFile& weights, const std::string& name) {
  const TensorEntry& tensor = weights.at(name);
  const auto format = from_safetensors_type(tensor.dtype);
  if (!format) {
    throw Error(fmt::format("{}: {} is of type {}", weights.path().string(), name, tensor.dtype),
                "export a checkpoint whose weights are F32 or BF16");
  }
  return {spec_of(*format).format, tensor.data};
}

std::string without_end(const std::string& name) { return name.substr(0, name.size() - weight_end.size()); }

struct Factors {
  std::vector<float> a;
  std::vector<float> b;
  Size rank = 0;
  float factor = 1;
};

void add_product(const Factors& of, const HfTensor& tensor, std::vector<float>& values) {
  const bool transposed = tensor.layout == HfLayout::transposed;
#pragma omp parallel for schedule(static)
  for (Size row = 0; row < tensor.rows; ++row) {
    std::vector<float> sums(static_cast<std::size_t>(tensor.cols));
    for (Size k = 0; k < of.rank; ++k) {
      const float b = of.b[static_cast<std::size_t>(row * of.rank + k)];
      const float* a = of.a.data() + k * tensor.cols;
      for (Size col = 0; col < tensor.cols; ++col) sums[static_cast<std::size_t>(col)] += b * a[col];
    }
    for (Size col = 0; col < tensor.cols; ++col) {
      const Size at = transposed ? col * tensor.rows + row : row * tensor.cols + col;
      values[static_cast<std::size_t>(at)] += of.factor * sums[static_cast<std::size_t>(col)];
    }
  }
}

}  // namespace

CheckpointWeights::CheckpointWeights(const ModelConfig& model, const SafetensorsFile& file)
    : model_(model), file_(file), tensors_(hf_tensors(model)) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (i + 1 < tensors_.size() && tensors_[i + 1].parameter == tensors_[i].parameter) continue;
    check_size(tensors_[i]);
    if (const auto adapter = adapter_of(tensors_[i])) {
      check_size(adapter->a);
      check_size(adapter->b);
    }
  }
}

void CheckpointWeights::check_size(const HfTensor& last) const {
  const StoredParameter parameter = stored(file_, last.parameter);
  const Size needed = (last.offset + last.count()) * info(parameter.format).storage_bits / 8;
  if (parameter.bytes.size() == static_cast<std::size_t>(needed)) return;
  throw Error(fmt::format("{}: {} holds {} bytes, and the model needs {}", file_.path().string(), last.parameter,
                          parameter.bytes.size(), needed),
              "the checkpoint belongs to a model of another shape");
}

std::optional<AdapterTensors> CheckpointWeights::adapter_of(const HfTensor& tensor) const {
  if (model_.lora_rank == 0 || tensor.layout == HfLayout::vector) return std::nullopt;
  const std::string here = without_end(tensor.parameter);
  if (file_.find(here + ".lora_A.weight") == nullptr) return std::nullopt;
  const std::string there = "base_model.model." + without_end(tensor.name);
  const Size rank = model_.lora_rank;
  return AdapterTensors{.a = {.name = there + ".lora_A.weight",
                              .parameter = here + ".lora_A.weight",
                              .rows = rank,
                              .cols = tensor.cols,
                              .layout = HfLayout::matrix},
                        .b = {.name = there + ".lora_B.weight",
                              .parameter = here + ".lora_B.weight",
                              .offset = tensor.offset / tensor.cols * rank,
                              .rows = tensor.rows,
                              .cols = rank,
                              .layout = HfLayout::matrix}};
}

std::vector<float> CheckpointWeights::adapter_values(const HfTensor& factor) const {
  return tensor_values(factor, stored(file_, factor.parameter));
}

std::vector<float> CheckpointWeights::values(const HfTensor& tensor) const {
  std::vector<float> all = tensor_values(tensor, stored(file_, tensor.parameter));
  if (const auto adapter = adapter_of(tensor)) {
    add_product({.a = adapter_values(adapter->a),
                 .b = adapter_values(adapter->b),
                 .rank = model_.lora_rank,
                 .factor = static_cast<float>(model_.lora_alpha / static_cast<double>(model_.lora_rank))},
                tensor, all);
  }
  return all;
}

}  // namespace quaver
