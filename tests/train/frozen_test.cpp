// Frozen parameters: their weights stay bit for bit, they cost no gradients and no optimizer state, and the others
// train as if nothing were frozen.
#include <gmock/gmock.h>
#include <map>

#include "quaver/error.h"
#include "train/resumed_run.h"
#include "train/three_ranks.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;

Config frozen_config(const std::string& recipe, const std::map<std::string, double>& learning_rate_of) {
  Config config = miniature_config(recipe);
  config.optim.learning_rate_of = learning_rate_of;
  config.optim.clip = ClipMode::none;
  config.optim.warmup = 0;
  config.train.accumulation = 2;
  return config;
}

const std::map<std::string, double> most_frozen = {
    {"embed.weight", 0}, {"positions.weight", 0}, {"blocks.0.*", 0}, {"blocks.*.mlp.down.*", 0}, {"norm.*", 0}};

TEST(Frozen, WeightsStayBitForBitAndTheOthersMove) {
  for (const char* recipe : {"fp32", "fp8-delayed", "nvfp4"}) {
    Config config = frozen_config(recipe, most_frozen);
    config.optim.master = MasterWeights::bf16_stochastic;
    OwnTrainer run(config);
    const MasterBytes before = master_bytes(run.trainer);
    for (int i = 0; i < 3; ++i) run.trainer.step();
    const MasterBytes after = master_bytes(run.trainer);
    for (const Parameter& parameter : run.trainer.model().parameters().all()) {
      EXPECT_EQ(before.at(parameter.name) == after.at(parameter.name), parameter.frozen) << parameter.name;
    }
  }
}

// One update, without clipping: what the gradient of a parameter is does not depend on which others are frozen.
TEST(Frozen, OthersTrainAsIfNothingWere) {
  for (const std::map<std::string, double>& frozen :
       {most_frozen, std::map<std::string, double>{{"embed.weight", 0}}, {{"positions.weight", 0}}, {{"*.qkv.*", 0}}}) {
    OwnTrainer whole(frozen_config("fp8-current", {}));
    OwnTrainer part(frozen_config("fp8-current", frozen));
    EXPECT_EQ(part.trainer.step().loss, whole.trainer.step().loss);
    const MasterBytes want = master_bytes(whole.trainer);
    const MasterBytes got = master_bytes(part.trainer);
    for (const Parameter& parameter : part.trainer.model().parameters().all()) {
      EXPECT_EQ(got.at(parameter.name) == want.at(parameter.name), !parameter.frozen) << parameter.name;
    }
  }
}

TEST(Frozen, CostsNoGradientsAndNoOptimizerStateAsPlanned) {
  OwnTrainer whole(frozen_config("fp8-delayed", {}));
  OwnTrainer part(frozen_config("fp8-delayed", most_frozen));
  const MemoryUse all = whole.trainer.memory();
  const MemoryUse use = part.trainer.memory();
  EXPECT_EQ(use.weights, all.weights);
  EXPECT_LT(use.gradients, all.gradients / 2);
  EXPECT_LT(use.optimizer, all.optimizer / 2);
  const Parameters& parameters = part.trainer.model().parameters();
  EXPECT_GT(parameters.frozen_count(), parameters.count() / 2);
  EXPECT_LT(part.trainer.model().flops_per_token(8), whole.trainer.model().flops_per_token(8));
  const MemoryPlan plan = plan_memory(part.trainer.config(), make_cpu_engine(1)->device().hardware());
  EXPECT_EQ(use.weights, plan.weights);
  EXPECT_NEAR(static_cast<double>(use.gradients), static_cast<double>(plan.gradients), 16384);
  EXPECT_NEAR(static_cast<double>(use.optimizer), static_cast<double>(plan.optimizer), 8192) << "with statistics";
}

TEST(Frozen, RanksEndInTheBitsOfOneProcess) {
  expect_the_steps_of_one_process(frozen_config("fp8-delayed", most_frozen));
}

TEST(Frozen, SomethingMustBeTrained) {
  try {
    const OwnTrainer run(frozen_config("fp32", {{"*", 0}}));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("freezes every parameter"));
  }
}

class FrozenRun : public testing::Test {
 protected:
  Config config_in(const std::string& name, const std::map<std::string, double>& frozen) const {
    Config config = frozen_config("fp8-delayed", frozen);
    config.run.dir = (folder_.path() / name).string();
    return config;
  }

  RunResult run(const std::string& name, const std::map<std::string, double>& frozen, RunStart start, Size steps) {
    return run_until(config_in(name, frozen), start, steps);
  }

  TemporaryFolder folder_;
};

TEST_F(FrozenRun, ResumesInTheSameBytes) {
  expect_resumed_bytes(folder_, [&](const char* name) { return config_in(name, most_frozen); });
}

// Freezing on resume is a change of settings; what was frozen has no state to go on with.
TEST_F(FrozenRun, MayBeFrozenOnResumeButNotThawed) {
  run("more", {}, RunStart::fresh, 2);
  EXPECT_EQ(run("more", most_frozen, RunStart::resume, 100).end, RunEnd::finished);
  run("less", most_frozen, RunStart::fresh, 2);
  try {
    run("less", {}, RunStart::resume, 100);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no optimizer state of "));
    EXPECT_THAT(error.remedy(), HasSubstr("leave it frozen"));
  }
}

}  // namespace
}  // namespace quaver::test
