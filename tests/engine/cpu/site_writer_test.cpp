// Writing into sites: every producer casts exactly as a separate cast would, statistics cover each element once, known
// scales are used, evaluation leaves no trace.
#include "engine/cpu/site_writer.h"

#include "engine/support.h"

namespace quaver::test {
namespace {

class Sites : public testing::TestWithParam<LayerSpecs> {
 protected:
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  Casting casting{.seed = 5, .step = 3};
};

constexpr std::pair<Size, Size> site_writer_shapes[] = {{1, 16}, {3, 5}, {130, 33}, {257, 48}};

TEST_P(Sites, CastsAreThoseOfTheFormatsModule) {
  for (const SiteSpec& spec : {GetParam().x, GetParam().w, GetParam().dy}) {
    for (const auto& [rows, cols] : site_writer_shapes) {
      Matrix x = random_matrix(rows, cols, 1);
      Stored out(spec, rows, cols);
      Stored want(spec, rows, cols);
      out.site.scale = want.site.scale = 4;
      engine->run(Quantize{x.view(), out.tensor, casting});
      const RandomKey key = key_of(casting, want.site);
      quantize({x.values.data(), rows, cols},
               {.side = Side::rows, .given_scale = 4, .random = key, .detail = Detail::counts},
               want.tensor.rows_matrix());
      if (want.tensor.has_own_columns()) {
        quantize({x.values.data(), rows, cols},
                 {.side = Side::columns, .given_scale = 4, .random = key, .detail = Detail::counts},
                 want.tensor.columns_matrix());
      }
      EXPECT_EQ(bytes_of(out.tensor), bytes_of(want.tensor)) << rows << " × " << cols;
    }
  }
}

// What an operation writes into a low-precision site is the cast of what it writes into a high-precision one.
TEST_P(Sites, ProducersCastWhatTheyWouldWriteInHighPrecision) {
  const auto [rows, cols] = std::pair<Size, Size>{130, 24};
  Matrix x = random_matrix(rows, cols, 1);
  Matrix dy = random_matrix(rows, cols, 2);
  Matrix gain(1, cols, 1.5F);
  Matrix gain_gradient(1, cols);
  Matrix stats(rows, 2);
  const NormParameters norm{NormKind::rms, gain.view()};
  const auto agree = [&](const SiteSpec& spec, const char* what, const auto& produce) {
    Stored high_precision(both({}), rows, cols, Copies::both, "producer/x");
    Stored fused(spec, rows, cols, Copies::both, "producer/x");
    Stored apart(spec, rows, cols, Copies::both, "producer/x");
    fused.site.scale = apart.site.scale = 4;
    produce(high_precision.tensor);
    produce(fused.tensor);
    Matrix values = to_floats(values_of(high_precision.tensor.rows()), rows, cols);
    engine->run(Quantize{values.view(), apart.tensor, casting});
    EXPECT_EQ(bytes_of(fused.tensor), bytes_of(apart.tensor)) << what;
  };
  agree(GetParam().x, "add_norm", [&](QuantizedTensor& out) {
    engine->run(AddNorm{
        .norm = norm, .residual = x.view(), .sum = x.view(), .stats = stats.view(), .out = out, .casting = casting});
  });
  agree(GetParam().x, "activation", [&](QuantizedTensor& out) {
    engine->run(Activation{.kind = ActivationKind::gelu, .x = x.view(), .out = out, .casting = casting});
  });
  agree(GetParam().dy, "activation_backward", [&](QuantizedTensor& out) {
    engine->run(ActivationBackward{.kind = ActivationKind::gelu,
                                   .x = x.view(),
                                   .out_gradient = dy.view(),
                                   .in_gradient = out,
                                   .casting = casting});
  });
  Matrix gradient(rows, cols);
  agree(GetParam().dy, "add_norm_backward", [&](QuantizedTensor& out) {
    engine->run(AddNormBackward{.norm = norm,
                                .sum = x.view(),
                                .stats = stats.view(),
                                .out_gradient = dy.view(),
                                .gradient = gradient.view(),
                                .branch_gradient = &out,
                                .gradients = {gain_gradient.view()},
                                .casting = casting});
  });
}

TEST_P(Sites, StatisticsCountEachElementOnce) {
  const auto [rows, cols] = std::pair<Size, Size>{130, 33};
  Matrix x = random_matrix(rows, cols, 1);
  x(7, 7) = 25;
  for (const SiteSpec& spec : {GetParam().x, GetParam().dy}) {
    if (spec.rows.format == Format::f32) continue;  // nothing is cast, so nothing is counted
    Stored out(spec, rows, cols);
    engine->run(Quantize{x.view(), out.tensor, casting});
    EXPECT_EQ(out.site.seen.count, static_cast<std::uint64_t>(rows * cols));
    const bool rotated = spec.rows.rotation != Rotation::none;
    EXPECT_TRUE(rotated || out.site.seen.amax == 25.0F);
    EXPECT_FALSE(out.site.seen.full);
    engine->run(Quantize{x.view(), out.tensor, casting});  // a second micro-step adds up
    EXPECT_EQ(out.site.seen.count, static_cast<std::uint64_t>(2 * rows * cols));
    x(1, 1) = std::numeric_limits<float>::quiet_NaN();
    Stored bad(spec, rows, cols);
    engine->run(Quantize{x.view(), bad.tensor, casting});
    EXPECT_GE(bad.site.seen.nonfinite, 1U);
    EXPECT_LE(bad.site.seen.nonfinite, rotated ? 16U : 1U);
    x(1, 1) = 0;
  }
}

TEST_P(Sites, FullDetailDescribesTheTensor) {
  Matrix x = random_matrix(130, 33, 1, 3, 1);
  const SiteSpec& spec = GetParam().x;
  Stored out(spec, 130, 33);
  casting.detail = Detail::full;
  engine->run(Quantize{x.view(), out.tensor, casting});
  const CastStatistics& seen = out.site.seen;
  EXPECT_TRUE(seen.full);
  double sum = 0;
  double sum2 = 0;
  for (const float value : x.values) {
    sum += value;
    sum2 += static_cast<double>(value) * value;
  }
  const double n = static_cast<double>(x.values.size());
  EXPECT_NEAR(seen.mean(), sum / n, 1e-9);
  EXPECT_NEAR(seen.std(), std::sqrt(sum2 / n - sum / n * sum / n), 1e-9);
}

TEST_P(Sites, EvaluationLeavesNoTraceAndBuildsNoColumns) {
  Matrix x = random_matrix(40, 33, 1);
  casting.observe = false;
  const SiteSpec& spec = GetParam().x;
  Stored rows_only(spec, 40, 33, Copies::rows_only);
  Stored whole(spec, 40, 33, Copies::both);
  engine->run(Quantize{x.view(), rows_only.tensor, casting});
  engine->run(Quantize{x.view(), whole.tensor, casting});
  EXPECT_EQ(rows_only.site.seen.count, 0U);
  EXPECT_EQ(rows_only.memory.size(), 2U);
  EXPECT_EQ(bytes_of(rows_only.tensor.rows_matrix()), bytes_of(whole.tensor.rows_matrix()));
}

TEST_P(Sites, TheSameCallTwiceGivesTheSameBytes) {
  Matrix x = random_matrix(130, 33, 1);
  for (const SiteSpec& spec : {GetParam().x, GetParam().w, GetParam().dy}) {
    Stored first(spec, 130, 33);
    Stored second(spec, 130, 33);
    engine->run(Quantize{x.view(), first.tensor, casting});
    engine->run(Quantize{x.view(), second.tensor, casting});
    EXPECT_EQ(bytes_of(first.tensor), bytes_of(second.tensor));
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Sites, testing::ValuesIn(all_layer_specs()), recipe_name);

class KnownScales : public testing::TestWithParam<ScalePolicy> {};

TEST_P(KnownScales, AreUsedWhereKnownAndTakenFromTheTensorWhereNot) {
  const auto engine = make_cpu_engine(1);
  const SiteSpec spec = both({.format = Format::e4m3, .policy = GetParam()});
  Matrix x = random_matrix(5, 9, 1);
  x(2, 3) = 14;
  Stored out(spec, 5, 9);
  engine->run(Quantize{x.view(), out.tensor, {}});
  EXPECT_FLOAT_EQ(*out.tensor.rows_matrix().tensor_scale, 14.0F / 448) << "first step: the tensor's own amax";
  EXPECT_EQ(out.site.seen.saturated, 0U);
  EXPECT_EQ(out.site.scale, 0.0F) << "the scale book's to set";
  out.site.scale = 64;
  engine->run(Quantize{x.view(), out.tensor, {}});
  EXPECT_EQ(*out.tensor.rows_matrix().tensor_scale, 1.0F / 64);
  EXPECT_EQ(out.site.seen.saturated, 1U) << "14 · 64 is beyond 448";
}

INSTANTIATE_TEST_SUITE_P(Policies, KnownScales, testing::Values(ScalePolicy::delayed, ScalePolicy::fixed));

TEST(UncastSites, AHighPrecisionMatrixThatIsItsOwnCodesIsLeftAlone) {
  const auto engine = make_cpu_engine(1);
  Matrix x = random_matrix(5, 9, 1);
  const std::vector<float> before = x.values;
  Site site;
  float one = 1;
  QuantizedTensor tensor(site, x.view(), &one);
  engine->run(Quantize{x.view(), tensor, {}});
  EXPECT_EQ(x.values, before);
}

TEST(ColumnSums, AreThoseOfTheValuesBeforeTheCast) {
  const auto engine = make_cpu_engine(1);
  for (const LayerSpecs& specs : all_layer_specs()) {
    Matrix x = random_matrix(300, 21, 1);
    Matrix sums(1, 21, 2);
    Stored out(specs.dy, 300, 21);
    out.tensor.column_sums = sums.view();
    engine->run(Quantize{x.view(), out.tensor, {}});
    Doubles want(21, 2.0);
    for (std::size_t i = 0; i < x.values.size(); ++i) want[i % 21] += x.values[i];
    expect_close(sums.values, want, 1e-5, specs.name);
  }
}

}  // namespace
}  // namespace quaver::test
