// Folders converted from format to format: every value against the formats' definitions, what is refused, and what is
// left behind.
#include "interop/hf_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "interop/quantized_folder.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* down = "model.layers.0.mlp.down_proj.weight";

class Convert : public testing::Test {
 protected:
  Conversion convert(const std::string& from, const std::string& to, ConvertOptions options) const {
    return convert_hf(folder_ / from, folder_ / to, options);
  }
  Conversion convert(const std::string& from, const std::string& to, WeightFormat format) const {
    return convert(from, to, {.to = format});
  }
  std::string refusal(const std::string& from, const ConvertOptions& options) const {
    try {
      convert(from, "refused", options);
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty());
      EXPECT_FALSE(fs::exists(folder_ / "refused"));
      return error.what();
    }
    return "accepted";
  }
  json config(const std::string& folder) const { return json::parse(contents(folder_ / folder / "config.json")); }

  // The tensor's values in both folders, by the formats' definitions.
  void expect_same_values(const std::string& a, const std::string& b) const {
    const RawTensors one = raw_tensors(folder_ / a);
    const RawTensors other = raw_tensors(folder_ / b);
    for (const auto& [name, tensor] : llama3_model().tensors) {
      EXPECT_EQ(reference_values(one, name), reference_values(other, name)) << name;
    }
  }

  TemporaryFolder folder_;
};

// BF16 there and back through FP32 loses nothing, so that a folder is exactly what it was.
TEST_F(Convert, HighPrecisionComesBack) {
  write_hf_folder(folder_ / "bf16", llama3_model(), "BF16", 3);
  const Conversion wider = convert("bf16", "fp32", WeightFormat::f32);
  EXPECT_EQ(wider.layers.size(), llama3_model().tensors.size());
  for (const ConvertedLayer& layer : wider.layers) EXPECT_TRUE(std::isinf(layer.statistics.sqnr_db())) << layer.name;
  convert("fp32", "again", WeightFormat::bf16);
  EXPECT_TRUE(raw_tensors(folder_ / "again") == raw_tensors(folder_ / "bf16"));
  EXPECT_EQ(config("fp32").at("torch_dtype"), "float32");
  EXPECT_EQ(config("again"), config("bf16"));
  const Conversion same = convert("bf16", "same", WeightFormat::bf16);
  EXPECT_TRUE(same.layers.empty()) << "copied";
  EXPECT_TRUE(raw_tensors(folder_ / "same") == raw_tensors(folder_ / "bf16"));
}

class ConvertFormats : public Convert, public testing::WithParamInterface<const char*> {
 protected:
  WeightFormat format() const { return parse_weight_format(GetParam()); }
  bool is_nvfp4() const { return format() == WeightFormat::nvfp4; }
};

TEST_P(ConvertFormats, LinearLayersAreConvertedAndOthersCopied) {
  write_hf_folder(folder_ / "bf16", llama3_model(), "BF16", 3);
  const Conversion done = convert("bf16", "out", format());
  const RawTensors before = raw_tensors(folder_ / "bf16");
  const RawTensors after = raw_tensors(folder_ / "out");
  EXPECT_EQ(done.layers.size(), is_nvfp4() ? 12U : 14U);
  std::set<std::string> converted;
  for (const ConvertedLayer& layer : done.layers) {
    converted.insert(layer.name);
    const std::vector<float> wanted = hf_values(before.at(layer.name).bytes, "BF16");
    const std::vector<float> got = reference_values(after, layer.name);
    double signal = 0;
    double noise = 0;
    float largest = 0;
    std::size_t zeros = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      signal += std::pow(static_cast<double>(wanted[i]), 2);
      noise += std::pow(static_cast<double>(wanted[i]) - got[i], 2);
      largest = std::max(largest, std::abs(wanted[i]));
      zeros += wanted[i] != 0 && got[i] == 0 ? 1 : 0;
    }
    EXPECT_NEAR(layer.statistics.sqnr_db(), 10 * std::log10(signal / noise), 1e-3) << layer.name;
    EXPECT_EQ(layer.statistics.amax, largest) << layer.name;
    EXPECT_EQ(layer.statistics.underflowed, zeros) << layer.name;
    EXPECT_TRUE(layer.refusal.empty()) << layer.refusal;
    EXPECT_GT(layer.scales.smallest, 0);
    EXPECT_GE(layer.scales.largest, layer.scales.smallest);
  }
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(converted.contains(name) || after.at(name) == tensor) << name;
  }
  EXPECT_EQ(contents(folder_ / "out" / "tokenizer_config.json"), contents(folder_ / "bf16" / "tokenizer_config.json"));
  EXPECT_EQ(contents(folder_ / "out" / "generation_config.json"),
            contents(folder_ / "bf16" / "generation_config.json"));
}

