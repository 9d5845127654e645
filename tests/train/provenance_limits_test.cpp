// Which differences of settings are changes, and when a config.toml is an older copy of the checkpoint's.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "config/dump.h"
#include "io/file_io.h"
#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/engine_choice.h"
#include "train/environment.h"
#include "train/provenance.h"
#include "train/resolved_config.h"
#include "train/run_folder.h"
#include "train/support.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SettingChanges, AreThoseOfTheRunItselfWithBothValues) {
  const Config before;
  Config after = before;
  EXPECT_THAT(setting_changes(before, after, 7), IsEmpty());
  after.run.name = "elsewhere";
  after.run.dir = "/elsewhere";
  EXPECT_THAT(setting_changes(before, after, 7), IsEmpty()) << "where a run is kept is no setting of it";
  after.train.batch = before.train.batch + 1;
  after.precision.recipe = "nvfp4";
  const auto changes = setting_changes(before, after, 7);
  ASSERT_EQ(changes.size(), 2U);
  for (const SettingChange& change : changes) {
    EXPECT_EQ(change.step, 7);
    const bool batch = change.key == "train.batch";
    EXPECT_EQ(change.key, batch ? "train.batch" : "precision.recipe");
    EXPECT_EQ(change.before, batch ? std::to_string(before.train.batch) : "\"" + before.precision.recipe + "\"");
    EXPECT_EQ(change.after, batch ? std::to_string(after.train.batch) : "\"nvfp4\"");
  }
  EXPECT_EQ(changes_json({{3, "a.b", "1", "2"}}), R"([{"step":3,"key":"a.b","before":"1","after":"2"}])");
}

// A resume at step 7 changed the batch from 4 to 8 and was killed before it wrote config.toml.
TEST(EditedConfig, IsAnOlderCopyOnlyOfTheChangeOfThatStepAndThoseValues) {
  Config trained;
  trained.train.batch = 8;
  Config file = trained;
  file.train.batch = 4;
  const auto refused = [&](const SettingChange& recorded, const Config& in_file, const Config& asked) {
    try {
      refuse_edited_config(in_file, {.id = "", .config = trained, .data = {}, .changes = {recorded}}, asked, 7,
                           "c.toml");
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  EXPECT_FALSE(refused({7, "train.batch", "4", "8"}, file, trained));
  EXPECT_TRUE(refused({6, "train.batch", "4", "8"}, file, trained)) << "an earlier change";
  EXPECT_TRUE(refused({7, "train.batch", "2", "8"}, file, trained)) << "from another value";
  EXPECT_TRUE(refused({7, "train.batch", "4", "16"}, file, trained)) << "to another value";
  EXPECT_TRUE(refused({7, "train.steps", "4", "8"}, file, trained)) << "of another key";
  EXPECT_FALSE(refused({6, "train.batch", "4", "8"}, file, file)) << "asked for by a flag";
  EXPECT_FALSE(refused({6, "train.batch", "4", "8"}, trained, trained)) << "nothing is edited";
}

TEST(EditedConfig, IsRefusedWithBothValuesAndTheFlagForIt) {
  Config trained;
  trained.train.batch = 8;
  Config file = trained;
  file.train.batch = 4;
  try {
    refuse_edited_config(file, {.id = "", .config = trained, .data = {}, .changes = {}}, trained, 7, "c.toml");
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "c.toml says train.batch = 4, but the checkpoint of step 7 was trained with 8");
    EXPECT_EQ(error.remedy(),
              "change a run with a flag, --train.batch=4, which is recorded; or put 8 back into the file");
  }
}

TEST(EditedConfig, OfATableIsAskedForEntryByEntry) {
  Config trained;
  Config file = trained;
  file.precision.layers["blocks.0.*"] = "bf16";
  try {
    refuse_edited_config(file, {.id = "", .config = trained, .data = {}, .changes = {}}, trained, 7, "c.toml");
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.remedy(),
              "change a run with flags for its entries, '--precision.layers.\"PATTERN\"=VALUE', which are recorded "
              "(--precision.layers={} drops all of them); or put {} back into the file");
  }
}

TEST(ProvenanceText, KeepsEveryFigureOfTheDataApart) {
  const DataIdentity data{.train_hash = "aa",
                          .valid_hash = "bb",
                          .train_tokens = 11,
                          .valid_tokens = 22,
                          .tokenizer_hash = "cc",
                          .vocab_size = 33};
  const Provenance written{.id = "0123456789abcdef", .config = {}, .data = data, .changes = {}};
  EXPECT_EQ(parse_provenance(to_json(written), "test").data, data);
  const auto json = nlohmann::json::parse(to_json(written)).at("data");
  EXPECT_EQ(json, nlohmann::json::parse(R"({"train_hash": "aa", "train_tokens": 11, "valid_hash": "bb",
    "valid_tokens": 22, "tokenizer_hash": "cc", "vocab_size": 33})"));
}

