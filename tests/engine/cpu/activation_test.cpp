// Activation functions against their formulas in double, and their gradients against differences.
#include "engine/support.h"

namespace quaver::test {
namespace {

struct ActivationCase {
  const char* name;
  ActivationKind kind;
  float limit;
};

void PrintTo(const ActivationCase& instance, std::ostream* out) { *out << instance.name; }

constexpr ActivationCase activation_cases[] = {
    {"Gelu", ActivationKind::gelu, 0},     {"GeluClipped", ActivationKind::gelu, 0.8F},
    {"Relu", ActivationKind::relu, 0},     {"ReluClipped", ActivationKind::relu, 0.8F},
    {"Swiglu", ActivationKind::swiglu, 0}, {"SwigluClipped", ActivationKind::swiglu, 0.8F}};

constexpr double factor = 1.5;

double gelu(double x) {
  const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

// Elements of one row: [n] from [n], or [n] from [gate | up].
Doubles reference(const ActivationCase& c, const Doubles& x, Size rows, Size n) {
  Doubles out(index(rows * n));
  for (Size r = 0; r < rows; ++r) {
    for (Size i = 0; i < n; ++i) {
      double y = 0;
      if (c.kind == ActivationKind::swiglu) {
        const double gate = x[index(r * 2 * n + i)];
        y = gate / (1 + std::exp(-gate)) * x[index(r * 2 * n + n + i)];
      } else {
        const double v = x[index(r * n + i)];
        y = c.kind == ActivationKind::gelu ? gelu(v) : std::max(0.0, v);
      }
      y *= factor;
      if (c.limit > 0) y = std::clamp(y, -static_cast<double>(c.limit), static_cast<double>(c.limit));
      out[index(r * n + i)] = y;
    }
  }
  return out;
}

class Activations : public testing::TestWithParam<ActivationCase> {
 protected:
  Size input_width(Size n) const { return GetParam().kind == ActivationKind::swiglu ? 2 * n : n; }
  void forward(Matrix& x, Stored& out) const {
    engine->run(Activation{.kind = GetParam().kind,
                           .x = x.view(),
                           .factor = static_cast<float>(factor),
                           .limit = GetParam().limit,
                           .out = out.tensor,
                           .casting = casting});
  }
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  Casting casting;
};

constexpr std::pair<Size, Size> activation_shapes[] = {{1, 16}, {3, 5}, {130, 7}};

TEST_P(Activations, ForwardAgreesWithTheFormula) {
  for (const auto& [rows, n] : activation_shapes) {
    Matrix x = random_matrix(rows, input_width(n), 1, 2);
    Stored out(both({}), rows, n);
    forward(x, out);
    expect_close(values_of(out.tensor.rows()), reference(GetParam(), x.doubles(), rows, n), 1e-6, "forward");
  }
}

TEST_P(Activations, BackwardIsTheDerivative) {
  for (const auto& [rows, n] : activation_shapes) {
    if (rows > 100) continue;
    Matrix x = random_matrix(rows, input_width(n), 1, 2);
    Matrix dy = random_matrix(rows, n, 2);
    Stored out(both({}), rows, input_width(n));
    engine->run(ActivationBackward{.kind = GetParam().kind,
                                   .x = x.view(),
                                   .out_gradient = dy.view(),
                                   .forward_factor = static_cast<float>(factor),
                                   .factor = static_cast<float>(3 * factor),
                                   .limit = GetParam().limit,
                                   .in_gradient = out.tensor,
                                   .casting = casting});
    Doubles want = gradient(
        [&](const Doubles& values) { return dot(reference(GetParam(), values, rows, n), dy.doubles()); }, x.doubles());
    for (double& value : want) value *= 3;  // the gradient's own factor is three times the forward one
    expect_close(values_of(out.tensor.rows()), want, 1e-5, "backward");
  }
}

TEST_P(Activations, AgreesOverTheWholeRangeOfOrdinaryInputs) {
  const Size n = 4001;
  Matrix x(1, input_width(n), 1);  // swiglu: up = 1
  for (Size i = 0; i < n; ++i) x(0, i) = static_cast<float>(i - 2000) / 50.0F;
  Stored out(both({}), 1, n);
  forward(x, out);
  const Doubles want = reference(GetParam(), x.doubles(), 1, n);
  const Doubles got = values_of(out.tensor.rows());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6 * (1 + std::abs(want[i])));
}

TEST_P(Activations, NotANumberStaysVisible) {
  Matrix x = random_matrix(2, input_width(4), 1);
  x(1, 2) = std::numeric_limits<float>::quiet_NaN();
  Stored out(both({}), 2, 4);
  engine->run(Activation{
      .kind = GetParam().kind, .x = x.view(), .limit = GetParam().limit, .out = out.tensor, .casting = casting});
  EXPECT_TRUE(std::isnan(values_of(out.tensor.rows())[6]));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Activations, testing::ValuesIn(activation_cases),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace quaver::test
