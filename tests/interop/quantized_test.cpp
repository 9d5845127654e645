// Quantized checkpoints: codes and scales that others wrote are read exactly or refused by name, and what an export
// writes has the values that its format defines.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/model_fixture.h"

#include "interop/hf_config.h"
#include "interop/hf_export.h"
#include "interop/hf_weights.h"
#include "interop/quantized_folder.h"
#include "interop/weight_format.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* projection = "model.layers.1.self_attn.q_proj.weight";

// A folder's weights in a model, and the model as a checkpoint.
class Trained {
 public:
  explicit Trained(const fs::path& folder) : small_(read_hf_config(folder), {}, 1, 8) {
    load_hf_weights(folder, small_.config, *small_.engine, small_.transformer->parameters());
  }
  void export_to(const fs::path& out, WeightFormat dtype, std::optional<WeightFormat> quantize = std::nullopt) const {
    std::vector<TensorEntry> tensors;
    for (const Parameter& parameter : small_.transformer->parameters().all()) {
      tensors.push_back(
          {parameter.name,
           "F32",
           {parameter.rows, parameter.cols},
           {static_cast<const std::byte*>(parameter.weight.data), static_cast<std::size_t>(parameter.weight.bytes())}});
    }
    const fs::path checkpoint = out.string() + ".checkpoint";
    write_safetensors(checkpoint, tensors);
    const SafetensorsFile weights = SafetensorsFile::open(checkpoint);
    export_hf({.model = small_.config, .weights = weights, .original = {}, .dtype = dtype, .quantize = quantize}, out);
  }

 private:
  SmallModel small_;
};

class QuantizedFormats : public testing::TestWithParam<const char*> {
 protected:
  fs::path write(const HfModel& model) const {
    fs::remove_all(folder_ / "model");
    write_quantized_folder(folder_ / "model", model, GetParam());
    return folder_ / "model";
  }

  // What the folder is refused with after its tensors were changed.
  std::string refusal_after(const std::function<void(RawTensors&)>& change) const {
    const fs::path folder = write(llama3_model());
    RawTensors tensors = raw_tensors(folder);
    change(tensors);
    write_raw_folder(folder, json::parse(contents(folder / "config.json")), tensors);
    try {
      const Trained trained(folder);
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty());
      return error.what();
    }
    return "accepted";
  }

  std::string scale_name() const {
    return std::string(projection) + (std::string(GetParam()) == "deepseek-block" ? "_scale_inv" : "_scale");
  }
  std::string code_name() const { return projection + std::string(is_nvfp4() ? "_packed" : ""); }
  bool is_nvfp4() const { return std::string(GetParam()) == "nvfp4"; }

  TemporaryFolder folder_;
};

TEST_P(QuantizedFormats, AreReadExactly) {
  for (const HfModel& model : {llama3_model(), qwen2_model()}) {
    const fs::path folder = write(model);
    const RawTensors stored = raw_tensors(folder);
    fs::remove_all(folder_ / "out");
    Trained(folder).export_to(folder_ / "out", WeightFormat::f32);
    const auto read = hf_contents(folder_ / "out");
    EXPECT_EQ(read.size(), model.tensors.size());
    for (const auto& [name, content] : read) {
      EXPECT_EQ(hf_values(content.second, "F32"), reference_values(stored, name)) << model.name << " " << name;
    }
  }
}

TEST_P(QuantizedFormats, ScalesOfOtherTypesAndShapesAreRead) {
  const fs::path folder = write(llama3_model());
  RawTensors tensors = raw_tensors(folder);
  RawTensor& scale = tensors.at(scale_name());
  tensors["model.layers.1.self_attn.q_proj.input_scale"] = raw_f32({1}, {0.5F});
  if (is_nvfp4()) {
    tensors.at(std::string(projection) + "_global_scale").shape = {};
  } else {
    scale = {"BF16", scale.shape, hf_bytes(hf_values(scale.bytes, "F32"), "BF16")};
    if (scale.shape.size() == 1) scale.shape = {};
    if (scale.shape.size() == 2 && scale.shape[1] == 1 && scale.shape[0] == 480) scale.shape = {480};
  }
  write_raw_folder(folder, json::parse(contents(folder / "config.json")), tensors);
  Trained(folder).export_to(folder_ / "out", WeightFormat::f32);
  if (scale.shape == std::vector<std::int64_t>{480}) scale.shape = {480, 1};  // as the reference knows it
  EXPECT_EQ(hf_values(hf_contents(folder_ / "out").at(projection).second, "F32"),
            reference_values(tensors, projection));
}

