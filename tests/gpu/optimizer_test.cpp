// Gradient norms and clipping, and AdamW with every way to store its weights and moments.
#include <limits>
#include <numeric>

#include "gpu/compare.h"
#include "gpu/specs.h"

namespace quaver::test {
namespace {

class SumInOrderTest : public HighPrecisionTest {};

// Bit for bit: every element is a sum of its own.
TEST_P(SumInOrderTest, EqualsTheCpu) {
  for (const Size count : {1, 5, 64, 1023, 70001}) {
    for (const Size parts : {1, 2, 3, 7}) {
      for (const bool accumulate : {false, true}) {
        Twin values(pair(), normal_matrix(parts, count, 11, 3), Kept::f32);
        Twin sum(pair(), normal_matrix(1, count, 12, 3), Kept::f32);
        pair().run([&](On on) { return SumInOrder{values.on(on), sum.on(on), accumulate}; });
        EXPECT_EQ(sum.from_cpu().values, sum.from_gpu().values) << parts << " parts of " << count;
      }
    }
  }
}

QUAVER_HIGH_PRECISION_FORMATS(SumInOrderTest);

class MeasureTest : public HighPrecisionTest {
 protected:
  void compare(const std::string& what, std::vector<Matrix> values, Clip clip, float limit, float unscale) {
    std::vector<std::unique_ptr<Twin>> gradients;
    std::vector<View> cpu;
    std::vector<View> gpu;
    std::vector<float> ratios;
    for (Matrix& matrix : values) {
      gradients.push_back(std::make_unique<Twin>(pair(), std::move(matrix), Kept::f32));
      cpu.push_back(gradients.back()->cpu());
      gpu.push_back(gradients.back()->gpu());
      ratios.push_back(1 + 0.5F * static_cast<float>(ratios.size()));
    }
    Cells<float> factors(pair(), std::vector<float>(values.size(), -1));
    Cells<double> squares(pair(), std::vector<double>(values.size(), -1));
    Cells<GradientSummary> summary(pair(), std::vector<GradientSummary>(1));
    Cells<GradientMeasure> measures(pair(), std::vector<GradientMeasure>(values.size()));
    std::vector<Size> places(values.size());
    std::iota(places.begin(), places.end(), Size{0});
    pair().run([&](On on) { return MeasureGradients{on == On::cpu ? cpu : gpu, ratios, measures.on(on)}; });
    pair().run([&](On on) {
      return ClipGradients{measures.on(on), places,         unscale,        clip,
                           limit,           factors.on(on), squares.on(on), summary.on(on)};
    });
    const GradientSummary want = summary.from_cpu()[0];
    const GradientSummary got = summary.from_gpu()[0];
    EXPECT_EQ(want.nonfinite, got.nonfinite) << what;
    if (want.nonfinite != 0) return;
    constexpr double reordered = 1e-6;
    expect_near(what + ", norm", want.norm, got.norm, reordered);
    for (std::size_t i = 0; i < values.size(); ++i) {
      expect_near(what + ", factor " + std::to_string(i), factors.from_cpu()[i], factors.from_gpu()[i], 2 * reordered);
      expect_near(what + ", square " + std::to_string(i), squares.from_cpu()[i], squares.from_gpu()[i], 2 * reordered);
    }
  }
};

std::vector<Matrix> some_gradients() {
  std::vector<Matrix> list;
  list.push_back(normal_matrix(3, 5, 1, 2));
  list.push_back(normal_matrix(1, 1, 2));
  list.push_back(normal_matrix(200, 333, 3, 0.01F));
  list.push_back(normal_matrix(1, 4096, 4, 0.1F));
  list.push_back(normal_matrix(512, 1024, 5, 0.1F));
  return list;
}

constexpr std::pair<const char*, Clip> clips[] = {
    {"none", Clip::none}, {"global", Clip::global_norm}, {"group", Clip::group_norm}, {"value", Clip::value}};

TEST_P(MeasureTest, NormsAndFactors) {
  for (const auto& [name, clip] : clips) {
    for (const float limit : {1e-3F, 1.0F, 1e6F}) {
      compare("measure_gradients " + std::string(name), some_gradients(), clip, limit, 0.25F);
    }
  }
}

TEST_P(MeasureTest, ListsThatChange) {
  std::vector<Matrix> few;
  few.push_back(normal_matrix(7, 9, 1));
  compare("one gradient", few, Clip::global_norm, 1, 1);
  compare("five gradients", some_gradients(), Clip::global_norm, 1, 1);
  std::vector<Matrix> many;
  for (std::uint32_t i = 0; i < 300; ++i) many.push_back(normal_matrix(1 + i % 3, 1 + i % 17, i));
  compare("many gradients", many, Clip::group_norm, 1, 1);
}

TEST_P(MeasureTest, WhatIsNotFiniteAndWhatIsLarge) {
  for (const auto& [name, clip] : clips) {
    std::vector<Matrix> bad = some_gradients();
    bad[0](0, 0) = std::numeric_limits<float>::quiet_NaN();
    bad[2](199, 332) = std::numeric_limits<float>::infinity();
    bad[4](0, 0) = -std::numeric_limits<float>::infinity();
    compare("not finite, " + std::string(name), bad, clip, 1, 1);
    std::vector<Matrix> large = some_gradients();
    large[0](0, 0) = 3e38F;
    large[2](3, 3) = -3e38F;
    compare("large, " + std::string(name), large, clip, 1, 1);
    std::vector<Matrix> zeros;
    zeros.emplace_back(4, 4);
    compare("zeros, " + std::string(name), zeros, clip, 1, 1);
  }
}

QUAVER_HIGH_PRECISION_FORMATS(MeasureTest);

struct Storage {
  const char* name;
  Kept weight;
  Rounding rounding;
  QuantSpec moments;
};

constexpr QuantSpec bf16_moments{.format = Format::bf16, .rounding = Rounding::stochastic};
constexpr QuantSpec fp8_moments{
    .format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current, .rounding = Rounding::stochastic};
constexpr Storage storages[] = {{"f32, f32", Kept::f32, Rounding::nearest_even, {}},
                                {"f32, bf16", Kept::f32, Rounding::nearest_even, bf16_moments},
                                {"f32, fp8", Kept::f32, Rounding::nearest_even, fp8_moments},
                                {"bf16, f32", Kept::bf16, Rounding::nearest_even, {}},
                                {"bf16 stochastic, f32", Kept::bf16, Rounding::stochastic, {}},
                                {"bf16 stochastic, bf16", Kept::bf16, Rounding::stochastic, bf16_moments},
                                {"bf16 stochastic, fp8", Kept::bf16, Rounding::stochastic, fp8_moments}};

class AdamWTest : public HighPrecisionTest {
 protected:
  // No GEMM reads them: their rows follow each other.
  static TwinSite as_moments(const std::string& name) { return {.name = name, .sharing = Sharing::where_exact}; }

