// The optimiser over parameters: patterns, decay, clipping, skipped steps, storage formats, planned memory.
#include "optim/optimizer.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "quaver/error.h"

namespace quaver::test {
namespace {

struct Bench {
  explicit Bench(const OptimConfig& config_ = {}) : config(config_) {
    parameters.add({.name = "embed.weight", .kind = ParameterKind::embedding, .rows = 10, .cols = 8, .init_std = 1});
    parameters.add({.name = "blocks.0.mlp.up.weight", .rows = 6, .cols = 130, .init_std = 1});
    parameters.add({.name = "blocks.1.mlp.up.weight", .rows = 6, .cols = 130, .init_std = 1});
    parameters.add({.name = "norm.weight", .kind = ParameterKind::vector, .rows = 1, .cols = 8, .init_mean = 1});
    parameters.allocate(*engine, config.master == MasterWeights::f32 ? Format::f32 : Format::bf16);
    parameters.initialize(*engine, 3);
    optimizer = make_optimizer(config, parameters);
    optimizer->allocate(*engine);
  }

  std::vector<float> weight(std::size_t i) {
    const Parameter& p = parameters.all()[i];
    std::vector<float> values(static_cast<std::size_t>(p.count()));
    decode_array(p.weight.format, static_cast<const std::byte*>(p.weight.data), 1, p.count(), values.data());
    return values;
  }
  void set_gradients(float value) {
    for (Parameter& p : parameters.all()) std::fill_n(p.gradient.f32(), p.count(), value);
  }
  void random_gradients(std::uint32_t step) {
    for (Parameter& p : parameters.all()) {
      random_normals({9, step, stream_of(p.name.c_str())}, 0, p.gradient.f32(), p.count());
    }
  }
  GradientSummary step(double learning_rate, double decay = 0, float unscale = 1) {
    optimizer->measure(*engine, unscale);
    const GradientSummary summary = optimizer->summary();
    optimizer->update(*engine, {.step = steps++, .learning_rate = learning_rate, .decay = decay, .casting = &casting});
    if (summary.skip != 0) optimizer->take_back_update();
    return summary;
  }
  // Largest change of parameter i by one step on constant gradients: the learning rate, for Adam's first step.
  double first_move(std::size_t i, double learning_rate, double decay = 0) {
    const std::vector<float> before = weight(i);
    set_gradients(decay > 0 ? 0.0F : 0.5F);
    step(learning_rate, decay);
    const std::vector<float> after = weight(i);
    double largest = 0;
    for (std::size_t k = 0; k < before.size(); ++k) {
      const double change = std::abs(static_cast<double>(after[k]) - before[k]);
      largest = std::max(largest, decay > 0 ? change / std::abs(before[k]) : change);
    }
    return largest;
  }

  OptimConfig config;
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  Parameters parameters;
  std::unique_ptr<Optimizer> optimizer;
  Casting casting;
  Size steps = 0;
};

TEST(Optimizer, PatternsThatMatchNothingAreErrorsThatNameThem) {
  for (const bool of_decay : {false, true}) {
    OptimConfig config;
    (of_decay ? config.weight_decay_of : config.learning_rate_of)["blocks.*.mpl.*"] = 0.5;
    try {
      const Bench bench(config);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("\"blocks.*.mpl.*\""));
      EXPECT_THAT(error.what(), testing::HasSubstr(of_decay ? "weight_decay_of" : "learning_rate_of"));
      EXPECT_THAT(error.remedy(), testing::HasSubstr("norm.weight"));
    }
  }
}

TEST(Optimizer, TheErrorWorksForAModelOfOneParameterToo) {
  Parameters parameters;
  parameters.add({.name = "only.weight", .rows = 2, .cols = 2});
  OptimConfig config;
  config.learning_rate_of["other"] = 2;
  try {
    make_optimizer(config, parameters);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.remedy(), testing::HasSubstr("only.weight"));
  }
}

TEST(Optimizer, LearningRatesFollowTheirPatterns) {
  OptimConfig config;
  config.clip = ClipMode::none;
  config.learning_rate_of["blocks.1.*"] = 0.25;
  config.learning_rate_of["*.weight"] = 2;
  for (const auto& [i, factor] : {std::pair<std::size_t, double>{0, 2}, {1, 2}, {2, 0.5}, {3, 2}}) {
    Bench bench(config);
    EXPECT_NEAR(bench.first_move(i, 0.01), 0.01 * factor, 1e-5) << i;
  }
}

