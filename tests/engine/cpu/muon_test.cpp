// Newton–Schulz and Muon's update against plain implementations in double, and the promises of its storage formats.
#include "engine/support.h"

namespace quaver::test {
namespace {

Doubles transposed(const Doubles& x, Size rows, Size cols) {
  Doubles out(x.size());
  for (Size r = 0; r < rows; ++r) {
    for (Size c = 0; c < cols; ++c) out[index(c * rows + r)] = x[index(r * cols + c)];
  }
  return out;
}

enum class Rounded : std::uint8_t { nowhere, for_gemms };

void round_for_gemms(Doubles& x, Rounded rounded) {
  if (rounded == Rounded::nowhere) return;
  std::vector<std::byte> code(2);
  for (double& value : x) {
    auto number = static_cast<float>(value);
    encode_array(Format::bf16, &number, 1, 1, code.data());
    decode_array(Format::bf16, code.data(), 1, 1, &number);
    value = number;
  }
}

// By the definition: a tall matrix is transposed first.
Doubles newton_schulz(Doubles x, Size rows, Size cols, Rounded rounded, int steps = 5) {
  if (rows > cols) {
    return transposed(newton_schulz(transposed(x, rows, cols), cols, rows, rounded, steps), cols, rows);
  }
  double norm = 0;
  for (const double value : x) norm += value * value;
  for (double& value : x) value /= std::sqrt(norm);
  for (int step = 0; step < steps; ++step) {
    round_for_gemms(x, rounded);
    Doubles gram = product(x, x, rows, rows, cols);
    round_for_gemms(gram, rounded);
    Doubles polynomial = product(gram, transposed(gram, rows, rows), rows, rows, rows);
    for (std::size_t i = 0; i < gram.size(); ++i) polynomial[i] = -4.7750 * gram[i] + 2.0315 * polynomial[i];
    round_for_gemms(polynomial, rounded);
    const Doubles moved = product(polynomial, transposed(x, rows, cols), rows, cols, rows);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + moved[i];
  }
  return x;
}

// By Jacobi rotations of pairs of rows until all are orthogonal; their lengths are the singular values.
Doubles singular_values(Doubles x, Size rows, Size cols) {
  if (rows > cols) return singular_values(transposed(x, rows, cols), cols, rows);
  const auto dot_of = [&](Size i, Size j) {
    double sum = 0;
    for (Size c = 0; c < cols; ++c) sum += x[index(i * cols + c)] * x[index(j * cols + c)];
    return sum;
  };
  for (int sweep = 0; sweep < 12; ++sweep) {
    for (Size i = 0; i < rows; ++i) {
      for (Size j = i + 1; j < rows; ++j) {
        const double between = dot_of(i, j);
        if (between == 0) continue;
        const double angle = 0.5 * std::atan2(2 * between, dot_of(i, i) - dot_of(j, j));
        for (Size c = 0; c < cols; ++c) {
          const double a = x[index(i * cols + c)];
          const double b = x[index(j * cols + c)];
          x[index(i * cols + c)] = std::cos(angle) * a + std::sin(angle) * b;
          x[index(j * cols + c)] = std::cos(angle) * b - std::sin(angle) * a;
        }
      }
    }
  }
  Doubles values;
  for (Size i = 0; i < rows; ++i) values.push_back(std::sqrt(dot_of(i, i)));
  std::ranges::sort(values);
  return values;
}

Matrix orthogonalized(Matrix x, Size steps = 5, float factor = 1) {
  make_cpu_engine(1)->run(Orthogonalize{x.view(), steps, factor});
  return x;
}

constexpr std::pair<Size, Size> matrix_shapes[] = {{1, 1}, {1, 40}, {40, 1}, {24, 24}, {16, 70}, {70, 16}, {33, 47}};

TEST(Orthogonalize, BringsSingularValuesNearOne) {
  for (const auto& [rows, cols] : matrix_shapes) {
    for (const float std : {1e-20F, 1e-3F, 1.0F, 1e15F}) {
      const Matrix result = orthogonalized(random_matrix(rows, cols, 3, std));
      const Doubles values = singular_values(result.doubles(), rows, cols);
      EXPECT_GT(values.front(), rows == cols ? 0.3 : 0.6) << rows << " × " << cols << ", " << std;
      EXPECT_LT(values.back(), 1.25) << rows << " × " << cols << ", " << std;
    }
  }
}

// Rows whose lengths fall from 1 to 10⁻³: singular values of that range, and a last one that is lost in rounding.
TEST(Orthogonalize, RaisesSmallSingularValues) {
  const Size rows = 16;
  for (const bool tall : {false, true}) {
    Matrix x = random_matrix(rows, 60, 5);
    for (Size r = 0; r < rows; ++r) {
      for (Size c = 0; c < 60; ++c) x(r, c) *= static_cast<float>(std::pow(10.0, -3.0 * static_cast<double>(r) / 15));
    }
    if (tall) x = to_floats(transposed(x.doubles(), rows, 60), 60, rows);
    const Doubles before = singular_values(x.doubles(), x.rows, x.cols);
    ASSERT_LT(before.front(), 2e-3 * before.back());
    const Doubles values = singular_values(orthogonalized(x).doubles(), x.rows, x.cols);
    EXPECT_GT(values.front(), 0.2);
    EXPECT_GT(values[4], 0.6);
    EXPECT_LT(values.back(), 1.25);
  }
}

// The same singular vectors: x times the transposed result is symmetric and positive, and close to √(x·xᵀ).
TEST(Orthogonalize, KeepsSingularVectors) {
  const Matrix x = random_matrix(20, 50, 7);
  const Doubles result = orthogonalized(x).doubles();
  const Doubles across = product(x.doubles(), result, 20, 20, 50);
  EXPECT_LT(relative_error(across, transposed(across, 20, 20)), 0.02);
  double trace = 0;
  for (Size i = 0; i < 20; ++i) trace += across[index(i * 20 + i)];
  double sum = 0;
  for (const double value : singular_values(x.doubles(), 20, 50)) sum += value;
  EXPECT_NEAR(trace / sum, 1, 0.25);
}

TEST(Orthogonalize, RoundsToBf16WhereItSaysAndNowhereElse) {
  for (const auto& [rows, cols] : {std::pair<Size, Size>{24, 60}, {60, 24}}) {
    const Matrix x = random_matrix(rows, cols, 9);
    for (const int steps : {1, 3, 5}) {
      const std::vector<float> result = orthogonalized(x, steps).values;
      const double rounded = relative_error(result, newton_schulz(x.doubles(), rows, cols, Rounded::for_gemms, steps));
      const double exact = relative_error(result, newton_schulz(x.doubles(), rows, cols, Rounded::nowhere, steps));
      EXPECT_LT(rounded, 0.3 * exact) << rows << " × " << cols << ", " << steps << " steps";
      EXPECT_LT(exact, 0.03);
    }
  }
}

TEST(Orthogonalize, MultipliesByItsFactor) {
  const Matrix x = random_matrix(12, 30, 1);
  const Matrix one = orthogonalized(x);
  const Matrix four = orthogonalized(x, 5, 4);
  for (std::size_t i = 0; i < one.values.size(); ++i) EXPECT_FLOAT_EQ(four.values[i], 4 * one.values[i]);
}

TEST(Orthogonalize, LeavesZerosAndSurvivesWhatIsTiny) {
  EXPECT_EQ(orthogonalized(Matrix(8, 20, 0)).values, std::vector<float>(160, 0.0F));
  const Matrix tiny = orthogonalized(Matrix(8, 20, std::numeric_limits<float>::denorm_min()));
  for (const float value : tiny.values) EXPECT_TRUE(std::isfinite(value));
}

constexpr QuantSpec f32_momentum{};
constexpr QuantSpec bf16_momentum{.format = Format::bf16, .rounding = Rounding::stochastic};
constexpr QuantSpec fp8_momentum{
    .format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current, .rounding = Rounding::stochastic};

struct MuonSettings {
  float learning_rate = 0.01F;
  float decay = 0;
  float value_limit = 0;
  float gradient_factor = 1;
  float beta = 0.95F;
};

struct MuonTrained {
  MuonTrained(const Matrix& start, std::vector<Size> projections_, const QuantSpec& spec = f32_momentum,
              Format format = Format::f32)
      : rows(start.rows),
        cols(start.cols),
        projections(std::move(projections_)),
        momentum(both(spec), rows, cols, Copies::rows_only),
        memory(index(rows * cols * 4)),
        weight{memory.data(), format, rows, cols} {
    encode_array(format, start.values.data(), 1, rows * cols, memory.data());
    for (auto& part : momentum.memory) std::fill(part.begin(), part.end(), std::byte{0});
    *momentum.tensor.rows_matrix().tensor_scale = 1;
  }

