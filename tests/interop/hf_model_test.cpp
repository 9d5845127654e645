// Models of every family: what they compute against the reference, and weights that come back as they went in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/every.h"
#include "support/model_fixture.h"

#include "interop/hf_config.h"
#include "interop/hf_export.h"
#include "interop/hf_reference.h"
#include "interop/hf_weights.h"

namespace quaver::test {
namespace {

constexpr Size sequence = 19;

// An imported model on the CPU, in FP32.
struct Imported {
  explicit Imported(const std::filesystem::path& folder, Format master = Format::f32, Size length = sequence)
      : small(read_hf_config(folder), fp32(), 1, length) {
    if (master != Format::f32) small.transformer->parameters().allocate(*small.engine, master);
    load_hf_weights(folder, small.config, *small.engine, small.transformer->parameters());
    small.refresh_weights();
  }
  static PrecisionConfig fp32() {
    PrecisionConfig precision;
    precision.recipe = "fp32";
    return precision;
  }

  std::vector<float> logits(const std::vector<int>& tokens) {
    Step step{*small.engine, *small.arena, 1, static_cast<Size>(tokens.size()), Pass::evaluate};
    std::vector<float> out(static_cast<std::size_t>(small.config.vocab));
    small.transformer->next_token_logits(step, tokens, {out.data(), Format::f32, 1, small.config.vocab});
    return out;
  }

  // As a checkpoint holds them: the weights, or their gradients in their place.
  SafetensorsFile save(const std::filesystem::path& path, View Parameter::*what = &Parameter::weight) const {
    std::vector<TensorEntry> tensors;
    for (const Parameter& parameter : small.transformer->parameters().all()) {
      const View values = parameter.*what;
      tensors.push_back({parameter.name,
                         values.format == Format::bf16 ? "BF16" : "F32",
                         {parameter.rows, parameter.cols},
                         {static_cast<const std::byte*>(values.data), static_cast<std::size_t>(values.bytes())}});
    }
    write_safetensors(path, tensors);
    return SafetensorsFile::open(path);
  }

  SmallModel small;
};

class HfModels : public testing::TestWithParam<NamedHfModel> {
 protected:
  const HfModel model_ = GetParam().make();
  TemporaryFolder folder_;
};

TEST_P(HfModels, LogitsAgreeWithTheReference) {
  write_hf_folder(folder_ / "model", model_);
  Imported model(folder_ / "model");
  std::vector<int> tokens;
  for (Size i = 0; i < sequence; ++i) tokens.push_back(static_cast<int>((i * 37 + 11) % model.small.config.vocab));
  const auto want = HfReference(folder_ / "model").logits(tokens);
  double worst = 0;
  for (std::size_t length = 1; length <= tokens.size(); ++length) {
    const std::vector<float> got = model.logits({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length)});
    double error = 0;
    double largest = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error = std::max(error, std::abs(got[i] - want[length - 1][i]));
      largest = std::max(largest, std::abs(want[length - 1][i]));
    }
    EXPECT_GT(largest, 0.5) << "logits that say something";
    worst = std::max(worst, error / largest);
  }
  RecordProperty("relative_error", std::to_string(worst));
  EXPECT_LT(worst, 1e-5);
}

// Along the gradient of each tensor the reference's loss rises as steeply as the gradient is long.
TEST_P(HfModels, GradientsAgreeWithTheReference) {
  write_hf_folder(folder_ / "model", model_);
  Imported model(folder_ / "model", Format::f32, 5);
  std::vector<int> tokens;
  for (Size i = 0; i < 6; ++i) tokens.push_back(static_cast<int>((i * 41 + 3) % model.small.config.vocab));
  model.small.inputs.assign(tokens.begin(), tokens.end() - 1);
  model.small.targets.assign(tokens.begin() + 1, tokens.end());
  HfReference reference(folder_ / "model");
  EXPECT_NEAR(model.small.loss(Pass::train), reference.loss(tokens), 1e-4);
  const SafetensorsFile gradients = model.save(folder_ / "gradients.safetensors", &Parameter::gradient);
  export_hf({.model = model.small.config, .weights = gradients, .original = {}}, folder_ / "gradients");
  int seen = 0;
  for (const auto& [name, content] : hf_contents(folder_ / "gradients")) {
    if (seen++ % test::every_nth != 0) continue;
    const std::vector<float> gradient = hf_values(content.second, "F32");
    double length = 0;
    for (const float value : gradient) length += static_cast<double>(value) * value;
    length = std::sqrt(length);
    std::vector<double>& weights = reference.tensors().at(name);
    const std::vector<double> before = weights;
    const auto loss_at = [&](double distance) {
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = before[i] + distance * gradient[i] / length;
      return reference.loss(tokens);
    };
    constexpr double step = 1e-3;
    EXPECT_GT(length, 1e-4) << name;
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), length, 1e-3 * length + 1e-5) << name;
    weights = before;
  }
}

