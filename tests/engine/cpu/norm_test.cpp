// Norms fused with the residual stream: forward against the formulas in double, backward against differences of those.
#include "engine/support.h"

namespace quaver::test {
namespace {

constexpr float norm_eps = 1e-5F;

struct NormCase {
  const char* name;
  NormKind kind;
  bool shift;
  Size tokens;
  Size width;
};

void PrintTo(const NormCase& instance, std::ostream* out) { *out << instance.name; }

constexpr NormCase norm_cases[] = {
    {"OneToken", NormKind::layer, true, 1, 16}, {"Odd", NormKind::layer, true, 3, 5},
    {"NoShift", NormKind::layer, false, 4, 7},  {"Rms", NormKind::rms, false, 3, 5},
    {"RmsShift", NormKind::rms, true, 2, 17},   {"RmsOneToken", NormKind::rms, false, 1, 8},
    {"ManyRows", NormKind::layer, true, 130, 3}};

Doubles reference_norm(const NormCase& c, const Doubles& x, const Doubles& gain, const Doubles& shift) {
  Doubles out(x.size());
  const auto d = static_cast<double>(c.width);
  for (Size r = 0; r < c.tokens; ++r) {
    const double* row = &x[index(r * c.width)];
    double mean = 0;
    double square = 0;
    if (c.kind == NormKind::layer) {
      for (Size i = 0; i < c.width; ++i) mean += row[i] / d;
    }
    for (Size i = 0; i < c.width; ++i) square += (row[i] - mean) * (row[i] - mean) / d;
    for (Size i = 0; i < c.width; ++i) {
      const double y = (row[i] - mean) / std::sqrt(square + static_cast<double>(norm_eps)) * gain[index(i)];
      out[index(r * c.width + i)] = y + (c.shift ? shift[index(i)] : 0.0);
    }
  }
  return out;
}

Doubles combined(double keep, const Doubles& a, double add, const Doubles& b) {
  Doubles out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = keep * a[i] + add * b[i];
  return out;
}

class Norms : public testing::TestWithParam<NormCase> {
 protected:
  NormParameters parameters() {
    return {GetParam().kind, gain.view(), GetParam().shift ? shift.view() : View{}, norm_eps};
  }
  NormGradients gradients(float factor) {
    return {gain_gradient.view(), GetParam().shift ? shift_gradient.view() : View{}, factor};
  }
  Doubles norm_of(const Doubles& x) { return reference_norm(GetParam(), x, gain.doubles(), shift.doubles()); }
  Doubles norm_of(const Doubles& x, const Doubles& g, const Doubles& s) { return reference_norm(GetParam(), x, g, s); }

  // The derivative of Σ norm(x)·dy by the gain, times factor, on top of what was there.
  void expect_parameter_gradients(const Doubles& x, const Doubles& dy, double factor) {
    Doubles by_gain =
        gradient([&](const Doubles& g) { return dot(norm_of(x, g, shift.doubles()), dy); }, gain.doubles());
    for (double& value : by_gain) value = initial + factor * value;
    expect_close(gain_gradient.values, by_gain, 2e-5, "gain");
    if (!GetParam().shift) return;
    Doubles by_shift =
        gradient([&](const Doubles& s) { return dot(norm_of(x, gain.doubles(), s), dy); }, shift.doubles());
    for (double& value : by_shift) value = initial + factor * value;
    expect_close(shift_gradient.values, by_shift, 2e-5, "shift");
  }

