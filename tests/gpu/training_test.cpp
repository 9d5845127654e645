// Whole training runs: the GPU's loss curve is the CPU's, what is kept for backward changes no byte, and a run that
// stops and resumes ends in the bytes of one that does not.
#include <algorithm>
#include <iomanip>
#include <map>

#include "gpu/compare.h"

#include "precision/recipe.h"
#include "train/engine_choice.h"
#include "train/support.h"
#include "train/trainer.h"

namespace quaver::test {
namespace {

const Size steps = is_brief() ? 3 : 20;
const Size memory_steps = is_brief() ? 2 : 5;
const Size resume_step = is_brief() ? 2 : 10;

// |Δloss| / loss at any step. FP32 between operations: sums in another order, which twenty updates amplify.
constexpr double loss_bound_f32 = 5e-4;
// BF16 between operations, and FP8 or FP4 codes that land on their neighbors because of it.
constexpr double loss_bound_bf16 = 2e-2;
// FP16 between operations has three bits more, and TF32 in attention as many.
constexpr double loss_bound_f16 = 5e-3;
constexpr double loss_bound_tf32 = 2e-3;

Config config_of(const std::string& recipe) {
  Config config = small_config(recipe, "unused");
  if (is_brief()) config.model.layers = config.train.accumulation = 1;
  config.train.steps = steps;
  config.train.eval_every = 0;
  config.train.statistics_every = is_brief() ? 2 : 7;  // full statistics take another way through the casts
  return config;
}

// Grouped heads, rotary embedding, RMS norms, swiglu, biases on q, k, v, norms of heads.
Config llama_config(const std::string& recipe) {
  Config config = config_of(recipe);
  config.model.family = Family::llama;
  config.model.width = 64;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.qkv_bias = true;
  config.model.qk_norm = true;
  return config;
}

// An engine of its own for each: recordings and sites belong to one trainer.
struct Session {
  Session(const Config& config, std::unique_ptr<Engine> engine_)
      : data(open_training_data(config.data, config.train.seed, config.model.context)),
        engine(std::move(engine_)),
        trainer(std::make_unique<Trainer>(config, data, *engine, [](const std::string&) {})) {}
  TrainingData data;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Trainer> trainer;
};

std::unique_ptr<Session> gpu_session(const Config& config) {
  return std::make_unique<Session>(config, make_tested_engine(gpu_options(config.precision)));
}

struct NamedBytes {
  std::string name;
  std::vector<std::byte> bytes;
};

std::vector<NamedBytes> copied(const std::vector<TensorEntry>& tensors) {
  std::vector<NamedBytes> copies;
  for (const TensorEntry& tensor : tensors) copies.push_back({tensor.name, {tensor.data.begin(), tensor.data.end()}});
  return copies;
}

struct End {
  std::vector<NamedBytes> weights;
  std::vector<NamedBytes> moments;
  std::string state;
};

End end_of(Trainer& trainer) {
  const CheckpointContent content = trainer.snapshot();
  return {copied(content.model), copied(content.optimizer), content.state};
}

struct Curve {
  std::vector<double> losses;
  std::optional<double> validation;
};

// A whole run on the GPU, remembered for the tests that start from it.
struct Straight {
  Curve curve;
  End early;  // after memory_steps
  End end;
  TemporaryFolder folder;  // with the checkpoint of resume_step
};

const Straight& straight_run(const std::string& recipe) {
  static std::map<std::string, std::unique_ptr<Straight>> known;
  std::unique_ptr<Straight>& run = known[recipe];
  if (run != nullptr) return *run;
  auto fresh = std::make_unique<Straight>();
  const auto session = gpu_session(config_of(recipe));
  Trainer& trainer = *session->trainer;
  while (!trainer.finished()) {
    fresh->curve.losses.push_back(trainer.step().loss);
    if (trainer.steps_done() == memory_steps) fresh->early = end_of(trainer);
    if (trainer.steps_done() == resume_step) {
      CheckpointStore(fresh->folder.path(), 1).save(resume_step, trainer.snapshot());
    }
  }
  fresh->curve.validation = trainer.evaluate(1);
  fresh->end = end_of(trainer);
  run = std::move(fresh);
  return *run;
}

Curve run_of(Session& session) {
  Curve curve;
  while (!session.trainer->finished()) curve.losses.push_back(session.trainer->step().loss);
  curve.validation = session.trainer->evaluate(1);
  return curve;
}

Curve cpu_run(const Config& config) {
  Session session(config, make_cpu_engine(2));
  return run_of(session);
}

void expect_same_curve(const std::string& what, const Curve& cpu, const Curve& gpu, double limit) {
  ASSERT_EQ(cpu.losses.size(), gpu.losses.size()) << what;
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    const double difference = std::abs(cpu.losses[i] - gpu.losses[i]) / cpu.losses[i];
    EXPECT_TRUE(std::isfinite(gpu.losses[i])) << what << ", step " << i + 1;
    if (difference <= worst) continue;
    worst = difference;
    at = i;
  }
  EXPECT_LE(worst, limit) << what << ": largest difference at step " << at + 1 << " of " << steps << ": CPU "
                          << cpu.losses[at] << ", GPU " << gpu.losses[at];
  EXPECT_LT(gpu.losses.back(), gpu.losses.front()) << what << ": nothing was learnt";
  ASSERT_EQ(cpu.validation.has_value(), gpu.validation.has_value()) << what;
  if (cpu.validation) expect_near(what + ", validation", *cpu.validation, *gpu.validation, limit);
}

double bound_of(const std::string& recipe) {
  const CudaOptions options = gpu_options({.recipe = recipe});
  if (options.float_attention == Format::tf32) return loss_bound_tf32;
  if (options.high_precision == Format::f16) return loss_bound_f16;
  return options.high_precision == Format::f32 ? loss_bound_f32 : loss_bound_bf16;
}

// Names the first of the tensors that differ: where the two ways part.
void expect_same_tensors(const std::string& what, const std::vector<NamedBytes>& expected,
                         const std::vector<NamedBytes>& actual) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  std::vector<std::size_t> differing;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].name, actual[i].name) << what;
    if (expected[i].bytes != actual[i].bytes) differing.push_back(i);
  }
  if (differing.empty()) return;
  const NamedBytes& first = expected[differing.front()];
  expect_same_bytes(what + ": " + std::to_string(differing.size()) + " of " + std::to_string(expected.size()) +
                        " tensors differ, the first " + first.name,
                    first.bytes, actual[differing.front()].bytes);
}

