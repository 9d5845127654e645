// Quantized model folders for tests: random codes and scales under the names and in the layouts that compressed-tensors
// and DeepSeek define, and their values by those definitions. Nothing of the library encodes or decodes here.
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/hf_folder.h"

namespace quaver::test {

struct RawTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  bool operator==(const RawTensor&) const = default;
};
using RawTensors = std::map<std::string, RawTensor>;

inline RawTensors raw_tensors(const std::filesystem::path& folder) {
  RawTensors all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file = SafetensorsFile::open(entry.path());
    for (const TensorEntry& tensor : file.tensors()) {
      all.emplace(tensor.name,
                  RawTensor{tensor.dtype, tensor.shape, std::vector(tensor.data.begin(), tensor.data.end())});
    }
  }
  return all;
}

inline void write_raw_folder(const std::filesystem::path& folder, const json& config, const RawTensors& tensors) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config.dump(2);
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  write_safetensors(folder / "model.safetensors", entries);
}

inline RawTensor raw_f32(std::vector<std::int64_t> shape, const std::vector<float>& values) {
  return {"F32", std::move(shape), hf_bytes(values, "F32")};
}

// Sign, four bits of exponent with bias 7, three of mantissa; all ones is NaN.
inline double e4m3_value(std::byte code) {
  const auto bits = std::to_integer<unsigned>(code);
  const int exponent = static_cast<int>(bits >> 3U & 15U);
  const int mantissa = static_cast<int>(bits & 7U);
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 128U) != 0 ? -magnitude : magnitude;
}

inline double e2m1_value(unsigned code) {
  constexpr double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8U) != 0 ? -magnitudes[code & 7U] : magnitudes[code & 7U];
}

// The values of a weight in FP32: code times scale, rounded once; for NVFP4 that divided by the global scale.
inline std::vector<float> reference_values(const RawTensors& tensors, const std::string& name) {
  const auto at = [&](const char* end) { return tensors.find(name + end); };
  if (const auto packed = at("_packed"); packed != tensors.end()) {
    const std::int64_t rows = packed->second.shape[0];
    const std::int64_t cols = 2 * packed->second.shape[1];
    const std::vector<std::byte>& scales = at("_scale")->second.bytes;
    const float global = hf_values(at("_global_scale")->second.bytes, "F32")[0];
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const auto byte = std::to_integer<unsigned>(packed->second.bytes[static_cast<std::size_t>(i / 2)]);
      const double scale = e4m3_value(scales[static_cast<std::size_t>(i / 16)]);
      values.push_back(static_cast<float>(e2m1_value(i % 2 == 0 ? byte & 15U : byte >> 4U) * scale / global));
    }
    return values;
  }
  const RawTensor& codes = tensors.at(name);
  if (codes.dtype != "F8_E4M3") return hf_values(codes.bytes, codes.dtype);
  const RawTensor& stored = at("_scale") != tensors.end() ? at("_scale")->second : at("_scale_inv")->second;
  const std::vector<float> scales = hf_values(stored.bytes, stored.dtype);
  const std::int64_t rows = codes.shape[0];
  const std::int64_t cols = codes.shape[1];
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      std::int64_t block = 0;
      if (stored.shape.size() == 2 && stored.shape[0] == rows && stored.shape[1] == 1) block = r;
      if (stored.shape.size() == 2 && stored.shape[0] == (rows + 127) / 128 && stored.shape[1] == (cols + 127) / 128) {
        block = r / 128 * stored.shape[1] + c / 128;
      }
      const double code = e4m3_value(codes.bytes[static_cast<std::size_t>(r * cols + c)]);
      values.push_back(static_cast<float>(code * scales[static_cast<std::size_t>(block)]));
    }
  }
  return values;
}

