// Training low-rank adapters: the base stays bit for bit, whatever the recipe, the memory mode and the number of ranks.
#include <gmock/gmock.h>
#include <map>

#include "config/dump.h"
#include "quaver/error.h"
#include "train/resumed_run.h"
#include "train/three_ranks.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;

Config lora_config(const std::string& recipe, Size rank = 2) {
  Config config = miniature_config(recipe);
  config.model.lora_rank = rank;
  config.optim.warmup = 0;
  config.train.accumulation = 2;
  return config;
}

TEST(LoraTraining, AdaptersMoveAndTheBaseStaysBitForBit) {
  for (const char* recipe : {"fp32", "bf16", "fp8-delayed", "fp8-current", "nvfp4"}) {
    Config config = lora_config(recipe);
    config.train.statistics_every = 2;
    OwnTrainer run(config);
    const MasterBytes before = master_bytes(run.trainer);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(run.trainer.step().skipped) << recipe;
    const MasterBytes after = master_bytes(run.trainer);
    for (const Parameter& parameter : run.trainer.model().parameters().all()) {
      EXPECT_EQ(before.at(parameter.name) != after.at(parameter.name), parameter.adapter) << parameter.name;
    }
  }
}

TEST(LoraTraining, FirstStepHasTheLossOfTheBase) {
  for (const char* recipe : {"fp32", "fp8-current"}) {
    OwnTrainer base(lora_config(recipe, 0));
    OwnTrainer adapted(lora_config(recipe));
    EXPECT_EQ(adapted.trainer.step().loss, base.trainer.step().loss);
    EXPECT_NE(adapted.trainer.step().loss, base.trainer.step().loss);
  }
}

TEST(LoraTraining, RecomputingGivesTheSameBits) {
  std::vector<MasterBytes> all;
  for (const Memory memory : {Memory::speed, Memory::balanced, Memory::small}) {
    Config config = lora_config("fp8-delayed");
    config.train.memory = memory;
    OwnTrainer run(config);
    for (int i = 0; i < 3; ++i) run.trainer.step();
    all.push_back(master_bytes(run.trainer));
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

TEST(LoraTraining, LossIsThatOfTokenAfterToken) {
  OwnTrainer run(lora_config("fp32"));
  for (int i = 0; i < 3; ++i) run.trainer.step();
  const double want = run.loss_of(*run.data.train, 6);  // two micro-batches a step
  const double next = run.loss_of(*run.data.train, 7);
  EXPECT_NEAR(run.trainer.step().loss, (want + next) / 2, 1e-5);
}

TEST(LoraTraining, CostsWhatIsPlanned) {
  OwnTrainer whole(lora_config("fp8-delayed", 0));
  OwnTrainer part(lora_config("fp8-delayed"));
  const MemoryUse use = part.trainer.memory();
  EXPECT_LT(use.optimizer, whole.trainer.memory().optimizer / 2);
  const MemoryPlan plan = plan_memory(part.trainer.config(), make_cpu_engine(1)->device().hardware());
  EXPECT_EQ(use.weights, plan.weights);
  EXPECT_NEAR(static_cast<double>(use.gradients), static_cast<double>(plan.gradients), 16384);
  EXPECT_NEAR(static_cast<double>(use.optimizer), static_cast<double>(plan.optimizer), 16384) << "with statistics";
}

TEST(LoraTraining, RanksEndInTheBitsOfOneProcess) { expect_the_steps_of_one_process(lora_config("fp8-delayed")); }

TEST(LoraTraining, LeavesTheFingerprintOfOtherRunsAlone) {
  Config config;
  const std::string without = fingerprint(config);
  config.model.lora_alpha = 3;
  EXPECT_EQ(fingerprint(config), without);
  config.model.lora_rank = 2;
  EXPECT_NE(fingerprint(config), without);
}

class LoraRun : public testing::Test {
 protected:
  Config config_in(const std::string& name, Size rank = 2) const {
    Config config = lora_config("fp8-delayed", rank);
    config.run.dir = (folder_.path() / name).string();
    return config;
  }

  RunResult run(const std::string& name, Size rank, RunStart start, Size steps, const std::string& targets = "*") {
    Config config = config_in(name, rank);
    config.model.lora_targets = targets;
    return run_until(config, start, steps);
  }

  TemporaryFolder folder_;
};

TEST_F(LoraRun, ResumesInTheSameBytes) {
  expect_resumed_bytes(folder_, [&](const char* name) { return config_in(name); });
}

TEST_F(LoraRun, DoesNotResumeWithOtherAdapters) {
  run("other", 2, RunStart::fresh, 2);
  EXPECT_THROW(run("other", 3, RunStart::resume, 100), Error);
  EXPECT_THROW(run("other", 0, RunStart::resume, 100), Error);
  try {
    run("other", 2, RunStart::resume, 100, "*.attn.*");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no place for the adapter blocks.0.mlp.up.lora_B.weight"));
  }
}

}  // namespace
}  // namespace quaver::test
