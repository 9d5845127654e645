// `convert` and `export --quantize` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"
#include "interop/quantized_folder.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ConvertVerb : public testing::Test {
 protected:
  Outcome run(const Words& words) const { return quaver(folder_, words); }

  TemporaryFolder folder_;
};

TEST_F(ConvertVerb, WritesTheFolderAndSaysWhatItCost) {
  write_hf_folder(folder_ / "hf", llama3_model(), "BF16", 3);
  const Outcome outcome = run({"convert", "hf", "out", "--to", "fp8-block", "--keep", "*.v_proj", "--keep",
                               "*layers.1.mlp.down_proj", "--json", "out.json", "--html", "out.html"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("SQNR dB"), HasSubstr("model.layers.0.mlp.up_proj"), HasSubstr("70x96"),
                    HasSubstr("layers that stay in high precision: 3"), HasSubstr("MB/s"), Not(HasSubstr("v_proj"))));
  const json report = json::parse(contents(folder_ / "out.json"));
  EXPECT_EQ(report.at("layers").size(), 11U);
  EXPECT_EQ(report.at("format"), "fp8-block");
  EXPECT_EQ(report.at("written"), true);
  EXPECT_GT(report.at("layers")[0].at("sqnr_db"), 30);
  const std::string page = contents(folder_ / "out.html");
  EXPECT_THAT(page, AllOf(HasSubstr("SQNR of the weights"), HasSubstr("Largest outliers"), HasSubstr("up_proj"),
                          Not(HasSubstr("<script src"))));
  const Outcome back = run({"convert", "out", "back", "--to=bf16"});
  ASSERT_EQ(back.status, 0) << back.error;
  EXPECT_EQ(run({"estimate", "--model.from=back", "--no-time"}).status, 0);
}

TEST_F(ConvertVerb, RefusesLayersByNameUnlessForced) {
  HfModel model = llama3_model();
  model.tensors.at("lm_head.weight").values[0] = 1e5F;
  write_hf_folder(folder_ / "hf", model, "F32");
  const Outcome refused = run({"convert", "hf", "out", "--to=fp16", "--json=out.json", "--html=out.html"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("lm_head.weight: 1 values are beyond 65504"),
                                   HasSubstr("nothing was written"), HasSubstr("\n  → --keep")));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  EXPECT_EQ(json::parse(contents(folder_ / "out.json")).at("written"), false);
  EXPECT_THAT(contents(folder_ / "out.html"), HasSubstr("Refused"));
  EXPECT_EQ(run({"convert", "hf", "forced", "--to=fp16", "--force"}).status, 0);
  EXPECT_EQ(run({"convert", "hf", "kept", "--to=fp16", "--keep=lm_head"}).status, 0);
  EXPECT_THAT(run({"convert", "hf", "out", "--to=fp8-tensor", "--least-sqnr=50"}).error,
              AllOf(HasSubstr("below 50 dB"), HasSubstr("and 9 more layers")));
  EXPECT_THAT(run({"convert", "hf", "forced", "--to=bf16"}).error, HasSubstr("already there"));
  EXPECT_THAT(run({"convert", "hf", "out", "--to=int8"}).error, HasSubstr("int8"));
  EXPECT_THAT(run({"convert", "hf", "out"}).error, HasSubstr("--to"));
}

