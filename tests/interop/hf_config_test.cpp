// config.json as the families write it, and what is refused: by name, with the file and the field.
#include "interop/hf_config.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/hf_folder.h"

#include "quaver/error.h"

namespace quaver::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refused(const json& config) {
  try {
    parse_hf_config(config.dump(), "folder/config.json");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("folder/config.json"));
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
  return "accepted";
}

// The family's config.json with one field set.
std::string refused(HfModel model, const std::string& key, const json& value) {
  model.config[key] = value;
  return refused(model.config);
}

TEST(HfConfig, ReadsTheSizesOfEachFamily) {
  const ModelConfig gpt2 = parse_hf_config(gpt2_model().config.dump(), "c");
  EXPECT_EQ(gpt2.family, Family::gpt);
  EXPECT_EQ(gpt2.ffn, 960);
  EXPECT_EQ(gpt2.context, 40);
  EXPECT_EQ(gpt2.tie_head, TieHead::yes);
  const ModelConfig llama = parse_hf_config(llama3_model().config.dump(), "c");
  EXPECT_EQ(llama.family, Family::llama);
  EXPECT_EQ(llama.kv_heads, 3);
  EXPECT_EQ(llama.head_size, 80);
  EXPECT_EQ(llama.tie_head, TieHead::no);
  EXPECT_EQ(llama.rope_theta, 500);
  EXPECT_EQ(llama.rope_factor, 8);
  EXPECT_EQ(llama.rope_original_context, 32);
  EXPECT_FALSE(llama.qkv_bias || llama.qk_norm);
  const ModelConfig qwen2 = parse_hf_config(qwen2_model().config.dump(), "c");
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.qk_norm && qwen2.norm_eps == 1e-6);
  const ModelConfig qwen3 = parse_hf_config(qwen3_model().config.dump(), "c");
  EXPECT_TRUE(!qwen3.qkv_bias && qwen3.qk_norm && qwen3.rope_theta == 1e6);
}

// What transformers takes where a file does not say.
TEST(HfConfig, LeavesOutWhatTheFamilyDecides) {
  json llama = llama2_model().config;
  llama.erase("num_key_value_heads");
  llama.erase("tie_word_embeddings");
  llama.erase("rms_norm_eps");
  const ModelConfig model = parse_hf_config(llama.dump(), "c");
  EXPECT_EQ(model.kv_heads, 6);
  EXPECT_EQ(model.tie_head, TieHead::no);
  EXPECT_EQ(model.norm_eps, 1e-6);
  EXPECT_EQ(model.rope_theta, 10000);
  json qwen3 = qwen3_model().config;
  qwen3.erase("head_dim");
  EXPECT_EQ(parse_hf_config(qwen3.dump(), "c").head_size, 128);
  json mistral = mistral_model().config;
  mistral.erase("num_key_value_heads");
  EXPECT_THAT(refused(mistral), HasSubstr("\"num_key_value_heads\" is missing")) << "8, not as many as heads";
}

TEST(HfConfig, OtherArchitecturesAreNamedWithWhatDiffers) {
  EXPECT_THAT(refused(llama3_model(), "model_type", "mixtral"), AllOf(HasSubstr("mixtral"), HasSubstr("experts")));
  EXPECT_THAT(refused(llama3_model(), "model_type", "gemma2"), AllOf(HasSubstr("gemma2"), HasSubstr("soft-capped")));
  EXPECT_THAT(refused(llama3_model(), "model_type", "smollm3"), HasSubstr("no rotary embedding"));
  EXPECT_THAT(refused(llama3_model(), "model_type", "no\nsuch"), HasSubstr("no?such"));
  EXPECT_THAT(refused(llama3_model(), "architectures", {"LlamaForSequenceClassification"}),
              AllOf(HasSubstr("LlamaForSequenceClassification"), HasSubstr("LlamaForCausalLM")));
  EXPECT_THAT(refused(json{{"hidden_size", 3}}), HasSubstr("\"model_type\" is missing"));
}

