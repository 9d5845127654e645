// Small random Hugging Face model folders of every family that is imported, with sizes that nothing divides: their
// config.json and tensor names are written down here as transformers writes them, not taken from the code under test.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

#include "io/safetensors.h"

namespace quaver::test {

using nlohmann::json;

struct HfValues {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using HfTensors = std::map<std::string, HfValues>;

struct HfModel {
  std::string name;
  json config;
  HfTensors tensors;
};

class HfTensorMaker {
 public:
  explicit HfTensorMaker(unsigned seed) : random_(seed) {}

  void add(const std::string& name, std::vector<std::int64_t> shape, float mean = 0, float deviation = 0.08F) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::normal_distribution<float> normal(mean, deviation);
    HfValues made{std::move(shape), std::vector<float>(static_cast<std::size_t>(count))};
    for (float& value : made.values) value = normal(random_);
    tensors.emplace(name, std::move(made));
  }
  void gain(const std::string& name, std::int64_t size) { add(name, {size}, 1, 0.2F); }
  void bias(const std::string& name, std::int64_t size) { add(name, {size}, 0, 0.2F); }

  HfTensors tensors;

 private:
  std::mt19937 random_;
};

inline HfTensors gpt2_values(const json& config) {
  const std::int64_t width = config.at("n_embd");
  const std::int64_t hidden = config.at("n_inner").is_null() ? 4 * width : config.at("n_inner").get<std::int64_t>();
  HfTensorMaker make(1);
  make.add("transformer.wte.weight", {config.at("vocab_size"), width});
  make.add("transformer.wpe.weight", {config.at("n_positions"), width});
  for (int i = 0; i < config.at("n_layer"); ++i) {
    const std::string layer = "transformer.h." + std::to_string(i) + ".";
    for (const char* norm : {"ln_1", "ln_2"}) {
      make.gain(layer + norm + ".weight", width);
      make.bias(layer + norm + ".bias", width);
    }
    const auto conv = [&](const std::string& name, std::int64_t in, std::int64_t out) {
      make.add(layer + name + ".weight", {in, out});
      make.bias(layer + name + ".bias", out);
    };
    conv("attn.c_attn", width, 3 * width);
    conv("attn.c_proj", width, width);
    conv("mlp.c_fc", width, hidden);
    conv("mlp.c_proj", hidden, width);
  }
  make.gain("transformer.ln_f.weight", width);
  make.bias("transformer.ln_f.bias", width);
  return make.tensors;
}

inline HfTensors llama_values(const json& config) {
  const std::int64_t width = config.at("hidden_size");
  const std::int64_t hidden = config.at("intermediate_size");
  const std::int64_t heads = config.at("num_attention_heads");
  const std::int64_t kv_heads = config.value("num_key_value_heads", heads);
  const std::int64_t size = config.value("head_dim", width / heads);
  const bool tied = config.value("tie_word_embeddings", false);
  HfTensorMaker make(2);
  make.add("model.embed_tokens.weight", {config.at("vocab_size"), width});
  for (int i = 0; i < config.at("num_hidden_layers"); ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    make.gain(layer + "input_layernorm.weight", width);
    make.gain(layer + "post_attention_layernorm.weight", width);
    make.add(layer + "self_attn.q_proj.weight", {heads * size, width});
    make.add(layer + "self_attn.k_proj.weight", {kv_heads * size, width});
    make.add(layer + "self_attn.v_proj.weight", {kv_heads * size, width});
    make.add(layer + "self_attn.o_proj.weight", {width, heads * size});
    make.add(layer + "mlp.gate_proj.weight", {hidden, width});
    make.add(layer + "mlp.up_proj.weight", {hidden, width});
    make.add(layer + "mlp.down_proj.weight", {width, hidden});
    if (config.at("model_type") == "qwen2") {
      make.bias(layer + "self_attn.q_proj.bias", heads * size);
      make.bias(layer + "self_attn.k_proj.bias", kv_heads * size);
      make.bias(layer + "self_attn.v_proj.bias", kv_heads * size);
    }
    if (config.at("model_type") == "qwen3") {
      make.gain(layer + "self_attn.q_norm.weight", size);
      make.gain(layer + "self_attn.k_norm.weight", size);
    }
  }
  make.gain("model.norm.weight", width);
  if (!tied) make.add("lm_head.weight", {config.at("vocab_size"), width});
  return make.tensors;
}

inline HfModel gpt2_model() {
  const json config{{"architectures", {"GPT2LMHeadModel"}},
                    {"model_type", "gpt2"},
                    {"activation_function", "gelu_new"},
                    {"attn_pdrop", 0.1},
                    {"bos_token_id", 96},
                    {"eos_token_id", 96},
                    {"layer_norm_epsilon", 1e-5},
                    {"n_embd", 240},
                    {"n_head", 3},
                    {"n_inner", nullptr},
                    {"n_layer", 2},
                    {"n_positions", 40},
                    {"vocab_size", 97}};
  return {"gpt2", config, gpt2_values(config)};
}

// What Llama, Mistral and Qwen have in common; the changes are a family's own.
inline HfModel llama_like(const std::string& name, const std::string& type, const std::string& architecture,
                          const json& changes) {
  json config{{"architectures", {architecture}},
              {"model_type", type},
              {"bos_token_id", 1},
              {"eos_token_id", 2},
              {"hidden_act", "silu"},
              {"hidden_size", 96},
              {"intermediate_size", 70},
              {"max_position_embeddings", 64},
              {"num_attention_heads", 6},
              {"num_hidden_layers", 2},
              {"num_key_value_heads", 3},
              {"rms_norm_eps", 1e-5},
              {"tie_word_embeddings", false},
              {"vocab_size", 101}};
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return {name, config, llama_values(config)};
}

inline HfModel llama2_model() {
  HfModel model = llama_like("llama2", "llama", "LlamaForCausalLM", {{"hidden_size", 480}, {"rope_scaling", nullptr}});
  return model;
}

inline HfModel llama3_model() {
  return llama_like("llama3", "llama", "LlamaForCausalLM",
                    {{"head_dim", 80},
                     {"rope_theta", 500.0},
                     {"rope_scaling",
                      {{"factor", 8.0},
                       {"high_freq_factor", 4.0},
                       {"low_freq_factor", 1.0},
                       {"original_max_position_embeddings", 32},
                       {"rope_type", "llama3"}}}});
}

inline HfModel smollm2_model() {
  return llama_like("smollm2", "llama", "LlamaForCausalLM",
                    {{"hidden_size", 480}, {"tie_word_embeddings", true}, {"rope_theta", 130000}});
}

inline HfModel mistral_model() {
  return llama_like("mistral", "mistral", "MistralForCausalLM",
                    {{"head_dim", 80}, {"sliding_window", nullptr}, {"rope_theta", 1000000.0}});
}

inline HfModel qwen2_model() {
  return llama_like("qwen2", "qwen2", "Qwen2ForCausalLM",
                    {{"hidden_size", 480},
                     {"tie_word_embeddings", true},
                     {"use_sliding_window", false},
                     {"sliding_window", 16},
                     {"max_window_layers", 2},
                     {"rms_norm_eps", 1e-6},
                     {"rope_theta", 1000000.0}});
}

// The newer form: rope_parameters and dtype.
inline HfModel qwen3_model() {
  return llama_like("qwen3", "qwen3", "Qwen3ForCausalLM",
                    {{"head_dim", 80},
                     {"attention_bias", false},
                     {"layer_types", {"full_attention", "full_attention"}},
                     {"dtype", "bfloat16"},
                     {"rope_parameters", {{"rope_theta", 1000000.0}, {"rope_type", "default"}}}});
}

// A model that is made when a test needs it: listing the tests must not draw its weights.
struct NamedHfModel {
  const char* name;
  HfModel (*make)();
};
inline constexpr NamedHfModel hf_models[] = {
    {"gpt2", gpt2_model},       {"llama2", llama2_model}, {"llama3", llama3_model}, {"smollm2", smollm2_model},
    {"mistral", mistral_model}, {"qwen2", qwen2_model},   {"qwen3", qwen3_model}};

inline std::vector<HfModel> all_hf_models() {
  std::vector<HfModel> all;
  for (const NamedHfModel& model : hf_models) all.push_back(model.make());
  return all;
}

// BF16 is cut off, not rounded: what a folder holds is whatever it was written with.
inline std::vector<std::byte> hf_bytes(const std::vector<float>& values, const std::string& dtype) {
  std::vector<std::byte> bytes(values.size() * (dtype == "F32" ? 4 : 2));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == "F32") {
      std::memcpy(&bytes[4 * i], &values[i], 4);
    } else if (dtype == "BF16") {
      const auto code = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16U);
      std::memcpy(&bytes[2 * i], &code, 2);
    } else {
      const auto half = static_cast<_Float16>(values[i]);
      std::memcpy(&bytes[2 * i], &half, 2);
    }
  }
  return bytes;
}

