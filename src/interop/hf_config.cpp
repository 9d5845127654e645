#include "interop/hf_config.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <tuple>
#include <utility>

#include "interop/json_fields.h"
#include "interop/quantization_config.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {

using nlohmann::json;

namespace {

constexpr std::uint64_t largest_config = std::uint64_t{1} << 20;

// As generous as the config's own ranges.
constexpr Size most_layers = 4096;
constexpr Size most_heads = 4096;
constexpr Size widest_model = Size{1} << 18;
constexpr Size longest_context = Size{1} << 22;

constexpr const char* families = "quaver imports gpt2, llama, mistral, qwen2 and qwen3";

struct Difference {
  std::string_view type;
  std::string_view what;
};
constexpr std::array<Difference, 27> differences{{
    {"bloom", "positions are ALiBi's"},
    {"cohere", "branches run in parallel, and logits are scaled"},
    {"cohere2", "branches run in parallel, and most layers have a sliding window"},
    {"deepseek_v2", "a mixture of experts with latent attention"},
    {"deepseek_v3", "a mixture of experts with latent attention"},
    {"falcon", "branches run in parallel"},
    {"gemma", "norms multiply by 1 + w, embeddings are scaled, the MLP is GeGLU"},
    {"gemma2",
     "logits are soft-capped, norms stand on both sides of a branch, every second layer has a sliding window"},
    {"gemma3", "norms stand on both sides of a branch, most layers have a sliding window"},
    {"gemma3_text", "norms stand on both sides of a branch, most layers have a sliding window"},
    {"gpt_bigcode", "queries share one key head, in another layout"},
    {"gpt_neo", "every second layer has local attention"},
    {"gpt_neox", "branches run in parallel, and rotary embedding is partial"},
    {"gpt_oss", "a mixture of experts with attention sinks"},
    {"gptj", "branches run in parallel, and rotary embedding is partial"},
    {"granite", "embeddings, branches and logits have multipliers"},
    {"mamba", "a state-space model has no attention"},
    {"mixtral", "a mixture of experts"},
    {"olmo", "norms have no gains"},
    {"olmo2", "norms stand behind the branches, and QK-norm covers the whole projection"},
    {"opt", "positions are offset, and the MLP is ReLU"},
    {"phi", "branches run in parallel, and rotary embedding is partial"},
    {"phi3", "its projections are fused, and rotary embedding may be partial or scaled by longrope"},
    {"qwen2_moe", "a mixture of experts"},
    {"qwen3_moe", "a mixture of experts"},
    {"smollm3", "every fourth layer has no rotary embedding"},
    {"stablelm", "rotary embedding is partial"},
}};

[[noreturn]] void refuse(const Fields& fields, const std::string& what) {
  throw Error(fmt::format("{}: {}", fields.source(), what), families);
}

[[noreturn]] void refuse_type(const Fields& fields, const std::string& type) {
  const auto* const known = std::find_if(differences.begin(), differences.end(),
                                         [&](const Difference& difference) { return difference.type == type; });
  refuse(fields, fmt::format("model_type \"{}\" is not supported{}", printable(type),
                             known != differences.end() ? fmt::format(": {}", known->what) : ""));
}

// A classifier, or an encoder, has the same fields and another head.
void check_architecture(const Fields& fields, std::string_view expected) {
  const json* listed = fields.find("architectures");
  if (listed == nullptr) return;
  if (!listed->is_array() || listed->size() != 1 || !listed->front().is_string()) {
    fields.wrong("architectures", fmt::format("[\"{}\"]", expected));
  }
  const auto name = listed->front().get<std::string>();
  if (name != expected) {
    refuse(fields, fmt::format("architecture \"{}\" is not supported, only {}", printable(name), expected));
  }
}

void check_common(const Fields& fields) {
  read_quantization(fields);  // refuses what is stored in another way
  if (!fields.boolean("is_causal", true)) refuse(fields, "attention to later tokens is not supported");
  if (fields.has("per_layer_config")) refuse(fields, "layers that differ (\"per_layer_config\") are not supported");
  if (fields.number("partial_rotary_factor", 0, 1, 1.0) != 1)
    refuse(fields, "partial rotary embedding is not supported");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (fields.has(key)) refuse(fields, fmt::format("\"{}\" is not supported", key));
  }
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (fields.has(key)) refuse(fields, fmt::format("\"{}\": a mixture of experts is not supported", key));
  }
}

