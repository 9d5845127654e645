// The formats that a Hugging Face model folder stores weights in: high precision, or quantized as compressed-tensors
// (FP8 with scales per tensor, channel or block, and NVFP4) or DeepSeek (FP8 by blocks) do. What each is called in a
// file, and how the weights are cast.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/quant_spec.h"

namespace quaver {

enum class WeightFormat : std::uint8_t { f32, f16, bf16, fp8_tensor, fp8_channel, fp8_block, deepseek_block, nvfp4 };

inline constexpr std::array all_weight_formats{
    WeightFormat::f32,         WeightFormat::f16,       WeightFormat::bf16,           WeightFormat::fp8_tensor,
    WeightFormat::fp8_channel, WeightFormat::fp8_block, WeightFormat::deepseek_block, WeightFormat::nvfp4};

constexpr bool is_quantized(WeightFormat format) { return format >= WeightFormat::fp8_tensor; }

std::string_view name_of(WeightFormat format);            // "fp32", "fp8-channel"
WeightFormat parse_weight_format(std::string_view name);  // throws Error with the known names
QuantSpec spec_of(WeightFormat format);                   // scales are current: from the weights' own amax
std::string_view safetensors_type(WeightFormat format);   // of the codes: "BF16", "F8_E4M3"; NVFP4 is packed in "U8"
std::string_view torch_name(WeightFormat format);         // "bfloat16"; high precision alone
std::optional<WeightFormat> from_safetensors_type(std::string_view type);  // F32, F16 and BF16; nothing for others
std::optional<WeightFormat> from_torch_name(std::string_view name);        // "float32" …; nothing for others

// Blocks of NVFP4, which its files cannot hold a part of.
inline constexpr Size nvfp4_group = 16;
bool can_hold(WeightFormat format, const std::vector<std::int64_t>& shape);

// By name and shape, whatever the architecture: a matrix "….weight" that is no embedding, norm, head or router. These
// few, to which a model is most sensitive, stay in high precision.
bool is_linear(std::string_view name, const std::vector<std::int64_t>& shape);

// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
std::string layer_of(std::string_view name);

// What stands behind a weight's name, "layer.weight", for the tensors stored with it.
namespace suffix {
inline constexpr std::string_view weight = ".weight";
inline constexpr std::string_view packed = "_packed";              // the codes of NVFP4, in place of the weight
inline constexpr std::string_view scale = "_scale";                // compressed-tensors: multiplies
inline constexpr std::string_view scale_inv = "_scale_inv";        // DeepSeek: multiplies too, despite its name
inline constexpr std::string_view global_scale = "_global_scale";  // NVFP4: divides
inline constexpr std::string_view input_scale = ".input_scale";    // in place of ".weight": of static activations
inline constexpr std::string_view input_global = ".input_global_scale";
}  // namespace suffix

}  // namespace quaver
