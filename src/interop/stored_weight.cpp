#include "interop/stored_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/quantize.h"
#include "interop/bands.h"
#include "interop/hf_weights.h"
#include "interop/json_fields.h"
#include "quaver/error.h"

namespace quaver {

namespace {

constexpr const char* other_copy = "the model is damaged or was not saved whole: copy, download or export it again";

std::string place_of(const HfWeights::Found& found) {
  return fmt::format("{}: tensor '{}'", found.file->path().string(), printable(found.tensor->name));
}

// Looks for the parts of one weight, by its name.
class Parts {
 public:
  Parts(const HfWeights& folder, const std::string& name) : folder_(folder), name_(name) {}

  HfWeights::Found part(std::string_view end) const { return folder_.find(name_ + std::string(end)); }

  const TensorEntry* needed(std::string_view end) const {
    const HfWeights::Found found = part(end);
    if (found.tensor != nullptr) return found.tensor;
    throw Error(fmt::format("{}: the weight '{}' is quantized, and there is no '{}{}'", folder_.folder().string(),
                            printable(name_), printable(name_), end),
                other_copy);
  }

  // A scale that nothing uses: the weight would be read as something else.
  void refuse(std::string_view end) const {
    const HfWeights::Found found = part(end);
    if (found.tensor == nullptr) return;
    throw Error(
        fmt::format("{} is no part of the weight '{}' as config.json describes it", place_of(found), printable(name_)),
        "config.json describes another quantization than the tensors: copy or download the folder again");
  }

  std::vector<const TensorEntry*> activation_scales() const {
    std::vector<const TensorEntry*> all;
    if (!name_.ends_with(suffix::weight)) return all;
    const std::string layer = name_.substr(0, name_.size() - suffix::weight.size());
    for (const std::string_view end : {suffix::input_scale, suffix::input_global}) {
      if (const auto found = folder_.find(layer + std::string(end)); found.tensor != nullptr) {
        all.push_back(found.tensor);
      }
    }
    return all;
  }

