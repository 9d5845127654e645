// Exports of adapted models: merged they compute what the adapted model does, and PEFT's files, merged by hand as PEFT
// defines it, give the merged weights.
#include <cmath>
#include <gmock/gmock.h>

#include "support/hf_folder.h"
#include "support/model_fixture.h"

#include "interop/hf_config.h"
#include "interop/hf_export.h"
#include "interop/hf_weights.h"
#include "interop/peft_export.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

constexpr Size adapter_rank = 3;
constexpr float adapter_alpha = 5;

// A model of a folder in FP32, with adapters that say something where there are any.
class Adapted {
 public:
  Adapted(const std::filesystem::path& folder, Size rank, const std::string& targets)
      : small_(config_of(folder, rank, targets), fp32(), 1, 9) {
    load_hf_weights(folder, small_.config, *small_.engine, small_.transformer->parameters());
    for (Parameter& parameter : small_.transformer->parameters().all()) {
      if (!parameter.adapter) continue;
      random_normals({29, 0, stream_of(parameter.name.c_str())}, 0, parameter.weight.f32(), parameter.count());
      for (Size i = 0; i < parameter.count(); ++i) parameter.weight.f32()[i] *= 0.15F;
    }
    small_.refresh_weights();
  }

  const ModelConfig& config() const { return small_.config; }

  std::vector<float> logits() {
    std::vector<int> tokens;
    for (Size i = 0; i < 9; ++i) tokens.push_back(static_cast<int>((i * 37 + 11) % small_.config.vocab));
    Step step{*small_.engine, *small_.arena, 1, static_cast<Size>(tokens.size()), Pass::evaluate};
    std::vector<float> out(static_cast<std::size_t>(small_.config.vocab));
    small_.transformer->next_token_logits(step, tokens, {out.data(), Format::f32, 1, small_.config.vocab});
    return out;
  }

  SafetensorsFile checkpoint(const std::filesystem::path& path) const {
    std::vector<TensorEntry> tensors;
    for (const Parameter& parameter : small_.transformer->parameters().all()) {
      const View values = parameter.weight;
      tensors.push_back({parameter.name,
                         "F32",
                         {parameter.rows, parameter.cols},
                         {static_cast<const std::byte*>(values.data), static_cast<std::size_t>(values.bytes())}});
    }
    write_safetensors(path, tensors);
    return SafetensorsFile::open(path);
  }

 private:
  static ModelConfig config_of(const std::filesystem::path& folder, Size rank, const std::string& targets) {
    ModelConfig config = read_hf_config(folder);
    config.lora_rank = rank;
    config.lora_alpha = adapter_alpha;
    config.lora_targets = targets;
    return config;
  }
  static PrecisionConfig fp32() {
    PrecisionConfig precision;
    precision.recipe = "fp32";
    return precision;
  }

  SmallModel small_;
};

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b.at(i)));
  return worst;
}

// W + alpha / r · B·A, of the weight [in, out] where the config says fan_in_fan_out.
std::vector<float> merged_by_hand(const HfValues& weight, const std::vector<float>& a, const std::vector<float>& b,
                                  bool fan_in_fan_out) {
  const auto out = static_cast<std::size_t>(weight.shape[fan_in_fan_out ? 1 : 0]);
  const auto in = static_cast<std::size_t>(weight.shape[fan_in_fan_out ? 0 : 1]);
  constexpr auto rank = static_cast<std::size_t>(adapter_rank);
  EXPECT_EQ(a.size(), rank * in);
  EXPECT_EQ(b.size(), rank * out);
  std::vector<float> merged = weight.values;
  for (std::size_t row = 0; row < out; ++row) {
    for (std::size_t col = 0; col < in; ++col) {
      double sum = 0;
      for (std::size_t k = 0; k < rank; ++k) sum += static_cast<double>(b[row * rank + k]) * a[k * in + col];
      float& value = merged[fan_in_fan_out ? col * out + row : row * in + col];
      value = static_cast<float>(value + adapter_alpha / static_cast<double>(rank) * sum);
    }
  }
  return merged;
}

class AdapterExport : public testing::TestWithParam<NamedHfModel> {
 protected:
  const HfModel model_ = GetParam().make();
  TemporaryFolder folder_;
};

TEST_P(AdapterExport, MergedModelComputesTheSame) {
  write_hf_folder(folder_ / "base", model_);
  Adapted adapted(folder_ / "base", adapter_rank, "*");
  const SafetensorsFile weights = adapted.checkpoint(folder_ / "model.safetensors");
  export_hf({.model = adapted.config(), .weights = weights, .original = {}}, folder_ / "merged");
  Adapted merged(folder_ / "merged", 0, "*");
  Adapted base(folder_ / "base", 0, "*");
  EXPECT_LT(difference(adapted.logits(), merged.logits()), 1e-4);
  EXPECT_GT(difference(adapted.logits(), base.logits()), 1e-2) << "adapters that say something";
}

