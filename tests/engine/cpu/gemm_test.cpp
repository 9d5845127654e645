// Products against a double sum over the operands' decoded values: every recipe, both sides, bias, alpha, accumulation.
#include <array>

#include "engine/support.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

struct Shape {
  Size tokens;
  Size in;
  Size out;
};

constexpr std::array<Shape, 5> matmul_shapes{{{1, 16, 8}, {3, 5, 7}, {130, 48, 33}, {17, 130, 20}, {64, 32, 1}}};

// Rounding of an FP32 sum of k products in any order is at most about k units of 2^-24 of the sum of magnitudes.
void expect_product(const Matrix& out, const Operand& a, const Operand& b, double alpha, const Doubles& added,
                    const std::string& what) {
  const Size m = a.extent();
  const Size n = b.extent();
  const Size k = a.reduction();
  Doubles left = values_of(a);
  Doubles right = values_of(b);
  const Doubles expected = product(left, right, m, n, k);
  for (double& x : left) x = std::abs(x);
  for (double& x : right) x = std::abs(x);
  const Doubles magnitude = product(left, right, m, n, k);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double want = alpha * expected[i] + added[i];
    const double bound = static_cast<double>(k + 4) * 0x1p-24 * (std::abs(alpha) * magnitude[i] + std::abs(added[i]));
    ASSERT_NEAR(out.values[i], want, bound + 1e-37) << what << " at " << i;
  }
}

class Products : public testing::TestWithParam<LayerSpecs> {
 protected:
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
};

TEST_P(Products, AgreeWithADoubleSumAndApproximateTheTrueProduct) {
  const LayerSpecs& specs = GetParam();
  const Casting casting{.seed = 9, .step = 4};
  for (const Shape& shape : matmul_shapes) {
    const auto [t, in, n] = shape;
    Matrix x = random_matrix(t, in, 1);
    Matrix w = random_matrix(n, in, 2);
    Matrix dy = random_matrix(t, n, 3);
    Stored sx(specs.x, t, in, Copies::both, "layer/x");
    Stored sw(specs.w, n, in, Copies::both, "layer/w");
    Stored sdy(specs.dy, t, n, Copies::both, "layer/dy");
    for (Stored* stored : {&sx, &sw, &sdy}) stored->site.scale = 8;
    engine->run(Quantize{x.view(), sx.tensor, casting});
    engine->run(Quantize{w.view(), sw.tensor, casting});
    engine->run(Quantize{dy.view(), sdy.tensor, casting});
    const auto check = [&](const Operand& a, const Operand& b, const Doubles& exact, const std::string& what) {
      Matrix out(a.extent(), b.extent(), -99);
      engine->run(Gemm{.a = a, .b = b, .out = out.view()});
      expect_product(out, a, b, 1, Doubles(out.values.size(), 0.0), specs.name + " " + what);
      if (out.values.size() >= 400) {
        EXPECT_LT(relative_error(out.values, exact), specs.error) << specs.name << what;
      }
    };
    const auto transposed = [](const Matrix& m) {
      Doubles values(m.values.size());
      for (Size r = 0; r < m.rows; ++r) {
        for (Size c = 0; c < m.cols; ++c) values[index(c * m.rows + r)] = m(r, c);
      }
      return values;
    };
    check(sx.tensor.rows(), sw.tensor.rows(), product(x.doubles(), w.doubles(), t, n, in), "forward");
    check(sdy.tensor.rows(), sw.tensor.columns(), product(dy.doubles(), transposed(w), t, in, n), "input gradient");
    check(sdy.tensor.columns(), sx.tensor.columns(), product(transposed(dy), transposed(x), n, in, t),
          "weight gradient");
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Products, testing::ValuesIn(all_layer_specs()), recipe_name);

class MatmulOptions : public testing::TestWithParam<Accumulator> {};

TEST_P(MatmulOptions, BiasAlphaAndAccumulationAddUp) {
  const auto engine = make_cpu_engine(1);
  const Size m = 7;
  const Size n = 5;
  const Size k = 9;
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const bool with_bias : {false, true}) {
        for (const bool accumulate : {false, true}) {
          Matrix a = a_transposed ? Matrix(k, m) : Matrix(m, k);
          Matrix b = b_transposed ? Matrix(k, n) : Matrix(n, k);
          // Small integers: exact in every accumulator but FP8's.
          for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] = static_cast<float>(i % 3) - 1;
          for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] = static_cast<float>(i % 2);
          Stored sa(both({.format = Format::e4m3}), a.rows, a.cols);
          Stored sb(both({.format = Format::e4m3}), b.rows, b.cols);
          engine->run(Quantize{a.view(), sa.tensor, {}});
          engine->run(Quantize{b.view(), sb.tensor, {}});
          const Operand left{sa.tensor.rows_matrix(), a_transposed};
          const Operand right{sb.tensor.rows_matrix(), b_transposed};
          Matrix bias = random_matrix(1, n, 4);
          Matrix out = random_matrix(m, n, 5);
          Doubles added(out.values.size(), 0.0);
          for (std::size_t i = 0; i < added.size(); ++i) {
            if (with_bias) added[i] += bias.values[i % index(n)];
            if (accumulate) added[i] += out.values[i];
          }
          engine->run(Gemm{.a = left,
                           .b = right,
                           .out = out.view(),
                           .bias = with_bias ? bias.view() : View{},
                           .alpha = -1.5F,
                           .accumulate = accumulate,
                           .accumulator = GetParam()});
          expect_product(out, left, right, -1.5, added,
                         "a " + std::to_string(a_transposed) + " b " + std::to_string(b_transposed) + " bias " +
                             std::to_string(with_bias) + " accumulate " + std::to_string(accumulate));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Accumulators, MatmulOptions,
                         testing::Values(Accumulator::fp32, Accumulator::hopper, Accumulator::hopper_split,
                                         Accumulator::fp16, Accumulator::fp8));