TEST(Optimizer, AParametersOwnFactorMultipliesItsLearningRate) {
  Parameters parameters;
  parameters.add({.name = "a", .rows = 1, .cols = 4, .learning_rate_factor = 0.125F});
  const auto optimizer = make_optimizer({}, parameters);
  EXPECT_DOUBLE_EQ(optimizer->states()[0].learning_rate_factor, 0.125);
}

TEST(Optimizer, DecayTouchesMatricesAndEmbeddingsNeverVectors) {
  OptimConfig config;
  config.weight_decay_of["blocks.0.*"] = 3;
  config.weight_decay_of["*"] = 1;
  for (const auto& [i, factor] : {std::pair<std::size_t, double>{0, 1}, {1, 3}, {2, 1}, {3, 0}}) {
    Bench bench(config);
    EXPECT_NEAR(bench.first_move(i, 0.01, 0.02), 0.02 * factor, 1e-5) << i;
  }
}

TEST(Optimizer, WithoutGradientsDecayAloneShrinksWeights) {
  Bench bench;
  const std::vector<float> before = bench.weight(1);
  bench.set_gradients(0);
  for (int i = 0; i < 10; ++i) bench.step(0.1, 0.01);
  const std::vector<float> after = bench.weight(1);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i], before[i] * std::pow(0.99, 10), 1e-5 * std::abs(before[i]) + 1e-7);
  }
}

TEST(Optimizer, ReportsTheNormBeforeClippingAndUnscaled) {
  for (const ClipMode mode : {ClipMode::none, ClipMode::global_norm, ClipMode::group_norm, ClipMode::value}) {
    OptimConfig config;
    config.clip = mode;
    Bench bench(config);
    bench.set_gradients(4);
    const double count = static_cast<double>(bench.parameters.count());
    EXPECT_NEAR(bench.step(0.01, 0, 0.5F).norm, 2 * std::sqrt(count), 1e-4);
  }
}

// Adam does not see a constant factor on its first step, so clipping shows in the first moment: (1 − β₁) · gradient.
TEST(Optimizer, ClippingModesLimitWhatEntersTheMoments) {
  const auto first_moment = [](ClipMode mode, double limit, std::size_t i) {
    OptimConfig config;
    config.clip = mode;
    config.clip_limit = limit;
    Bench bench(config);
    bench.set_gradients(2);
    bench.step(0.01);
    return reinterpret_cast<const float*>(bench.optimizer->states()[i].slots[0].values.codes)[0] / 0.1;
  };
  const Bench shape;
  const double all = 2 * std::sqrt(static_cast<double>(shape.parameters.count()));
  const double group = 2 * std::sqrt(8.0);
  EXPECT_NEAR(first_moment(ClipMode::none, 1, 3), 2, 1e-5);
  EXPECT_NEAR(first_moment(ClipMode::global_norm, 1, 3), 2 / all, 1e-5);
  EXPECT_NEAR(first_moment(ClipMode::global_norm, 2 * all, 3), 2, 1e-5);
  EXPECT_NEAR(first_moment(ClipMode::group_norm, 1, 3), 2 / group, 1e-5);
  EXPECT_NEAR(first_moment(ClipMode::group_norm, 1, 1), 2 / (2 * std::sqrt(780.0)), 1e-5);
  EXPECT_NEAR(first_moment(ClipMode::value, 0.5, 3), 0.5, 1e-6);
  EXPECT_NEAR(first_moment(ClipMode::value, 5, 3), 2, 1e-5);
}

TEST(Optimizer, ClippingIsOfTrueGradientsWhereStoredOnesAreScaled) {
  OptimConfig config;
  config.clip = ClipMode::value;
  config.clip_limit = 0.5;
  Bench bench(config);
  for (Parameter& p : bench.parameters.all()) p.gradient_ratio = 8;
  bench.set_gradients(16);  // true gradient 2
  const GradientSummary summary = bench.step(0.01);
  EXPECT_NEAR(summary.norm, 2 * std::sqrt(static_cast<double>(bench.parameters.count())), 1e-3);
  EXPECT_NEAR(reinterpret_cast<const float*>(bench.optimizer->states()[0].slots[0].values.codes)[0], 0.1 * 0.5 * 8,
              1e-5);
}