// Whether any of the layers has the window that sliding_window gives.
bool has_window(const Fields& fields, std::string_view type, Size layers) {
  if (const json* kinds = fields.find("layer_types")) {
    if (!kinds->is_array()) fields.wrong("layer_types", "a list");
    bool any = false;
    for (const json& kind : *kinds) {
      if (kind != "full_attention" && kind != "sliding_attention") {
        refuse(fields, fmt::format("layers of type {} are not supported", printable(kind.dump())));
      }
      any = any || kind == "sliding_attention";
    }
    return any;
  }
  if (type == "llama" || fields.is_null("sliding_window")) return false;
  if (type == "mistral") return true;
  if (!fields.boolean("use_sliding_window", false)) return false;
  const double without = fields.number("max_window_layers", 0, 1e9, 28.0);  // the first ones
  return without < static_cast<double>(layers);
}

// The largest context in which no window is in use: one as long as the longest sequence is none.
Size longest_full_attention(const Fields& fields, std::string_view type, Size layers) {
  constexpr Size none = Size{1} << 40U;
  constexpr Size usual = 4096;  // of a file that has windows and does not say how long they are
  if (!has_window(fields, type, layers)) return none;
  if (fields.is_null("sliding_window")) fields.missing("sliding_window");
  return fields.integer("sliding_window", none, usual);
}

void check_window(const Fields& fields, std::string_view type, const ModelConfig& model) {
  const Size window = longest_full_attention(fields, type, model.layers);
  if (window >= model.context) return;
  refuse(fields, fmt::format("a sliding window of {} tokens is in use, which is not supported", window));
}

void read_scaling(const Fields& rope, ModelConfig& model) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return;
  if (type != "llama3")
    refuse(rope, fmt::format("rotary scaling \"{}\" is not supported, only llama3", printable(type)));
  model.rope_factor = rope.number("factor", 1, 1e6);
  model.rope_low_frequency = rope.number("low_freq_factor", 1e-6, 1e6);
  model.rope_high_frequency = rope.number("high_freq_factor", 1e-6, 1e6);
  model.rope_original_context = rope.integer("original_max_position_embeddings", longest_context);
  if (model.rope_factor != 1 && model.rope_low_frequency >= model.rope_high_frequency) {
    rope.wrong("low_freq_factor", "a number below high_freq_factor");
  }
}

// What an object about rotary embedding says, over what the model has.
void read_rope_object(const Fields& fields, const char* key, ModelConfig& model) {
  const json& object = *fields.find(key);
  if (!object.is_object()) fields.wrong(key, "an object");
  const std::string source = fmt::format("{}: {}", fields.source(), key);
  const Fields rope(object, source);
  model.rope_theta = rope.number("rope_theta", 1, 1e12, model.rope_theta);
  if (rope.number("partial_rotary_factor", 0, 1, 1.0) != 1) refuse(rope, "partial rotary embedding is not supported");
  read_scaling(rope, model);
}

bool same_rope(const ModelConfig& a, const ModelConfig& b) {
  const auto all = [](const ModelConfig& model) {
    return std::tuple(model.rope_theta, model.rope_factor, model.rope_low_frequency, model.rope_high_frequency,
                      model.rope_original_context);
  };
  return all(a) == all(b);
}

