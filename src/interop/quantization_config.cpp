#include "interop/quantization_config.h"

#include <array>
#include <fmt/format.h>
#include <utility>

#include "interop/json_fields.h"
#include "quaver/error.h"

namespace quaver {

using nlohmann::json;

namespace {

constexpr const char* quantization_key = "quantization_config";
constexpr const char* fp8_format = "float-quantized";
constexpr const char* nvfp4_format = "nvfp4-pack-quantized";
constexpr const char* readable_formats =
    "FP8 of DeepSeek (blocks of 128x128) and of compressed-tensors (tensor, channel, block), and NVFP4 of "
    "compressed-tensors can be read: use a copy of the model in one of these, or in BF16";

[[noreturn]] void not_readable(const Fields& fields, const std::string& what) {
  throw Error(fmt::format("{}: {}", fields.source(), what), readable_formats);
}

const json& object_at(const Fields& fields, const char* name) {
  const json* value = fields.find(name);
  if (value == nullptr) fields.missing(name);
  if (!value->is_object()) fields.wrong(name, "an object");
  return *value;
}

// [128, 128]; compressed-tensors has written it as text too.
void check_block(const Fields& fields, const char* name) {
  const json* value = fields.find(name);
  if (value == nullptr) fields.missing(name);
  if (*value != json({128, 128}) && *value != "128x128")
    not_readable(fields, fmt::format("\"{}\" is not [128, 128]", name));
}

WeightFormat read_deepseek(const Fields& fields) {
  if (fields.text("fmt", "e4m3") != "e4m3") not_readable(fields, "\"fmt\" is not \"e4m3\"");
  if (!fields.has("weight_block_size")) not_readable(fields, "FP8 without \"weight_block_size\" is not supported");
  check_block(fields, "weight_block_size");
  return WeightFormat::deepseek_block;
}

WeightFormat read_fp8_strategy(const Fields& weights) {
  const std::string strategy = weights.text("strategy");
  if (strategy == "tensor") return WeightFormat::fp8_tensor;
  if (strategy == "channel") return WeightFormat::fp8_channel;
  if (strategy != "block") not_readable(weights, fmt::format("strategy \"{}\" is not supported", printable(strategy)));
  check_block(weights, "block_structure");
  return WeightFormat::fp8_block;
}

WeightFormat read_group(const Fields& weights, const std::string& format) {
  const bool nvfp4 = format == nvfp4_format;
  const Size bits = weights.integer("num_bits", 64);
  const std::string type = weights.text("type", "int");
  if (type != "float" || bits != (nvfp4 ? 4 : 8)) {
    not_readable(weights,
                 fmt::format("weights of type \"{}\" with {} bits are not those of {}", printable(type), bits, format));
  }
  if (!weights.boolean("symmetric", true)) not_readable(weights, "asymmetric weights are not supported");
  if (weights.boolean("dynamic", false))
    not_readable(weights, "weights that are quantized dynamically are not stored so");
  if (!nvfp4) return read_fp8_strategy(weights);
  if (weights.text("strategy") != "tensor_group" || weights.integer("group_size", 1 << 20) != nvfp4_group) {
    not_readable(weights, "NVFP4 has strategy \"tensor_group\" with a \"group_size\" of 16");
  }
  return WeightFormat::nvfp4;
}

WeightFormat read_compressed_tensors(const Fields& fields) {
  const std::string format = fields.text("format");
  if (format != fp8_format && format != nvfp4_format) {
    not_readable(fields, fmt::format("format \"{}\" is not supported", printable(format)));
  }
  if (const json* sparse = fields.find("sparsity_config")) {
    const bool dense = sparse->is_object() && (sparse->empty() || sparse->value("format", json()) == "dense");
    if (!dense) not_readable(fields, "\"sparsity_config\": sparse weights are not supported");
  }
  if (const json* transform = fields.find("transform_config")) {
    const bool none =
        transform->is_object() && (transform->empty() || transform->value("config_groups", json()).empty());
    if (!none) not_readable(fields, "\"transform_config\": weights that are rotated are not supported");
  }
  std::optional<WeightFormat> all;
  for (const auto& [name, group] : object_at(fields, "config_groups").items()) {
    const std::string where = fmt::format("{}: config_groups.{}", fields.source(), printable(name));
    if (!group.is_object()) throw Error(where + ": not an object", readable_formats);
    const Fields inner(group, where);
    if (!inner.has("weights")) continue;
    const Fields weights(object_at(inner, "weights"), where);
    const WeightFormat one = read_group(weights, format);
    if (all && *all != one) not_readable(weights, "groups whose weights differ in format are not supported");
    all = one;
  }
  if (!all) not_readable(fields, "no group of \"config_groups\" has weights");
  return *all;
}

json compressed_tensors_entry(const QuantizationEntry& entry) {
  const bool nvfp4 = entry.format == WeightFormat::nvfp4;
  json weights{{"num_bits", nvfp4 ? 4 : 8}, {"type", "float"}, {"symmetric", true}, {"dynamic", false}};
  json activations{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"dynamic", true}, {"strategy", "token"}};
  if (nvfp4) {
    weights.update({{"strategy", "tensor_group"}, {"group_size", nvfp4_group}});
    activations = nullptr;
    if (entry.nvfp4_inputs == Nvfp4Inputs::nvfp4) {
      activations = weights;
      activations["dynamic"] = "local";  // scales of blocks are current, under a static one of the tensor
    }
  } else if (entry.format == WeightFormat::fp8_block) {
    weights.update({{"strategy", "block"}, {"block_structure", {128, 128}}});
    activations.update({{"strategy", "group"}, {"group_size", 128}});
  } else {
    weights["strategy"] = entry.format == WeightFormat::fp8_channel ? "channel" : "tensor";
  }
  const json group{{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", activations}};
  return {{"quant_method", "compressed-tensors"},
          {"format", nvfp4 ? nvfp4_format : fp8_format},
          {"quantization_status", "compressed"},
          {"ignore", entry.high_precision},
          {"config_groups", {{"group_0", group}}}};
}

json deepseek_entry(const QuantizationEntry& entry) {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {128, 128}},
          {"modules_to_not_convert", entry.high_precision}};
}

}  // namespace

