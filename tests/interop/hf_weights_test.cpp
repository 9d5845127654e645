// Folders with damaged, missing or wrong files and tensors: each is refused with the file and the tensor, before a
// weight is loaded; and folders that older programs wrote, which are read.
#include "interop/hf_weights.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "support/hf_folder.h"
#include "support/model_fixture.h"

#include "interop/hf_config.h"
#include "interop/hf_export.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* index_file = "model.safetensors.index.json";
constexpr const char* second_shard = "model-00002-of-00003.safetensors";
constexpr const char* query = "model.layers.1.self_attn.q_proj.weight";

class HfFolder : public testing::Test {
 protected:
  fs::path write(const HfModel& model, std::size_t shards = 1) const {
    fs::remove_all(folder_ / "model");
    write_hf_folder(folder_ / "model", model, "F32", shards);
    return folder_ / "model";
  }

  // What the folder is refused with.
  std::string refusal() const {
    try {
      HfWeights(folder_ / "model").check(resolved(read_hf_config(folder_ / "model")));
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty());
      return error.what();
    }
    return "accepted";
  }
  std::string refusal_after(const std::function<void(HfModel&)>& change) const {
    HfModel model = llama3_model();
    change(model);
    write(model);
    return refusal();
  }
  void edit_index(const std::function<void(json&)>& change) const {
    json index = json::parse(contents(folder_ / "model" / index_file));
    change(index);
    folder_.write(std::string("model/") + index_file, index.dump());
  }

  TemporaryFolder folder_;
};

TEST_F(HfFolder, TensorsHaveTheRightNamesAndShapes) {
  EXPECT_EQ(refusal_after([](HfModel&) {}), "accepted");
  EXPECT_THAT(refusal_after([](HfModel& m) { m.tensors.erase(query); }), HasSubstr(query));
  EXPECT_THAT(refusal_after([](HfModel& m) {
                m.tensors["model.layers.0.mlp.gate_proj.bias"] = {{2}, {1, 2}};
              }),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("gate_proj.bias"), HasSubstr("no place")));
  EXPECT_THAT(refusal_after([](HfModel& m) {
                m.tensors.at(query).shape = {96, 480};
              }),
              AllOf(HasSubstr("model.safetensors"), HasSubstr(query), HasSubstr("[96, 480]"), HasSubstr("[480, 96]")));
  EXPECT_THAT(refusal_after([](HfModel& m) { m.config["vocab_size"] = 102; }), HasSubstr("embed_tokens"));
  EXPECT_THAT(refusal_after([](HfModel& m) { m.config["num_hidden_layers"] = 1; }), HasSubstr("model.layers.1."));
  EXPECT_THAT(refusal_after([](HfModel& m) { m.config["tie_word_embeddings"] = true; }),
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("tied")));
}

TEST_F(HfFolder, TypesAreThoseThatWeightsHave) {
  const fs::path folder = write(llama3_model());
  const SafetensorsFile file = SafetensorsFile::open(folder / "model.safetensors");
  std::vector<TensorEntry> tensors(file.tensors().begin(), file.tensors().end());
  for (TensorEntry& tensor : tensors) {
    if (tensor.name == query) tensor.dtype = "I32";
  }
  write_safetensors(folder / "model.safetensors", tensors);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.safetensors"), HasSubstr(query), HasSubstr("I32")));
}

TEST_F(HfFolder, AFolderWithoutWeightsSaysWhatItHas) {
  const fs::path folder = write(llama3_model());
  fs::remove(folder / "model.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("neither model.safetensors nor"));
  folder_.write("model/pytorch_model.bin", "pickle");
  try {
    HfWeights{folder};
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.remedy(), HasSubstr("pickled"));
  }
}

TEST_F(HfFolder, ACutFileIsRefusedAtEveryLength) {
  const fs::path folder = write(llama3_model());
  const std::string whole = contents(folder / "model.safetensors");
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    folder_.write("model/model.safetensors", whole.substr(0, length));
    EXPECT_THAT(refusal(), HasSubstr("model.safetensors")) << length;
  }
}

TEST_F(HfFolder, ShardsAreThoseOfTheIndex) {
  const fs::path folder = write(llama3_model(), 3);
  EXPECT_EQ(refusal(), "accepted");
  const std::string shard = contents(folder / second_shard);
  fs::remove(folder / second_shard);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(index_file), HasSubstr(second_shard), HasSubstr("not there")));
  folder_.write(std::string("model/") + second_shard, shard.substr(0, shard.size() / 2));
  EXPECT_THAT(refusal(), HasSubstr(second_shard));
  folder_.write(std::string("model/") + second_shard, contents(folder / "model-00001-of-00003.safetensors"));
  EXPECT_THAT(refusal(), AllOf(HasSubstr(second_shard), HasSubstr("not where the index says"))) << "another's shard";
  folder_.write(std::string("model/") + second_shard, shard);
  edit_index([](json& index) { index["weight_map"]["more"] = second_shard; });
  EXPECT_THAT(refusal(), AllOf(HasSubstr(second_shard), HasSubstr("'more'")));
  write(llama3_model(), 3);
  edit_index([](json& index) { index["weight_map"].erase(query); });
  EXPECT_THAT(refusal(), HasSubstr(query)) << "in a shard, and not in the index";
}

