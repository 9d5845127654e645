// The weights of a Hugging Face model folder: one safetensors file, or shards with an index, in high precision or
// quantized. The files are mapped, and read one parameter at a time.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "interop/hf_layout.h"
#include "interop/stored_weight.h"
#include "io/safetensors.h"
#include "nn/parameter.h"

namespace quaver {

// model.safetensors.index.json: the file of every tensor. Throws Error for what is malformed, and for a name that
// leads out of the folder.
std::map<std::string, std::string> parse_hf_index(std::string_view text, std::string_view source);

class HfWeights {
 public:
  // Opens every file. Throws Error, with the file and the tensor, where a file is damaged, missing or holds what the
  // index does not say, and where config.json names a quantization that is not supported.
  explicit HfWeights(const std::filesystem::path& folder);

  struct Found {
    const TensorEntry* tensor = nullptr;  // null: there is none
    const SafetensorsFile* file = nullptr;
  };
  Found find(const std::string& name) const;
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::optional<WeightFormat> quantization() const { return quantization_; }  // as config.json says

  // Checks that the folder holds the tensors of this model, of the right shapes and types, and nothing else: a tensor
  // without a place here would be a model that computes something else. Throws Error with the file and the tensor.
  void check(const ModelConfig& model) const;

  // Fills the parameters of a model that check() accepts with the weights, dequantized where they are stored so:
  // exactly where the parameters are FP32, rounded to nearest where they are BF16. Throws Error where a weight or a
  // scale is not finite.
  void load(const ModelConfig& model, Engine& engine, Parameters& parameters) const;

 private:
  StoredWeight at(const HfTensor& wanted) const;  // checked
  void check_tied_head() const;

  std::filesystem::path folder_;
  std::optional<WeightFormat> quantization_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> places_;  // name → file, tensor
};

// Loads the folder's weights into the parameters of a resolved model that has memory. Checks all before the first.
void load_hf_weights(const std::filesystem::path& folder, const ModelConfig& model, Engine& engine,
                     Parameters& parameters);

}  // namespace quaver
