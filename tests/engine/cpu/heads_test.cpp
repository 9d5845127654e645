// QK-norm and rotary embedding: what they preserve, and their gradients against differences in double.
#include "engine/support.h"

namespace quaver::test {
namespace {

struct HeadsCase {
  const char* name;
  HeadLayout layout;
  float theta;
  bool norm;
  RotaryScaling scaling = {};
};

void PrintTo(const HeadsCase& instance, std::ostream* out) { *out << instance.name; }

constexpr HeadsCase heads_cases[] = {{"Rotary", {2, 5, 2, 2, 4}, 10000, false},
                                     {"Norm", {1, 3, 3, 1, 6}, 0, true},
                                     {"Both", {2, 3, 4, 2, 6}, 100, true},
                                     {"OneToken", {1, 1, 1, 1, 2}, 10000, true},
                                     {"Neither", {1, 3, 2, 1, 4}, 0, false},
                                     {"Llama3", {2, 7, 3, 1, 32}, 5000, false, {8, 1, 4, 512}},
                                     {"Llama3AndNorm", {1, 5, 2, 1, 16}, 500, true, {32, 1, 4, 64}}};

constexpr double eps = 1e-5F;

// By wavelengths, as Llama 3.1's description has it.
double frequency(const HeadsCase& c, Size i) {
  const double plain = std::pow(c.theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.layout.head_size));
  const RotaryScaling& s = c.scaling;
  if (s.factor == 1) return plain;
  const double wavelength = 2 * std::acos(-1.0) / plain;
  const auto context = static_cast<double>(s.original_context);
  if (wavelength < context / s.high_frequency) return plain;
  if (wavelength > context / s.low_frequency) return plain / s.factor;
  const double smooth = (context / wavelength - s.low_frequency) / (s.high_frequency - s.low_frequency);
  return (1 - smooth) * plain / s.factor + smooth * plain;
}

Doubles reference(const HeadsCase& c, Doubles qkv, const Doubles& query_gain, const Doubles& key_gain) {
  const Size e = c.layout.head_size;
  for (Size row = 0; row < c.layout.tokens(); ++row) {
    for (Size head = 0; head < c.layout.heads + c.layout.kv_heads; ++head) {
      double* x = &qkv[index(row * c.layout.width() + head * e)];
      if (c.norm) {
        const Doubles& gain = head < c.layout.heads ? query_gain : key_gain;
        double square = 0;
        for (Size i = 0; i < e; ++i) square += x[i] * x[i];
        const double r = 1 / std::sqrt(square / static_cast<double>(e) + eps);
        for (Size i = 0; i < e; ++i) x[i] *= r * gain[index(i)];
      }
      for (Size i = 0; c.theta > 0 && i < e / 2; ++i) {
        const double angle = static_cast<double>(row % c.layout.sequence) * frequency(c, i);
        const double a = x[i];
        const double b = x[e / 2 + i];
        x[i] = a * std::cos(angle) - b * std::sin(angle);
        x[e / 2 + i] = a * std::sin(angle) + b * std::cos(angle);
      }
    }
  }
  return qkv;
}

class Heads : public testing::TestWithParam<HeadsCase> {
 protected:
  PrepareHeads op(Matrix& in, Matrix& out) {
    const bool norm = GetParam().norm;
    return {.layout = GetParam().layout,
            .theta = GetParam().theta,
            .query_gain = norm ? query_gain.view() : View{},
            .key_gain = norm ? key_gain.view() : View{},
            .in = in.view(),
            .out = out.view(),
            .scaling = GetParam().scaling};
  }
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  HeadLayout layout = GetParam().layout;
  Matrix query_gain = random_matrix(1, layout.head_size, 1, 0.3F, 1);
  Matrix key_gain = random_matrix(1, layout.head_size, 2, 0.3F, 1);
};

TEST_P(Heads, ForwardAgreesWithTheFormulas) {
  Matrix in = random_matrix(layout.tokens(), layout.width(), 3);
  const Doubles want = reference(GetParam(), in.doubles(), query_gain.doubles(), key_gain.doubles());
  Matrix out(layout.tokens(), layout.width(), 99);
  engine->run(op(in, out));
  expect_close(out.values, want, 2e-6, "heads");
  engine->run(op(in, in));
  EXPECT_EQ(in.values, out.values) << "in place";
}

TEST_P(Heads, BackwardIsTheDerivative) {
  Matrix in = random_matrix(layout.tokens(), layout.width(), 3);
  Matrix dy = random_matrix(layout.tokens(), layout.width(), 4);
  const Doubles weights = dy.doubles();
  const auto loss = [&](const Doubles& x, const Doubles& q, const Doubles& k) {
    return dot(reference(GetParam(), x, q, k), weights);
  };
  const Doubles q = query_gain.doubles();
  const Doubles k = key_gain.doubles();
  const Doubles by_input = gradient([&](const Doubles& x) { return loss(x, q, k); }, in.doubles());
  Matrix query_gradient(1, layout.head_size, 0.5F);
  Matrix key_gradient(1, layout.head_size, -0.5F);
  Matrix unused(1, 1);
  const bool norm = GetParam().norm;
  engine->run(PrepareHeadsBackward{.forward = op(in, unused),
                                   .gradient = dy.view(),
                                   .query_gain_gradient = norm ? query_gradient.view() : View{},
                                   .key_gain_gradient = norm ? key_gradient.view() : View{},
                                   .factor = 0.25F});
  expect_close(dy.values, by_input, 1e-5, "input");
  if (!norm) return;
  Doubles by_query = gradient([&](const Doubles& g) { return loss(in.doubles(), g, k); }, q);
  Doubles by_key = gradient([&](const Doubles& g) { return loss(in.doubles(), q, g); }, k);
  for (double& value : by_query) value = 0.5 + 0.25 * value;
  for (double& value : by_key) value = -0.5 + 0.25 * value;
  expect_close(query_gradient.values, by_query, 1e-5, "query gain");
  expect_close(key_gradient.values, by_key, 1e-5, "key gain");
}

INSTANTIATE_TEST_SUITE_P(Layouts, Heads, testing::ValuesIn(heads_cases),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Rotation keeps lengths, and q·k depends on the distance of the two positions alone.
TEST(Rotary, IsOrthogonalAndRelative) {
  const auto engine = make_cpu_engine(1);
  const HeadLayout layout{1, 9, 1, 1, 8};
  Matrix in(9, layout.width());
  const Matrix one = random_matrix(1, layout.width(), 5);
  for (Size t = 0; t < 9; ++t) std::copy_n(one.values.begin(), layout.width(), &in(t, 0));
  Matrix out(9, layout.width());
  engine->run(PrepareHeads{.layout = layout, .theta = 50, .in = in.view(), .out = out.view()});
  const auto inner = [&](Size t, Size from, Size u, Size to) {
    double sum = 0;
    for (Size i = 0; i < 8; ++i) sum += static_cast<double>(out(t, from + i)) * out(u, to + i);
    return sum;
  };
  for (Size t = 0; t < 9; ++t) {
    EXPECT_NEAR(inner(t, 0, t, 0), inner(0, 0, 0, 0), 1e-5) << "length at " << t;
    for (Size u = 0; u + 1 < 9 && t + 1 < 9; ++u) {
      EXPECT_NEAR(inner(t + 1, 0, u + 1, 8), inner(t, 0, u, 8), 1e-5) << t << " and " << u;
    }
    for (Size i = 16; i < 24; ++i) EXPECT_EQ(out(t, i), in(t, i)) << "values are not rotated";
  }
}

TEST(QkNorm, GivesUnitMeanSquareWhateverTheScale) {
  const auto engine = make_cpu_engine(1);
  const HeadLayout layout{1, 4, 2, 1, 16};
  Matrix gain(1, 16, 1);
  for (const float scale : {0.1F, 1.0F, 1000.0F}) {
    Matrix in = random_matrix(4, layout.width(), 6, scale);
    Matrix out(4, layout.width());
    engine->run(PrepareHeads{
        .layout = layout, .query_gain = gain.view(), .key_gain = gain.view(), .in = in.view(), .out = out.view()});
    for (Size t = 0; t < 4; ++t) {
      for (Size head = 0; head < 3; ++head) {
        double square = 0;
        for (Size i = 0; i < 16; ++i) square += static_cast<double>(out(t, head * 16 + i)) * out(t, head * 16 + i);
        EXPECT_NEAR(square / 16, 1, 5e-3) << scale;
      }
    }
  }
}

}  // namespace
}  // namespace quaver::test
