#include "config/load.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>

#include "support/temporary_folder.h"

#include "config/dump.h"
#include "config/schema.h"
#include "config/support.h"

namespace quaver {
namespace {

using test::load_flags;
using test::load_text;
using test::refusal;
using test::refused_flag;
using test::refused_text;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Load, WithoutSourcesGivesTheDefaultPreset) {
  const Config config = load_config({});
  EXPECT_EQ(config.preset, "tiny");
  EXPECT_EQ(config.model.width, 128);
  EXPECT_EQ(config.train.steps, 300);
  EXPECT_EQ(config.optim.beta2, OptimConfig{}.beta2);
}

TEST(Load, FlagBeatsFileBeatsPresetBeatsDefault) {
  const std::string file = "preset = 'small'\n[train]\nbatch = 5\nsteps = 50\n";
  const Config config = load_text(file, {"--train.steps=7"});
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.train.batch, 5);
  EXPECT_EQ(config.model.context, 256);  // the preset's
  EXPECT_EQ(config.train.keep, 3);       // the default
}

TEST(Load, PresetOfAFlagBeatsTheFilesButNotTheFilesOtherKeys) {
  const Config config = load_text("preset = 'small'\nmodel.layers = 5\n", {"preset=tiny-llama"});
  EXPECT_EQ(config.preset, "tiny-llama");
  EXPECT_EQ(config.model.family, Family::llama);
  EXPECT_EQ(config.model.width, 128);
  EXPECT_EQ(config.model.layers, 5);
}

TEST(Load, LaterFilesAndFlagsWin) {
  const TemporaryFolder folder;
  const std::string first = folder.write("a.toml", "preset = 'small'\n[train]\nsteps = 1\nbatch = 2\n");
  const std::string second = folder.write("b.toml", "preset = 'tiny-llama'\n[train]\nsteps = 3\n");
  const Config config = load_config({.files = {first, second}, .texts = {}, .flags = {"train.keep=4", "train.keep=5"}});
  EXPECT_EQ(config.preset, "tiny-llama");
  EXPECT_EQ(config.train.steps, 3);
  EXPECT_EQ(config.train.batch, 2);
  EXPECT_EQ(config.train.keep, 5);
}

TEST(Load, TablesOfFilesReplaceAndFlagsAddEntries) {
  const TemporaryFolder folder;
  const std::string below = folder.write("a.toml", "[precision.layers]\n'head' = 'fp32'\n");
  const std::string above =
      folder.write("b.toml", "[precision.layers]\n'blocks.0.*' = 'bf16'\nblocks.1.attn = 'fp16'\n");
  const auto layers = [&](std::vector<std::string> flags) {
    return load_config({.files = {below, above}, .texts = {}, .flags = std::move(flags)}).precision.layers;
  };
  const TextTable of_file = {{"blocks.0.*", "bf16"}, {"blocks.1.attn", "fp16"}};
  EXPECT_EQ(layers({}), of_file);
  TextTable with_flags = of_file;
  with_flags["blocks.0.*"] = "mxfp8";
  with_flags["blocks.*.mlp.down"] = "nvfp4";
  EXPECT_EQ(layers({"--precision.layers.\"blocks.0.*\"=mxfp8", "--precision.layers.blocks.*.mlp.down=nvfp4"}),
            with_flags);
  EXPECT_EQ(layers({"--precision.layers={}", "--precision.layers.'a=b'=bf16"}), (TextTable{{"a=b", "bf16"}}));
}

TEST(Load, FlagValuesKeepEqualsSignsQuotesAndSpaces) {
  EXPECT_EQ(load_flags({"--run.name=a=b \"c\" "}).run.name, "a=b \"c\" ");
  EXPECT_EQ(load_flags({"--run.name="}).run.name, "");
  EXPECT_EQ(load_flags({"--optim.learning_rate=3e-4"}).optim.learning_rate, 3e-4);
  EXPECT_EQ(load_flags({"optim.weight_decay=0"}).optim.weight_decay, 0.0);
  EXPECT_EQ(load_flags({"--guard.enabled=false"}).guard.enabled, false);
}

