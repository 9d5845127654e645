// A trained model as a Hugging Face model folder: config.json, generation_config.json, safetensors (in shards where
// they are large, quantized where asked for, low-rank adapters merged) and the tokenizer's files that the model came
// with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "interop/hf_layout.h"
#include "interop/weight_format.h"
#include "io/safetensors.h"

namespace quaver {

struct HfExport {
  ModelConfig model;                       // resolved
  const SafetensorsFile& weights;          // by the names of this library's parameters, F32 or BF16
  std::filesystem::path original;          // folder that keep_hf_files() wrote; empty, or not there: none
  std::filesystem::path tokenizer = {};    // folder with the tokenizer's files; empty, or not there: those of original
  WeightFormat dtype = WeightFormat::f32;  // of high precision
  std::optional<WeightFormat> quantize = {};  // of linear layers; embeddings, norms and the head keep `dtype`
  std::uint64_t shard_bytes = 5'000'000'000;  // of weights in a file, unless one tensor has more
};

// Writes the folder, which must be empty or not exist; it appears complete or not at all. Returns its files. Throws
// Error where no architecture of transformers computes what the model does, and where a weight to be quantized is not
// finite.
std::vector<std::filesystem::path> export_hf(const HfExport& what, const std::filesystem::path& folder);

// Copies what an export needs of the folder that a run begins from, so that it need not be kept: config.json,
// generation_config.json and the tokenizer's files.
void keep_hf_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace quaver