std::optional<WeightFormat> read_quantization(const Fields& config) {
  if (!config.has(quantization_key)) return std::nullopt;
  const std::string source = fmt::format("{}: {}", config.source(), quantization_key);
  const Fields fields(object_at(config, quantization_key), source);
  const std::string method = fields.text("quant_method");
  if (method == "fp8") return read_deepseek(fields);
  if (method == "compressed-tensors") return read_compressed_tensors(fields);
  not_readable(fields, fmt::format("\"quant_method\" \"{}\" is not supported", printable(method)));
}

std::optional<WeightFormat> parse_quantization(std::string_view config, std::string_view source) {
  const json object = parse_object(config, source);
  return read_quantization(Fields(object, source));
}

std::optional<WeightFormat> parse_torch_dtype(std::string_view config, std::string_view source) {
  const json object = parse_object(config, source);
  const Fields fields(object, source);
  return from_torch_name(fields.text("torch_dtype", fields.text("dtype", "")));
}

std::string with_quantization(std::string_view config, const QuantizationEntry& entry) {
  json out = parse_object(config, "config.json");
  out.erase(quantization_key);
  if (!is_quantized(entry.format)) {
    out.erase("dtype");
    out["torch_dtype"] = torch_name(entry.format);
  } else if (entry.format == WeightFormat::deepseek_block) {
    out[quantization_key] = deepseek_entry(entry);
  } else {
    out[quantization_key] = compressed_tensors_entry(entry);
  }
  return out.dump(2) + "\n";
}

}  // namespace quaver
