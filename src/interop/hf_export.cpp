#include "interop/hf_export.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "interop/checkpoint_weights.h"
#include "interop/hf_config.h"
#include "interop/quantization_config.h"
#include "interop/weight_cast.h"
#include "interop/weight_files.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t largest_kept = std::uint64_t{256} << 20;
constexpr const char* config_file = "config.json";
constexpr const char* generation_file = "generation_config.json";
constexpr std::array tokenizer_files{
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt",     "added_tokens.json",     "tokenizer.model",         "chat_template.jinja"};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// The format of a tensor in the file: linear layers alone are quantized, where the format can hold them.
WeightFormat format_of(const HfExport& what, const HfTensor& tensor) {
  if (!what.quantize || !is_linear(tensor.name, tensor.shape())) return what.dtype;
  return can_hold(*what.quantize, tensor.shape()) ? *what.quantize : what.dtype;
}

[[noreturn]] void refuse_nonfinite(const std::string& name) {
  throw Error(name + " has values that are not finite, which no scale fits",
              "the run diverged: export an earlier checkpoint with --step");
}

class WeightWriter {
 public:
  WeightWriter(const HfExport& what, StagedFolder& folder)
      : what_(what), weights_(what.model, what.weights), files_(folder, shards()) {}

  void write() {
    for (const HfTensor& tensor : weights_.tensors()) write(tensor);
    files_.finish();
  }

 private:
  std::vector<WeightFiles::File> shards() const {
    std::vector<WeightFiles::File> files(1);
    std::uint64_t held = 0;
    for (const HfTensor& tensor : weights_.tensors()) {
      std::uint64_t bytes = 0;
      const auto parts = stored_tensors(target_of(tensor));
      for (const TensorSpec& part : parts) bytes += tensor_bytes({part.name, part.dtype, part.shape, {}});
      if (held > 0 && held + bytes > what_.shard_bytes) {
        files.emplace_back();
        held = 0;
      }
      held += bytes;
      files.back().tensors.insert(files.back().tensors.end(), parts.begin(), parts.end());
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      files[i].name = files.size() == 1 ? "model.safetensors"
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    }
    return files;
  }

  // Tensors that are fused elsewhere, and share a global scale of NVFP4, are parts of one parameter here.
  float amax_for(const HfTensor& tensor, WeightFormat format) const {
    float largest = 0;
    for (const HfTensor& other : weights_.tensors()) {
      const bool counts = format == WeightFormat::nvfp4 ? other.parameter == tensor.parameter : &other == &tensor;
      if (!counts) continue;
      const std::vector<float> all = weights_.values(other);
      largest = std::max(largest, amax(all.data(), static_cast<Size>(all.size())).value);
    }
    return largest;
  }

  WeightTarget target_of(const HfTensor& tensor) const {
    return {tensor.name, format_of(what_, tensor), tensor.shape()};
  }

  void write(const HfTensor& tensor) {
    const WeightTarget target = target_of(tensor);
    const std::vector<float> all = weights_.values(tensor);
    WeightCast cast(target, needs_amax(target.format) ? amax_for(tensor, target.format) : 0);
    const CastStatistics seen = cast.write(
        [&](const Band& band, float* out) {
          std::copy_n(all.data() + band.first * target.cols(), band.count * target.cols(), out);
        },
        files_);
    if (is_quantized(target.format) && seen.nonfinite > 0) refuse_nonfinite(tensor.name);
  }

  const HfExport& what_;
  CheckpointWeights weights_;
  WeightFiles files_;
};

// As the format is named in config.json, with the linear layers that stay in high precision.
std::string config_for(const HfExport& what, std::string_view original) {
  std::string config = render_hf_config(what.model, torch_name(what.dtype), original);
  if (!what.quantize) return config;
  QuantizationEntry entry{.format = *what.quantize, .high_precision = {"lm_head"}};
  bool any = false;
  for (const HfTensor& tensor : hf_tensors(what.model)) {
    if (!is_linear(tensor.name, tensor.shape())) continue;
    const bool kept = !is_quantized(format_of(what, tensor));
    if (kept) entry.high_precision.push_back(layer_of(tensor.name));
    any = any || !kept;
  }
  if (!any) {
    throw Error(fmt::format("the model has no linear layer that {} can hold", name_of(*what.quantize)),
                fmt::format("input sizes of layers have to be multiples of {}: choose another format", nvfp4_group));
  }
  return with_quantization(config, entry);
}

}  // namespace

std::vector<fs::path> export_hf(const HfExport& what, const fs::path& folder) {
  const bool has_original = !what.original.empty() && is_file(what.original / config_file);
  const std::string original = has_original ? read_file(what.original / config_file, largest_kept) : "";
  const std::string config = config_for(what, original);
  StagedFolder staged(folder);
  WeightWriter(what, staged).write();
  write_file_atomically(staged / config_file, config);
  if (has_original && is_file(what.original / generation_file)) {
    staged.copy(what.original / generation_file);
  } else {
    write_file_atomically(staged / generation_file, "{\n  \"_from_model_config\": true\n}\n");
  }
  const bool has_tokenizer = !what.tokenizer.empty() && is_file(what.tokenizer / tokenizer_files.front());
  const fs::path& from = has_tokenizer ? what.tokenizer : what.original;
  for (const char* name : tokenizer_files) {
    if (!from.empty() && is_file(from / name)) staged.copy(from / name);
  }
  return staged.commit();
}

void keep_hf_files(const fs::path& from, const fs::path& to) {
  make_folder(to);
  const auto keep = [&](const char* name) {
    if (is_file(from / name)) write_file_atomically(to / name, read_file(from / name, largest_kept));
  };
  keep(config_file);
  keep(generation_file);
  for (const char* name : tokenizer_files) keep(name);
}

}  // namespace quaver