TEST_F(ConvertVerb, ComparesWithACalibration) {
  write_hf_folder(folder_ / "hf", llama3_model(), "BF16");
  const Outcome calibrated = run({"calibrate", "--model.from=hf", "--data.kind=synthetic", "--batch=2",
                                  "--train.context=16", "--batches=2", "--recipe=fp8-static", "--out=scales.json"});
  ASSERT_EQ(calibrated.status, 0) << calibrated.error;
  const Outcome same = run({"convert", "hf", "same", "--to=fp8-channel", "--calibration=scales.json"});
  ASSERT_EQ(same.status, 0) << same.error;
  EXPECT_THAT(same.out, HasSubstr("The weights are those of scales.json."));
  HfModel other = llama3_model();
  other.tensors.at("model.layers.1.self_attn.k_proj.weight").values[7] = 2;
  write_hf_folder(folder_ / "other", other, "BF16");
  const Outcome moved = run({"convert", "other", "moved", "--to=fp8-channel", "--calibration=scales.json",
                             "--json=out.json", "--html=o.html"});
  ASSERT_EQ(moved.status, 0) << moved.error;
  EXPECT_THAT(moved.out, AllOf(HasSubstr("weights of 1 of 8 layers"), HasSubstr("blocks.1.attn.qkv/w")));
  const json different = json::parse(contents(folder_ / "out.json")).at("calibration").at("different");
  ASSERT_EQ(different.size(), 1U);
  EXPECT_EQ(different[0].at("amax"), 2);
  const Outcome fp4 = run({"convert", "hf", "fp4", "--to=nvfp4", "--calibration=scales.json"});
  ASSERT_EQ(fp4.status, 0) << fp4.error;
  const json sites = json::parse(contents(folder_ / "scales.json")).at("sites");
  const RawTensors tensors = raw_tensors(folder_ / "fp4");
  const std::map<std::string, std::string> site_of{{"self_attn.q_proj", "blocks.1.attn.qkv/x"},
                                                   {"self_attn.v_proj", "blocks.1.attn.qkv/x"},
                                                   {"self_attn.o_proj", "blocks.1.attn.out/x"},
                                                   {"mlp.up_proj", "blocks.1.mlp.up/x"}};
  for (const auto& [layer, site] : site_of) {
    const RawTensor& scale = tensors.at("model.layers.1." + layer + ".input_global_scale");
    EXPECT_FLOAT_EQ(hf_values(scale.bytes, "F32")[0],
                    448 * 6 / sites.at(site).at("calibration").at("amax").get<float>());
  }
  EXPECT_FALSE(tensors.contains("model.layers.1.mlp.down_proj.input_global_scale")) << "70 columns";
  const json config = json::parse(contents(folder_ / "fp4" / "config.json"));
  const json& inputs = config.at("quantization_config").at("config_groups").at("group_0").at("input_activations");
  EXPECT_EQ(inputs.at("dynamic"), "local");
  EXPECT_EQ(inputs.at("num_bits"), 4);
  EXPECT_EQ(run({"estimate", "--model.from=fp4", "--no-time"}).status, 0);
  EXPECT_EQ(run({"convert", "fp4", "wide", "--to=fp32"}).status, 0);
  EXPECT_EQ(raw_tensors(folder_ / "wide").size(), llama3_model().tensors.size());
  folder_.write("none.json", R"({"version": 1, "sites": {}})");
  EXPECT_THAT(run({"convert", "hf", "x", "--to=nvfp4", "--calibration=none.json"}).error,
              HasSubstr("none.json has no range of the inputs of any layer of hf"));
  folder_.write("no.json", "{}");
  EXPECT_THAT(run({"convert", "hf", "x", "--to=fp8-tensor", "--calibration=no.json"}).error, HasSubstr("scale file"));
  EXPECT_FALSE(fs::exists(folder_ / "x"));
}

// From an FP8 checkpoint to training and back into one: the weights before the first step are those of the checkpoint.
TEST_F(ConvertVerb, QuantizedCheckpointsAreTrainedFromAndExported) {
  const RawTensors stored = write_quantized_folder(folder_ / "hf", llama3_model(), "deepseek-block");
  const Outcome trained = run({"train", "--model.from", "hf", "--data.kind=synthetic", "--steps=2", "--batch=2",
                               "--train.context=16", "--recipe=fp8-current", "--run.store=none", "--dir=run"});
  ASSERT_EQ(trained.status, 0) << trained.error;
  ASSERT_EQ(run({"export", "run", "--format=hf", "--step=0", "--out=first"}).status, 0);
  const RawTensors first = raw_tensors(folder_ / "first");
  for (const auto& [name, tensor] : first) {
    EXPECT_EQ(reference_values(first, name), reference_values(stored, name)) << name;
  }
  EXPECT_FALSE(json::parse(contents(folder_ / "first" / "config.json")).contains("quantization_config"));
  const Outcome exported = run({"export", "run", "--format=hf", "--quantize=nvfp4", "--out=fp4"});
  ASSERT_EQ(exported.status, 0) << exported.error;
  const RawTensors fp4 = raw_tensors(folder_ / "fp4");
  EXPECT_EQ(fp4.at("model.layers.0.self_attn.q_proj.weight_packed").dtype, "U8");
  EXPECT_EQ(fp4.at("lm_head.weight").dtype, "BF16");
  const Outcome evaluated = run({"eval", "--model.from=fp4", "--data.kind=synthetic", "--batches=1",
                                 "--train.context=16", "--recipe=fp32", "--json"});
  EXPECT_EQ(evaluated.status, 0) << evaluated.error;
  EXPECT_THAT(run({"export", "run", "--format=csv", "--out=x", "--quantize=nvfp4"}).error, HasSubstr("--format hf"));
  EXPECT_THAT(run({"export", "run", "--format=hf", "--out=x", "--quantize=bf16"}).error, HasSubstr("--quantize"));
}

}  // namespace
}  // namespace quaver::test