 private:
  const HfWeights& folder_;
  const std::string& name_;
};

void set_size(StoredWeight& weight) {
  weight.cols = weight.shape.empty() ? 1 : weight.shape.back();
  weight.rows = 1;
  for (std::size_t i = 0; i + 1 < weight.shape.size(); ++i) weight.rows *= weight.shape[i];
}

// A matrix with something in it, so that no size that is computed from it can overflow.
void check_matrix(const StoredWeight& weight) {
  if (weight.codes->shape.size() == 2 && !weight.codes->data.empty()) return;
  throw Error(fmt::format("{} is of shape {}, and quantized weights are matrices", weight.where,
                          shape_text(weight.codes->shape)),
              "quantized tensors of three dimensions (experts in one tensor) are not supported");
}

void check_type(const StoredWeight& weight, const TensorEntry& part, std::initializer_list<std::string_view> types) {
  if (std::find(types.begin(), types.end(), part.dtype) != types.end()) return;
  throw Error(fmt::format("{}: its '{}' is of type {}, expected {}", weight.where, printable(part.name), part.dtype,
                          fmt::join(types, ", ")),
              other_copy);
}

void check_shape(const StoredWeight& weight, const TensorEntry& part,
                 const std::vector<std::vector<std::int64_t>>& shapes) {
  if (std::find(shapes.begin(), shapes.end(), part.shape) != shapes.end()) return;
  throw Error(
      fmt::format("{} is of shape {}: its '{}' is of shape {}, expected {}", weight.where, shape_text(weight.shape),
                  printable(part.name), shape_text(part.shape), shape_text(shapes.front())),
      other_copy);
}

void find_fp8_scales(StoredWeight& weight, const Parts& parts, WeightFormat format) {
  const bool deepseek = format == WeightFormat::deepseek_block;
  check_matrix(weight);
  weight.format = format;
  weight.scales = parts.needed(deepseek ? suffix::scale_inv : suffix::scale);
  parts.refuse(deepseek ? suffix::scale : suffix::scale_inv);
  parts.refuse(suffix::global_scale);
  parts.refuse(suffix::packed);
  check_type(weight, *weight.scales, {"F32", "BF16", "F16"});
  const auto blocks = [](Size size) { return (size + 127) / 128; };
  if (format == WeightFormat::fp8_tensor) return check_shape(weight, *weight.scales, {{1}, {}, {1, 1}});
  if (format == WeightFormat::fp8_channel) {
    return check_shape(weight, *weight.scales, {{weight.rows, 1}, {weight.rows}});
  }
  check_shape(weight, *weight.scales, {{blocks(weight.rows), blocks(weight.cols)}});
}

void find_nvfp4_scales(StoredWeight& weight, const Parts& parts) {
  check_matrix(weight);
  check_type(weight, *weight.codes, {"U8"});
  weight.format = WeightFormat::nvfp4;
  weight.shape.back() *= 2;
  set_size(weight);
  if (weight.cols % nvfp4_group != 0) {
    throw Error(fmt::format("{} has {} columns, no multiple of {}", weight.where, weight.cols, nvfp4_group),
                other_copy);
  }
  weight.scales = parts.needed(suffix::scale);
  weight.global_scale = parts.needed(suffix::global_scale);
  parts.refuse(suffix::scale_inv);
  parts.refuse("");
  check_type(weight, *weight.scales, {"F8_E4M3"});
  check_shape(weight, *weight.scales, {{weight.rows, weight.cols / nvfp4_group}});
  check_type(weight, *weight.global_scale, {"F32"});
  check_shape(weight, *weight.global_scale, {{1}, {}});
}

void find_high_precision_type(StoredWeight& weight, const Parts& parts) {
  const auto format = from_safetensors_type(weight.codes->dtype);
  if (!format) {
    throw Error(fmt::format("{} is of type {}", weight.where, weight.codes->dtype),
                weight.codes->dtype == "F8_E4M3"
                    ? "config.json has no quantization_config that says what its scales are"
                    : "F32, F16 and BF16 can be read, and FP8 and NVFP4 with their scales");
  }
  weight.format = *format;
  if (!weight.name.ends_with(suffix::weight)) return;
  for (const std::string_view end : {suffix::scale, suffix::scale_inv, suffix::global_scale, suffix::packed}) {
    parts.refuse(end);
  }
}

// Any type that scales have, and the codes of weights in high precision. The bytes of a file may be unaligned.
void decode_part(Format format, const std::byte* codes, Size count, float* out) {
  constexpr Size at_once = 4096;
  const Size bytes = info(format).storage_bits / 8;
  std::array<std::uint32_t, at_once> aligned;
  for (Size done = 0; done < count; done += at_once) {
    const Size some = std::min(at_once, count - done);
    std::memcpy(aligned.data(), codes + done * bytes, static_cast<std::size_t>(some * bytes));
    decode_array(format, reinterpret_cast<const std::byte*>(aligned.data()), 1.0F, some, out + done);
  }
}

std::vector<float> decoded_scales(const StoredWeight& weight, const TensorEntry& part) {
  const auto type = from_safetensors_type(part.dtype);
  const Format format = type ? spec_of(*type).format : Format::e4m3;
  std::vector<float> values(part.data.size() * 8 / static_cast<std::size_t>(info(format).storage_bits));
  decode_part(format, part.data.data(), static_cast<Size>(values.size()), values.data());
  for (const float value : values) {
    if (std::isfinite(value) && value >= 0) continue;
    throw Error(fmt::format("{}: its '{}' has a scale of {}", weight.where, printable(part.name), value), other_copy);
  }
  return values;
}

}  // namespace

std::optional<StoredWeight> find_weight(const HfWeights& folder, const std::string& name) {
  const Parts parts(folder, name);
  const std::optional<WeightFormat> quantization = folder.quantization();
  HfWeights::Found found = parts.part("");
  const bool packed = quantization == WeightFormat::nvfp4 && parts.part(suffix::packed).tensor != nullptr;
  if (packed) found = parts.part(suffix::packed);
  if (found.tensor == nullptr) return std::nullopt;
  StoredWeight weight;
  weight.name = name;
  weight.where = place_of(found);
  weight.codes = found.tensor;
  weight.shape = found.tensor->shape;
  set_size(weight);
  const bool fp8 = quantization && *quantization != WeightFormat::nvfp4 && found.tensor->dtype == "F8_E4M3";
  if (packed) {
    find_nvfp4_scales(weight, parts);
  } else if (fp8) {
    find_fp8_scales(weight, parts, *quantization);
  } else {
    find_high_precision_type(weight, parts);
  }
  if (is_quantized(weight.format)) weight.activation_scales = parts.activation_scales();
  return weight;
}

WeightReader::WeightReader(const StoredWeight& weight) : weight_(weight), spec_(spec_of(weight.format)) {
  if (weight.scales != nullptr) scales_ = decoded_scales(weight, *weight.scales);
  if (weight.global_scale == nullptr) return;
  global_scale_ = decoded_scales(weight, *weight.global_scale).front();
  if (global_scale_ > 0) return;
  throw Error(fmt::format("{}: its '{}' is 0, and values are divided by it", weight.where,
                          printable(weight.global_scale->name)),
              other_copy);
}

void WeightReader::decode(Size first, Size count, float* out) const {
  const Size cols = weight_.cols;
  const Size row_bytes = cols * info(spec_.format).storage_bits / 8;
  const std::byte* const codes = weight_.codes->data.data() + first * row_bytes;
  if (weight_.format == WeightFormat::fp8_tensor) {
    return decode_array(spec_.format, codes, scales_.front(), count * cols, out);
  }
  if (!is_quantized(weight_.format)) return decode_part(spec_.format, codes, count * cols, out);
  // Read only, whatever the types of a view say.
  const CodeMatrix matrix{.spec = spec_,
                          .rows = weight_.rows,
                          .cols = cols,
                          .codes = const_cast<std::byte*>(weight_.codes->data.data()),
                          .block_scales = const_cast<float*>(scales_.data())};
  decode_rows(matrix, first, count, out, cols);
  if (weight_.format != WeightFormat::nvfp4) return;
  for (Size i = 0; i < count * cols; ++i) out[i] /= global_scale_;
}

std::vector<float> WeightReader::values() const {
  std::vector<float> all(static_cast<std::size_t>(weight_.count()));
  in_bands(weight_.rows, weight_.cols,
           [&](const Band& band) { decode(band.first, band.count, all.data() + band.first * weight_.cols); });
  return all;
}

}  // namespace quaver
