// Looking at a model must not change it, and must see what is there.
#include <cmath>

#include "precision/recipe.h"
#include "train/engine_choice.h"
#include "train/support.h"
#include "train/trainer.h"

namespace quaver::test {
namespace {

class ProbeTest : public ::testing::TestWithParam<const char*> {
 protected:
  struct Parts {
    explicit Parts(const Config& config)
        : data(open_training_data(config.data, config.train.seed, config.model.context)),
          engine(make_engine(config, [](const std::string&) {})),
          trainer(config, data, *engine, [](const std::string&) {}) {}

    TrainingData data;
    std::unique_ptr<Engine> engine;
    Trainer trainer;
  };
  static Config config_of(const std::string& recipe) {
    Config config = small_config(recipe, "unused");
    config.train.device = DeviceChoice::cpu;
    return config;
  }
};

TEST_P(ProbeTest, LeavesTheRunAsItWas) {
  const Config config = config_of(GetParam());
  Parts alone(config);
  Parts probed(config);
  for (int step = 0; step < 4; ++step) {
    probed.trainer.probe(probed.trainer.high_precision_specs(), step, ProbeWhat::gradients);
    probed.trainer.probe(probed.trainer.specs(), step, ProbeWhat::loss);
    probed.trainer.shadow_check();
    const StepReport a = alone.trainer.step();
    const StepReport b = probed.trainer.step();
    EXPECT_EQ(a.loss, b.loss) << "step " << step;
    EXPECT_EQ(a.gradient_norm, b.gradient_norm) << "step " << step;
    EXPECT_EQ(a.saturated, b.saturated);
    EXPECT_EQ(a.underflowed, b.underflowed);
  }
  EXPECT_EQ(alone.trainer.book().to_json(), probed.trainer.book().to_json());
}
INSTANTIATE_TEST_SUITE_P(Recipes, ProbeTest,
                         ::testing::Values("fp32", "fp8-delayed", "fp8-current", "fp8-block", "nvfp4", "fp8-unit"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_F(ProbeTest, GradientsAreThoseOfTheStep) {
  Config config = config_of("fp8-current");
  config.train.accumulation = 1;
  Parts parts(config);
  const ProbeResult result = parts.trainer.probe(parts.trainer.specs(), 0, ProbeWhat::gradients);
  double square = 0;
  for (const auto& gradient : result.gradients) {
    for (const float value : gradient) square += static_cast<double>(value) * value;
  }
  const StepReport report = parts.trainer.step();
  EXPECT_EQ(result.loss, report.loss);
  EXPECT_NEAR(std::sqrt(square), report.gradient_norm, 1e-6 * report.gradient_norm);
}

TEST_F(ProbeTest, ShadowOfAWideRunIsTheRunItself) {
  Parts parts(config_of("fp32"));
  const GradientAgreement agreement = parts.trainer.shadow_check();
  EXPECT_NEAR(agreement.cosine, 1, 1e-12);
  EXPECT_NEAR(agreement.error, 0, 1e-6);
}

TEST_F(ProbeTest, ShadowShowsWhatNarrowFormatsCost) {
  Parts eight(config_of("fp8-current"));
  Parts four(config_of("mxfp4"));
  const GradientAgreement near = eight.trainer.shadow_check();
  const GradientAgreement far = four.trainer.shadow_check();
  EXPECT_GT(near.cosine, 0.98);
  EXPECT_LT(near.cosine, 1);
  EXPECT_LT(far.cosine, near.cosine);
  EXPECT_GT(far.error, near.error);
}

// The estimate from the first micro-batch's norm and that of the mean, averaged over steps of a model that does not
// move, against the definition over many micro-batches.
TEST_F(ProbeTest, SignalToNoiseFollowsItsDefinition) {
  Config config = config_of("fp32");
  config.train.accumulation = 8;
  config.train.statistics_every = 1;
  config.train.steps = 40;
  config.optim.learning_rate = 1e-12;
  Parts parts(config);
  std::vector<std::vector<float>> mean;
  double squares = 0;
  constexpr int batches = 200;
  for (int i = 0; i < batches; ++i) {
    const ProbeResult result = parts.trainer.probe(parts.trainer.specs(), i, ProbeWhat::gradients);
    if (mean.empty()) {
      for (const auto& gradient : result.gradients) mean.emplace_back(gradient.size(), 0.0F);
    }
    for (std::size_t p = 0; p < mean.size(); ++p) {
      for (std::size_t j = 0; j < mean[p].size(); ++j) {
        mean[p][j] += result.gradients[p][j] / batches;
        squares += static_cast<double>(result.gradients[p][j]) * result.gradients[p][j] / batches;
      }
    }
  }
  double mean_square = 0;
  for (const auto& gradient : mean) {
    for (const float value : gradient) mean_square += static_cast<double>(value) * value;
  }
  const double variance = (squares - mean_square) * batches / (batches - 1);
  const double want = std::sqrt((mean_square - variance / batches) / variance);
  double got = 0;
  for (int i = 0; i < 40; ++i) got += parts.trainer.step().gradient_snr / 40;
  EXPECT_NEAR(got, want, 0.15 * want);
}

}  // namespace
}  // namespace quaver::test