void expect_same_end(const std::string& what, const End& expected, const End& actual) {
  expect_same_tensors(what + ", weights", expected.weights, actual.weights);
  expect_same_tensors(what + ", moments", expected.moments, actual.moments);
}

// Names the first step whose loss differs: it comes before that step's update, after all updates before.
void expect_same_losses(const std::string& what, const std::vector<double>& expected,
                        const std::vector<double>& actual) {
  for (std::size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    if (expected[i] == actual[i]) continue;
    ADD_FAILURE() << what << ": the first loss that differs is that of step " << i + 1 << ": " << std::setprecision(17)
                  << expected[i] << " and " << actual[i];
    return;
  }
}

class TrainingTest : public GpuTest, public testing::WithParamInterface<std::string> {};

TEST_P(TrainingTest, FollowsTheCpu) {
  const std::string recipe = GetParam();
  expect_same_curve(recipe, cpu_run(config_of(recipe)), straight_run(recipe).curve, bound_of(recipe));
}

TEST_P(TrainingTest, WhatIsKeptForBackwardChangesNoByte) {
  const std::string recipe = GetParam();
  const Straight& straight = straight_run(recipe);
  for (const Memory memory : {Memory::speed, Memory::small}) {
    Config config = config_of(recipe);
    config.train.memory = memory;
    const auto session = gpu_session(config);
    std::vector<double> losses;
    for (Size i = 0; i < memory_steps; ++i) losses.push_back(session->trainer->step().loss);
    const std::string what = recipe + (memory == Memory::speed ? ", balanced and speed" : ", balanced and small");
    expect_same_losses(what, straight.curve.losses, losses);
    expect_same_end(what, straight.early, end_of(*session->trainer));
  }
}

TEST_P(TrainingTest, ResumesIntoTheSameBytes) {
  const std::string recipe = GetParam();
  const Straight& straight = straight_run(recipe);
  const auto session = gpu_session(config_of(recipe));
  session->trainer->restore(CheckpointStore::read_only(straight.folder.path()).load(resume_step));
  const Curve rest = run_of(*session);
  for (std::size_t i = 0; i < rest.losses.size(); ++i) {
    EXPECT_EQ(rest.losses[i], straight.curve.losses[i + resume_step]) << recipe << ", step " << i + resume_step + 1;
  }
  const End end = end_of(*session->trainer);
  expect_same_end(recipe + ", resumed", straight.end, end);
  EXPECT_EQ(straight.end.state, end.state) << recipe << ", state";
}