TEST_P(ConvertFormats, ShardsKeepTheirNamesAndHaveAnIndex) {
  write_hf_folder(folder_ / "bf16", llama3_model(), "BF16", 3);
  const Conversion done = convert("bf16", "out", format());
  const json index = json::parse(contents(folder_ / "out" / "model.safetensors.index.json"));
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : raw_tensors(folder_ / "out")) {
    bytes += tensor.bytes.size();
    const SafetensorsFile file = SafetensorsFile::open(folder_ / "out" / index.at("weight_map").at(name));
    const TensorEntry* found = file.find(name);
    ASSERT_NE(found, nullptr) << name;
    const std::size_t size = *safetensors_element_bytes(found->dtype);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found->data.data()) % size, 0U) << name << " is aligned";
  }
  EXPECT_EQ(index.at("metadata").at("total_size"), bytes);
  EXPECT_EQ(done.bytes_written, bytes);
  EXPECT_TRUE(fs::exists(folder_ / "out" / "model-00002-of-00003.safetensors"));
}

TEST_P(ConvertFormats, QuantizedFoldersAreReadExactly) {
  write_quantized_folder(folder_ / "theirs", llama3_model(), GetParam());
  ConvertOptions options{.to = WeightFormat::f32};
  const Conversion done = convert("theirs", "fp32", options);
  EXPECT_EQ(done.from, format());
  expect_same_values("theirs", "fp32");
  EXPECT_FALSE(config("fp32").contains("quantization_config"));
  EXPECT_EQ(raw_tensors(folder_ / "fp32").size(), llama3_model().tensors.size()) << "no scale is left";
}

// The scale is recovered from the amax, up to the rounding of BF16, since each tensor, channel or block of what is
// written here has the format's largest code.
TEST_P(ConvertFormats, BackAndForthGivesTheSameCodes) {
  write_hf_folder(folder_ / "bf16", llama3_model(), "BF16");
  convert("bf16", "one", format());
  convert("one", "wide", WeightFormat::bf16);
  convert("wide", "two", format());
  convert("one", "again", format());
  const RawTensors one = raw_tensors(folder_ / "one");
  for (const char* other : {"two", "again"}) {
    const RawTensors two = raw_tensors(folder_ / other);
    ASSERT_EQ(one.size(), two.size());
    for (const auto& [name, tensor] : one) {
      const bool scale = name.ends_with("_scale") || name.ends_with("_scale_inv");
      if (!scale || tensor.dtype == "F8_E4M3") {
        EXPECT_TRUE(tensor == two.at(name)) << name;
        continue;
      }
      const std::vector<float> before = hf_values(tensor.bytes, "F32");
      const std::vector<float> after = hf_values(two.at(name).bytes, "F32");
      for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i] / before[i], 1, 1.0 / 256) << name;
    }
  }
}

TEST_P(ConvertFormats, ConfigSaysWhatWasWritten) {
  write_hf_folder(folder_ / "bf16", llama3_model(), "BF16");
  convert("bf16", "out", {.to = format(), .keep = {"*layers.1*o_proj"}});
  const json entry = config("out").at("quantization_config");
  const json& left = entry.at(format() == WeightFormat::deepseek_block ? "modules_to_not_convert" : "ignore");
  EXPECT_THAT(left, Contains("lm_head"));
  EXPECT_THAT(left, Contains("model.layers.1.self_attn.o_proj"));
  EXPECT_EQ(left.size(), is_nvfp4() ? 4U : 2U);
  json before = config("bf16");
  json after = config("out");
  after.erase("quantization_config");
  EXPECT_EQ(after, before);
  EXPECT_EQ(raw_tensors(folder_ / "out").at("model.layers.1.self_attn.o_proj.weight").dtype, "BF16");
}