TEST(HfConfig, FeaturesThatAreNotThereAreRefusedByName) {
  const HfModel llama = llama3_model();
  EXPECT_THAT(refused(llama, "hidden_act", "gelu"), HasSubstr("activation \"gelu\""));
  EXPECT_THAT(refused(llama, "attention_bias", true), HasSubstr("attention_bias"));
  EXPECT_THAT(refused(llama, "mlp_bias", true), HasSubstr("mlp_bias"));
  EXPECT_THAT(refused(llama, "partial_rotary_factor", 0.5), HasSubstr("partial rotary"));
  EXPECT_THAT(refused(llama, "final_logit_softcapping", 30.0), HasSubstr("final_logit_softcapping"));
  EXPECT_THAT(refused(llama, "num_local_experts", 8), HasSubstr("mixture of experts"));
  EXPECT_THAT(refused(llama, "quantization_config", {{"quant_method", "fp8"}}), HasSubstr("quantization_config"));
  EXPECT_THAT(refused(llama, "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}), HasSubstr("\"linear\""));
  EXPECT_THAT(refused(llama, "rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}), HasSubstr("\"yarn\""));
  EXPECT_THAT(refused(qwen3_model(), "attention_bias", true), HasSubstr("attention_bias"));
  const HfModel gpt2 = gpt2_model();
  EXPECT_THAT(refused(gpt2, "activation_function", "gelu"), HasSubstr("activation \"gelu\""));
  EXPECT_THAT(refused(gpt2, "scale_attn_by_inverse_layer_idx", true), HasSubstr("scale_attn_by_inverse_layer_idx"));
  EXPECT_THAT(refused(gpt2, "scale_attn_weights", false), HasSubstr("scale"));
  EXPECT_THAT(refused(gpt2, "add_cross_attention", true), HasSubstr("cross-attention"));
  for (const HfModel& model : {gpt2, llama, qwen2_model()}) {
    EXPECT_THAT(refused(model, "is_causal", false), HasSubstr("later tokens"));
    EXPECT_EQ(refused(model, "is_causal", true), "accepted");
    EXPECT_THAT(refused(model, "per_layer_config", {{"0", json::object()}}), HasSubstr("per_layer_config"));
  }
}

// Programs take one or the other of two statements that differ; who wrote the file meant one.
TEST(HfConfig, ContradictionsAreRefused) {
  const json scaling = llama3_model().config.at("rope_scaling");
  const auto both = [&](const json& older, const json& newer) {
    json config = llama3_model().config;
    config["rope_scaling"] = older;
    config["rope_parameters"] = newer;
    return refused(config);
  };
  json same = scaling;
  same["rope_theta"] = 500.0;
  EXPECT_EQ(both(scaling, same), "accepted") << "rope_theta is the same beside it";
  EXPECT_EQ(both(json::object(), same), "accepted");
  EXPECT_EQ(both(nullptr, same), "accepted");
  json other = same;
  other["rope_theta"] = 10000.0;
  EXPECT_THAT(both(scaling, other), HasSubstr("contradict each other"));
  other = same;
  other["factor"] = 2.0;
  EXPECT_THAT(both(scaling, other), HasSubstr("contradict each other"));
  EXPECT_THAT(both({{"rope_type", "default"}}, same), HasSubstr("contradict each other"));
  EXPECT_THAT(refused(llama3_model(), "original_max_position_embeddings", 16), HasSubstr("original_max_position"));
  EXPECT_EQ(refused(llama3_model(), "original_max_position_embeddings", 32), "accepted");
  EXPECT_EQ(refused(llama2_model(), "original_max_position_embeddings", 16), "accepted") << "nothing is scaled";
  for (const char* alias : {"num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings"}) {
    EXPECT_THAT(refused(gpt2_model(), alias, 7), AllOf(HasSubstr(alias), HasSubstr("the same as \"n_")));
  }
  EXPECT_EQ(refused(gpt2_model(), "hidden_size", gpt2_model().config.at("n_embd")), "accepted");
  EXPECT_THAT(refused(gpt2_model(), "tie_word_embeddings", nullptr), HasSubstr("true or false"));
}