TEST_P(HfModels, WeightsComeBackByteForByte) {
  for (const auto& [dtype, wanted] : {std::pair("F32", WeightFormat::f32), std::pair("BF16", WeightFormat::bf16)}) {
    const auto from = folder_ / (std::string("from-") + dtype);
    write_hf_folder(from, model_, dtype);
    const Imported model(from);
    const SafetensorsFile weights = model.save(folder_ / (std::string(dtype) + ".safetensors"));
    keep_hf_files(from, folder_ / "kept");
    const auto to = folder_ / (std::string("to-") + dtype);
    export_hf({.model = model.small.config, .weights = weights, .original = folder_ / "kept", .dtype = wanted}, to);
    EXPECT_TRUE(hf_contents(from) == hf_contents(to)) << dtype;
    const json config = json::parse(contents(to / "config.json"));
    EXPECT_EQ(config.at("model_type"), model_.config.at("model_type"));
    EXPECT_EQ(config.at("architectures"), model_.config.at("architectures"));
    EXPECT_EQ(config.at("eos_token_id"), model_.config.at("eos_token_id")) << "other fields are kept";
    EXPECT_EQ(config.at("torch_dtype"), wanted == WeightFormat::f32 ? "float32" : "bfloat16");
    EXPECT_FALSE(config.contains("dtype") || config.contains("rope_parameters"));
    for (const char* name : {"generation_config.json", "tokenizer_config.json"}) {
      EXPECT_EQ(contents(from / name), contents(to / name));
    }
  }
}

// A BF16 folder trained with BF16 master weights loses nothing either.
TEST_P(HfModels, Bf16MasterWeightsHoldBf16Exactly) {
  write_hf_folder(folder_ / "from", model_, "BF16");
  const Imported model(folder_ / "from", Format::bf16);
  const SafetensorsFile weights = model.save(folder_ / "model.safetensors");
  export_hf({.model = model.small.config, .weights = weights, .original = {}, .dtype = WeightFormat::bf16},
            folder_ / "to");
  EXPECT_TRUE(hf_contents(folder_ / "from") == hf_contents(folder_ / "to"));
}

// The config.json that is written describes the same model, with the original's fields or without.
TEST_P(HfModels, ConfigComesBack) {
  const std::string original = model_.config.dump();
  const ModelConfig model = resolved(parse_hf_config(original, "original"));
  const HfTensors& tensors = model_.tensors;
  for (const std::string& kept : {original, std::string()}) {
    const ModelConfig again = resolved(parse_hf_config(render_hf_config(model, "float32", kept), "again"));
    EXPECT_EQ(again.context, model.context);
    EXPECT_EQ(again.norm_eps, model.norm_eps);
    EXPECT_EQ(again.rope_theta, model.rope_theta);
    EXPECT_EQ(again.rope_factor, model.rope_factor);
    EXPECT_EQ(again.rope_original_context, model.rope_original_context);
    EXPECT_EQ(again.tie_head, model.tie_head);
    const std::vector<HfTensor> listed = hf_tensors(again);
    EXPECT_EQ(listed.size(), tensors.size());
    for (const HfTensor& tensor : listed) {
      ASSERT_TRUE(tensors.contains(tensor.name)) << tensor.name;
      EXPECT_EQ(tensors.at(tensor.name).shape, tensor.shape()) << tensor.name;
    }
  }
}

TEST_P(HfModels, F16AndShardsAreReadToo) {
  write_hf_folder(folder_ / "half", model_, "F16", 3);
  const Imported model(folder_ / "half");
  const SafetensorsFile weights = model.save(folder_ / "model.safetensors");
  const HfExport what{.model = model.small.config, .weights = weights, .original = {}, .shard_bytes = 900'000};
  const auto files = export_hf(what, folder_ / "to");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "to" / "model.safetensors.index.json"));
  EXPECT_GT(files.size(), 4U);
  const auto half = hf_contents(folder_ / "half");
  const auto full = hf_contents(folder_ / "to");
  ASSERT_EQ(half.size(), full.size());
  for (const auto& [name, content] : half) {
    EXPECT_EQ(hf_values(content.second, "F16"), hf_values(full.at(name).second, "F32")) << name;
  }
  const Imported again(folder_ / "to");
  EXPECT_EQ(json::parse(contents(folder_ / "to" / "model.safetensors.index.json")).at("metadata").at("total_size"),
            4 * again.small.transformer->parameters().count());
}

INSTANTIATE_TEST_SUITE_P(Families, HfModels, testing::ValuesIn(hf_models),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace

// For gtest's messages; within a namespace that it finds by the argument.
inline void PrintTo(const NamedHfModel& model, std::ostream* out) { *out << model.name; }

}  // namespace quaver::test
