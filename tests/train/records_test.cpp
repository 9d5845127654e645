// What a run's store says of it, and small files and settings that a run begins with.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "precision/recipe.h"
#include "quaver/error.h"
#include "store/reader.h"
#include "train/localization_map.h"
#include "train/own_text.h"
#include "train/run_record.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;

class RecordedRun : public testing::Test {
 protected:
  void SetUp() override {
    config_ = small_config("fp8-delayed", folder_.path() / "run");
    config_.model.context = 8;
    config_.train.steps = 7;
    config_.train.eval_every = 3;
    config_.train.checkpoint_every = 2;
    config_.train.statistics_every = 2;
    config_.train.shadow_every = 4;
    config_.train.keep = 2;
    result_ = run_training(config_, {});
  }

  TemporaryFolder folder_;
  Config config_;
  RunResult result_;
};

// What took time beside the step itself is there at the steps that took it.
TEST_F(RecordedRun, StoreHasThePhasesThatWereDue) {
  const StoreReader store(folder_.path() / store_file_name);
  const auto steps = [metrics = store.metrics(store.runs().at(0).id, {})](const char* name) {
    return metrics.at(name).step;
  };
  EXPECT_THAT(steps("phase.evaluation"), ElementsAre(3, 6, 7));
  EXPECT_THAT(steps("phase.checkpoint"), ElementsAre(2, 4, 6)) << "the last one is written after the last step";
  EXPECT_THAT(steps("phase.shadow"), ElementsAre(1, 5)) << "before the steps that follow 0 and 4";
  EXPECT_THAT(steps("shadow_cosine"), ElementsAre(1, 5));
  EXPECT_THAT(steps("shadow_error"), ElementsAre(1, 5));
  EXPECT_THAT(steps("narrow_share"), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(steps("statistics_seconds"), ElementsAre(1, 3, 5, 7));
}

TEST_F(RecordedRun, StoreDescribesTheRun) {
  const StoreReader store(folder_.path() / store_file_name);
  const RunDetails run = store.run(store.runs().at(0).id);
  EXPECT_EQ(run.summary.name, "run");
  EXPECT_EQ(run.summary.recipe, "fp8-delayed");
  EXPECT_EQ(run.summary.seed, config_.train.seed);
  EXPECT_EQ(run.summary.steps, 7U);
  EXPECT_EQ(run.summary.tokens_per_step, 64U);
  EXPECT_EQ(run.summary.directory, (folder_.path() / "run").string());
  EXPECT_EQ(run.config_toml, contents(folder_.path() / "run" / "config.toml"));
  EXPECT_EQ(run.environment_json, contents(folder_.path() / "run" / "env.json"));
  const MemoryUse& use = result_.memory;
  ASSERT_EQ(run.memory.size(), 6U);
  EXPECT_THAT(run.memory, ::testing::IsSupersetOf(std::vector<std::pair<std::string, std::uint64_t>>{
                              {"weights", use.weights},
                              {"quantized weights", use.quantized_weights},
                              {"gradients", use.gradients},
                              {"optimizer", use.optimizer}}));
  EXPECT_EQ((std::map<std::string, double>(run.shares.begin(), run.shares.end())), result_.format_shares);
  ASSERT_EQ(run.sites.size(), 27U);
  EXPECT_EQ(run.sites[0].name, "blocks.0.attn.qkv/x");
  EXPECT_EQ(run.sites[0].layer, "blocks.0.attn.qkv");
  EXPECT_EQ(run.sites[2].state.rows, "e5m2");
  EXPECT_EQ(run.sites[0].state.rows, "e4m3");
  EXPECT_EQ(run.sites[0].state.policy, "delayed");
}

// Scales from the config, each for its role.
TEST(StaticScales, AreThoseOfTheirRole) {
  Config config = small_config("fp8-static", "unused");
  config.model.context = 8;
  config.train.batch = 2;
  config.precision.static_activation_scale = 2;
  config.precision.static_weight_scale = 4;
  config.precision.static_gradient_scale = 8;
  OwnTrainer own(config);
  int narrow = 0;
  for (const auto& entry : own.trainer.book().entries()) {
    if (entry->site.spec.rows.policy != ScalePolicy::fixed) continue;
    ++narrow;
    EXPECT_EQ(entry->site.scale, entry->site.role == Role::x ? 2 : entry->site.role == Role::w ? 4 : 8);
  }
  EXPECT_EQ(narrow, 24) << "two blocks of four layers";
}

TEST(RunId, IsSixteenHexadecimalDigits) {
  EXPECT_EQ(parse_run_id("0123456789abcdef\n"), "0123456789abcdef");
  EXPECT_EQ(parse_run_id("0123456789abcdef"), "0123456789abcdef");
  for (const char* bad : {"", "0123456789abcde\n", "0123456789abcdef0\n", "0123456789ABCDEF\n", "0123456789abcdeg\n",
                          " 0123456789abcdef\n", "\n0123456789abcdef"}) {
    EXPECT_EQ(parse_run_id(bad), std::nullopt) << bad;
  }
}

json small_map() {
  return {{"recipe", "fp8"},
          {"group", "site"},
          {"step", 3},
          {"baseline_loss", 2.5},
          {"sites",
           {{{"site", "a/x"},
             {"kept_wide", true},
             {"loss_change", 0.1},
             {"gradient_cosine", nullptr},
             {"sqnr_db", 20},
             {"flops_share", 0.5}}}}};
}

TEST(LocalizationMap, NeedsEveryFieldOfItsKind) {
  const auto accepted = [](const json& map) {
    try {
      check_localization_map(map.dump(), "test");
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(accepted(small_map()));
  for (const char* key : {"recipe", "group", "step", "baseline_loss", "sites"}) {
    json map = small_map();
    map.erase(key);
    EXPECT_FALSE(accepted(map)) << "without " << key;
    map[key] = true;
    EXPECT_FALSE(accepted(map)) << key;
  }
  for (const char* key : {"site", "kept_wide", "loss_change", "gradient_cosine", "sqnr_db", "flops_share"}) {
    json map = small_map();
    map["sites"][0].erase(key);
    EXPECT_FALSE(accepted(map)) << "without " << key;
    map["sites"][0][key] = json::array();
    EXPECT_FALSE(accepted(map)) << key;
  }
  json map = small_map();
  map["step"] = -1;
  EXPECT_FALSE(accepted(map));
  map = small_map();
  map["sites"].push_back(3);
  EXPECT_FALSE(accepted(map));
  EXPECT_FALSE(accepted(json::array()));
}

}  // namespace
}  // namespace quaver::test