TEST_P(QuantizedFormats, ScalesThatAreMissingOrExtraAreNamed) {
  EXPECT_THAT(refusal_after([&](RawTensors& t) { t.erase(scale_name()); }),
              AllOf(HasSubstr(projection), HasSubstr(scale_name())));
  EXPECT_THAT(refusal_after([&](RawTensors& t) { t.erase(code_name()); }), HasSubstr(projection));
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  EXPECT_THAT(refusal_after([&](RawTensors& t) { t[down + "_scale"] = raw_f32({1}, {1}); }),
              AllOf(HasSubstr(down + "_scale"), HasSubstr("is no part of")));
  EXPECT_THAT(refusal_after([&](RawTensors& t) { t["model.layers.0.mlp.other.weight_scale"] = raw_f32({1}, {1}); }),
              AllOf(HasSubstr("other.weight_scale"), HasSubstr("no place")));
  const char* wrong = std::string(GetParam()) == "deepseek-block" ? "_scale" : "_scale_inv";
  EXPECT_THAT(refusal_after([&](RawTensors& t) { t[projection + std::string(wrong)] = raw_f32({1}, {1}); }),
              AllOf(HasSubstr(projection), HasSubstr("is no part of")));
}

TEST_P(QuantizedFormats, ScalesOfTheWrongShapeTypeOrValueAreNamed) {
  const auto changed = [&](const RawTensor& other) {
    return refusal_after([&](RawTensors& t) { t.at(scale_name()) = other; });
  };
  EXPECT_THAT(changed(raw_f32({3}, {1, 1, 1})), HasSubstr(scale_name()));
  EXPECT_THAT(changed({"I32", {1}, std::vector<std::byte>(4)}), AllOf(HasSubstr(scale_name()), HasSubstr("I32")));
  const auto broken = [&](float value, std::byte code) {
    return refusal_after([&](RawTensors& t) {
      RawTensor& scale = t.at(scale_name());
      if (is_nvfp4()) {
        scale.bytes.back() = code;
      } else {
        std::memcpy(scale.bytes.data() + scale.bytes.size() - sizeof(value), &value, sizeof(value));
      }
    });
  };
  EXPECT_THAT(broken(std::nanf(""), std::byte{0x7F}), AllOf(HasSubstr(scale_name()), HasSubstr("nan")));
  EXPECT_THAT(broken(-1.0F, std::byte{0x81}), AllOf(HasSubstr(scale_name()), HasSubstr("scale of -")));
  if (is_nvfp4()) return;
  EXPECT_THAT(broken(INFINITY, {}), AllOf(HasSubstr(scale_name()), HasSubstr("inf")));
}

TEST_P(QuantizedFormats, CodesThatAreWrongAreNamed) {
  if (is_nvfp4()) {
    const std::string global = std::string(projection) + "_global_scale";
    EXPECT_THAT(refusal_after([&](RawTensors& t) { t.erase(global); }), HasSubstr(global));
    EXPECT_THAT(refusal_after([&](RawTensors& t) { t.at(global) = raw_f32({1}, {0}); }), HasSubstr(global));
    EXPECT_THAT(refusal_after([&](RawTensors& t) { t.at(global) = raw_f32({1}, {INFINITY}); }), HasSubstr(global));
    EXPECT_THAT(refusal_after([&](RawTensors& t) {
                  t[projection] = {"BF16", {1}, std::vector<std::byte>(2)};
                }),
                HasSubstr(projection));
  } else {
    EXPECT_THAT(refusal_after([&](RawTensors& t) { t.at(projection).bytes[77] = std::byte{0xFF}; }),
                AllOf(HasSubstr(projection), HasSubstr("not finite")));
  }
  EXPECT_THAT(refusal_after([&](RawTensors& t) { std::swap(t.at(code_name()).shape[0], t.at(code_name()).shape[1]); }),
              HasSubstr(projection));
  EXPECT_THAT(refusal_after([&](RawTensors& t) {
                RawTensor& codes = t.at(code_name());
                codes.shape.insert(codes.shape.begin(), 1);
              }),
              AllOf(HasSubstr(projection), HasSubstr("matrices")));
  EXPECT_THAT(refusal_after([&](RawTensors& t) {
                t.at(code_name()) = {t.at(code_name()).dtype, {480, 0}, {}};
              }),
              HasSubstr(projection));
}

TEST_P(QuantizedFormats, WithoutTheirConfigAreRefused) {
  const fs::path folder = write(llama3_model());
  json config = json::parse(contents(folder / "config.json"));
  config.erase("quantization_config");
  folder_.write("model/config.json", config.dump());
  EXPECT_THROW(Trained{folder}, Error);
}

double sqnr_db(const std::vector<float>& wanted, const std::vector<float>& got) {
  double signal = 0;
  double noise = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    signal += std::pow(static_cast<double>(wanted[i]), 2);
    noise += std::pow(static_cast<double>(wanted[i]) - got[i], 2);
  }
  return 10 * std::log10(signal / noise);
}