INSTANTIATE_TEST_SUITE_P(All, ConvertFormats, testing::ValuesIn(quantized_format_names), [](const auto& instance) {
  std::string name = instance.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// From one quantized format into another: the layers that were quantized are, and no scale of before stays.
TEST_F(Convert, QuantizedFormatsBecomeOneAnother) {
  write_quantized_folder(folder_ / "nvfp4", llama3_model(), "nvfp4");
  convert("nvfp4", "deepseek", {.to = WeightFormat::deepseek_block, .keep = {"*.v_proj"}});
  const RawTensors tensors = raw_tensors(folder_ / "deepseek");
  EXPECT_EQ(tensors.at(down).dtype, "F8_E4M3") << "a linear layer that was not quantized before";
  EXPECT_TRUE(tensors.contains(down + std::string("_scale_inv")));
  const std::string value = "model.layers.1.self_attn.v_proj.weight";
  EXPECT_EQ(tensors.at(value).dtype, "BF16") << "as config.json says of high precision";
  for (const auto& [name, tensor] : tensors) {
    EXPECT_FALSE(name.ends_with("_packed") || name.ends_with("weight_scale") || name.ends_with("global_scale")) << name;
  }
}

// Names and shapes are all there is to know of other architectures.
TEST_F(Convert, AnyArchitectureIsTakenByItsNames) {
  RawTensors tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) + 1);
    tensors.emplace(name, raw_f32(std::move(shape), values));
  };
  add("model.embed_tokens.weight", {50, 32});
  add("model.layers.0.mlp.gate.weight", {4, 32});
  add("model.layers.0.mlp.experts.0.w1.weight", {130, 32});
  add("model.layers.0.mlp.experts.0.w3.weight", {130, 32});
  add("model.layers.0.mlp.experts.all", {3, 40, 32});
  add("model.layers.0.norm.weight", {32});
  add("model.layers.0.logit", {1});
  add("model.layers.0.logit_scale", {1});
  add("empty.weight", {0, 32});
  add("lm_head.weight", {50, 32});
  tensors.emplace("model.layers.0.counter", RawTensor{"I64", {1}, std::vector<std::byte>(8)});
  write_raw_folder(folder_ / "other", {{"model_type", "unheard_of"}}, tensors);
  std::ofstream(folder_ / "other" / "modeling.py") << "code";
  std::ofstream(folder_ / "other" / "pytorch_model.bin") << "pickle";
  const Conversion done = convert("other", "out", WeightFormat::nvfp4);
  std::vector<std::string> names;
  for (const ConvertedLayer& layer : done.layers) names.push_back(layer.name);
  EXPECT_THAT(names, ElementsAre("model.layers.0.mlp.experts.0.w1.weight", "model.layers.0.mlp.experts.0.w3.weight"));
  EXPECT_THAT(done.kept, ElementsAre("empty", "model.layers.0.mlp.gate"));
  const RawTensors after = raw_tensors(folder_ / "out");
  EXPECT_EQ(after.at(names[0] + "_global_scale"), after.at(names[1] + "_global_scale"));
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(name == names[0] || name == names[1] || after.at(name) == tensor) << name;
  }
  EXPECT_TRUE(fs::exists(folder_ / "out" / "modeling.py"));
  EXPECT_FALSE(fs::exists(folder_ / "out" / "pytorch_model.bin")) << "weights that were not converted";
  convert("out", "back", WeightFormat::f16);
  tensors.emplace("model.layers.0.sum", RawTensor{"F64", {1}, std::vector<std::byte>(8)});
  write_raw_folder(folder_ / "doubles", {{"model_type", "unheard_of"}}, tensors);
  try {
    convert("doubles", "none", WeightFormat::f16);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.layers.0.sum is of type F64"));
  }
  EXPECT_FALSE(fs::exists(folder_ / "none"));
  EXPECT_EQ(raw_tensors(folder_ / "back").at("model.layers.0.counter").dtype, "I64");
  EXPECT_EQ(raw_tensors(folder_ / "back").at("model.layers.0.norm.weight").dtype, "F16");
}