// Newer files keep everything about rotary embedding in rope_parameters. Of two objects that differ, versions of
// transformers do not take the same.
void read_rope(const Fields& fields, ModelConfig& model) {
  constexpr const char* original = "original_max_position_embeddings";
  model.rope_theta = fields.number("rope_theta", 1, 1e12, 10000.0);
  const ModelConfig plain = model;
  if (fields.has("rope_parameters")) read_rope_object(fields, "rope_parameters", model);
  if (const json* older = fields.find("rope_scaling"); older != nullptr && (!older->is_object() || !older->empty())) {
    ModelConfig other = plain;
    read_rope_object(fields, "rope_scaling", other);
    if (fields.has("rope_parameters") && !same_rope(model, other)) {
      refuse(fields, "\"rope_scaling\" and \"rope_parameters\" contradict each other");
    }
    model = other;
  }
  if (model.rope_factor == 1 || !fields.has(original)) return;
  if (fields.integer(original, longest_context) != model.rope_original_context) {
    fields.wrong(original, "the number that the rotary scaling has");
  }
}

void refuse_if_set(const Fields& fields, const char* key, const char* what) {
  if (fields.boolean(key, false)) refuse(fields, fmt::format("\"{}\": {}", key, what));
}

void check_heads(const Fields& fields, const ModelConfig& model) {
  if (model.heads % model.kv_heads != 0) {
    fields.wrong("num_key_value_heads", fmt::format("a divisor of the {} heads", model.heads));
  }
  if (model.head_size % 2 != 0) fields.wrong("head_dim", "an even number");
}

Size head_size_of(const Fields& fields, std::string_view type, const ModelConfig& model) {
  constexpr Size of_qwen3 = 128;  // where its file does not say
  if (fields.has("head_dim")) return fields.integer("head_dim", most_heads);
  if (type == "qwen3") return of_qwen3;
  if (model.width % model.heads != 0) {
    fields.wrong("hidden_size", fmt::format("a multiple of the {} heads, or \"head_dim\"", model.heads));
  }
  return model.width / model.heads;
}

ModelConfig read_llama(const Fields& fields, std::string_view type) {
  ModelConfig model;
  model.family = Family::llama;
  model.layers = fields.integer("num_hidden_layers", most_layers);
  model.width = fields.integer("hidden_size", widest_model);
  model.ffn = fields.integer("intermediate_size", 4 * widest_model);
  model.heads = fields.integer("num_attention_heads", most_heads);
  const auto all = type == "llama" ? std::optional(model.heads) : std::nullopt;
  model.kv_heads = fields.integer("num_key_value_heads", most_heads, all);
  model.head_size = head_size_of(fields, type, model);
  model.vocab = fields.integer("vocab_size", longest_context);
  model.context = fields.integer("max_position_embeddings", longest_context);
  model.norm_eps = fields.number("rms_norm_eps", 1e-30, 1, 1e-6);
  model.tie_head = fields.boolean("tie_word_embeddings", false) ? TieHead::yes : TieHead::no;
  model.qkv_bias = type == "qwen2";
  model.qk_norm = type == "qwen3";
  check_heads(fields, model);
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    refuse(fields, fmt::format("activation \"{}\" is not supported", printable(activation)));
  if (type != "qwen2") refuse_if_set(fields, "attention_bias", "a bias on the output projection is not supported");
  refuse_if_set(fields, "mlp_bias", "biases in the MLP are not supported");
  read_rope(fields, model);
  check_window(fields, type, model);
  return model;
}

// GPT-2 has two names for its sizes. transformers takes the second where both are there, or refuses the file.
void check_second_names(const Fields& fields) {
  using Names = std::pair<const char*, const char*>;
  for (const auto& [name, alias] :
       {Names{"n_layer", "num_hidden_layers"}, Names{"n_embd", "hidden_size"}, Names{"n_head", "num_attention_heads"},
        Names{"n_positions", "max_position_embeddings"}}) {
    if (fields.has(alias) && *fields.find(alias) != fields.integer(name, widest_model)) {
      fields.wrong(alias, fmt::format("the same as \"{}\"", name));
    }
  }
}