  struct Trained {
    Trained(Pair& pair, const Storage& storage_, const Shape& shape)
        : storage(storage_),
          weight(pair, normal_matrix(shape.rows, shape.cols, 1), storage_.weight),
          gradient(pair, normal_matrix(shape.rows, shape.cols, 2, 0.1F), Kept::f32),
          moment1(pair, both(storage_.moments), shape.rows, shape.cols, Copies::rows_only, as_moments("m")),
          moment2(pair, both(storage_.moments), shape.rows, shape.cols, Copies::rows_only, as_moments("v")),
          factor(pair, {0.8F}),
          summary(pair, std::vector<GradientSummary>(1)),
          statistics(pair, std::vector<UpdateStatistics>(1)) {
      // Moments start as zeros that decode, whatever their storage.
      Twin zeros(pair, shape.rows, shape.cols, 0, Kept::f32);
      store(pair, zeros, moment1);
      store(pair, zeros, moment2);
    }

    AdamW operation(int t, float value_limit) const {
      return {.weight = {},
              .gradient = {},
              .moment1 = {},
              .moment2_root = {},
              .gradient_factor = nullptr,
              .summary = nullptr,
              .value_limit = value_limit,
              .learning_rate = 0.01F,
              .beta1 = 0.9F,
              .beta2 = 0.95F,
              .epsilon = 1e-8F,
              .decay = 1e-3F,
              .bias_correction1 = static_cast<float>(1 - std::pow(0.9, t)),
              .bias_correction2 = static_cast<float>(1 - std::pow(0.95, t)),
              .rounding = storage.rounding,
              .random = {7, static_cast<std::uint32_t>(t), stream_of("weight")}};
    }

    void step(Pair& pair, int t, float value_limit, TwinTensor* quantized, const Casting* casting) {
      pair.run([&](On on) {
        AdamW op = operation(t, value_limit);
        op.casting = casting;
        op.weight = weight.on(on);
        op.gradient = gradient.on(on);
        op.moment1 = moment1.on(on).rows_matrix();
        op.moment2_root = moment2.on(on).rows_matrix();
        op.gradient_factor = factor.on(on);
        op.summary = summary.on(on);
        op.statistics = statistics.on(on);
        op.quantized = quantized != nullptr ? &quantized->on(on) : nullptr;
        return op;
      });
    }