TEST(RunFiles, AreWrittenUnderTheirNames) {
  const TemporaryFolder folder;
  write_run_files(folder.path() / "new", {.config = "c", .plan = "p", .environment = "e", .id = "i"});
  EXPECT_EQ(contents(folder.path() / "new" / "config.toml"), "c");
  EXPECT_EQ(contents(folder.path() / "new" / "plan.toml"), "p");
  EXPECT_EQ(contents(folder.path() / "new" / "env.json"), "e");
  EXPECT_EQ(contents(folder.path() / "new" / "run_id"), "i\n");
}

TEST(FallbackFolder, IsNamedAfterTheRunAndItsIdAndThisUsersAlone) {
  const TemporaryFolder folder;
  Config config;
  config.run.fallback = (folder.path() / "spare").string();
  EXPECT_EQ(make_fallback_folder(config, "runs/a/../b", "0123"), folder.path() / "spare" / "quaver-b-0123");
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() / "spare" / "quaver-b-0123"));
  config.run.fallback.clear();
  const std::string name = folder.path().filename().string();
  const std::filesystem::path temporary = make_fallback_folder(config, "runs/" + name, "0123");
  EXPECT_EQ(temporary, std::filesystem::temp_directory_path() / ("quaver-" + name + "-0123"));
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(temporary).permissions() & (perms::group_all | perms::others_all), perms::none);
  EXPECT_EQ(make_fallback_folder(config, "runs/" + name, "0123"), temporary) << "its own, again";
  std::filesystem::remove(temporary);
  std::ofstream(temporary) << "a file";
  EXPECT_THROW(make_fallback_folder(config, "runs/" + name, "0123"), Error);
  std::filesystem::remove(temporary);
}

// Where a run lies is what its folder says, whatever its checkpoint was trained as.
TEST(RunConfig, IsTheCheckpointsWithItsOwnPlace) {
  const TemporaryFolder folder;
  Config config = small_config("bf16", folder.path() / "run");
  config.train.steps = 1;
  config.run.patience = 17;
  run_training(config, {});
  std::filesystem::rename(folder.path() / "run", folder.path() / "moved");
  const std::filesystem::path moved = folder.path() / "moved";
  std::string text = contents(moved / "config.toml");
  const std::size_t at = text.find("patience = 17");
  ASSERT_NE(at, std::string::npos);
  std::ofstream(moved / "config.toml") << text.replace(at, 13, "patience = 18");
  const Config read = load_run_config(moved, {"train.seed=5"});
  EXPECT_EQ(read.run.dir, moved.string());
  EXPECT_EQ(read.run.patience, 18) << "of the file";
  EXPECT_EQ(read.train.seed, 5U) << "of the flag";
  EXPECT_EQ(read.train.steps, 1);
  EXPECT_THROW(load_run_config(folder.path() / "nowhere", {}), Error);
}

TEST(Environment, NamesProgramCpuAndEngine) {
  const auto engine = make_cpu_engine(1);
  const auto json = nlohmann::json::parse(environment_json(*engine, 3));
  EXPECT_EQ(json.at("quaver"), QUAVER_VERSION);
  const std::string compiler = json.at("compiler");
  EXPECT_THAT(compiler, ::testing::MatchesRegex("(g|clang)\\+\\+ [0-9]+\\.[0-9]+\\.[0-9]+.*"));
  EXPECT_THAT(__VERSION__, HasSubstr(compiler.substr(compiler.find(' ') + 1))) << "as the compiler names itself";
  EXPECT_EQ(json.at("processor"), cpu_model());
  EXPECT_EQ(json.at("engine"), engine->name());
  EXPECT_EQ(json.at("ranks"), 3);
  EXPECT_THAT(json.at("started").get<std::string>(),
              ::testing::MatchesRegex("20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"));
  EXPECT_NE(cpu_model().front(), ' ');
  EXPECT_NE(cpu_model(), "");
}

TEST(WideFormat, IsWhatTheRecipeNeedsAndNoMore) {
  for (const char* recipe : {"fp32", "tf32"}) EXPECT_EQ(gpu_high_precision({.recipe = recipe}), Format::f32) << recipe;
  for (const char* recipe : {"bf16", "fp8-delayed", "mxfp4"})
    EXPECT_EQ(gpu_high_precision({.recipe = recipe}), Format::bf16);
  EXPECT_EQ(gpu_high_precision({.recipe = "fp16"}), Format::f16);
}