TEST_P(AdapterExport, PeftFilesMergeIntoTheMergedWeights) {
  write_hf_folder(folder_ / "base", model_);
  const Adapted adapted(folder_ / "base", adapter_rank, "*");
  const SafetensorsFile weights = adapted.checkpoint(folder_ / "model.safetensors");
  export_hf({.model = adapted.config(), .weights = weights, .original = {}}, folder_ / "merged");
  const auto files =
      export_peft({.model = adapted.config(), .weights = weights, .base = "some/base"}, folder_ / "adapter");
  EXPECT_THAT(files, testing::UnorderedElementsAre(folder_ / "adapter" / "adapter_config.json",
                                                   folder_ / "adapter" / "adapter_model.safetensors"));
  const json config = json::parse(contents(folder_ / "adapter" / "adapter_config.json"));
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("r"), adapter_rank);
  EXPECT_EQ(config.at("lora_alpha").dump(), "5");
  EXPECT_EQ(config.at("base_model_name_or_path"), "some/base");
  const bool gpt = model_.config.at("model_type") == "gpt2";
  EXPECT_EQ(config.at("target_modules"),
            gpt ? json({"c_attn", "c_fc", "c_proj"})
                : json({"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
  const SafetensorsFile adapter = SafetensorsFile::open(folder_ / "adapter" / "adapter_model.safetensors");
  const SafetensorsFile merged = SafetensorsFile::open(folder_ / "merged" / "model.safetensors");
  std::size_t factors = 0;
  for (const auto& [name, weight] : model_.tensors) {
    const std::string there = "base_model.model." + name.substr(0, name.rfind('.'));
    const TensorEntry* a = name.ends_with(".weight") ? adapter.find(there + ".lora_A.weight") : nullptr;
    const std::vector<float> got = hf_values(merged.at(name).data, "F32");
    if (a == nullptr) {
      EXPECT_EQ(got, weight.values) << name;
      continue;
    }
    factors += 2;
    const std::vector<float> b = hf_values(adapter.at(there + ".lora_B.weight").data, "F32");
    const std::vector<float> want =
        merged_by_hand(weight, hf_values(a->data, "F32"), b, config.at("fan_in_fan_out").get<bool>());
    EXPECT_LT(difference(want, got), 1e-6) << name;
    EXPECT_GT(difference(weight.values, got), 1e-3) << name;
  }
  EXPECT_EQ(factors, adapter.tensors().size());
  EXPECT_EQ(factors, 2U * static_cast<std::size_t>(adapted.config().layers) * (gpt ? 4 : 7));
}

TEST_P(AdapterExport, NamesModulesWholeWhereOthersEndAlike) {
  write_hf_folder(folder_ / "base", model_);
  const Adapted adapted(folder_ / "base", adapter_rank, "blocks.0.attn.out");
  const SafetensorsFile weights = adapted.checkpoint(folder_ / "model.safetensors");
  export_peft({.model = adapted.config(), .weights = weights, .base = "base"}, folder_ / "adapter");
  const json config = json::parse(contents(folder_ / "adapter" / "adapter_config.json"));
  const bool gpt = model_.config.at("model_type") == "gpt2";
  EXPECT_EQ(config.at("target_modules"),
            json({gpt ? "transformer.h.0.attn.c_proj" : "model.layers.0.self_attn.o_proj"}));
}

TEST_P(AdapterExport, RefusesWhatDoesNotFit) {
  write_hf_folder(folder_ / "base", model_);
  const Adapted base(folder_ / "base", 0, "*");
  const SafetensorsFile plain = base.checkpoint(folder_ / "base.safetensors");
  EXPECT_THROW(export_peft({.model = base.config(), .weights = plain, .base = "base"}, folder_ / "none"), Error);
  const Adapted adapted(folder_ / "base", adapter_rank, "*");
  const SafetensorsFile weights = adapted.checkpoint(folder_ / "model.safetensors");
  ModelConfig other = adapted.config();
  other.lora_rank = adapter_rank + 1;
  EXPECT_THROW(export_peft({.model = other, .weights = weights, .base = "base"}, folder_ / "other"), Error);
  EXPECT_THROW(export_hf({.model = other, .weights = weights, .original = {}}, folder_ / "merged"), Error);
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterExport,
                         testing::Values(NamedHfModel{"gpt2", gpt2_model}, NamedHfModel{"llama3", llama3_model},
                                         NamedHfModel{"qwen2", qwen2_model}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace quaver::test
