// `--model.from` and `export --format hf`, as a user runs them: a Hugging Face folder in, a Hugging Face folder out.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/hf_folder.h"

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ModelFolder : public testing::Test {
 protected:
  Outcome run(const Words& words) const { return quaver(folder_, words); }

  Outcome train(const Words& more = {}) const {
    return run(Words{"train", "--model.from", "hf", "--data.kind=synthetic", "--steps=3", "--batch=2",
                     "--train.context=16", "--recipe=fp32", "--run.store=none", "--dir=run"} +
               more);
  }

  TemporaryFolder folder_;
};

// The checkpoint before the first step holds the weights of the folder, whatever the recipe.
TEST_F(ModelFolder, IsTrainedFromAndComesBack) {
  for (const HfModel& model : all_hf_models()) {
    fs::remove_all(folder_ / "hf");
    fs::remove_all(folder_ / "run");
    fs::remove_all(folder_ / "out");
    fs::remove_all(folder_ / "trained");
    write_hf_folder(folder_ / "hf", model, "BF16");
    const Outcome trained = train({"--recipe=fp8-current"});
    ASSERT_EQ(trained.status, 0) << model.name << trained.error;
    const auto before = hf_contents(folder_ / "hf");
    fs::remove_all(folder_ / "hf");
    const Outcome first = run({"export", "run", "--format=hf", "--step=0", "--dtype=bf16", "--out=out"});
    ASSERT_EQ(first.status, 0) << model.name << first.error;
    EXPECT_TRUE(hf_contents(folder_ / "out") == before) << model.name;
    for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
      EXPECT_THAT(first.out, HasSubstr(name)) << "kept with the run";
    }
    ASSERT_EQ(run({"export", "run", "--format=hf", "--out=trained"}).status, 0);
    EXPECT_FALSE(hf_contents(folder_ / "trained") == before);
  }
}

TEST_F(ModelFolder, IsNotNeededToGoOn) {
  write_hf_folder(folder_ / "hf", llama3_model());
  ASSERT_EQ(train().status, 0);
  const std::string config = contents(folder_ / "run" / "config.toml");
  EXPECT_THAT(config, AllOf(HasSubstr("head_size = 80"), HasSubstr("rope_factor = 8"), HasSubstr("/hf\"")));
  fs::remove_all(folder_ / "hf");
  const Outcome resumed = run({"train", "--resume=run", "--steps=5"});
  EXPECT_EQ(resumed.status, 0) << resumed.error;
  const Outcome evaluated = run({"eval", "run", "--json", "--batches=1"});
  EXPECT_EQ(evaluated.status, 0) << evaluated.error;
  const Outcome named = run({"eval", "run", "--model.from=hf"});
  EXPECT_THAT(named.error, HasSubstr("a run has weights of its own"));
  const Outcome repeated = run({"train", "run/config.toml", "--dir=again"});
  EXPECT_THAT(repeated.error, HasSubstr("no config.json")) << "a new run of that config begins from the folder";
}