// Exported and read again: the values that the file's format defines, which are near the weights; what is not quantized
// stays as it was.
TEST_P(QuantizedFormats, AreWrittenAsTheyAreDefined) {
  const WeightFormat format = parse_weight_format(GetParam());
  for (const HfModel& model : {llama3_model(), qwen2_model(), gpt2_model()}) {
    const fs::path from = folder_ / (model.name + "-bf16");
    const fs::path out = folder_ / (model.name + "-out");
    const fs::path again = folder_ / (model.name + "-again");
    write_hf_folder(from, model, "BF16");
    Trained(from).export_to(out, WeightFormat::bf16, format);
    const RawTensors before = raw_tensors(from);
    const RawTensors after = raw_tensors(out);
    Trained(out).export_to(again, WeightFormat::f32);
    const auto read = hf_contents(again);
    int quantized = 0;
    for (const auto& [name, content] : read) {
      const std::vector<float> defined = reference_values(after, name);
      EXPECT_EQ(hf_values(content.second, "F32"), defined) << model.name << " " << name;
      if (after.contains(name) && after.at(name).dtype == "BF16") {
        EXPECT_TRUE(after.at(name) == before.at(name)) << model.name << " " << name;
        continue;
      }
      EXPECT_TRUE(name.ends_with("_proj.weight") || name.find(".c_") != std::string::npos) << name;
      EXPECT_GT(sqnr_db(hf_values(before.at(name).bytes, "BF16"), defined), is_nvfp4() ? 18 : 30) << name;
      ++quantized;
    }
    // down_proj has 70 columns, which blocks of 16 do not divide.
    const int layers = model.name == "gpt2" ? 8 : is_nvfp4() ? 12 : 14;
    EXPECT_EQ(quantized, layers) << model.name;
  }
}