  static constexpr float initial = 0.5F;
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  Size tokens = GetParam().tokens;
  Size width = GetParam().width;
  Matrix gain = random_matrix(1, width, 1, 0.3F, 1);
  Matrix shift = random_matrix(1, width, 2, 0.3F);
  Matrix gain_gradient{1, width, initial};
  Matrix shift_gradient{1, width, initial};
  Matrix stats{tokens, 2};
  Casting casting;
};

TEST_P(Norms, AddNormNormalizesTheSum) {
  Matrix residual = random_matrix(tokens, width, 3, 1, 0.5F);
  Matrix branch = random_matrix(tokens, width, 4);
  Matrix sum(tokens, width, 99);
  Stored out(both({}), tokens, width);
  engine->run(AddNorm{.norm = parameters(),
                      .residual = residual.view(),
                      .branch = branch.view(),
                      .keep = 0.8F,
                      .add = 0.6F,
                      .sum = sum.view(),
                      .stats = stats.view(),
                      .out = out.tensor,
                      .casting = casting});
  const Doubles want = combined(0.8F, residual.doubles(), 0.6F, branch.doubles());
  expect_close(sum.values, want, 1e-6, "sum");
  expect_close(values_of(out.tensor.rows()), norm_of(want), 1e-5, "norm");
}

TEST_P(Norms, AddNormWithoutABranchPassesTheResidualOn) {
  Matrix residual = random_matrix(tokens, width, 3);
  const Doubles x = residual.doubles();
  for (const bool in_place : {true, false}) {
    Matrix sum(tokens, width, 99);
    Stored out(both({}), tokens, width);
    engine->run(AddNorm{.norm = parameters(),
                        .residual = residual.view(),
                        .keep = 0.1F,
                        .sum = in_place ? residual.view() : sum.view(),
                        .stats = stats.view(),
                        .out = out.tensor,
                        .casting = casting});
    EXPECT_EQ(in_place ? residual.doubles() : sum.doubles(), x) << "in place: " << in_place;
    expect_close(values_of(out.tensor.rows()), norm_of(x), 1e-5, "norm");
  }
}

TEST_P(Norms, AddNormBackwardIsTheDerivative) {
  Matrix sum = random_matrix(tokens, width, 3, 1, 0.5F);
  Matrix dy = random_matrix(tokens, width, 5);
  Matrix ignored(tokens, width);
  Stored forward(both({}), tokens, width);
  engine->run(AddNorm{.norm = parameters(),
                      .residual = sum.view(),
                      .sum = sum.view(),
                      .stats = stats.view(),
                      .out = forward.tensor,
                      .casting = casting});
  const Doubles slopes = gradient([&](const Doubles& x) { return dot(norm_of(x), dy.doubles()); }, sum.doubles());
  for (const bool with_next : {true, false}) {
    for (const bool with_branch : {true, false}) {
      Matrix next = random_matrix(tokens, width, 6);
      const Doubles want = combined(with_next ? 0.8F : 0.0, next.doubles(), 0.6F, slopes);
      Stored cast(both({}), tokens, width);
      Matrix sums(1, width, initial);
      cast.tensor.column_sums = sums.view();
      std::fill(gain_gradient.values.begin(), gain_gradient.values.end(), initial);
      std::fill(shift_gradient.values.begin(), shift_gradient.values.end(), initial);
      Matrix fresh(tokens, width, 99);
      Matrix& result = with_next ? next : fresh;  // in place where there is a stream behind
      engine->run(AddNormBackward{.norm = parameters(),
                                  .sum = sum.view(),
                                  .stats = stats.view(),
                                  .out_gradient = dy.view(),
                                  .next = with_next ? next.view() : View{},
                                  .keep = 0.8F,
                                  .add = 0.6F,
                                  .gradient = result.view(),
                                  .branch_gradient = with_branch ? &cast.tensor : nullptr,
                                  .gradients = gradients(0.25F),
                                  .casting = casting});
      expect_close(result.values, want, 3e-5, "gradient");
      expect_parameter_gradients(sum.doubles(), dy.doubles(), 0.25);
      if (!with_branch) continue;
      expect_close(values_of(cast.tensor.rows()), result.doubles(), 0, "cast gradient");
      Doubles column_sums(index(width), initial);
      for (std::size_t i = 0; i < want.size(); ++i) column_sums[i % index(width)] += want[i];
      expect_close(sums.values, column_sums, 1e-4, "column sums");
    }
  }
}

TEST_P(Norms, NormAddNormalizesTheBranch) {
  for (const bool with_out : {true, false}) {
    Matrix residual = random_matrix(tokens, width, 3);
    Matrix branch = random_matrix(tokens, width, 4, 2, 0.5F);
    const Doubles want = combined(0.8F, residual.doubles(), 0.6F, norm_of(branch.doubles()));
    Stored out(both({}), tokens, width);
    engine->run(NormAdd{.norm = parameters(),
                        .residual = residual.view(),
                        .branch = branch.view(),
                        .keep = 0.8F,
                        .add = 0.6F,
                        .sum = residual.view(),
                        .stats = stats.view(),
                        .out = with_out ? &out.tensor : nullptr,
                        .casting = casting});
    expect_close(residual.values, want, 1e-5, "sum");
    if (with_out) expect_close(values_of(out.tensor.rows()), residual.doubles(), 0, "out");
  }
}

TEST_P(Norms, NormAddBackwardIsTheDerivative) {
  Matrix branch = random_matrix(tokens, width, 4, 2, 0.5F);
  Matrix residual(tokens, width);
  engine->run(NormAdd{.norm = parameters(),
                      .residual = residual.view(),
                      .branch = branch.view(),
                      .sum = residual.view(),
                      .stats = stats.view(),
                      .casting = casting});
  for (const bool with_next : {true, false}) {
    Matrix input_gradient = random_matrix(tokens, width, 5);
    Matrix next = random_matrix(tokens, width, 6);
    const Doubles stream = combined(with_next ? 0.8F : 0.0, next.doubles(), 0.6F, input_gradient.doubles());
    Doubles slopes = gradient([&](const Doubles& x) { return dot(norm_of(x), stream); }, branch.doubles());
    for (double& value : slopes) value *= 1.5;
    Stored cast(both({}), tokens, width);
    Matrix result(tokens, width, 99);
    std::fill(gain_gradient.values.begin(), gain_gradient.values.end(), initial);
    std::fill(shift_gradient.values.begin(), shift_gradient.values.end(), initial);
    engine->run(NormAddBackward{.norm = parameters(),
                                .branch = branch.view(),
                                .stats = stats.view(),
                                .input_gradient = input_gradient.view(),
                                .next = with_next ? next.view() : View{},
                                .keep = 0.8F,
                                .add = 0.6F,
                                .factor = 1.5F,
                                .gradient = result.view(),
                                .branch_gradient = cast.tensor,
                                .gradients = gradients(0.25F),
                                .casting = casting});
    expect_close(result.values, stream, 1e-6, "gradient of the stream");
    expect_close(values_of(cast.tensor.rows()), slopes, 3e-5, "gradient of the branch");
    expect_parameter_gradients(branch.doubles(), stream, 0.25);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Norms, testing::ValuesIn(norm_cases),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(Combine, AddsTwoMatricesInPlaceToo) {
  const auto engine = make_cpu_engine(1);
  Matrix x = random_matrix(5, 3, 1);
  Matrix y = random_matrix(5, 3, 2);
  const Doubles want = combined(0.25F, x.doubles(), -2, y.doubles());
  engine->run(Combine{.x = x.view(), .y = y.view(), .keep = 0.25F, .add = -2, .out = x.view()});
  expect_close(x.values, want, 1e-6, "sum");
}

}  // namespace
}  // namespace quaver::test