  Muon operation(Matrix& gradient, const MuonSettings& s, const GradientSummary& summary) {
    return {.weight = weight,
            .gradient = gradient.view(),
            .projections = projections,
            .momentum = momentum.tensor.rows_matrix(),
            .gradient_factor = &s.gradient_factor,
            .summary = &summary,
            .value_limit = s.value_limit,
            .learning_rate = s.learning_rate,
            .beta = s.beta,
            .steps = 5,
            .decay = s.decay,
            .rounding = weight.format == Format::f32 ? Rounding::nearest_even : Rounding::stochastic,
            .random = {7, t, stream_of("weight")},
            .statistics = &statistics};
  }

  void step(Matrix gradient, const MuonSettings& s = {}, const GradientSummary& summary = {}) {
    ++t;
    make_cpu_engine(1)->run(operation(gradient, s, summary));
  }

  std::vector<float> values() const {
    std::vector<float> result(index(rows * cols));
    decode_array(weight.format, memory.data(), 1, rows * cols, result.data());
    return result;
  }

  Size rows;
  Size cols;
  std::vector<Size> projections;
  Stored momentum;
  std::vector<std::byte> memory;
  View weight;
  UpdateStatistics statistics;
  std::uint32_t t = 0;
};

Matrix muon_gradient(Size rows, Size cols, int step) {
  return random_matrix(rows, cols, static_cast<std::uint32_t>(200 + step), 0.1F, 0.01F);
}

TEST(Muon, AgreesWithADoubleImplementation) {
  struct Shape {
    Size cols;
    std::vector<Size> projections;
  };
  for (const Shape& shape : {Shape{40, {20}}, Shape{20, {44}}, Shape{20, {32, 8, 8}}, Shape{30, {50, 50}}}) {
    for (const MuonSettings& s : {MuonSettings{}, MuonSettings{.decay = 0.02F, .gradient_factor = 0.25F, .beta = 0.8F},
                                  MuonSettings{.value_limit = 0.05F}}) {
      Size rows = 0;
      for (const Size part : shape.projections) rows += part;
      const Size cols = shape.cols;
      const Matrix start = random_matrix(rows, cols, 1, 0.05F);
      MuonTrained trained(start, shape.projections);
      Doubles w = start.doubles();
      Doubles m(w.size(), 0.0);
      for (int step = 0; step < 3; ++step) {
        const Matrix gradient = muon_gradient(rows, cols, step);
        trained.step(gradient, s);
        Doubles update(w.size());
        const double beta = s.beta;
        for (std::size_t i = 0; i < w.size(); ++i) {
          double g = static_cast<double>(gradient.values[i]) * s.gradient_factor;
          if (s.value_limit > 0) g = std::clamp<double>(g, -s.value_limit, s.value_limit);
          m[i] = beta * m[i] + (1 - beta) * g;
          update[i] = (1 - beta) * g + beta * m[i];
        }
        auto begin = update.begin();
        for (const Size part : shape.projections) {
          const auto end = begin + part * cols;
          const Doubles moved = newton_schulz({begin, end}, part, cols, Rounded::nowhere);
          const double factor = 0.2 * std::sqrt(static_cast<double>(std::max(part, cols)));
          begin = std::transform(moved.begin(), moved.end(), begin, [&](double x) { return factor * x; });
        }
        for (std::size_t i = 0; i < w.size(); ++i) w[i] -= s.decay * w[i] + s.learning_rate * update[i];
      }
      Doubles moved = w;
      std::vector<float> result = trained.values();
      for (std::size_t i = 0; i < w.size(); ++i) {
        moved[i] -= start.values[i];
        result[i] -= start.values[i];
      }
      EXPECT_LT(relative_error(result, moved), 0.03) << rows << " × " << cols;
      expect_close(values_of(trained.momentum.tensor.rows_matrix()), m, 1e-5, "momentum");
    }
  }
}

// 0.2 on average, as AdamW's are: whatever the shape and the size of the gradients.
TEST(Muon, UpdatesHaveTheSizeOfAdamWs) {
  for (const auto& [rows, cols] : {std::pair<Size, Size>{16, 64}, {64, 16}, {40, 32}}) {
    MuonTrained trained(Matrix(rows, cols, 0), {rows});
    trained.step(random_matrix(rows, cols, 4, 1e-4F), {.learning_rate = 1});
    const double rms = std::sqrt(trained.statistics.update2 / static_cast<double>(rows * cols));
    EXPECT_NEAR(rms, 0.2, 0.04) << rows << " × " << cols;
  }
}

TEST(Muon, OrthogonalizesProjectionsApart) {
  const Size cols = 24;
  const std::vector<Size> projections = {32, 8, 8};
  const Matrix start = random_matrix(48, cols, 1);
  MuonTrained together(start, projections);
  MuonTrained whole(start, {48});
  for (int step = 0; step < 2; ++step) {
    together.step(muon_gradient(48, cols, step));
    whole.step(muon_gradient(48, cols, step));
  }
  EXPECT_NE(together.values(), whole.values());
  std::vector<float> apart;
  Size first = 0;
  for (const Size rows : projections) {
    const auto part_of = [&](const Matrix& matrix) {
      Matrix part(rows, cols);
      std::copy_n(matrix.values.begin() + first * cols, rows * cols, part.values.begin());
      return part;
    };
    MuonTrained part(part_of(start), {rows});
    for (int step = 0; step < 2; ++step) part.step(part_of(muon_gradient(48, cols, step)));
    const std::vector<float> values = part.values();
    apart.insert(apart.end(), values.begin(), values.end());
    first += rows;
  }
  EXPECT_EQ(together.values(), apart);
}

TEST(Muon, WithoutGradientsOnlyDecays) {
  MuonTrained trained(Matrix(130, 20, 2), {130});
  trained.step(Matrix(130, 20, 0), {.decay = 0.25F});
  EXPECT_EQ(trained.values(), std::vector<float>(2600, 1.5F));
  EXPECT_EQ(trained.statistics.unmoved, 0U);
  trained.step(Matrix(130, 20, 0));
  EXPECT_EQ(trained.statistics.unmoved, 0U) << "nothing asked them to move";
}

TEST(Muon, StatisticsDescribeTheUpdate) {
  const Matrix start = random_matrix(150, 30, 1);
  for (const Format format : {Format::f32, Format::bf16}) {
    MuonTrained trained(start, {150}, f32_momentum, format);
    const std::vector<float> before = trained.values();
    trained.step(muon_gradient(150, 30, 0), {.decay = 0.01F});
    const std::vector<float> after = trained.values();
    double weight2 = 0;
    double update2 = 0;
    std::uint64_t unmoved = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      weight2 += static_cast<double>(after[i]) * after[i];
      update2 += std::pow(static_cast<double>(after[i]) - before[i], 2);
      unmoved += after[i] == before[i] ? 1U : 0U;
    }
    EXPECT_NEAR(trained.statistics.weight2, weight2, 1e-5 * weight2);
    EXPECT_NEAR(trained.statistics.update2, update2, 1e-4 * update2);
    EXPECT_EQ(trained.statistics.count, 4500U);
    EXPECT_EQ(trained.statistics.unmoved, unmoved);
  }
}

TEST(Muon, DoesNothingWhenAGradientWasNotFinite) {
  for (const QuantSpec& spec : {f32_momentum, bf16_momentum, fp8_momentum}) {
    MuonTrained trained(random_matrix(6, 130, 1), {6}, spec);
    trained.step(muon_gradient(6, 130, 0));
    const std::vector<float> before = trained.values();
    const std::vector<std::byte> momentum = bytes_of(trained.momentum.tensor);
    Matrix gradient = muon_gradient(6, 130, 1);
    gradient(1, 1) = std::numeric_limits<float>::quiet_NaN();
    trained.step(gradient, {.decay = 0.1F}, {.norm = 1, .nonfinite = 1, .skip = 1});
    EXPECT_EQ(trained.values(), before);
    EXPECT_EQ(bytes_of(trained.momentum.tensor), momentum);
  }
}

TEST(Muon, LowPrecisionMomentumStaysCloseToFp32) {
  const Size rows = 20;
  const Size cols = 150;
  const Matrix start(rows, cols, 0);
  MuonTrained exact(start, {rows});
  MuonTrained bf16(start, {rows}, bf16_momentum);
  MuonTrained fp8(start, {rows}, fp8_momentum);
  for (int step = 0; step < 30; ++step) {
    for (MuonTrained* trained : {&exact, &bf16, &fp8}) trained->step(muon_gradient(rows, cols, step));
  }
  const std::vector<float> want = exact.values();
  EXPECT_LT(relative_error(bf16.values(), {want.begin(), want.end()}), 0.02);
  EXPECT_LT(relative_error(fp8.values(), {want.begin(), want.end()}), 0.15);
}

TEST(Muon, CastsTheNewWeightIntoItsSite) {
  for (const LayerSpecs& specs : all_layer_specs()) {
    MuonTrained trained(random_matrix(40, 33, 1), {40});
    Matrix gradient = muon_gradient(40, 33, 0);
    Stored fused(specs.w, 40, 33);
    Stored apart(specs.w, 40, 33);
    const Casting seeded{.seed = 3, .step = 2};
    const MuonSettings settings;
    const GradientSummary summary;
    const auto engine = make_cpu_engine(1);
    Muon operation = trained.operation(gradient, settings, summary);
    operation.quantized = &fused.tensor;
    operation.casting = &seeded;
    engine->run(operation);
    engine->run(Quantize{trained.weight, apart.tensor, seeded});
    EXPECT_EQ(bytes_of(fused.tensor), bytes_of(apart.tensor)) << specs.name;
  }
}

}  // namespace
}  // namespace quaver::test
