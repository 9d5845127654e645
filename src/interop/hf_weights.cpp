#include "interop/hf_weights.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <utility>

#include "interop/hf_config.h"
#include "interop/json_fields.h"
#include "interop/quantization_config.h"
#include "interop/tensor_values.h"
#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::uint64_t largest_index = std::uint64_t{64} << 20;
constexpr std::size_t most_shards = 4096;
constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";
constexpr const char* gpt2_prefix = "transformer.";
constexpr const char* head_name = "lm_head.weight";

// Masks and frequencies that older versions of transformers saved with the weights.
bool is_derived(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.find_first_of("/\\") == std::string_view::npos && name.find('\0') == std::string::npos &&
         name.ends_with(".safetensors");
}

[[noreturn]] void no_weights(const fs::path& folder) {
  std::error_code ignored;
  const bool pickled =
      fs::exists(folder / "pytorch_model.bin", ignored) || fs::exists(folder / "pytorch_model.bin.index.json", ignored);
  throw Error(fmt::format("{} has neither {} nor {}", folder.string(), single_name, index_name),
              pickled ? "its weights are pickled: save them with transformers' save_pretrained, as safetensors"
                      : "copy or download the folder again, with its weights");
}

// The files of the folder, and the file of each tensor where an index names it.
struct Shards {
  std::vector<std::string> files;
  std::map<std::string, std::string> index;
};

Shards shards_of(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / single_name, ignored)) return {{single_name}, {}};
  const fs::path path = folder / index_name;
  if (!fs::exists(path, ignored)) no_weights(folder);
  Shards shards;
  shards.index = parse_hf_index(read_file(path, largest_index), path.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : shards.index) {
    if (names.insert(file).second && !fs::is_regular_file(folder / file, ignored)) {
      throw Error(fmt::format("{}: tensor '{}' is in {}, which is not there", path.string(), printable(tensor),
                              printable(file)),
                  "copy or download the folder again");
    }
  }
  shards.files.assign(names.begin(), names.end());
  return shards;
}

}  // namespace

std::map<std::string, std::string> parse_hf_index(std::string_view text, std::string_view source) {
  const json object = parse_object(text, source);
  const Fields fields(object, source);
  const json* listed = fields.find("weight_map");
  if (listed == nullptr || !listed->is_object() || listed->empty()) {
    fields.wrong("weight_map", "an object that names the file of each tensor");
  }
  std::map<std::string, std::string> index;
  std::set<std::string> files;
  for (const auto& [tensor, file] : listed->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      throw Error(fmt::format("{}: the file of tensor '{}' is not the name of a safetensors file in the folder", source,
                              printable(tensor)),
                  "copy or download the folder again");
    }
    files.insert(file.get<std::string>());
    index.emplace(tensor, file.get<std::string>());
  }
  if (files.size() > most_shards) {
    throw Error(fmt::format("{}: it names {} files, more than {}", source, files.size(), most_shards),
                "save the model in fewer, larger shards");
  }
  return index;
}

HfWeights::HfWeights(const fs::path& folder)
    : folder_(folder), quantization_(parse_quantization(hf_config_text(folder), (folder / "config.json").string())) {
  const Shards shards = shards_of(folder);
  for (const std::string& name : shards.files) {
    files_.push_back(SafetensorsFile::open(folder / name));
    const SafetensorsFile& file = files_.back();
    for (std::size_t i = 0; i < file.tensors().size(); ++i) {
      const std::string& tensor = file.tensors()[i].name;
      const auto listed = shards.index.find(tensor);
      if (!shards.index.empty() && (listed == shards.index.end() || listed->second != name)) {
        throw Error(fmt::format("{}: tensor '{}' is not where the index says", file.path().string(), printable(tensor)),
                    "the shards are not all of one model: copy or download the folder again");
      }
      places_.emplace(tensor, std::pair(files_.size() - 1, i));
    }
  }
  for (const auto& [tensor, name] : shards.index) {
    if (places_.contains(tensor)) continue;
    throw Error(fmt::format("{}: there is no tensor '{}', which the index says is in it", (folder / name).string(),
                            printable(tensor)),
                "copy or download the folder again");
  }
}