TEST(Load, UnknownKeyNamesPlaceAndNearestKey) {
  EXPECT_THAT(refused_text("[model]\nlayers = 2\n  widht = 3\n"),
              AllOf(StartsWith("run.toml:3:3: "), HasSubstr("unknown key \"model.widht\""),
                    HasSubstr("did you mean \"model.width\"?")));
  EXPECT_THAT(refused_text("[optim]\nlr = 1\n"), HasSubstr("did you mean \"optim.learning_rate\"?"));
  EXPECT_THAT(refused_text("[train]\nbatch_size = 1\n"), HasSubstr("did you mean \"train.batch\"?"));
  EXPECT_THAT(refused_flag("--model.widht=3"),
              AllOf(HasSubstr("--model.widht=3"), HasSubstr("did you mean \"model.width\"?")));
}

TEST(Load, UnknownKeyFindsTheRightSection) {
  EXPECT_THAT(refused_text("[train]\nlearning_rate = 1\n"), HasSubstr("did you mean \"optim.learning_rate\"?"));
  EXPECT_THAT(refused_text("recipe = 'bf16'\n"),
              AllOf(HasSubstr("run.toml:1:1: "), HasSubstr("did you mean \"recipes\" or \"precision.recipe\"?")));
  EXPECT_THAT(refused_flag("context=3"), HasSubstr("did you mean \"model.context\" or \"train.context\"?"));
}