    Storage storage;
    Twin weight;
    Twin gradient;
    TwinTensor moment1;
    TwinTensor moment2;
    Cells<float> factor;
    Cells<GradientSummary> summary;
    Cells<UpdateStatistics> statistics;
  };

  static void compare_statistics(const std::string& what, const UpdateStatistics& want, const UpdateStatistics& got,
                                 bool exact_weights) {
    EXPECT_EQ(want.count, got.count) << what;
    expect_near(what + ", Σ w²", want.weight2, got.weight2, 1e-4);
    expect_near(what + ", Σ Δw²", want.update2, got.update2, exact_weights ? 1e-3 : 5e-2);
    EXPECT_NEAR(static_cast<double>(want.unmoved), static_cast<double>(got.unmoved),
                0.01 * static_cast<double>(want.count) + 2)
        << what << ", unmoved";
  }
};

TEST_P(AdamWTest, ThreeStepsOfEveryStorage) {
  for (const Storage& storage : storages) {
    for (const Shape& shape : shapes_of({{1, 1}, {3, 5}, {17, 33}, {129, 257}, {64, 1000}, {1, 512}, {256, 512}})) {
      for (const float value_limit : {0.0F, 0.05F}) {
        const std::string what = std::string("adamw ") + storage.name + ", " + text_of(shape);
        Trained trained(pair(), storage, shape);
        for (int t = 1; t <= 3; ++t) {
          trained.gradient.set(normal_matrix(shape.rows, shape.cols, static_cast<std::uint32_t>(10 + t), 0.1F));
          trained.step(pair(), t, value_limit, nullptr, nullptr);
        }
        const bool f32 = storage.weight == Kept::f32;
        // A weight or a moment that lands on the next code moves by a step of BF16, or an update by one of E4M3.
        const bool rounded = !f32 || storage.moments.format != Format::f32;
        expect_near(what + ", weight", trained.weight, rounded ? 2e-3 : 1e-6);
        if (shape.rows * shape.cols >= 64) {
          expect_close(what + ", m", pair(), trained.moment1);
          expect_close(what + ", √v", pair(), trained.moment2);
          compare_statistics(what, trained.statistics.from_cpu()[0], trained.statistics.from_gpu()[0], f32);
        }
      }
    }
  }
}

TEST_P(AdamWTest, CastsTheNewWeightIntoItsSite) {
  const Casting casting{.seed = 4, .step = 8};
  for (const NamedSpec& named : every_spec_of(Role::w)) {
    for (const Storage& storage : {storages[0], storages[4]}) {
      const std::string what = "adamw " + std::string(storage.name) + " into " + named.name;
      Trained trained(pair(), storage, {129, 257});
      TwinTensor quantized(pair(), named.spec, 129, 257, Copies::both, {64});
      TwinTensor apart(pair(), named.spec, 129, 257, Copies::both, {64});
      trained.step(pair(), 1, 0, &quantized, &casting);
      expect_close(what, pair(), quantized);
      pair().gpu->run(Quantize{trained.weight.gpu(), apart.gpu(), casting});
      expect_same_bytes(what + ", against a cast of the weight", apart.gpu_bytes(), quantized.gpu_bytes());
    }
  }
}

TEST_P(AdamWTest, GradientsThatAreNotFiniteMoveNothing) {
  for (const Storage& storage : storages) {
    Trained trained(pair(), storage, {17, 33});
    trained.summary.set({GradientSummary{.norm = 1, .nonfinite = 2, .skip = 2}});
    const std::vector<std::byte> weight = trained.weight.gpu_bytes();
    const std::vector<std::byte> m = trained.moment1.gpu_bytes();
    const std::vector<std::byte> v = trained.moment2.gpu_bytes();
    trained.step(pair(), 1, 0, nullptr, nullptr);
    expect_same_bytes(std::string(storage.name) + ", weight", weight, trained.weight.gpu_bytes());
    expect_same_bytes(std::string(storage.name) + ", m", m, trained.moment1.gpu_bytes());
    expect_same_bytes(std::string(storage.name) + ", √v", v, trained.moment2.gpu_bytes());
  }
}

QUAVER_HIGH_PRECISION_FORMATS(AdamWTest);

}  // namespace
}  // namespace quaver::test
