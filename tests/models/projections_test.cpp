// Which matrices a model says are hidden, and of what projections they are made.
#include <gmock/gmock.h>
#include <map>

#include "models/factory.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::map<std::string, std::vector<Size>> projections_of(const ModelConfig& config) {
  std::map<std::string, std::vector<Size>> all;
  const std::unique_ptr<Model> model = make_model(resolved(config));
  for (const Parameter& parameter : model->parameters().all()) {
    all[parameter.name] = parameter.projections;
    Size rows = 0;
    for (const Size part : parameter.projections) rows += part;
    if (!parameter.projections.empty()) {
      EXPECT_EQ(rows, parameter.rows) << parameter.name;
    }
  }
  return all;
}

ModelConfig one_block(Family family) {
  ModelConfig config;
  config.family = family;
  config.layers = 1;
  config.width = 32;
  config.heads = 4;
  config.ffn = 48;
  config.vocab = 64;
  config.context = 16;
  config.tie_head = TieHead::no;
  return config;
}

TEST(Projections, OfGroupedHeadsAndSwigluAreApart) {
  ModelConfig config = one_block(Family::llama);
  config.kv_heads = 2;
  auto all = projections_of(config);
  EXPECT_THAT(all.at("blocks.0.attn.qkv.weight"), ElementsAre(32, 16, 16));
  EXPECT_THAT(all.at("blocks.0.attn.out.weight"), ElementsAre(32));
  EXPECT_THAT(all.at("blocks.0.mlp.up.weight"), ElementsAre(48, 48));
  EXPECT_THAT(all.at("blocks.0.mlp.down.weight"), ElementsAre(32));
}

TEST(Projections, OfEmbeddingsHeadNormsAndBiasesAreNone) {
  auto all = projections_of(one_block(Family::gpt));
  EXPECT_THAT(all.at("blocks.0.attn.qkv.weight"), ElementsAre(32, 32, 32));
  EXPECT_THAT(all.at("blocks.0.mlp.up.weight"), ElementsAre(48));
  for (const char* name :
       {"embed.weight", "positions.weight", "head.weight", "norm.weight", "blocks.0.attn.qkv.bias"}) {
    EXPECT_THAT(all.at(name), IsEmpty()) << name;
  }
}

TEST(Projections, OfAdaptersAreNone) {
  ModelConfig config = one_block(Family::gpt);
  config.lora_rank = 2;
  auto all = projections_of(config);
  EXPECT_THAT(all.at("blocks.0.mlp.up.lora_A.weight"), IsEmpty());
}

}  // namespace
}  // namespace quaver::test