TEST(Load, UnknownKeyFarFromEverythingGetsNoSuggestion) {
  EXPECT_THAT(refused_text("[model]\nxyzzyplugh = 1\n"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refused_flag("--" + std::string(100'000, 'x') + "=1"), Not(HasSubstr("did you mean")));
}

TEST(Load, UnknownSectionNamesTheNearest) {
  EXPECT_THAT(refused_text("\n[optimizer]\nlearning_rate = 1\n"),
              AllOf(StartsWith("run.toml:2:2: "), HasSubstr("unknown section \"optimizer\""),
                    HasSubstr("did you mean \"optim\"?")));
}

TEST(Load, QuotedDottedKeyIsNotASectionAndAKey) {
  EXPECT_THAT(refused_text("'train.steps' = 5\n"), AllOf(StartsWith("run.toml:1:1: "), HasSubstr("without quotes")));
  EXPECT_THROW(load_text("['train.steps']\n"), Error);
  EXPECT_THROW(load_text("[train]\n'steps.x' = 5\n"), Error);
}

TEST(Load, SectionMustBeATable) {
  EXPECT_THAT(refused_text("model = 3\n"), AllOf(StartsWith("run.toml:1:9: "), HasSubstr("expected a table"),
                                                 HasSubstr("found integer 3"), HasSubstr("[model]")));
  EXPECT_THAT(refused_text("[[model]]\nlayers = 3\n"), HasSubstr("found an array"));
}

TEST(Load, WrongTypesNameLineKeyExpectationAndFinding) {
  EXPECT_THAT(refused_text("[optim]\nlearning_rate = \"fast\"\n"),
              AllOf(StartsWith("run.toml:2:17: optim.learning_rate: expected a number above 0"),
                    HasSubstr("found text \"fast\""), HasSubstr("Peak learning rate")));
  EXPECT_THAT(refused_text("train.steps = 1.5"),
              AllOf(HasSubstr("expected an integer"), HasSubstr("found number 1.5")));
  EXPECT_THAT(
      refused_flag("--train.steps=1.5"),
      AllOf(HasSubstr("flag \"--train.steps=1.5\": train.steps: expected an integer"), HasSubstr("number 1.5")));
  EXPECT_THAT(refused_flag("--guard.enabled=maybe"), HasSubstr("expected true or false"));
  EXPECT_THAT(refused_text("[optim]\nlearning_rate_of = { 'blocks.*' = 'slow' }\n"),
              AllOf(StartsWith("run.toml:2:"), HasSubstr("optim.learning_rate_of.\"blocks.*\""), HasSubstr("slow")));
  EXPECT_THAT(refused_flag("--optim.learning_rate_of.x=-1"), HasSubstr("expected a number from 0 to 1000000"));
  EXPECT_THAT(refused_flag("--precision.layers=bf16"), HasSubstr("precision.layers.\"PATTERN\"=VALUE"));
}

TEST(Load, NumbersThatDoNotFitAreRefused) {
  for (const std::string value :
       {"9223372036854775808", "1e400", "nan", "inf", "-inf", "", " 3", "3 ", "0x10", "1,5"}) {
    EXPECT_THAT(refused_flag("--optim.learning_rate=" + value), HasSubstr("expected a number")) << value;
  }
  for (const std::string value : {"9223372036854775808", "99999999999999999999", "1e3", "", "3.0"}) {
    EXPECT_THAT(refused_flag("--train.seed=" + value), HasSubstr("expected an integer")) << value;
  }
  EXPECT_THAT(refused_text("train.seed = 9223372036854775808"), HasSubstr("run.toml:1:"));
  EXPECT_EQ(load_text("train.seed = 9223372036854775807").train.seed, 9223372036854775807U);
}

TEST(Load, ChoicesSuggestTheNearest) {
  EXPECT_THAT(refused_text("optim.clip = 'global_norm'"),
              AllOf(HasSubstr("one of none, global-norm"), HasSubstr("did you mean \"global-norm\"?")));
  EXPECT_THAT(refused_text("preset = 'smal'"), HasSubstr("did you mean \"small\"?"));
  EXPECT_THAT(refused_flag("--preset=gpt124m"), HasSubstr("did you mean \"gpt-124m\"?"));
}

TEST(Load, RecipesSuggestTheNearest) {
  EXPECT_THAT(refused_text("[precision]\nrecipe = 'fp8-curent'\n"),
              AllOf(StartsWith("run.toml:2:10: precision.recipe: "), HasSubstr("did you mean \"fp8-current\"?")));
  EXPECT_THAT(refused_text("precision.switch_to = 'b16'\n"),
              AllOf(StartsWith("run.toml:1:"), HasSubstr("one of \"\", fp32"), HasSubstr("did you mean \"bf16\"?")));
  EXPECT_THAT(refused_flag("--precision.layers.blocks.0.*=mxpf8"),
              AllOf(HasSubstr("precision.layers.\"blocks.0.*\""), HasSubstr("did you mean \"mxfp8\"?")));
}

TEST(Load, SyntaxErrorsNameLineAndColumn) {
  EXPECT_THAT(refused_text("[model]\nlayers = \n"), StartsWith("run.toml:2:"));
  EXPECT_THAT(refused_text("[model]\nlayers = 1\nlayers = 2\n"), StartsWith("run.toml:3:"));
  EXPECT_THAT(refused_text("[model\n"), StartsWith("run.toml:1:"));
  EXPECT_THAT(refused_text("run.name = '\xff'"), StartsWith("run.toml:1:"));
}

TEST(Load, TheFirstMistakeInTheFileIsReported) {
  EXPECT_THAT(refused_text("[train]\nzz = 1\n[data]\naa = 1\n"), StartsWith("run.toml:2:1: "));
}

TEST(Load, PatternsAreNotEmptyNorGivenTwice) {
  EXPECT_THAT(refused_text("[precision.layers]\n'' = 'bf16'\n"), HasSubstr("expected a pattern"));
  EXPECT_THAT(refused_flag("--precision.layers.\"\"=bf16"), HasSubstr("expected a pattern"));
  EXPECT_THAT(refused_text("[precision.layers]\n'a.b' = 'bf16'\na.b = 'fp16'\n"),
              AllOf(StartsWith("run.toml:3:"), HasSubstr("given twice")));
}

TEST(Load, FlagsWithoutAValueOrAKeyAreRefused) {
  EXPECT_THAT(refused_flag("--train.steps"), AllOf(HasSubstr("--train.steps"), HasSubstr("section.key=value")));
  EXPECT_THAT(refused_flag("=3"), HasSubstr("unknown key \"\""));
  EXPECT_THAT(refused_flag("--run.name=\xff\xfe"), AllOf(HasSubstr("UTF-8"), Not(HasSubstr("\xff"))));
  EXPECT_THAT(refused_flag(std::string("--run.name=a\0b", 14)), HasSubstr("NUL"));
}

class LoadModelFolder : public testing::Test {
 protected:
  LoadModelFolder() {
    folder_.write("config.json", R"({"model_type": "llama", "hidden_size": 96, "intermediate_size": 70,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 80, "vocab_size": 101,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6})");
  }
  std::string flag() const { return "--model.from=" + folder_.path().string(); }

  TemporaryFolder folder_;
};

TEST_F(LoadModelFolder, GivesTheShapeAboveThePresetAndBelowTheRest) {
  const Config config = load_text("preset = 'gpt-124m'\nmodel.norm_eps = 1e-4\n", {flag(), "--model.context=128"});
  EXPECT_EQ(config.model.family, Family::llama);
  EXPECT_EQ(config.model.width, 96);
  EXPECT_EQ(config.model.head_size, 80);
  EXPECT_EQ(config.model.norm_eps, 1e-4);
  EXPECT_EQ(config.model.context, 128);
  EXPECT_EQ(config.train.accumulation, 32) << "of the preset";
  EXPECT_EQ(config.model.from, folder_.path());
  EXPECT_EQ(config_difference(load_text(to_toml(config)), config), "");
}

TEST_F(LoadModelFolder, DecidesWhatItsWeightsDo) {
  EXPECT_THAT(refusal([&] {
                load_flags({flag(), "--model.kv_heads=6"});
              }),
              AllOf(HasSubstr("model.kv_heads = 6"), HasSubstr("has 3"), HasSubstr(folder_.path().string())));
  EXPECT_THAT(refusal([&] { load_flags({"--model.from=/nowhere"}); }), HasSubstr("/nowhere"));
}

// The folder may be gone: the config of a run holds the shape.
TEST_F(LoadModelFolder, IsNotReadForARun) {
  Config config = load_flags({flag()});
  config.model.from = "/nowhere";
  const ConfigSources recorded{
      .files = {}, .texts = {{"config.toml", to_toml(config)}}, .flags = {}, .model_folder = ModelFolder::recorded};
  EXPECT_EQ(config_difference(load_config(recorded), config), "");
  ConfigSources another = recorded;
  another.flags = {flag()};
  EXPECT_THAT(refusal([&] { load_config(another); }), HasSubstr("weights of its own"));
}

TEST(Load, FilesThatCannotBeReadAreNamed) {
  const TemporaryFolder folder;
  const auto refused_file = [](const std::string& path) {
    return refusal([&] { load_config({.files = {path}, .texts = {}, .flags = {}}); });
  };
  EXPECT_THAT(refused_file(folder / "missing.toml"), AllOf(HasSubstr("missing.toml"), HasSubstr("No such file")));
  EXPECT_THAT(refused_file(folder.path()), HasSubstr("is a folder"));
  EXPECT_THAT(refused_file(folder.write("big.toml", std::string((1 << 20) + 1, '#'))),
              HasSubstr("1048577 bytes, more than the 1048576"));
  EXPECT_THAT(refused_file(folder.write("wrong.toml", "\n\nmodel.x = 1\n")), HasSubstr("wrong.toml:3:"));
  EXPECT_NO_THROW(
      load_config({.files = {folder.write("largest.toml", std::string(1 << 20, '#'))}, .texts = {}, .flags = {}}));
}

}  // namespace
}  // namespace quaver
