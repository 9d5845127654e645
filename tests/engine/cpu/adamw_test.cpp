// AdamW against a double implementation, and the promises of its storage formats.
#include "engine/support.h"

namespace quaver::test {
namespace {

constexpr QuantSpec f32_moments{};
constexpr QuantSpec bf16_moments{.format = Format::bf16, .rounding = Rounding::stochastic};
constexpr QuantSpec fp8_moments{
    .format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current, .rounding = Rounding::stochastic};

struct Settings {
  float learning_rate = 0.01F;
  float decay = 0;
  float value_limit = 0;
  float gradient_factor = 1;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
};

// One parameter with moments in a storage format.
struct Trained {
  Trained(Matrix initial, const QuantSpec& moment, Format format = Format::f32,
          Rounding rounding_ = Rounding::nearest_even)
      : rows(initial.rows),
        cols(initial.cols),
        rounding(rounding_),
        m(both(moment), rows, cols, Copies::rows_only),
        v(both(moment), rows, cols, Copies::rows_only),
        memory(index(rows * cols * 4)) {
    weight = {memory.data(), format, rows, cols};
    encode_array(format, initial.values.data(), 1, rows * cols, memory.data());
    for (Stored* stored : {&m, &v}) {
      for (auto& part : stored->memory) std::fill(part.begin(), part.end(), std::byte{0});
      *stored->tensor.rows_matrix().tensor_scale = 1;
    }
  }

  void step(Engine& engine, Matrix& gradient, const Settings& s, const GradientSummary& summary = {}) {
    ++t;
    engine.run(AdamW{.weight = weight,
                     .gradient = gradient.view(),
                     .moment1 = m.tensor.rows_matrix(),
                     .moment2_root = v.tensor.rows_matrix(),
                     .gradient_factor = &s.gradient_factor,
                     .summary = &summary,
                     .value_limit = s.value_limit,
                     .learning_rate = s.learning_rate,
                     .beta1 = s.beta1,
                     .beta2 = s.beta2,
                     .epsilon = s.epsilon,
                     .decay = s.decay,
                     .bias_correction1 = static_cast<float>(1 - std::pow(static_cast<double>(s.beta1), t)),
                     .bias_correction2 = static_cast<float>(1 - std::pow(static_cast<double>(s.beta2), t)),
                     .rounding = rounding,
                     .random = {7, static_cast<std::uint32_t>(t), stream_of("weight")},
                     .statistics = &statistics});
  }

  std::vector<float> values() const {
    std::vector<float> result(index(rows * cols));
    decode_array(weight.format, memory.data(), 1, rows * cols, result.data());
    return result;
  }

