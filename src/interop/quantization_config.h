// `quantization_config` of config.json: how the weights of a model folder are quantized, read and written as
// compressed-tensors and DeepSeek define it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/weight_format.h"

namespace quaver {

class Fields;

// The format of the quantized weights; nothing where config.json has no such entry. Layers that it lists as left in
// high precision need not be asked for here: the types of their tensors say so. Throws Error, naming the source and the
// field, for every other method and format.
std::optional<WeightFormat> read_quantization(const Fields& config);
std::optional<WeightFormat> parse_quantization(std::string_view config, std::string_view source);

// The type that config.json says of weights in high precision, by either of its names; nothing where it says none.
std::optional<WeightFormat> parse_torch_dtype(std::string_view config, std::string_view source);

// Of NVFP4: in high precision, or in NVFP4 with a global scale that each layer's input_global_scale gives.
enum class Nvfp4Inputs : std::uint8_t { high_precision, nvfp4 };

struct QuantizationEntry {
  WeightFormat format = WeightFormat::bf16;  // high precision: the entry is removed, and torch_dtype set
  std::vector<std::string> high_precision;   // linear layers that are not quantized
  Nvfp4Inputs nvfp4_inputs = Nvfp4Inputs::high_precision;
};

// The text of config.json with that entry in place of its own.
std::string with_quantization(std::string_view config, const QuantizationEntry& entry);

}  // namespace quaver