ModelConfig read_gpt2(const Fields& fields) {
  check_second_names(fields);
  ModelConfig model;
  model.family = Family::gpt;
  model.layers = fields.integer("n_layer", most_layers);
  model.width = fields.integer("n_embd", widest_model);
  model.heads = fields.integer("n_head", most_heads);
  model.kv_heads = model.heads;
  if (model.width % model.heads != 0) fields.wrong("n_embd", fmt::format("a multiple of the {} heads", model.heads));
  model.head_size = model.width / model.heads;
  model.ffn = fields.integer("n_inner", 4 * widest_model, 4 * model.width);
  model.vocab = fields.integer("vocab_size", longest_context);
  model.context = fields.integer("n_positions", longest_context);
  model.norm_eps = fields.number("layer_norm_epsilon", 1e-30, 1, 1e-5);
  if (fields.is_null("tie_word_embeddings")) fields.wrong("tie_word_embeddings", "true or false");
  model.tie_head = fields.boolean("tie_word_embeddings", true) ? TieHead::yes : TieHead::no;
  const std::string activation = fields.text("activation_function", "gelu_new");
  if (activation == "relu") {
    model.activation = MlpActivation::relu;
  } else if (activation != "gelu_new" && activation != "gelu_pytorch_tanh" && activation != "gelu_fast") {
    refuse(fields, fmt::format("activation \"{}\" is not supported", printable(activation)));
  }
  refuse_if_set(fields, "scale_attn_by_inverse_layer_idx", "attention scaled by the layer is not supported");
  refuse_if_set(fields, "add_cross_attention", "cross-attention is not supported");
  if (!fields.boolean("scale_attn_weights", true)) refuse(fields, "attention without its scale is not supported");
  return model;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> architectures{{{"gpt2", "GPT2LMHeadModel"},
                                                                                      {"llama", "LlamaForCausalLM"},
                                                                                      {"mistral", "MistralForCausalLM"},
                                                                                      {"qwen2", "Qwen2ForCausalLM"},
                                                                                      {"qwen3", "Qwen3ForCausalLM"}}};

std::string_view architecture_of(std::string_view type) {
  const auto* const found =
      std::find_if(architectures.begin(), architectures.end(), [&](const auto& entry) { return entry.first == type; });
  return found == architectures.end() ? std::string_view() : found->second;
}

[[noreturn]] void cannot_export(const std::string& what) {
  throw Error(what + ": no architecture of transformers computes that", "export a run whose model has no such setting");
}

// Settings that change what the model computes and that config.json has no field for.
void check_exportable(const ModelConfig& model) {
  if (classifies_images(model.family)) cannot_export("the model is a classifier of images");
  if (model.parametrization != Parametrization::standard) cannot_export("the model is unit-scaled");
  if (model.activation_scale != 1 || model.activation_clip != 0) {
    cannot_export("model.activation_scale or model.activation_clip is set");
  }
  ModelConfig plain = model;
  plain.attention_scale = 0;
  if (resolved(plain).attention_scale != model.attention_scale) cannot_export("model.attention_scale is set");
  if (model.qkv_bias && model.qk_norm) cannot_export("the model has both QK-norm and biases on q, k and v");
  if (model.family == Family::llama) return;
  if (model.qk_norm) cannot_export("GPT with QK-norm");
  if (model.kv_heads != model.heads || model.head_size * model.heads != model.width) {
    cannot_export("GPT with grouped queries, or heads that do not add up to its width");
  }
}

std::string type_of(const ModelConfig& model, const json& original) {
  if (model.family == Family::gpt) return "gpt2";
  if (model.qk_norm) return "qwen3";
  if (model.qkv_bias) return "qwen2";
  // Newer versions of transformers refuse a Llama of such a width.
  if (model.width % model.heads != 0) return "mistral";
  return original.value("model_type", "") == "mistral" ? "mistral" : "llama";
}

void write_gpt2(const ModelConfig& model, json& out) {
  out["n_layer"] = model.layers;
  out["n_embd"] = model.width;
  out["n_head"] = model.heads;
  out["n_inner"] = model.ffn;
  out["n_positions"] = model.context;
  out["n_ctx"] = model.context;
  out["layer_norm_epsilon"] = model.norm_eps;
  out["activation_function"] = model.activation == MlpActivation::relu ? "relu" : "gelu_new";
}

void write_llama(const ModelConfig& model, json& out) {
  out["num_hidden_layers"] = model.layers;
  out["hidden_size"] = model.width;
  out["intermediate_size"] = model.ffn;
  out["num_attention_heads"] = model.heads;
  out["num_key_value_heads"] = model.kv_heads;
  out["head_dim"] = model.head_size;
  out["max_position_embeddings"] = model.context;
  out["rms_norm_eps"] = model.norm_eps;
  out["hidden_act"] = "silu";
  out["rope_theta"] = model.rope_theta;
  out["rope_scaling"] = nullptr;
  if (model.rope_factor != 1) {
    out["rope_scaling"] = {{"rope_type", "llama3"},
                           {"factor", model.rope_factor},
                           {"low_freq_factor", model.rope_low_frequency},
                           {"high_freq_factor", model.rope_high_frequency},
                           {"original_max_position_embeddings", model.rope_original_context}};
  }
  // Attention is full, also where the context is longer now than a window that was out of use.
  if (out["model_type"] == "mistral") out["sliding_window"] = nullptr;
  if (out.contains("use_sliding_window")) out["use_sliding_window"] = false;
  out.erase("layer_types");
  if (out["model_type"] != "qwen2" && out["model_type"] != "mistral") out["attention_bias"] = false;
}

}  // namespace