TEST_P(QuantizedFormats, ConfigSaysWhatWasWritten) {
  write_hf_folder(folder_ / "from", llama3_model(), "BF16");
  Trained(folder_ / "from").export_to(folder_ / "out", WeightFormat::bf16, parse_weight_format(GetParam()));
  const json config = json::parse(contents(folder_ / "out" / "config.json"));
  const json written = config.at("quantization_config");
  json expected = quantization_config(GetParam());
  EXPECT_EQ(config.at("torch_dtype"), "bfloat16");
  EXPECT_EQ(written.at("quant_method"), expected.at("quant_method"));
  if (std::string(GetParam()) == "deepseek-block") {
    EXPECT_EQ(written, expected);
    return;
  }
  EXPECT_EQ(written.at("format"), expected.at("format"));
  json& weights = expected["config_groups"]["group_0"]["weights"];
  weights.erase("observer");
  EXPECT_EQ(written.at("config_groups").at("group_0").at("weights"), weights);
  json left{"lm_head"};
  if (is_nvfp4()) left.insert(left.end(), {"model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"});
  EXPECT_EQ(written.at("ignore"), left);
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedFormats, testing::ValuesIn(quantized_format_names), [](const auto& instance) {
  std::string name = instance.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Quantized, AModelWithoutALayerThatTheFormatCanHoldIsNotWritten) {
  const TemporaryFolder folder;
  HfModel model = llama2_model();
  model.config.update({{"hidden_size", 40},
                       {"num_attention_heads", 5},
                       {"num_key_value_heads", 5},
                       {"intermediate_size", 24},
                       {"head_dim", nullptr}});
  write_hf_folder(folder / "from", llama2_model(), "F32");
  const SafetensorsFile weights = SafetensorsFile::open(folder / "from" / "model.safetensors");
  const HfExport none{.model = resolved(parse_hf_config(model.config.dump(), "c")),
                      .weights = weights,
                      .original = {},
                      .dtype = WeightFormat::bf16,
                      .quantize = WeightFormat::nvfp4};
  try {
    export_hf(none, folder / "out");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no linear layer that nvfp4 can hold"));
  }
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Quantized, FusedLayersShareOneGlobalScale) {
  const TemporaryFolder folder;
  HfModel model = llama3_model();
  for (float& value : model.tensors.at("model.layers.0.self_attn.k_proj.weight").values) value *= 5;
  write_hf_folder(folder / "from", model, "F32");
  Trained(folder / "from").export_to(folder / "out", WeightFormat::bf16, WeightFormat::nvfp4);
  const RawTensors tensors = raw_tensors(folder / "out");
  const auto global = [&](const std::string& layer) {
    return hf_values(tensors.at("model.layers." + layer + ".weight_global_scale").bytes, "F32")[0];
  };
  float largest = 0;
  for (const float value : model.tensors.at("model.layers.0.self_attn.k_proj.weight").values) {
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_FLOAT_EQ(global("0.self_attn.k_proj"), 256 * 6 / largest);
  EXPECT_EQ(global("0.self_attn.q_proj"), global("0.self_attn.k_proj"));
  EXPECT_EQ(global("0.self_attn.v_proj"), global("0.self_attn.k_proj"));
  EXPECT_EQ(global("0.mlp.gate_proj"), global("0.mlp.up_proj"));
  EXPECT_NE(global("1.self_attn.q_proj"), global("0.self_attn.q_proj"));
}

TEST(Quantized, WeightsThatAreNotFiniteAreNotExported) {
  const TemporaryFolder folder;
  write_hf_folder(folder / "from", llama3_model(), "F32");
  SmallModel small(read_hf_config(folder / "from"), {}, 1, 8);
  std::vector<TensorEntry> tensors;
  for (Parameter& parameter : small.transformer->parameters().all()) {
    if (parameter.name == "blocks.1.attn.out.weight") parameter.weight.f32()[5] = NAN;
    tensors.push_back(
        {parameter.name,
         "F32",
         {parameter.rows, parameter.cols},
         {static_cast<const std::byte*>(parameter.weight.data), static_cast<std::size_t>(parameter.weight.bytes())}});
  }
  write_safetensors(folder / "checkpoint", tensors);
  const SafetensorsFile weights = SafetensorsFile::open(folder / "checkpoint");
  const HfExport what{.model = small.config, .weights = weights, .original = {}, .quantize = WeightFormat::fp8_block};
  try {
    export_hf(what, folder / "out");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.layers.1.self_attn.o_proj.weight"));
  }
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Quantized, OtherMethodsAreRefusedByName) {
  const auto refusal = [](const std::function<void(json&)>& change) {
    json config = llama3_model().config;
    config["quantization_config"] = quantization_config("fp8-block");
    change(config["quantization_config"]);
    try {
      parse_hf_config(config.dump(), "folder/config.json");
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("folder/config.json: "), HasSubstr("quantization_config")));
      EXPECT_FALSE(error.remedy().empty());
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto weights = [](json& q) -> json& { return q["config_groups"]["group_0"]["weights"]; };
  EXPECT_EQ(refusal([](json&) {}), "accepted");
  EXPECT_EQ(refusal([&](json& q) { weights(q)["block_structure"] = "128x128"; }), "accepted");
  EXPECT_THAT(refusal([](json& q) { q["quant_method"] = "gptq"; }), HasSubstr("\"gptq\""));
  EXPECT_THAT(refusal([](json& q) { q["format"] = "pack-quantized"; }), HasSubstr("\"pack-quantized\""));
  EXPECT_THAT(refusal([](json& q) { q["config_groups"] = json::object(); }), HasSubstr("config_groups"));
  EXPECT_THAT(refusal([](json& q) { q["config_groups"] = 3; }), HasSubstr("config_groups"));
  EXPECT_THAT(refusal([](json& q) { q["config_groups"]["group_0"] = "x"; }), HasSubstr("group_0"));
  EXPECT_THAT(refusal([](json& q) { q["sparsity_config"]["format"] = "sparse-24"; }), HasSubstr("sparse"));
  EXPECT_THAT(refusal([](json& q) { q["transform_config"]["config_groups"]["u"]["type"] = "hadamard"; }),
              HasSubstr("rotated"));
  EXPECT_THAT(refusal([&](json& q) { weights(q)["type"] = "int"; }), HasSubstr("\"int\""));
  EXPECT_THAT(refusal([&](json& q) { weights(q)["num_bits"] = 4; }), HasSubstr("4 bits"));
  EXPECT_THAT(refusal([&](json& q) { weights(q)["strategy"] = "group"; }), HasSubstr("\"group\""));
  EXPECT_THAT(refusal([&](json& q) { weights(q)["block_structure"] = {64, 128}; }), HasSubstr("block_structure"));
  EXPECT_THAT(refusal([&](json& q) { weights(q)["symmetric"] = false; }), HasSubstr("asymmetric"));
  EXPECT_THAT(refusal([](json& q) {
                q["config_groups"]["group_1"] = q["config_groups"]["group_0"];
                q["config_groups"]["group_1"]["weights"] =
                    quantization_config("fp8-channel")["config_groups"]["group_0"]["weights"];
              }),
              HasSubstr("differ"));
  EXPECT_THAT(refusal([](json& q) { q = {{"quant_method", "fp8"}, {"fmt", "e5m2"}}; }), HasSubstr("fmt"));
  EXPECT_THAT(refusal([](json& q) { q = {{"quant_method", "fp8"}}; }), HasSubstr("weight_block_size"));
  EXPECT_THAT(refusal([](json& q) { q = "fp8"; }), HasSubstr("quantization_config"));
}

}  // namespace
}  // namespace quaver::test