std::vector<std::string> all_recipes() {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : recipes()) names.emplace_back(recipe.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Gpu, TrainingTest, testing::ValuesIn(all_recipes()),
                         [](const testing::TestParamInfo<std::string>& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class OtherModelsTest : public GpuTest {};

TEST_F(OtherModelsTest, GroupedHeadsFollowTheCpu) {
  for (const std::string& recipe :
       some_of<std::string>({"fp32", "fp16", "bf16", "nvfp4", "fp8-block", "fp8-delayed"})) {
    const Config config = llama_config(recipe);
    expect_same_curve("llama " + recipe, cpu_run(config), run_of(*gpu_session(config)), bound_of(recipe));
  }
}

// A width that FP8 codes are padded to, and an odd number of tokens.
TEST_F(OtherModelsTest, OddSizesFollowTheCpu) {
  for (const std::string& recipe :
       some_of<std::string>({"fp8-delayed", "bf16", "fp16", "tf32", "fp8-current", "fp8-block", "mxfp8"})) {
    Config config = config_of(recipe);
    config.model.width = 72;
    config.model.heads = 3;
    config.model.context = 23;
    config.data.synthetic_vocab = 37;
    config.train.batch = 3;
    expect_same_curve("odd sizes " + recipe, cpu_run(config), run_of(*gpu_session(config)), bound_of(recipe));
  }
}

// Rows of features in FP32, and as many pixels and classes as no tensor core likes.
TEST_F(OtherModelsTest, ClassifiersFollowTheCpu) {
  for (const std::string& recipe :
       some_of<std::string>({"fp32", "fp16", "bf16", "nvfp4", "fp8-block", "fp8-delayed"})) {
    Config config = config_of(recipe);
    config.model.family = Family::mlp;
    config.model.width = 64;
    config.data.kind = DataKind::synthetic_images;
    config.data.synthetic_classes = 5;
    config.data.synthetic_pixels = 27;
    config.data.synthetic_strength = 20;
    config.train.batch = 64;
    expect_same_curve("mlp " + recipe, cpu_run(config), run_of(*gpu_session(config)), bound_of(recipe));
  }
}

// Convolutions of every kind that the family has; an image of three channels, and odd sizes.
TEST_F(OtherModelsTest, ConvolutionNetworksFollowTheCpu) {
  for (const std::string& recipe :
       some_of<std::string>({"fp32", "fp16", "bf16", "nvfp4", "fp8-block", "fp8-delayed"})) {
    Config config = config_of(recipe);
    config.model.family = Family::convnet;
    config.model.stage_widths = "16,32";
    config.model.stage_blocks = "2,1";
    config.data.kind = DataKind::synthetic_images;
    config.data.synthetic_classes = 5;
    config.data.synthetic_pixels = 9 * 9 * 3;
    config.data.synthetic_channels = 3;
    config.data.synthetic_tile = 3;
    config.data.synthetic_strength = 10;
    config.train.batch = 32;
    for (const FeatureNorm norm : {FeatureNorm::batch, FeatureNorm::layer}) {
      config.model.feature_norm = norm;
      const std::string what = "convnet " + recipe + (norm == FeatureNorm::batch ? ", batch norms" : ", layer norms");
      expect_same_curve(what, cpu_run(config), run_of(*gpu_session(config)), bound_of(recipe));
    }
  }
}

TEST_F(OtherModelsTest, UnitScaledModelsFollowTheCpu) {
  for (const Parametrization parametrization : {Parametrization::umup, Parametrization::munit}) {
    Config config = config_of("fp8-unit");
    config.model.parametrization = parametrization;
    const std::string what = parametrization == Parametrization::umup ? "u-µP" : "µnit";
    expect_same_curve(what, cpu_run(config), run_of(*gpu_session(config)), loss_bound_bf16);
  }
}

// Rows of several documents, targets without loss, and weights without gradients: the embedding's, the head's, a
// layer's. Two runs give the same bytes.
TEST_F(OtherModelsTest, FineTuningFollowsTheCpu) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += R"({"prompt": ")" + std::string(index(1 + i % 5), 'a') + R"(", "completion": ")" +
             std::string(index(1 + i * i % 23), static_cast<char>('b' + i % 7)) + "\"}\n";
  }
  const auto file = folder.write("examples.jsonl", lines);
  for (const std::string& recipe : some_of<std::string>({"fp32", "fp8-delayed", "bf16", "fp16", "tf32"})) {
    for (const bool frozen : {false, true}) {
      Config config = llama_config(recipe);
      config.data.kind = DataKind::examples;
      config.data.path = file.string();
      config.data.tokenizer = "bytes";
      config.data.valid_share = 0.2;
      if (frozen) config.optim.learning_rate_of = {{"embed.weight", 0}, {"head.weight", 0}, {"blocks.0.attn.qkv.*", 0}};
      const auto session = gpu_session(config);
      const End before = end_of(*session->trainer);
      const std::string what = "fine-tuning " + recipe + (frozen ? ", partly frozen" : "");
      expect_same_curve(what, cpu_run(config), run_of(*session), bound_of(recipe));
      const auto again = gpu_session(config);
      run_of(*again);
      const End end = end_of(*session->trainer);
      expect_same_end(what, end, end_of(*again->trainer));
      for (std::size_t i = 0; i < end.weights.size(); ++i) {
        const Parameter& parameter = session->trainer->model().parameters().find(end.weights[i].name);
        EXPECT_EQ(end.weights[i].bytes == before.weights[i].bytes, parameter.frozen) << what << ", " << parameter.name;
      }
    }
  }
}