TEST(HfConfig, ASlidingWindowIsRefusedWhereItIsInUse) {
  EXPECT_THAT(refused(mistral_model(), "sliding_window", 63), HasSubstr("a sliding window of 63 tokens is in use"));
  EXPECT_EQ(refused(mistral_model(), "sliding_window", 64), "accepted") << "as long as the context";
  HfModel mistral = mistral_model();
  mistral.config.erase("sliding_window");
  EXPECT_EQ(refused(mistral, "max_position_embeddings", 4096), "accepted") << "4096, where the file does not say";
  EXPECT_THAT(refused(mistral, "max_position_embeddings", 4097), HasSubstr("a sliding window of 4096 tokens"));
  mistral.config["sliding_window"] = nullptr;
  EXPECT_EQ(refused(mistral, "max_position_embeddings", 4097), "accepted") << "null is none";
  HfModel qwen2 = qwen2_model();
  EXPECT_EQ(refused(qwen2, "max_window_layers", 1), "accepted") << "use_sliding_window is false";
  qwen2.config["use_sliding_window"] = true;
  EXPECT_EQ(refused(qwen2.config), "accepted") << "of two layers those from the third on have it";
  EXPECT_THAT(refused(qwen2, "max_window_layers", 1), HasSubstr("sliding window of 16"));
  qwen2.config["use_sliding_window"] = false;
  EXPECT_THAT(refused(qwen2, "layer_types", {"full_attention", "sliding_attention"}),
              HasSubstr("sliding window of 16"));
  EXPECT_THAT(refused(qwen2, "layer_types", {"full_attention", "linear_attention"}), HasSubstr("linear_attention"));
}