// One outlier takes the range that a whole tensor shares, and all the energy that SQNR counts.
TEST_F(Convert, LayersBeyondTheLimitAreRefusedByName) {
  HfModel model = llama3_model();
  model.tensors.at(down).values[3] = 3e6F;
  write_hf_folder(folder_ / "from", model, "F32");
  const auto entries = [&] { return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()); };
  const auto before = entries();
  ConvertOptions options{.to = WeightFormat::fp8_tensor};
  const Conversion refused = convert("from", "out", options);
  EXPECT_TRUE(refused.files.empty());
  EXPECT_EQ(entries(), before) << "nothing is left";
  EXPECT_EQ(refused.layers.size(), 14U);
  for (const ConvertedLayer& layer : refused.layers) {
    EXPECT_EQ(layer.refusal.find("become zero") != std::string::npos, layer.name == down) << layer.name;
  }
  options.beyond_limits = BeyondLimits::allow;
  EXPECT_FALSE(convert("from", "forced", options).files.empty());
  EXPECT_FALSE(convert("from", "channels", {.to = WeightFormat::fp8_channel}).files.empty()) << "one row alone";
  options = {.to = WeightFormat::fp8_channel, .least_sqnr = 60};
  for (const ConvertedLayer& layer : convert("from", "none", options).layers) {
    const bool low = layer.refusal.find("below 60 dB") != std::string::npos;
    EXPECT_EQ(low, layer.name != down) << layer.name << layer.refusal;
  }
}

TEST_F(Convert, ValuesThatAreNotFiniteOrTooLargeAreRefused) {
  HfModel model = llama3_model();
  model.tensors.at(down).values[3] = NAN;
  model.tensors.at("lm_head.weight").values[5] = -70000;
  model.tensors.at("model.norm.weight").values[0] = 65504;
  write_hf_folder(folder_ / "from", model, "F32");
  const auto refused = [&](WeightFormat format) {
    std::map<std::string, std::string> all;
    for (const ConvertedLayer& layer : convert("from", "out", format).layers) {
      if (!layer.refusal.empty()) all[layer.name] = layer.refusal;
    }
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    return all;
  };
  const auto half = refused(WeightFormat::f16);
  EXPECT_EQ(half.size(), 2U);
  EXPECT_THAT(half.at(down), HasSubstr("1 values are not finite"));
  EXPECT_THAT(half.at("lm_head.weight"), AllOf(HasSubstr("1 values"), HasSubstr("beyond 65504")));
  EXPECT_THAT(refused(WeightFormat::fp8_channel).at(down), HasSubstr("not finite"));
}

TEST_F(Convert, ScalesThatDoNotFitAreRefused) {
  write_quantized_folder(folder_ / "from", llama3_model(), "fp8-block");
  RawTensors tensors = raw_tensors(folder_ / "from");
  tensors["model.layers.9.weight_scale"] = raw_f32({1}, {1});
  write_raw_folder(folder_ / "from", config("from"), tensors);
  EXPECT_THAT(refusal("from", {.to = WeightFormat::bf16}), AllOf(HasSubstr("layers.9"), HasSubstr("no weight")));
  tensors.erase("model.layers.9.weight_scale");
  tensors.erase("model.layers.0.mlp.up_proj.weight_scale");
  write_raw_folder(folder_ / "from", config("from"), tensors);
  EXPECT_THAT(refusal("from", {.to = WeightFormat::bf16}), HasSubstr("up_proj.weight_scale"));
}

TEST_F(Convert, WhatCannotBeDoneIsSaid) {
  write_hf_folder(folder_ / "some", llama3_model(), "BF16");
  const ConvertOptions lacking{.to = WeightFormat::nvfp4, .input_amax = {{"model.layers.0.self_attn.q_proj", 1}}};
  EXPECT_THAT(refusal("some", lacking), AllOf(HasSubstr("inputs of"), HasSubstr("gate_proj")));
  write_hf_folder(folder_ / "from", llama3_model(), "BF16");
  EXPECT_THAT(refusal("from", {.to = WeightFormat::bf16, .keep = {"*.nothing"}}), HasSubstr("*.nothing"));
  EXPECT_THAT(refusal("from", {.to = WeightFormat::fp8_block, .keep = {"*"}}), HasSubstr("no linear layer"));
  EXPECT_THAT(refusal("nowhere", {.to = WeightFormat::bf16}), HasSubstr("nowhere"));
  fs::create_directories(folder_ / "empty");
  EXPECT_FALSE(convert("from", "empty", WeightFormat::f32).files.empty());
  EXPECT_THROW(convert("from", "empty", WeightFormat::f32), Error) << "no longer empty";
  EXPECT_THROW(convert("from", "from", WeightFormat::f32), Error);
  const std::atomic<bool> stop = true;
  EXPECT_THROW(convert("from", "out", {.to = WeightFormat::f32, .stop = &stop}), ConvertInterrupted);
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

}  // namespace
}  // namespace quaver::test