// What FP16 holds is not all that such a recipe's gradients need, nor how they are to be rounded.
TEST(WideFormat, IsFp32WhereAnOperandThatIsNotFp16StandsBesideIt) {
  PrecisionConfig precision{.recipe = "own"};
  Recipe& own = precision.recipes["own"] = all_in(Format::f16);
  EXPECT_EQ(gpu_high_precision(precision), Format::f16);
  own.dy.rows.format = Format::bf16;
  EXPECT_EQ(gpu_high_precision(precision), Format::f32);
  own = all_in(Format::f16);
  own.w.columns.rounding = Rounding::stochastic;
  EXPECT_EQ(gpu_high_precision(precision), Format::f32);
}

TEST(WideFormat, LayersOfOtherRecipesDoNotChooseIt) {
  EXPECT_EQ(gpu_high_precision({.recipe = "fp16", .layers = {{"blocks.*", "fp8-delayed"}}}), Format::f16);
  EXPECT_EQ(gpu_high_precision({.recipe = "fp8-delayed", .layers = {{"blocks.*", "fp16"}}}), Format::bf16);
}

TEST(WideFormat, AttentionRoundsFp32ForTheRecipeThatRoundsItsGemmsAlone) {
  for (const char* recipe : {"fp32", "bf16", "fp16", "fp8-block"}) {
    EXPECT_EQ(gpu_options({.recipe = recipe}).float_attention, Format::f32) << recipe;
  }
  EXPECT_EQ(gpu_options({.recipe = "tf32"}).float_attention, Format::tf32);
}

TEST(ResolvedConfig, ChoosesWhatIsAutomaticAndNothingElse) {
  Config config;
  config.precision.recipe = "fp8-unit";
  config.model.parametrization = Parametrization::automatic;
  EXPECT_EQ(resolve_parametrization(config).model.parametrization, Parametrization::umup);
  config.model.parametrization = Parametrization::munit;
  EXPECT_EQ(resolve_parametrization(config).model.parametrization, Parametrization::munit);
  config.model.parametrization = Parametrization::automatic;
  config.precision.recipe = "fp8-current";
  EXPECT_NE(resolve_parametrization(config).model.parametrization, Parametrization::umup);

  config.model.context = 48;
  config.train.context = 0;
  EXPECT_EQ(resolve_shape(config, {.vocab = 100}).train.context, 48);
  EXPECT_EQ(resolve_shape(config, {.vocab = 100}).model.vocab, 128);
  config.train.context = 16;
  EXPECT_EQ(resolve_shape(config, {.vocab = 100}).train.context, 16);
  EXPECT_EQ(resolve_shape(config, {.vocab = 128}).model.vocab, 128) << "already a multiple of 64";
  config.model.vocab = 128;
  EXPECT_EQ(resolve_shape(config, {.vocab = 128}).model.vocab, 128) << "exactly enough";
  EXPECT_THROW(resolve_shape(config, {.vocab = 129}), Error);
}

TEST(ResolvedConfig, AnAccumulatorIsThatOfAllProducts) {
  const auto engine = make_cpu_engine(1);
  const auto expect_all = [&](AccumulatorChoice choice, Accumulator one) {
    const Accumulators chosen = accumulators_for(choice, *engine);
    EXPECT_EQ(chosen.fprop, one);
    EXPECT_EQ(chosen.dgrad, one);
    EXPECT_EQ(chosen.head_dgrad, one);
    EXPECT_EQ(chosen.wgrad, one);
  };
  expect_all(AccumulatorChoice::fp32, Accumulator::fp32);
  expect_all(AccumulatorChoice::hopper, Accumulator::hopper);
  expect_all(AccumulatorChoice::hopper_split, Accumulator::hopper_split);
  expect_all(AccumulatorChoice::fp16, Accumulator::fp16);
  expect_all(AccumulatorChoice::fp8, Accumulator::fp8);
}

TEST(ResolvedConfig, RulesOfScalesAreTheConfigs) {
  Config config;
  config.precision.history = 5;
  config.guard.overflow_percent = 2.5;
  const ScaleRules rules = scale_rules(config);
  EXPECT_EQ(rules.history, 5);
  EXPECT_EQ(rules.overflow_percent, 2.5);
  config.optim.master = MasterWeights::f32;
  EXPECT_EQ(master_format(config), Format::f32);
  config.optim.master = MasterWeights::bf16_stochastic;
  EXPECT_EQ(master_format(config), Format::bf16);
}

}  // namespace
}  // namespace quaver::test