  Size rows;
  Size cols;
  Rounding rounding;
  Stored m;
  Stored v;
  std::vector<std::byte> memory;
  View weight;
  UpdateStatistics statistics;
  int t = 0;
};

struct Reference {
  explicit Reference(const Matrix& initial) : w(initial.doubles()), m(w.size(), 0.0), v(w.size(), 0.0) {}
  void step(const Matrix& gradient, const Settings& s) {
    ++t;
    for (std::size_t i = 0; i < w.size(); ++i) {
      double g = static_cast<double>(gradient.values[i]) * s.gradient_factor;
      if (s.value_limit > 0) g = std::clamp<double>(g, -s.value_limit, s.value_limit);
      m[i] = s.beta1 * m[i] + (1 - static_cast<double>(s.beta1)) * g;
      v[i] = s.beta2 * v[i] + (1 - static_cast<double>(s.beta2)) * g * g;
      const double m_hat = m[i] / (1 - std::pow(static_cast<double>(s.beta1), t));
      const double v_hat = v[i] / (1 - std::pow(static_cast<double>(s.beta2), t));
      w[i] -= s.decay * w[i] + s.learning_rate * m_hat / (std::sqrt(v_hat) + s.epsilon);
    }
  }
  Doubles w, m, v;
  int t = 0;
};

Matrix gradient_of_step(Size rows, Size cols, int step) {
  return random_matrix(rows, cols, static_cast<std::uint32_t>(100 + step), 0.1F, 0.02F);
}

TEST(AdamW, AgreesWithADoubleImplementationOverTenSteps) {
  const auto engine = make_cpu_engine(1);
  for (const Settings& s : {Settings{}, Settings{.learning_rate = 0.1F, .decay = 0.01F, .gradient_factor = 0.25F},
                            Settings{.value_limit = 0.05F}}) {
    for (const auto& [rows, cols] : {std::pair<Size, Size>{1, 1}, {3, 5}, {130, 33}}) {
      const Matrix initial = random_matrix(rows, cols, 1);
      Trained trained(initial, f32_moments);
      Reference reference(initial);
      for (int step = 0; step < 10; ++step) {
        Matrix gradient = gradient_of_step(rows, cols, step);
        trained.step(*engine, gradient, s);
        reference.step(gradient, s);
      }
      expect_close(trained.values(), reference.w, 1e-5, "weight");
    }
  }
}

TEST(AdamW, StatisticsDescribeTheUpdate) {
  const auto engine = make_cpu_engine(1);
  const Matrix initial = random_matrix(200, 7, 1);
  Trained trained(initial, f32_moments);
  Matrix gradient = gradient_of_step(200, 7, 0);
  trained.step(*engine, gradient, {});
  const std::vector<float> after = trained.values();
  double weight2 = 0;
  double update2 = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    weight2 += static_cast<double>(after[i]) * after[i];
    update2 += std::pow(static_cast<double>(after[i]) - initial.values[i], 2);
  }
  EXPECT_NEAR(trained.statistics.weight2, weight2, 1e-5 * weight2);
  EXPECT_NEAR(trained.statistics.update2, update2, 1e-4 * update2);
  EXPECT_EQ(trained.statistics.count, 1400U);
  EXPECT_EQ(trained.statistics.unmoved, 0U);
}

// A weight that nothing asked to move, such as the embedding of a word not seen yet, is not a weight that is stuck.
TEST(AdamW, UnmovedCountsOnlyWeightsWithAnUpdate) {
  const auto engine = make_cpu_engine(1);
  Trained trained(random_matrix(4, 8, 1), f32_moments);
  Matrix gradient(4, 8, 0);
  gradient(0, 0) = 1;
  trained.step(*engine, gradient, {});
  EXPECT_EQ(trained.statistics.unmoved, 0U);
  Trained stuck(Matrix(4, 8, 1e4F), f32_moments);
  Matrix ones(4, 8, 1);
  stuck.step(*engine, ones, {.learning_rate = 1e-6F});
  EXPECT_EQ(stuck.statistics.unmoved, 32U);
}

TEST(AdamW, DoesNothingWhenAGradientWasNotFinite) {
  const auto engine = make_cpu_engine(1);
  for (const QuantSpec& moment : {f32_moments, bf16_moments, fp8_moments}) {
    Trained trained(random_matrix(3, 130, 1), moment);
    Matrix gradient = gradient_of_step(3, 130, 0);
    trained.step(*engine, gradient, {});
    const std::vector<float> before = trained.values();
    const std::vector<std::byte> m = bytes_of(trained.m.tensor);
    const std::vector<std::byte> v = bytes_of(trained.v.tensor);
    gradient(1, 1) = std::numeric_limits<float>::quiet_NaN();
    trained.step(*engine, gradient, {.decay = 0.1F}, {.norm = 1, .nonfinite = 1, .skip = 1});
    EXPECT_EQ(trained.values(), before);
    EXPECT_EQ(bytes_of(trained.m.tensor), m);
    EXPECT_EQ(bytes_of(trained.v.tensor), v);
  }
}

TEST(AdamW, LowPrecisionMomentsStayCloseToFp32) {
  const auto engine = make_cpu_engine(1);
  const Size rows = 20;
  const Size cols = 150;
  const Matrix initial(rows, cols, 0);
  Trained exact(initial, f32_moments);
  Trained bf16(initial, bf16_moments);
  Trained fp8(initial, fp8_moments);
  for (int step = 0; step < 50; ++step) {
    Matrix gradient = gradient_of_step(rows, cols, step);
    for (Trained* trained : {&exact, &bf16, &fp8}) trained->step(*engine, gradient, {});
  }
  const std::vector<float> want = exact.values();
  const Doubles reference(want.begin(), want.end());
  EXPECT_LT(relative_error(bf16.values(), reference), 0.01);
  EXPECT_LT(relative_error(fp8.values(), reference), 0.1);
}

// One huge gradient in a block takes its neighbors' √v below the smallest code; their updates must stay of the order
// of the learning rate.
TEST(AdamW, RootOfVRoundedToZeroDoesNotExplode) {
  const auto engine = make_cpu_engine(1);
  const Size cols = 128;
  Trained trained(Matrix(4, cols, 0), fp8_moments);
  for (int step = 0; step < 30; ++step) {
    Matrix gradient = random_matrix(4, cols, static_cast<std::uint32_t>(step), 1e-4F);
    for (Size r = 0; r < 4; ++r) gradient(r, 5) = 1e3F;
    const std::vector<float> before = trained.values();
    trained.step(*engine, gradient, {});
    const std::vector<float> after = trained.values();
    for (std::size_t i = 0; i < after.size(); ++i) {
      ASSERT_LE(std::abs(after[i] - before[i]), 0.01F * 4) << "step " << step << " element " << i;
    }
  }
}

TEST(AdamW, StochasticWeightsMoveOnAverageAsFp32Ones) {
  const auto engine = make_cpu_engine(1);
  const Size n = 4096;
  const Settings s{.learning_rate = 1e-4F};  // a fortieth of a BF16 step at 1
  const Matrix initial(1, n, 1);
  Trained exact(initial, f32_moments);
  Trained stochastic(initial, f32_moments, Format::bf16, Rounding::stochastic);
  Trained nearest(initial, f32_moments, Format::bf16, Rounding::nearest_even);
  Matrix gradient(1, n, 0.3F);
  double stuck_stochastic = 0;
  for (int step = 0; step < 20; ++step) {
    for (Trained* trained : {&exact, &stochastic, &nearest}) trained->step(*engine, gradient, s);
    stuck_stochastic = static_cast<double>(stochastic.statistics.unmoved) / static_cast<double>(n);
  }
  EXPECT_EQ(nearest.statistics.unmoved, static_cast<std::uint64_t>(n)) << "nearest never moves";
  EXPECT_LT(stuck_stochastic, 0.99);
  double mean = 0;
  for (const float x : stochastic.values()) mean += x / static_cast<double>(n);
  const double want = exact.values()[0];
  EXPECT_NEAR(mean - 1, want - 1, 0.1 * std::abs(want - 1));
}

TEST(AdamW, CastsTheNewWeightIntoItsSite) {
  const auto engine = make_cpu_engine(1);
  for (const LayerSpecs& specs : all_layer_specs()) {
    Matrix weight = random_matrix(40, 33, 1);
    Matrix gradient = gradient_of_step(40, 33, 0);
    Stored fused(specs.w, 40, 33);
    Stored apart(specs.w, 40, 33);
    const Casting casting{.seed = 3, .step = 2};
    FirstAdamWStep step(weight, gradient);
    AdamW operation = step.operation(0.01F);
    operation.quantized = &fused.tensor;
    operation.casting = &casting;
    engine->run(operation);
    engine->run(Quantize{weight.view(), apart.tensor, casting});
    EXPECT_EQ(bytes_of(fused.tensor), bytes_of(apart.tensor)) << specs.name;
  }
}

}  // namespace
}  // namespace quaver::test