TEST(HfConfig, ValuesHaveTypesAndBounds) {
  const HfModel llama = llama3_model();
  for (const json& value : {json(0), json(-1), json(1e3), json("96"), json(1ULL << 40U), json::array()}) {
    EXPECT_THAT(refused(llama, "hidden_size", value), HasSubstr("\"hidden_size\" is")) << value;
    EXPECT_THAT(refused(llama, "num_hidden_layers", value), HasSubstr("\"num_hidden_layers\" is")) << value;
  }
  EXPECT_THAT(refused(llama, "hidden_size", nullptr), HasSubstr("\"hidden_size\" is missing"));
  EXPECT_THAT(refused(llama, "num_key_value_heads", 4), HasSubstr("a divisor of the 6 heads"));
  EXPECT_THAT(refused(llama, "head_dim", 81), HasSubstr("an even number"));
  EXPECT_THAT(refused(llama2_model(), "hidden_size", 481), HasSubstr("a multiple of the 6 heads"));
  EXPECT_THAT(refused(llama, "rms_norm_eps", 0), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(refused(llama, "rope_theta", 0.5), HasSubstr("rope_theta"));
  EXPECT_THAT(refused(llama, "tie_word_embeddings", "yes"), HasSubstr("true or false"));
  EXPECT_THAT(refused(llama, "rope_scaling", "llama3"), HasSubstr("an object"));
  EXPECT_THAT(refused(llama, "architectures", "LlamaForCausalLM"), HasSubstr("architectures"));
  HfModel crossed = llama;
  crossed.config["rope_scaling"]["low_freq_factor"] = 4.0;
  EXPECT_THAT(refused(crossed.config), HasSubstr("low_freq_factor"));
}

TEST(HfConfig, WhatIsNoObjectIsRefused) {
  for (const std::string text : {"", "[]", "{", "null", "{\"model_type\": \"llama\"", "\xff\xfe"}) {
    EXPECT_THROW(parse_hf_config(text, "c"), Error) << text;
  }
  EXPECT_THROW(parse_hf_config("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", "c"), Error);
  EXPECT_THROW(parse_hf_config(R"({"model_type": "llama", "hidden_size": 1e999})", "c"), Error);
  const TemporaryFolder folder;
  folder.write("config.json", "{}" + std::string(std::size_t{2} << 20U, ' '));
  EXPECT_THROW(read_hf_config(folder.path()), Error) << "larger than any config.json";
  EXPECT_THROW(read_hf_config(folder / "missing"), Error);
}

TEST(HfConfig, AWindowThatALongerContextBringsIntoUseIsRefused) {
  const TemporaryFolder folder;
  const auto check = [&](HfModel model, const json& fields, Size context) -> std::string {
    model.config.update(fields);
    folder.write("config.json", model.config.dump());
    EXPECT_NO_THROW(read_hf_config(folder.path()));
    try {
      check_context(folder.path(), context);
    } catch (const Error& error) {
      EXPECT_THAT(error.remedy(), HasSubstr("model.context to 64 or less"));
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(check(mistral_model(), {{"sliding_window", 64}}, 64), "accepted");
  EXPECT_THAT(check(mistral_model(), {{"sliding_window", 64}}, 128), HasSubstr("sliding window of 64"));
  EXPECT_EQ(check(mistral_model(), {{"sliding_window", nullptr}}, 128), "accepted");
  const json layers = {{"sliding_window", 64}, {"layer_types", {"full_attention", "sliding_attention"}}};
  EXPECT_THAT(check(qwen2_model(), layers, 128), HasSubstr("sliding window of 64"));
  EXPECT_EQ(check(qwen2_model(), {{"use_sliding_window", false}}, 128), "accepted");
  EXPECT_EQ(check(gpt2_model(), json::object(), 128), "accepted");
}

// Newer versions of transformers refuse a Llama whose width its heads do not divide.
TEST(HfConfig, HeadsThatDoNotDivideTheWidthAreWrittenAsMistral) {
  ModelConfig model = resolved(parse_hf_config(llama3_model().config.dump(), "c"));
  const auto type = [&] { return json::parse(render_hf_config(model, "float32")); };
  EXPECT_EQ(type().at("model_type"), "llama");
  model.heads = model.kv_heads = 5;
  EXPECT_EQ(type().at("model_type"), "mistral");
  EXPECT_EQ(type().at("sliding_window"), nullptr);
}

// A window that the context has outgrown would come into use.
TEST(HfConfig, AttentionIsWrittenAsFull) {
  HfModel mistral = mistral_model();
  mistral.config["sliding_window"] = 64;
  HfModel qwen2 = qwen2_model();
  qwen2.config["use_sliding_window"] = true;
  qwen2.config["sliding_window"] = 64;
  qwen2.config["layer_types"] = {"full_attention", "sliding_attention"};
  for (const HfModel& from : {mistral, qwen2}) {
    const std::string original = from.config.dump();
    ModelConfig model = resolved(parse_hf_config(original, "c"));
    model.context = 128;
    const ModelConfig again = parse_hf_config(render_hf_config(model, "float32", original), "again");
    EXPECT_EQ(again.context, 128) << from.name;
  }
}

// A setting that transformers has no field for would be lost without a word.
TEST(HfConfig, AModelThatTransformersCannotComputeIsNotWritten) {
  const auto refused_after = [](const HfModel& from, const std::function<void(ModelConfig&)>& change) {
    ModelConfig model = resolved(parse_hf_config(from.config.dump(), "c"));
    EXPECT_NO_THROW(render_hf_config(model, "float32"));
    change(model);
    try {
      render_hf_config(model, "float32");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refused_after(llama3_model(), [](ModelConfig& m) { m.activation_clip = 3; }), HasSubstr("clip"));
  EXPECT_THAT(refused_after(llama3_model(), [](ModelConfig& m) { m.attention_scale = 1; }), HasSubstr("scale"));
  EXPECT_THAT(refused_after(qwen3_model(), [](ModelConfig& m) { m.qkv_bias = true; }), HasSubstr("QK-norm"));
  EXPECT_THAT(refused_after(gpt2_model(), [](ModelConfig& m) { m.qk_norm = true; }), HasSubstr("QK-norm"));
  EXPECT_THAT(refused_after(gpt2_model(), [](ModelConfig& m) { m.kv_heads = 1; }), HasSubstr("grouped"));
  EXPECT_THAT(refused_after(llama3_model(), [](ModelConfig& m) { m.parametrization = Parametrization::umup; }),
              HasSubstr("unit-scaled"));
}

}  // namespace
}  // namespace quaver::test