// The losses of a run do not depend on how the folder's weights are stored, where all types hold them.
TEST_F(ModelFolder, GivesTheSameLossFromEveryType) {
  HfModel model = qwen3_model();
  for (auto& [name, tensor] : model.tensors) {
    for (float& value : tensor.values) value = std::round(value * 64) / 64;  // few bits, which F16 and BF16 hold
  }
  const auto loss = [&](const char* dtype, std::size_t shards) {
    fs::remove_all(folder_ / "hf");
    write_hf_folder(folder_ / "hf", model, dtype, shards);
    const Outcome outcome = run({"eval", "--model.from=hf", "--data.kind=synthetic", "--json", "--batches=2",
                                 "--train.context=16", "--recipe=fp32"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return outcome.out;
  };
  const std::string expected = loss("F32", 1);
  EXPECT_THAT(expected, HasSubstr("validation_loss"));
  EXPECT_EQ(loss("F16", 1), expected);
  EXPECT_EQ(loss("BF16", 3), expected);
}

TEST_F(ModelFolder, IsSampledStudiedAndEstimated) {
  HfModel model = smollm2_model();
  model.config["vocab_size"] = 300;
  model.tensors = llama_values(model.config);
  write_hf_folder(folder_ / "hf", model);
  const Outcome sampled = run(
      {"sample", "--model.from", "hf", "--data.tokenizer=bytes", "--prompt=ab", "--tokens=8", "--train.context=16"});
  EXPECT_EQ(sampled.status, 0) << sampled.error;
  EXPECT_THAT(sampled.out, HasSubstr("ab"));
  EXPECT_THAT(run({"sample", "--model.from=hf"}).error, AllOf(HasSubstr("hf"), HasSubstr("tokenizer")));
  EXPECT_THAT(run({"sample"}).error, HasSubstr("no model is named"));
  const Words study{"--model.from=hf", "--data.kind=synthetic", "--batch=2", "--train.context=16", "--batches=2"};
  const Outcome calibrated = run(Words{"calibrate", "--recipe=fp8-static", "--out=scales.json"} + study);
  EXPECT_EQ(calibrated.status, 0) << calibrated.error;
  EXPECT_THAT(calibrated.out, AllOf(HasSubstr("hf, seed 1"), Not(HasSubstr("steps of training"))));
  const Outcome localized = run(Words{"localize", "--recipe=fp8-current", "--group=block", "--out=plan"} + study);
  EXPECT_EQ(localized.status, 0) << localized.error;
  const Outcome estimated = run({"estimate", "--model.from=hf", "--no-time", "--json", "--train.context=16"});
  EXPECT_EQ(estimated.status, 0) << estimated.error;
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : model.tensors) parameters += static_cast<std::int64_t>(tensor.values.size());
  EXPECT_EQ(json::parse(estimated.out).at("parameters"), parameters);
}

TEST_F(ModelFolder, DecidesTheShape) {
  write_hf_folder(folder_ / "hf", llama3_model());
  EXPECT_THAT(train({"--model.width=128"}).error, AllOf(HasSubstr("model.width = 128"), HasSubstr("has 96")));
  EXPECT_THAT(train({"--model.tie_head=yes"}).error, HasSubstr("model.tie_head"));
  EXPECT_THAT(train({"--recipe=fp8-unit"}).error, HasSubstr("model.from"));
  EXPECT_FALSE(fs::exists(folder_ / "run")) << "nothing is written";
  const Outcome longer = train({"--model.context=128"});
  EXPECT_EQ(longer.status, 0) << longer.error;
  EXPECT_THAT(contents(folder_ / "run" / "config.toml"), HasSubstr("context = 128"));
  write_hf_folder(folder_ / "gpt2", gpt2_model());
  EXPECT_THAT(run({"estimate", "--model.from=gpt2", "--model.context=80"}).error, HasSubstr("model.context = 80"));
}

TEST_F(ModelFolder, ThatIsDamagedStopsARunBeforeItBegins) {
  write_hf_folder(folder_ / "hf", llama3_model(), "F32", 3);
  fs::remove(folder_ / "hf" / "model-00002-of-00003.safetensors");
  const Outcome outcome = train();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("model-00002-of-00003.safetensors"), HasSubstr("not there")));
  EXPECT_FALSE(fs::exists(folder_ / "run" / "config.toml"));
  EXPECT_THAT(run({"estimate", "--model.from=nowhere"}).error, HasSubstr("nowhere"));
}

TEST_F(ModelFolder, IsWrittenForAModelTrainedFromScratch) {
  ASSERT_EQ(run(tiny_training({"--dir=run"})).status, 0);
  const Outcome exported = run({"export", "run", "--format=hf", "--out=out"});
  ASSERT_EQ(exported.status, 0) << exported.error;
  const json config = json::parse(contents(folder_ / "out" / "config.json"));
  EXPECT_EQ(config.at("model_type"), "gpt2");
  EXPECT_EQ(run({"estimate", "--model.from=out", "--no-time"}).status, 0);
  EXPECT_THAT(run({"export", "run", "--format=hf", "--out=out"}).error, HasSubstr("already there"));
  EXPECT_THAT(run({"export", "run", "--format=csv", "--out=x", "--dtype=bf16"}).error, HasSubstr("--format hf"));
  EXPECT_THAT(run({"export", "run", "--format=hf", "--out=x", "--run=run"}).error, HasSubstr("--run"));
}