// The quantization_config of each format, as the programs that define them write it.
inline json quantization_config(const std::string& format) {
  if (format == "deepseek-block") {
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {128, 128}},
            {"modules_to_not_convert", {"lm_head"}}};
  }
  json weights{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"dynamic", false}, {"observer", "minmax"}};
  if (format == "fp8-tensor") weights["strategy"] = "tensor";
  if (format == "fp8-channel") weights["strategy"] = "channel";
  if (format == "fp8-block") weights.update({{"strategy", "block"}, {"block_structure", {128, 128}}});
  if (format == "nvfp4") weights.update({{"num_bits", 4}, {"strategy", "tensor_group"}, {"group_size", 16}});
  const json group{{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", nullptr}};
  return {{"quant_method", "compressed-tensors"},
          {"format", format == "nvfp4" ? "nvfp4-pack-quantized" : "float-quantized"},
          {"quantization_status", "compressed"},
          {"ignore", {"lm_head", "re:.*down_proj"}},
          {"config_groups", {{"group_0", group}}}};
}

inline constexpr const char* quantized_format_names[] = {"fp8-tensor", "fp8-channel", "fp8-block", "deepseek-block",
                                                         "nvfp4"};

// A model whose projections are random codes with random scales; down_proj stays in BF16.
class QuantizedMaker {
 public:
  explicit QuantizedMaker(std::string format) : format_(std::move(format)) {}

  RawTensors make(const HfModel& model) {
    RawTensors all;
    for (const auto& [name, tensor] : model.tensors) {
      const bool projection = name.ends_with("_proj.weight") && !name.ends_with("down_proj.weight");
      if (projection) {
        add(name, tensor.shape[0], tensor.shape[1], all);
      } else {
        all.emplace(name, RawTensor{"BF16", tensor.shape, hf_bytes(tensor.values, "BF16")});
      }
    }
    return all;
  }

 private:
  std::byte code() {
    const auto byte = static_cast<std::byte>(random_());
    return (byte & std::byte{0x7F}) == std::byte{0x7F} ? std::byte{0} : byte;
  }
  std::vector<float> some_scales(std::int64_t count) {
    std::uniform_real_distribution<float> scale(1e-4F, 3e-4F);
    std::vector<float> scales(static_cast<std::size_t>(count));
    for (float& value : scales) value = scale(random_);
    return scales;
  }
  void add(const std::string& name, std::int64_t rows, std::int64_t cols, RawTensors& all) {
    if (format_ == "nvfp4") return add_nvfp4(name, rows, cols, all);
    RawTensor codes{"F8_E4M3", {rows, cols}, std::vector<std::byte>(static_cast<std::size_t>(rows * cols))};
    for (std::byte& one : codes.bytes) one = code();
    all.emplace(name, std::move(codes));
    std::vector<std::int64_t> shape{(rows + 127) / 128, (cols + 127) / 128};
    if (format_ == "fp8-tensor") shape = {1};
    if (format_ == "fp8-channel") shape = {rows, 1};
    const std::int64_t count = shape.size() == 1 ? 1 : shape[0] * shape[1];
    all.emplace(name + (format_ == "deepseek-block" ? "_scale_inv" : "_scale"), raw_f32(shape, some_scales(count)));
  }
  void add_nvfp4(const std::string& name, std::int64_t rows, std::int64_t cols, RawTensors& all) {
    RawTensor codes{"U8", {rows, cols / 2}, std::vector<std::byte>(static_cast<std::size_t>(rows * cols / 2))};
    for (std::byte& one : codes.bytes) one = static_cast<std::byte>(random_());
    RawTensor scales{"F8_E4M3", {rows, cols / 16}, std::vector<std::byte>(static_cast<std::size_t>(rows * cols / 16))};
    for (std::byte& one : scales.bytes) one = code() & std::byte{0x7F};
    all.emplace(name + "_packed", std::move(codes));
    all.emplace(name + "_scale", std::move(scales));
    all.emplace(name + "_global_scale", raw_f32({1}, {9371.25F}));
  }

  std::string format_;
  std::mt19937 random_{17};
};

// Writes such a model, and gives its tensors.
inline RawTensors write_quantized_folder(const std::filesystem::path& folder, const HfModel& model,
                                         const std::string& format) {
  json config = model.config;
  config["quantization_config"] = quantization_config(format);
  config["torch_dtype"] = "bfloat16";
  const RawTensors tensors = QuantizedMaker(format).make(model);
  write_raw_folder(folder, config, tensors);
  return tensors;
}

}  // namespace quaver::test
