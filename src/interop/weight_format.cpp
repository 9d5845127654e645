#include "interop/weight_format.h"

#include <algorithm>
#include <string>

#include "quaver/error.h"

namespace quaver {

namespace {

struct Names {
  WeightFormat format;
  std::string_view name;
  std::string_view type;
  std::string_view torch;
};

constexpr std::array<Names, all_weight_formats.size()> names{
    {{WeightFormat::f32, "fp32", "F32", "float32"},
     {WeightFormat::f16, "fp16", "F16", "float16"},
     {WeightFormat::bf16, "bf16", "BF16", "bfloat16"},
     {WeightFormat::fp8_tensor, "fp8-tensor", "F8_E4M3", ""},
     {WeightFormat::fp8_channel, "fp8-channel", "F8_E4M3", ""},
     {WeightFormat::fp8_block, "fp8-block", "F8_E4M3", ""},
     {WeightFormat::deepseek_block, "deepseek-block", "F8_E4M3", ""},
     {WeightFormat::nvfp4, "nvfp4", "U8", ""}}};

const Names& names_of(WeightFormat format) { return names[static_cast<std::size_t>(format)]; }

std::optional<WeightFormat> find_high_precision(std::string_view Names::*what, std::string_view text) {
  const auto* const found = std::find_if(names.begin(), names.end(), [&](const Names& entry) {
    return !is_quantized(entry.format) && entry.*what == text;
  });
  if (found == names.end()) return std::nullopt;
  return found->format;
}

QuantSpec current(Format format, Block block, ScaleFormat scale = ScaleFormat::f32) {
  return {.format = format, .block = block, .scale = scale, .policy = ScalePolicy::current};
}

}  // namespace

std::string_view name_of(WeightFormat format) { return names_of(format).name; }

WeightFormat parse_weight_format(std::string_view name) {
  std::string known;
  for (const Names& entry : names) {
    if (entry.name == name) return entry.format;
    known.append(known.empty() ? "" : ", ").append(entry.name);
  }
  throw Error("there is no format '" + std::string(name) + "' of weights", "formats are " + known);
}

QuantSpec spec_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
      return {.format = Format::f32};
    case WeightFormat::f16:
      return {.format = Format::f16};
    case WeightFormat::bf16:
      return {.format = Format::bf16};
    case WeightFormat::fp8_tensor:
      return current(Format::e4m3, block::tensor);
    case WeightFormat::fp8_channel:
      return current(Format::e4m3, block::row);
    case WeightFormat::fp8_block:
    case WeightFormat::deepseek_block:
      return current(Format::e4m3, block::b128x128);
    case WeightFormat::nvfp4:
      return current(Format::e2m1, block::b1x16, ScaleFormat::e4m3_4over6);
  }
  return {};
}

std::string_view safetensors_type(WeightFormat format) { return names_of(format).type; }

std::string_view torch_name(WeightFormat format) { return names_of(format).torch; }

std::optional<WeightFormat> from_safetensors_type(std::string_view type) {
  return find_high_precision(&Names::type, type);
}

std::optional<WeightFormat> from_torch_name(std::string_view name) { return find_high_precision(&Names::torch, name); }

bool can_hold(WeightFormat format, const std::vector<std::int64_t>& shape) {
  return format != WeightFormat::nvfp4 || shape.back() % nvfp4_group == 0;
}

bool is_linear(std::string_view name, const std::vector<std::int64_t>& shape) {
  constexpr std::array<std::string_view, 6> others{"lm_head", "wte", "wpe", "gate", "router", "shared_expert_gate"};
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0 || !name.ends_with(suffix::weight)) return false;
  const std::string layer = layer_of(name);
  const std::string last = layer.substr(layer.rfind('.') + 1);
  const auto has = [&](const char* part) { return last.find(part) != std::string::npos; };
  return std::find(others.begin(), others.end(), last) == others.end() && !has("embed") && !has("norm");
}

std::string layer_of(std::string_view name) {
  if (name.ends_with(suffix::weight)) name.remove_suffix(suffix::weight.size());
  return std::string(name);
}

}  // namespace quaver
