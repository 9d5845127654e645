#include "interop/hf_export.h"

#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <utility>

#include "interop/hf_config.h"
#include "interop/tensor_values.h"
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

void copy_whole(const fs::path& from, const fs::path& to) { write_file_atomically(to, read_file(from, largest_kept)); }

// A folder under another name beside its own, which it gets when it is complete.
class StagedFolder {
 public:
  explicit StagedFolder(const fs::path& target) : target_(fs::absolute(target).lexically_normal()) {
    if (!target_.has_filename()) target_ = target_.parent_path();
    std::error_code ignored;
    if (fs::exists(target_, ignored) && !(fs::is_directory(target_, ignored) && fs::is_empty(target_, ignored))) {
      throw Error(target_.string() + " is already there", "choose a new folder, or remove it");
    }
    staged_ = target_.parent_path() / fmt::format(".{}.{}", target_.filename().string(), ::getpid());
    make_folder(staged_);
  }
  ~StagedFolder() {
    std::error_code ignored;
    if (!staged_.empty()) fs::remove_all(staged_, ignored);
  }
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  fs::path operator/(const std::string& name) {
    names_.push_back(name);
    return staged_ / name;
  }

  std::vector<fs::path> commit() {
    sync_directory(staged_);
    std::error_code error;
    fs::rename(staged_, target_, error);  // replaces an empty folder
    if (error) throw system_error("cannot put in place", target_, error.value());
    staged_.clear();
    sync_directory(target_.parent_path());
    std::vector<fs::path> files;
    for (const std::string& name : names_) files.push_back(target_ / name);
    return files;
  }

 private:
  fs::path target_;
  fs::path staged_;
  std::vector<std::string> names_;
};

struct DtypeNames {
  Format format;
  const char* in_safetensors;
  const char* in_config;
};

DtypeNames names_of(HfDtype dtype) {
  if (dtype == HfDtype::bf16) return {Format::bf16, "BF16", "bfloat16"};
  return {Format::f32, "F32", "float32"};
}

StoredParameter stored(const SafetensorsFile& weights, const std::string& name) {
  const TensorEntry& tensor = weights.at(name);
  const auto format = format_of_dtype(tensor.dtype);
  if (!format) {
    throw Error(fmt::format("{}: {} is of type {}", weights.path().string(), name, tensor.dtype),
                "export a checkpoint whose weights are F32 or BF16");
  }
  return {*format, tensor.data};
}

// The parameter must end where its last tensor does.
void check_sizes(const SafetensorsFile& weights, const std::vector<HfTensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const HfTensor& tensor = tensors[i];
    if (i + 1 < tensors.size() && tensors[i + 1].parameter == tensor.parameter) continue;
    const StoredParameter parameter = stored(weights, tensor.parameter);
    const Size needed = (tensor.offset + tensor.count()) * info(parameter.format).storage_bits / 8;
    if (parameter.bytes.size() == static_cast<std::size_t>(needed)) continue;
    throw Error(fmt::format("{}: {} holds {} bytes, and the model needs {}", weights.path().string(), tensor.parameter,
                            parameter.bytes.size(), needed),
                "the checkpoint belongs to a model of another shape");
  }
}

class WeightWriter {
 public:
  WeightWriter(const HfExport& what, StagedFolder& folder)
      : what_(what), folder_(folder), names_(names_of(what.dtype)), tensors_(hf_tensors(what.model)) {
    check_sizes(what.weights, tensors_);
  }

  void write() {
    const std::vector<std::size_t> ends = shard_ends();
    if (ends.size() == 1) return write_shard("model.safetensors", 0, ends[0]);
    nlohmann::json index;
    std::size_t first = 0;
    for (std::size_t shard = 0; shard < ends.size(); ++shard) {
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, ends.size());
      write_shard(name, first, ends[shard]);
      for (std::size_t i = first; i < ends[shard]; ++i) index["weight_map"][tensors_[i].name] = name;
      first = ends[shard];
    }
    std::uint64_t total = 0;
    for (const HfTensor& tensor : tensors_) total += bytes_of(tensor);
    index["metadata"]["total_size"] = total;
    write_file_atomically(folder_ / "model.safetensors.index.json", index.dump(2) + "\n");
  }

 private:
  std::uint64_t bytes_of(const HfTensor& tensor) const {
    return static_cast<std::uint64_t>(tensor.count() * info(names_.format).storage_bits / 8);
  }

  std::vector<std::size_t> shard_ends() const {
    std::vector<std::size_t> ends;
    std::uint64_t held = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const std::uint64_t bytes = bytes_of(tensors_[i]);
      if (held > 0 && held + bytes > what_.shard_bytes) {
        ends.push_back(i);
        held = 0;
      }
      held += bytes;
    }
    ends.push_back(tensors_.size());
    return ends;
  }

  void write_shard(const std::string& name, std::size_t first, std::size_t end) {
    std::vector<TensorSpec> specs;
    for (std::size_t i = first; i < end; ++i) {
      specs.push_back({tensors_[i].name, names_.in_safetensors, tensors_[i].shape()});
    }
    SafetensorsWriter file(folder_ / name, specs);
    for (std::size_t i = first; i < end; ++i) {
      file.write(tensor_bytes(tensors_[i], stored(what_.weights, tensors_[i].parameter), names_.format));
    }
    file.commit();
  }

  const HfExport& what_;
  StagedFolder& folder_;
  DtypeNames names_;
  std::vector<HfTensor> tensors_;
};

}  // namespace

std::vector<fs::path> export_hf(const HfExport& what, const fs::path& folder) {
  const bool has_original = !what.original.empty() && is_file(what.original / config_file);
  const std::string original = has_original ? read_file(what.original / config_file, largest_kept) : "";
  const std::string config = render_hf_config(what.model, names_of(what.dtype).in_config, original);
  StagedFolder staged(folder);
  WeightWriter(what, staged).write();
  write_file_atomically(staged / config_file, config);
  if (has_original && is_file(what.original / generation_file)) {
    copy_whole(what.original / generation_file, staged / generation_file);
  } else {
    write_file_atomically(staged / generation_file, "{\n  \"_from_model_config\": true\n}\n");
  }
  const bool has_tokenizer = !what.tokenizer.empty() && is_file(what.tokenizer / tokenizer_files.front());
  const fs::path& from = has_tokenizer ? what.tokenizer : what.original;
  for (const char* name : tokenizer_files) {
    if (!from.empty() && is_file(from / name)) copy_whole(from / name, staged / name);
  }
  return staged.commit();
}

void keep_hf_files(const fs::path& from, const fs::path& to) {
  make_folder(to);
  const auto keep = [&](const char* name) {
    if (is_file(from / name)) copy_whole(from / name, to / name);
  };
  keep(config_file);
  keep(generation_file);
  for (const char* name : tokenizer_files) keep(name);
}

}  // namespace quaver
