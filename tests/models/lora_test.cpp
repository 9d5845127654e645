// Low-rank adapters: as they begin the model is its base, bit for bit, and what they are is stated by the config.
#include <gmock/gmock.h>

#include "support/model_fixture.h"

#include "quaver/error.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;

ModelConfig adapted(Family family, Size rank, const std::string& targets = "*") {
  ModelConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 32;
  config.heads = 4;
  config.ffn = 64;
  config.vocab = 64;
  config.context = 32;
  config.lora_rank = rank;
  config.lora_targets = targets;
  return config;
}

PrecisionConfig under(const char* recipe) {
  PrecisionConfig precision;
  precision.recipe = recipe;
  return precision;
}

std::vector<std::string> adapters_of(const Transformer& model) {
  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters().all()) {
    if (parameter.adapter) names.push_back(parameter.name);
  }
  return names;
}

TEST(Lora, BeginsAsTheBaseBitForBit) {
  for (const Family family : {Family::gpt, Family::llama}) {
    for (const char* recipe : {"fp32", "bf16", "fp8-current", "fp8-block", "nvfp4"}) {
      SmallModel base(adapted(family, 0), under(recipe), 2, 16);
      SmallModel model(adapted(family, 4), under(recipe), 2, 16);
      EXPECT_EQ(model.loss(Pass::evaluate), base.loss(Pass::evaluate)) << recipe;
    }
  }
}

TEST(Lora, AdaptsTheLayersThatAreNamed) {
  const Transformer some(resolved(adapted(Family::gpt, 4, "blocks.1.attn.qkv, *.0.mlp.down")));
  EXPECT_THAT(adapters_of(some),
              testing::UnorderedElementsAre("blocks.0.mlp.down.lora_A.weight", "blocks.0.mlp.down.lora_B.weight",
                                            "blocks.1.attn.qkv.lora_A.weight", "blocks.1.attn.qkv.lora_B.weight"));
  EXPECT_EQ(adapters_of(Transformer(resolved(adapted(Family::llama, 4)))).size(), 2U * 2 * 4) << "not the head";
  EXPECT_TRUE(adapters_of(Transformer(resolved(adapted(Family::llama, 0)))).empty());
}

TEST(Lora, StaysInHighPrecisionWhateverThePatternsSay) {
  PrecisionConfig precision = under("fp8-current");
  precision.layers = {{"*", "fp8-delayed"}};
  const Transformer model(resolved(adapted(Family::gpt, 4)));
  for (const PlanRow& row : make_plan(precision, model.layers()).rows) {
    EXPECT_EQ(is_low_precision(row.spec.rows.format), row.layer.find(".lora_") == std::string::npos) << row.site;
  }
}

TEST(Lora, RefusesWhatItCannotAdapt) {
  const auto refusal = [](const ModelConfig& config) -> std::string {
    try {
      const Transformer model(resolved(config));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal(adapted(Family::gpt, 4, "*.attn.*,head")), HasSubstr("\"head\" matches no layer"));
  EXPECT_THAT(refusal(adapted(Family::gpt, 4, "")), HasSubstr("lora.targets is empty"));
  ModelConfig unit = adapted(Family::gpt, 4);
  unit.parametrization = Parametrization::umup;
  EXPECT_THAT(refusal(unit), HasSubstr("unit-scaled"));
  EXPECT_EQ(refusal(adapted(Family::gpt, 0, "nothing")), "");
}

}  // namespace
}  // namespace quaver::test