TEST_F(HfFolder, AnIndexLeadsNowhereElse) {
  write(llama3_model(), 3);
  for (const json& file : {json("../model.safetensors"), json("/etc/passwd"), json(""), json(".."), json(3),
                           json("a/b.safetensors"), json("pytorch_model.bin"), json(nullptr)}) {
    edit_index([&](json& index) { index["weight_map"][query] = file; });
    EXPECT_THAT(refusal(), AllOf(HasSubstr(index_file), HasSubstr(query))) << file;
  }
  for (const char* text : {"", "[]", "{}", R"({"weight_map": {}})", R"({"weight_map": []})", "{\"weight_map\""}) {
    folder_.write(std::string("model/") + index_file, text);
    EXPECT_THAT(refusal(), HasSubstr(index_file)) << text;
  }
}

struct Loaded {
  explicit Loaded(const fs::path& folder) : small(read_hf_config(folder), {}, 1, 8) {
    load_hf_weights(folder, small.config, *small.engine, small.transformer->parameters());
  }
  std::vector<float> values(const std::string& name) const {
    const View weight = small.transformer->parameters().find(name).weight;
    return {weight.f32(), weight.f32() + weight.rows * weight.cols};
  }
  SmallModel small;
};

TEST_F(HfFolder, AWeightThatIsNotFiniteIsRefused) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    HfModel model = llama3_model();
    model.tensors.at(query).values.back() = bad;
    const fs::path folder = write(model);
    try {
      const Loaded loaded(folder);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("model.safetensors"), HasSubstr(query), HasSubstr("not finite")));
    }
  }
}

// The first GPT-2 has no prefix, and masks among its weights.
TEST_F(HfFolder, OldNamesOfGpt2AreRead) {
  const Loaded usual(write(gpt2_model()));
  HfModel old = gpt2_model();
  old.tensors.clear();
  for (const auto& [name, tensor] : gpt2_model().tensors)
    old.tensors[name.substr(std::strlen("transformer."))] = tensor;
  old.tensors["h.0.attn.bias"] = {{1, 1, 2, 2}, {1, 0, 1, 1}};
  const Loaded loaded(write(old));
  for (const Parameter& parameter : usual.small.transformer->parameters().all()) {
    EXPECT_EQ(usual.values(parameter.name), loaded.values(parameter.name)) << parameter.name;
  }
}

TEST_F(HfFolder, AHeadThatRepeatsTheEmbeddingIsTied) {
  HfModel model = smollm2_model();
  model.tensors["lm_head.weight"] = model.tensors.at("model.embed_tokens.weight");
  write(model);
  EXPECT_EQ(refusal(), "accepted");
  model.tensors["lm_head.weight"].values[7] += 1;
  write(model);
  EXPECT_THAT(refusal(), HasSubstr("differs from the embedding"));
}

// An export that fails leaves nothing, and one that succeeds replaces nothing.
TEST_F(HfFolder, AnExportIsCompleteOrAbsent) {
  const fs::path folder = write(llama3_model());
  const SmallModel small(read_hf_config(folder), {}, 1, 8);
  std::vector<TensorEntry> tensors;
  for (const Parameter& parameter : small.transformer->parameters().all()) {
    tensors.push_back(
        {parameter.name,
         "F32",
         {parameter.rows, parameter.cols},
         {static_cast<const std::byte*>(parameter.weight.data), static_cast<std::size_t>(parameter.weight.bytes())}});
  }
  write_safetensors(folder_ / "whole.safetensors", tensors);
  const std::vector<TensorEntry> some(tensors.begin(), tensors.end() - 1);
  write_safetensors(folder_ / "some.safetensors", some);
  const SafetensorsFile whole = SafetensorsFile::open(folder_ / "whole.safetensors");
  const SafetensorsFile lacking = SafetensorsFile::open(folder_ / "some.safetensors");
  const auto entries = [&] { return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()); };
  const auto before = entries();
  EXPECT_THROW(export_hf({.model = small.config, .weights = lacking, .original = {}}, folder_ / "out"), Error);
  EXPECT_EQ(entries(), before);
  ModelConfig wider = small.config;
  wider.ffn += 1;
  EXPECT_THROW(export_hf({.model = wider, .weights = whole, .original = {}}, folder_ / "out"), Error);
  EXPECT_EQ(entries(), before);
  fs::create_directories(folder_ / "out");
  EXPECT_EQ(export_hf({.model = small.config, .weights = whole, .original = {}}, folder_ / "out").size(), 3U);
  EXPECT_THROW(export_hf({.model = small.config, .weights = whole, .original = {}}, folder_ / "out"), Error);
  EXPECT_EQ(entries(), before + 1);
}

}  // namespace
}  // namespace quaver::test