// GEMMs of low-precision codes with adapters in high precision, of a rank that tensor cores like and one they do not.
TEST_F(OtherModelsTest, AdaptersFollowTheCpu) {
  for (const std::string& recipe :
       some_of<std::string>({"fp32", "fp8-delayed", "bf16", "fp16", "fp8-block", "nvfp4"})) {
    for (const Size rank : {8, 3}) {
      Config config = llama_config(recipe);
      config.model.lora_rank = rank;
      const std::string what = "adapters of rank " + std::to_string(rank) + ", " + recipe;
      const auto session = gpu_session(config);
      const End before = end_of(*session->trainer);
      expect_same_curve(what, cpu_run(config), run_of(*session), bound_of(recipe));
      const End end = end_of(*session->trainer);
      for (std::size_t i = 0; i < end.weights.size(); ++i) {
        const Parameter& parameter = session->trainer->model().parameters().find(end.weights[i].name);
        EXPECT_EQ(end.weights[i].bytes != before.weights[i].bytes, parameter.adapter) << what << ", " << parameter.name;
      }
    }
  }
}

// Layers in FP8 whose inputs and gradients come from FP16, and go there.
TEST_F(OtherModelsTest, LayersInFp8BesideFp16FollowTheCpu) {
  for (const std::string& recipe : some_of<std::string>({"fp8-delayed", "fp8-block", "mxfp8"})) {
    Config config = config_of("fp16");
    config.precision.layers = {{"blocks.*.mlp.*", recipe}};
    expect_same_curve("fp16 and " + recipe, cpu_run(config), run_of(*gpu_session(config)), loss_bound_bf16);
  }
}

// Gradients that FP16 cannot hold are infinite: the step is skipped, and the scale halved, until they fit.
TEST_F(OtherModelsTest, GradientsBeyondFp16SkipStepsUntilTheyFit) {
  if (is_brief()) GTEST_SKIP() << "needs more steps";
  Config config = config_of("fp16");
  config.precision.loss_scale_log2 = 30;
  const auto session = gpu_session(config);
  const End before = end_of(*session->trainer);
  StepReport report = session->trainer->step();
  EXPECT_TRUE(report.skipped);
  expect_same_tensors("after a skipped step", before.weights, end_of(*session->trainer).weights);
  while (!session->trainer->finished() && report.skipped) report = session->trainer->step();
  EXPECT_FALSE(report.skipped) << "the scale was never small enough";
  EXPECT_TRUE(std::isfinite(report.gradient_norm));
}

TEST_F(OtherModelsTest, LowPrecisionOptimizerStateFollowsTheCpu) {
  for (const MomentFormat moments : {MomentFormat::bf16, MomentFormat::fp8}) {
    Config config = config_of("fp8-delayed");
    config.optim.moments = moments;
    config.optim.master = MasterWeights::bf16_stochastic;
    expect_same_curve("BF16 weights", cpu_run(config), run_of(*gpu_session(config)), loss_bound_bf16);
  }
}

}  // namespace
}  // namespace quaver::test