HfWeights::Found HfWeights::find(const std::string& name) const {
  auto found = places_.find(name);
  if (found == places_.end() && name.starts_with(gpt2_prefix)) {  // GPT-2's prefix may be absent
    found = places_.find(name.substr(std::strlen(gpt2_prefix)));
  }
  if (found == places_.end()) return {};
  const SafetensorsFile& file = files_[found->second.first];
  return {&file.tensors()[found->second.second], &file};
}

StoredWeight HfWeights::at(const HfTensor& wanted) const {
  auto weight = find_weight(*this, wanted.name);
  if (!weight) {
    throw Error(fmt::format("{}: there is no tensor '{}'", folder_.string(), wanted.name),
                "config.json describes another model, or a shard is missing: copy or download the folder again");
  }
  if (weight->shape != wanted.shape()) {
    throw Error(fmt::format("{} is of shape {}, and config.json asks for {}", weight->where, shape_text(weight->shape),
                            shape_text(wanted.shape())),
                "config.json describes another model: copy or download the folder again");
  }
  return std::move(*weight);
}

// Some folders repeat a tied head: it must be what it is tied to.
void HfWeights::check_tied_head() const {
  const Found head = find(head_name);
  if (head.tensor == nullptr) return;
  Found table = find("model.embed_tokens.weight");
  if (table.tensor == nullptr) table = find("transformer.wte.weight");
  const auto same = [](const TensorEntry& a, const TensorEntry& b) {
    return a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.data, b.data);
  };
  if (table.tensor != nullptr && same(*head.tensor, *table.tensor)) return;
  throw Error(fmt::format("{}: '{}' differs from the embedding, and config.json says that they are tied",
                          head.file->path().string(), head_name),
              "set \"tie_word_embeddings\": false in config.json if the model has a head of its own");
}

void HfWeights::check(const ModelConfig& model) const {
  std::set<const TensorEntry*> used;
  for (const HfTensor& wanted : hf_tensors(model)) {
    const StoredWeight weight = at(wanted);
    used.insert({weight.codes, weight.scales, weight.global_scale});
    used.insert(weight.activation_scales.begin(), weight.activation_scales.end());
  }
  if (model.tie_head == TieHead::yes) {
    check_tied_head();
    used.insert(find(head_name).tensor);
  }
  for (const auto& [name, place] : places_) {
    const SafetensorsFile& file = files_[place.first];
    if (used.contains(&file.tensors()[place.second]) || is_derived(name)) continue;
    throw Error(fmt::format("{}: tensor '{}' has no place in the model that config.json describes",
                            file.path().string(), printable(name)),
                "this is another architecture than its config.json says");
  }
}

void HfWeights::load(const ModelConfig& model, Engine& engine, Parameters& parameters) const {
  const std::vector<HfTensor> tensors = hf_tensors(model);
  for (Parameter& parameter : parameters.all()) {
    if (!parameter.kept || parameter.adapter) continue;
    ParameterCodes codes(parameter.weight.format, parameter.count());
    for (const HfTensor& tensor : tensors) {
      if (tensor.parameter != parameter.name) continue;
      const StoredWeight weight = at(tensor);
      if (codes.take(tensor, WeightReader(weight)) == Finite::yes) continue;
      throw Error(fmt::format("{} has a value that is not finite", weight.where),
                  "the model is damaged, or diverged in training: use another checkpoint of it");
    }
    if (codes.filled() != parameter.count()) {
      throw Error(fmt::format("{}: no tensor fills the parameter '{}'", folder_.string(), parameter.name),
                  "a setting of the model section adds parameters that the folder does not have: leave it out");
    }
    engine.device().upload(codes.bytes().data(), parameter.master.data, codes.bytes().size());
  }
}

void load_hf_weights(const fs::path& folder, const ModelConfig& model, Engine& engine, Parameters& parameters) {
  const HfWeights weights(folder);
  weights.check(model);
  weights.load(model, engine, parameters);
}

}  // namespace quaver