class ModelTokenizer : public ModelFolder {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "text");
    for (int i = 0; i < 3; ++i) {
      std::string text;
      for (int word = 0; word < 400; ++word) text += "word" + std::to_string((word * 7 + i) % 50) + " and ";
      folder_.write("text/" + std::to_string(i) + ".txt", text);
    }
  }

  void prepare(const std::string& out, const std::string& tokenizer) const {
    const Outcome outcome = run({"data", "text", "--out", out, "--tokenizer", tokenizer, "--valid=0.34"});
    ASSERT_EQ(outcome.status, 0) << outcome.error;
  }

  // Of 300 tokens, as those of bpe:300.
  void write_model() const {
    HfModel model = smollm2_model();
    model.config["vocab_size"] = 300;
    model.tensors = llama_values(model.config);
    write_hf_folder(folder_ / "hf", model);
  }

  Outcome train_on(const std::string& data) const {
    return run({"train", "--model.from=hf", "--data", data, "--steps=1", "--batch=2", "--train.context=16",
                "--recipe=fp32", "--run.store=none", "--dir=run"});
  }

  void expect_exported(const char* name, const fs::path& original) const {
    EXPECT_EQ(contents(folder_ / "out" / name), contents(folder_.path() / original)) << name;
  }
};

TEST_F(ModelTokenizer, OfARunFromScratchIsExported) {
  prepare("data", "bpe:300");
  ASSERT_EQ(run(tiny_training_on("data", {"--dir=run"})).status, 0);
  fs::remove_all(folder_ / "data");
  ASSERT_EQ(run({"export", "run", "--format=hf", "--out=out"}).status, 0);
  expect_exported("tokenizer.json", "run/tokenizer/tokenizer.json");
  EXPECT_EQ(json::parse(contents(folder_ / "out" / "tokenizer.json")).at("model").at("type"), "BPE");
  const json config = json::parse(contents(folder_ / "out" / "tokenizer_config.json"));
  EXPECT_EQ(config.at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(config.at("tokenizer_class"), "PreTrainedTokenizerFast");
  EXPECT_EQ(json::parse(contents(folder_ / "out" / "special_tokens_map.json")).at("bos_token"), "<|endoftext|>");
}

// Text that was encoded by the folder's own tokenizer: its files come back as they were.
TEST_F(ModelTokenizer, OfTheFolderComesBackByteForByte) {
  prepare("first", "bpe:300");
  write_model();
  const std::string original = contents(folder_ / "first" / "tokenizer.json") + "  \n";
  folder_.write("hf/tokenizer.json", original);
  prepare("data", "hf");
  EXPECT_EQ(contents(folder_ / "data" / "tokenizer.json"), original);
  const Outcome trained = train_on("data");
  ASSERT_EQ(trained.status, 0) << trained.error;
  EXPECT_FALSE(fs::exists(folder_ / "run" / "tokenizer"));
  ASSERT_EQ(run({"export", "run", "--format=hf", "--out=out"}).status, 0);
  EXPECT_EQ(contents(folder_ / "out" / "tokenizer.json"), original);
  expect_exported("tokenizer_config.json", "hf/tokenizer_config.json");
  const Outcome sampled = run({"sample", "--model.from=hf", "--prompt=word", "--tokens=4", "--train.context=16"});
  EXPECT_EQ(sampled.status, 0) << sampled.error;
  EXPECT_THAT(sampled.out, HasSubstr("word"));
}

TEST_F(ModelTokenizer, OfTheFolderIsUsedWhereTheDataNamesNone) {
  prepare("first", "bpe:300");
  write_model();
  fs::copy(folder_ / "first" / "tokenizer.json", folder_ / "hf" / "tokenizer.json");
  prepare("data", "hf");
  const Outcome trained = train_on("data/train-00000.qv");
  ASSERT_EQ(trained.status, 0) << trained.error;
  const Outcome sampled = run({"sample", "run", "--prompt=word", "--tokens=4"});
  EXPECT_EQ(sampled.status, 0) << sampled.error;
  EXPECT_THAT(sampled.out, HasSubstr("word"));
  fs::remove(folder_ / "run" / "pretrained" / "tokenizer.json");
  EXPECT_THAT(run({"sample", "run"}).error, HasSubstr("no tokenizer"));
}

TEST_F(ModelTokenizer, ThatIsNotTheDatasIsToldOfAndReplaced) {
  prepare("data", "bpe:280");
  prepare("other", "bpe:300");
  write_model();
  fs::copy(folder_ / "other" / "tokenizer.json", folder_ / "hf" / "tokenizer.json");
  const Outcome trained = train_on("data");
  ASSERT_EQ(trained.status, 0) << trained.error;
  EXPECT_THAT(trained.out + trained.error, HasSubstr("the model's own tokenizer is not the data's"));
  ASSERT_EQ(run({"export", "run", "--format=hf", "--out=out"}).status, 0);
  expect_exported("tokenizer.json", "data/tokenizer.json");
}

}  // namespace
}  // namespace quaver::test