inline std::vector<float> hf_values(std::span<const std::byte> bytes, const std::string& dtype) {
  const std::size_t size = dtype == "F32" ? 4 : 2;
  std::vector<float> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == "F32") {
      std::memcpy(&values[i], &bytes[4 * i], 4);
      continue;
    }
    std::uint16_t code = 0;
    std::memcpy(&code, &bytes[2 * i], 2);
    values[i] = dtype == "BF16" ? std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16U)
                                : static_cast<float>(std::bit_cast<_Float16>(code));
  }
  return values;
}

// Writes the folder; several shards where asked for.
inline void write_hf_folder(const std::filesystem::path& folder, const HfModel& model, const std::string& dtype = "F32",
                            std::size_t shards = 1) {
  std::filesystem::create_directories(folder);
  json config = model.config;
  if (!config.contains("dtype")) config["torch_dtype"] = dtype == "F32" ? "float32" : "bfloat16";
  std::ofstream(folder / "config.json") << config.dump(2);
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": 2, "temperature": 0.6})";
  std::ofstream(folder / "tokenizer_config.json") << R"({"model_max_length": 64})";
  std::vector<std::vector<std::byte>> data;
  std::vector<std::vector<TensorEntry>> files(shards);
  json index;
  const auto file_name = [&](std::size_t shard) {
    if (shards == 1) return std::string("model.safetensors");
    return "model-0000" + std::to_string(shard + 1) + "-of-0000" + std::to_string(shards) + ".safetensors";
  };
  data.reserve(model.tensors.size());
  for (const auto& [name, tensor] : model.tensors) {
    const std::size_t shard = data.size() * shards / model.tensors.size();
    data.push_back(hf_bytes(tensor.values, dtype));
    files[shard].push_back({name, dtype, tensor.shape, data.back()});
    index["weight_map"][name] = file_name(shard);
  }
  for (std::size_t shard = 0; shard < shards; ++shard) write_safetensors(folder / file_name(shard), files[shard]);
  if (shards > 1) std::ofstream(folder / "model.safetensors.index.json") << index.dump();
}

// Every tensor of a folder, whatever its files.
inline std::map<std::string, std::pair<std::string, std::vector<std::byte>>> hf_contents(
    const std::filesystem::path& folder) {
  std::map<std::string, std::pair<std::string, std::vector<std::byte>>> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file = SafetensorsFile::open(entry.path());
    for (const TensorEntry& tensor : file.tensors()) {
      all.emplace(tensor.name, std::pair(tensor.dtype, std::vector(tensor.data.begin(), tensor.data.end())));
    }
  }
  return all;
}

}  // namespace quaver::test
