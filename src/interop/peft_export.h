// The low-rank adapters of a trained model as PEFT has them: a folder with adapter_config.json and
// adapter_model.safetensors, to be loaded over the model that they were trained on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "interop/weight_format.h"
#include "io/safetensors.h"
#include "models/model_config.h"

namespace quaver {

struct PeftExport {
  ModelConfig model;               // resolved
  const SafetensorsFile& weights;  // by the names of this library's parameters, F32 or BF16
  std::string base;                // folder or name of the model that was adapted
  WeightFormat dtype = WeightFormat::f32;
};

// Writes the folder, which must be empty or not exist; it appears complete or not at all. Returns its files. Throws
// Error where the model has no adapters.
std::vector<std::filesystem::path> export_peft(const PeftExport& what, const std::filesystem::path& folder);

}  // namespace quaver