TEST(Gemm, ShapesThatDoNotMeetAreAnError) {
  const auto engine = make_cpu_engine(1);
  Stored a(both({}), 3, 4);
  Stored b(both({}), 5, 6);
  Matrix out(3, 5);
  EXPECT_THROW(engine->run(Gemm{.a = a.tensor.rows(), .b = b.tensor.rows(), .out = out.view()}), Error);
  Stored c(both({}), 5, 4);
  Matrix small(3, 4);
  EXPECT_THROW(engine->run(Gemm{.a = a.tensor.rows(), .b = c.tensor.rows(), .out = small.view()}), Error);
}

TEST(Gemm, NonFiniteOperandsAreNeverSilent) {
  const auto engine = make_cpu_engine(1);
  for (const Accumulator accumulator :
       {Accumulator::fp32, Accumulator::hopper, Accumulator::hopper_split, Accumulator::fp16, Accumulator::fp8}) {
    for (const Format format : {Format::f32, Format::tf32, Format::bf16, Format::f16, Format::e4m3, Format::e5m2}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        if (format == Format::e4m3 && std::isinf(bad)) continue;  // saturates, and is counted by the cast
        const Format w_format = format == Format::e5m2 ? Format::e4m3 : format;
        Matrix x = random_matrix(2, 40, 1);
        x(1, 3) = bad;
        Matrix w = random_matrix(3, 40, 2);
        Stored sx(both({.format = format}), 2, 40);
        Stored sw(both({.format = w_format}), 3, 40);
        engine->run(Quantize{x.view(), sx.tensor, {}});
        engine->run(Quantize{w.view(), sw.tensor, {}});
        Matrix out(2, 3);
        engine->run(Gemm{.a = sx.tensor.rows(), .b = sw.tensor.rows(), .out = out.view(), .accumulator = accumulator});
        for (Size c = 0; c < 3; ++c) {
          EXPECT_TRUE(std::isfinite(out(0, c)));
          EXPECT_FALSE(std::isfinite(out(1, c)))
              << info(format).name << " accumulator " << static_cast<int>(accumulator) << " " << bad;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quaver::test