ModelConfig parse_hf_config(std::string_view text, std::string_view source) {
  const json object = parse_object(text, source);
  const Fields fields(object, source);
  const std::string type = fields.text("model_type");
  const std::string_view architecture = architecture_of(type);
  if (architecture.empty()) refuse_type(fields, type);
  check_architecture(fields, architecture);
  check_common(fields);
  return type == "gpt2" ? read_gpt2(fields) : read_llama(fields, type);
}

std::string hf_config_text(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    throw Error(fmt::format("{} holds no Hugging Face model: there is no config.json", folder.string()),
                "name the folder that has config.json and model.safetensors");
  }
  return read_file(path, largest_config);
}

void check_context(const std::filesystem::path& folder, Size context) {
  const std::string text = hf_config_text(folder), source = (folder / "config.json").string();
  const json object = parse_object(text, source);
  const Fields fields(object, source);
  const std::string type = fields.text("model_type");
  if (type == "gpt2") return;
  const Size window = longest_full_attention(fields, type, fields.integer("num_hidden_layers", most_layers));
  if (context <= window) return;
  throw Error(
      fmt::format("{}: in a context of {} tokens its sliding window of {} comes into use, which is not supported",
                  source, context, window),
      fmt::format("set model.context to {} or less", window));
}

ModelConfig read_hf_config(const std::filesystem::path& folder) {
  return parse_hf_config(hf_config_text(folder), (folder / "config.json").string());
}

std::string render_hf_config(const ModelConfig& model, std::string_view dtype, std::string_view original) {
  check_exportable(model);
  json out = original.empty() ? json::object() : parse_object(original, "config.json of the original model");
  out.erase("rope_parameters");  // the older form, which every version reads
  out.erase("dtype");
  out.erase("quantization_config");
  const std::string type = type_of(model, out);
  out["model_type"] = type;
  out["architectures"] = {std::string(architecture_of(type))};
  out["vocab_size"] = model.vocab;
  out["tie_word_embeddings"] = model.tie_head == TieHead::yes;
  out["torch_dtype"] = dtype;
  model.family == Family::gpt ? write_gpt2(model, out) : write_llama(model, out);
  return out.dump(2) + "\n";
}

}  // namespace quaver