TEST(Optimizer, SkipsAStepWithANonFiniteGradientAndDoesNotCountIt) {
  Bench straight;
  Bench skipping;
  for (std::uint32_t i = 0; i < 3; ++i) {
    straight.random_gradients(i);
    straight.step(0.01, 0.001);
    skipping.random_gradients(i);
    skipping.parameters.all()[1].gradient.f32()[5] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(skipping.step(0.01, 0.001).nonfinite, 1U);
    EXPECT_EQ(skipping.optimizer->updates(), static_cast<Size>(i));
    skipping.random_gradients(i);
    skipping.step(0.01, 0.001);
  }
  EXPECT_EQ(straight.optimizer->updates(), 3);
  EXPECT_EQ(skipping.optimizer->updates(), 3);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(skipping.weight(i), straight.weight(i)) << i;
}

TEST(Optimizer, UnscalingUndoesALossScaleExactly) {
  Bench plain;
  Bench scaled;
  for (std::uint32_t i = 0; i < 3; ++i) {
    plain.random_gradients(i);
    plain.step(0.01);
    scaled.random_gradients(i);
    for (Parameter& p : scaled.parameters.all()) {
      for (Size k = 0; k < p.count(); ++k) p.gradient.f32()[k] *= 1024;
    }
    scaled.step(0.01, 0, 1.0F / 1024);
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(scaled.weight(i), plain.weight(i)) << i;
}

TEST(Optimizer, VectorsKeepFp32MomentsAndWeights) {
  for (const MomentFormat format : {MomentFormat::f32, MomentFormat::bf16, MomentFormat::fp8}) {
    OptimConfig config;
    config.moments = format;
    config.master = MasterWeights::bf16_stochastic;
    Bench bench(config);
    EXPECT_EQ(bench.optimizer->states()[3].slots[0].values.spec.format, Format::f32);
    EXPECT_EQ(bench.parameters.all()[3].weight.format, Format::f32);
    EXPECT_EQ(bench.parameters.all()[1].weight.format, Format::bf16);
    const Format want = format == MomentFormat::f32    ? Format::f32
                        : format == MomentFormat::bf16 ? Format::bf16
                                                       : Format::e4m3;
    EXPECT_EQ(bench.optimizer->states()[1].slots[0].values.spec.format, want);
    EXPECT_EQ(bench.optimizer->states()[1].slots[1].values.spec.format, want);
  }
}

TEST(Optimizer, NarrowMomentsTakeLessMemory) {
  const auto planned = [](MomentFormat format) {
    Parameters parameters;
    parameters.add({.name = "a", .rows = 512, .cols = 512});
    OptimConfig config;
    config.moments = format;
    return static_cast<double>(make_optimizer(config, parameters)->planned_bytes()) / (2 * 512 * 512);
  };
  EXPECT_NEAR(planned(MomentFormat::f32), 4, 0.01);
  EXPECT_NEAR(planned(MomentFormat::bf16), 2, 0.01);
  EXPECT_NEAR(planned(MomentFormat::fp8), 1 + 4.0 / 128, 0.01);
}

// f(w) = ½·Σ (w − 3)²: every storage format finds the minimum.
TEST(Optimizer, EveryStorageFormatDescends) {
  for (const MasterWeights master : {MasterWeights::f32, MasterWeights::bf16_stochastic}) {
    for (const MomentFormat moments : {MomentFormat::f32, MomentFormat::bf16, MomentFormat::fp8}) {
      OptimConfig config;
      config.master = master;
      config.moments = moments;
      config.clip = ClipMode::none;
      Bench bench(config);
      for (int step = 0; step < 300; ++step) {
        for (std::size_t i = 0; i < 4; ++i) {
          const std::vector<float> w = bench.weight(i);
          for (std::size_t k = 0; k < w.size(); ++k) bench.parameters.all()[i].gradient.f32()[k] = w[k] - 3;
        }
        bench.step(step < 200 ? 0.05 : 0.005);
      }
      for (std::size_t i = 0; i < 4; ++i) {
        for (const float w : bench.weight(i)) ASSERT_NEAR(w, 3, 0.1) << "parameter " << i;
      }
    }
  }
}

TEST(Optimizer, ARestoredCountContinuesTheBiasCorrection) {
  Bench a;
  Bench b;
  a.optimizer->restore_updates(1000);
  b.optimizer->restore_updates(0);
  a.set_gradients(1);
  b.set_gradients(1);
  const float before = a.weight(0)[0];
  a.step(0.1);
  b.step(0.1);
  EXPECT_NEAR(before - b.weight(0)[0], 0.1, 1e-4);
  EXPECT_NEAR(before - a.weight(0)[0], 0.1 * 0.1 / std::sqrt(0.05), 1e-3);
  EXPECT_EQ(a.optimizer->updates(), 1001);
}

}  // namespace
}  // namespace quaver::test
