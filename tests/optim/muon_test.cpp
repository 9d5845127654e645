// Muon over parameters: which it takes, which it leaves to AdamW, and what it keeps of each.
#include "optim/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "quaver/error.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OptimConfig muon_config(const std::string& matrices = "*") {
  OptimConfig config;
  config.optimizer = OptimizerKind::muon;
  config.muon_matrices = matrices;
  return config;
}

struct MuonBench {
  explicit MuonBench(const OptimConfig& config) {
    const std::vector<Size> qkv = {12, 6, 6};
    parameters.add({.name = "embed.weight", .kind = ParameterKind::embedding, .rows = 10, .cols = 12, .init_std = 1});
    parameters.add({.name = "blocks.0.attn.qkv.weight", .rows = 24, .cols = 12, .projections = qkv, .init_std = 1});
    parameters.add({.name = "blocks.0.attn.qkv.bias", .kind = ParameterKind::vector, .rows = 1, .cols = 24});
    parameters.add({.name = "blocks.0.mlp.up.weight", .rows = 30, .cols = 12, .projections = {30}, .init_std = 1});
    parameters.add({.name = "norm.weight", .kind = ParameterKind::vector, .rows = 1, .cols = 12, .init_mean = 1});
    parameters.add({.name = "head.weight", .rows = 10, .cols = 12, .init_std = 1});
    parameters.allocate(*engine, config.master == MasterWeights::f32 ? Format::f32 : Format::bf16);
    parameters.initialize(*engine, 3);
    optimizer = make_optimizer(config, parameters);
    optimizer->allocate(*engine);
  }

  void step(std::uint32_t step) {
    for (Parameter& p : parameters.all()) {
      random_normals({9, step, stream_of(p.name.c_str())}, 0, p.gradient.f32(), p.count());
    }
    optimizer->measure(*engine, 1);
    optimizer->update(*engine, {.step = step, .learning_rate = 0.01, .decay = 1e-3, .casting = &casting});
  }

  std::vector<std::byte> bytes(std::size_t i) const {
    const View& master = parameters.all()[i].master;
    const auto* data = static_cast<const std::byte*>(master.data);
    return {data, data + master.bytes()};
  }

  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  Parameters parameters;
  std::unique_ptr<Optimizer> optimizer;
  Casting casting;
};

std::vector<std::string> of_muon(Optimizer& optimizer) {
  std::vector<std::string> names;
  for (const OptimizerState& state : optimizer.states()) {
    if (state.slots.front().name == "momentum") names.push_back(state.parameter->name);
  }
  return names;
}

TEST(MuonOptimizer, TakesHiddenMatricesAndNothingElse) {
  MuonBench all(muon_config());
  EXPECT_THAT(of_muon(*all.optimizer), ElementsAre("blocks.0.attn.qkv.weight", "blocks.0.mlp.up.weight"));
  MuonBench some(muon_config("*.up.weight , blocks.?.mlp.*"));
  EXPECT_THAT(of_muon(*some.optimizer), ElementsAre("blocks.0.mlp.up.weight"));
}

TEST(MuonOptimizer, KeepsOneMomentWhereAdamWKeepsTwo) {
  MuonBench muon(muon_config());
  MuonBench adamw(OptimConfig{});
  EXPECT_EQ(adamw.optimizer->stored_bytes() - muon.optimizer->stored_bytes(), 4 * 12 * (24 + 30));
  OptimConfig fp8 = muon_config();
  fp8.moments = MomentFormat::fp8;
  MuonBench low(fp8);
  EXPECT_EQ(low.optimizer->states()[1].slots.front().values.spec.format, Format::e4m3);
}

TEST(MuonOptimizer, OtherParametersMoveAsUnderAdamWBitForBit) {
  for (const MasterWeights master : {MasterWeights::f32, MasterWeights::bf16_stochastic}) {
    OptimConfig pure;
    OptimConfig mixed = muon_config("*.attn.*");
    pure.master = mixed.master = master;
    MuonBench adamw(pure);
    MuonBench muon(mixed);
    for (std::uint32_t i = 0; i < 3; ++i) {
      adamw.step(i);
      muon.step(i);
    }
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(adamw.bytes(i) == muon.bytes(i), i != 1) << muon.parameters.all()[i].name;
    }
  }
}

TEST(MuonOptimizer, DoesNothingInASkippedStep) {
  MuonBench bench(muon_config());
  bench.step(0);
  const std::vector<std::byte> weight = bench.bytes(1);
  const CodeMatrix& momentum = bench.optimizer->states()[1].slots.front().values;
  const std::vector<std::byte> before(momentum.codes, momentum.codes + momentum.code_bytes());
  bench.parameters.all()[0].gradient.f32()[3] = std::numeric_limits<float>::infinity();
  bench.optimizer->measure(*bench.engine, 1);
  bench.optimizer->update(*bench.engine, {.step = 1, .learning_rate = 0.01, .casting = &bench.casting});
  EXPECT_EQ(bench.bytes(1), weight);
  EXPECT_EQ(std::vector<std::byte>(momentum.codes, momentum.codes + momentum.code_bytes()), before);
}

void expect_refused(const OptimConfig& config, const char* what, const char* remedy) {
  try {
    const MuonBench bench(config);
    ADD_FAILURE() << what;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(what));
    EXPECT_THAT(error.remedy(), HasSubstr(remedy));
  }
}

TEST(MuonOptimizer, PatternsMustMatchHiddenMatrices) {
  expect_refused(muon_config("*.qvk.*"), "the pattern \"*.qvk.*\" matches no hidden matrix",
                 "blocks.0.attn.qkv.weight");
  expect_refused(muon_config("*,embed.weight"), "the pattern \"embed.weight\" matches no hidden matrix", "blocks");
  expect_refused(muon_config("*.qkv.bias"), "\"*.qkv.bias\"", "blocks");
  expect_refused(muon_config("*, "), "\"\"", "blocks");
  expect_refused(muon_config(""), "optim.muon_matrices is empty", "\"*\"");
}

TEST(MuonOptimizer, SomethingMustBeLeftForIt) {
  OptimConfig config = muon_config("*.qkv.*");
  config.learning_rate_of["*.qkv.*"] = 0;
  expect_refused(config, "every matrix that it would update is frozen", "adamw");
  Parameters parameters;
  parameters.add({.name = "head.weight", .rows = 2, .cols = 2});
  EXPECT_THROW(make_optimizer(muon_config(), parameters), Error);
}

}  // namespace
}  // namespace quaver::test
