#include "interop/peft_export.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "interop/checkpoint_weights.h"
#include "interop/weight_cast.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

// "model.layers.0.self_attn.q_proj" of its weight, and "q_proj".
std::string module_of(const HfTensor& tensor) { return tensor.name.substr(0, tensor.name.rfind('.')); }
std::string last_name(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// PEFT adapts every module whose name ends so. Where that would be more than have an adapter, whole names.
std::set<std::string> target_modules(const CheckpointWeights& weights) {
  std::set<std::string> whole;
  std::set<std::string> ends;
  std::set<std::string> others;
  for (const HfTensor& tensor : weights.tensors()) {
    const std::string module = module_of(tensor);
    if (weights.adapter_of(tensor)) {
      whole.insert(module);
      ends.insert(last_name(module));
    } else if (tensor.layout != HfLayout::vector) {
      others.insert(last_name(module));
    }
  }
  const bool clear = std::ranges::none_of(ends, [&](const std::string& end) { return others.contains(end); });
  return clear ? ends : whole;
}

// PEFT declares alpha as an integer.
nlohmann::ordered_json whole_where_possible(double value) {
  const auto whole = std::llround(value);
  if (static_cast<double>(whole) == value) return whole;
  return value;
}

std::string config_of(const PeftExport& what, const CheckpointWeights& weights) {
  const nlohmann::ordered_json config{{"peft_type", "LORA"},
                                      {"task_type", "CAUSAL_LM"},
                                      {"base_model_name_or_path", what.base},
                                      {"r", what.model.lora_rank},
                                      {"lora_alpha", whole_where_possible(what.model.lora_alpha)},
                                      {"lora_dropout", 0.0},
                                      {"bias", "none"},
                                      {"fan_in_fan_out", what.model.family == Family::gpt},
                                      {"target_modules", target_modules(weights)},
                                      {"use_rslora", false},
                                      {"use_dora", false},
                                      {"inference_mode", true}};
  return config.dump(2) + "\n";
}

std::vector<HfTensor> adapter_tensors(const CheckpointWeights& weights) {
  std::vector<HfTensor> factors;
  for (const HfTensor& tensor : weights.tensors()) {
    if (const auto adapter = weights.adapter_of(tensor)) {
      factors.push_back(adapter->a);
      factors.push_back(adapter->b);
    }
  }
  if (!factors.empty()) return factors;
  throw Error("the run has no adapters to export", "train with lora.rank, or leave --adapter out to export the model");
}

}  // namespace

std::vector<fs::path> export_peft(const PeftExport& what, const fs::path& folder) {
  const CheckpointWeights weights(what.model, what.weights);
  const std::vector<HfTensor> factors = adapter_tensors(weights);
  const auto target_of = [&](const HfTensor& factor) { return WeightTarget{factor.name, what.dtype, factor.shape()}; };
  WeightFiles::File file{.name = "adapter_model.safetensors", .tensors = {}};
  for (const HfTensor& factor : factors) {
    for (TensorSpec& part : stored_tensors(target_of(factor))) file.tensors.push_back(std::move(part));
  }
  StagedFolder staged(folder);
  WeightFiles files(staged, {file});
  for (const HfTensor& factor : factors) {
    const std::vector<float> all = weights.adapter_values(factor);
    const auto read = [&](const Band& band, float* out) {
      std::copy_n(all.data() + band.first * factor.cols, band.count * factor.cols, out);
    };
    WeightCast(target_of(factor), 0).write(read, files);
  }
  files.finish(WeightFiles::Index::none);
  write_file_atomically(staged / "adapter_config.json", config_of(what, weights));
  return staged.commit();
}

}  // namespace quaver
