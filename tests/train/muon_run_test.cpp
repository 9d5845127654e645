// Runs with Muon: they learn, resume in the same bytes, and take no other optimizer's state.
#include <gmock/gmock.h>

#include "quaver/error.h"
#include "train/resumed_run.h"
#include "train/three_ranks.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;

Config muon_run(const std::string& recipe, const std::filesystem::path& directory = "unused") {
  Config config = miniature_config(recipe, directory);
  config.optim.optimizer = OptimizerKind::muon;
  return config;
}

TEST(MuonRun, LossFalls) {
  for (const char* recipe : {"bf16", "fp8-block"}) {
    const TemporaryFolder folder;
    Config config = small_config(recipe, folder.path() / "run");
    config.optim.optimizer = OptimizerKind::muon;
    config.train.steps = 30;
    config.train.checkpoint_every = 0;
    config.train.eval_every = 0;
    const RunResult result = run_training(config, {});
    ASSERT_EQ(result.losses.size(), 30U);
    EXPECT_LT(result.losses.back().loss, result.losses.front().loss - 0.5) << recipe;
  }
}

TEST(MuonRun, ResumesInTheSameBytes) {
  for (const MomentFormat moments : {MomentFormat::f32, MomentFormat::fp8}) {
    const TemporaryFolder folder;
    expect_resumed_bytes(folder, [&](const char* name) {
      Config config = muon_run("fp8-delayed", folder.path() / name);
      config.optim.moments = moments;
      config.optim.master = moments == MomentFormat::fp8 ? MasterWeights::bf16_stochastic : MasterWeights::f32;
      return config;
    });
  }
}

TEST(MuonRun, RanksEndInTheBitsOfOneProcess) {
  expect_the_steps_of_one_process(muon_run("fp8-delayed"));
  Config llama = muon_run("fp8-block");
  llama.model.family = Family::llama;
  llama.model.heads = 4;
  llama.model.kv_heads = 2;
  llama.optim.moments = MomentFormat::fp8;
  llama.optim.master = MasterWeights::bf16_stochastic;
  expect_the_steps_of_one_process(llama);
}

TEST(MuonRun, AnotherOptimizersStateIsRefused) {
  const auto begun = [](const TemporaryFolder& folder, OptimizerKind kind) {
    Config config = muon_run("fp32", folder.path() / "run");
    config.optim.optimizer = kind;
    config.train.steps = 2;
    run_training(config, {});
    config.train.steps = 3;
    return config;
  };
  const auto expect_refusal = [](const Config& config, const std::string& what) {
    RunOptions resuming;
    resuming.start = RunStart::resume;
    try {
      run_training(config, resuming);
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
      EXPECT_THAT(error.remedy(), HasSubstr("leave optim.optimizer and optim.muon_matrices as the run has them"));
    }
  };
  for (const bool to_muon : {false, true}) {
    const TemporaryFolder folder;
    Config config = begun(folder, to_muon ? OptimizerKind::adamw : OptimizerKind::muon);
    config.optim.optimizer = to_muon ? OptimizerKind::muon : OptimizerKind::adamw;
    const std::string kept = to_muon ? "momentum" : "m";
    expect_refusal(config, "no " + kept + " of blocks.0.attn.qkv.weight: another optimizer updated it");
  }
  const TemporaryFolder folder;
  Config config = begun(folder, OptimizerKind::muon);
  config.optim.muon_matrices = "*.mlp.*";
  expect_refusal(config, "no m of blocks.0.attn.qkv.weight");
}

}  // namespace
}  // namespace quaver::test
