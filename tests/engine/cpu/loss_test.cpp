// Head and cross-entropy: loss and both gradients against double, ignored targets, z-loss, chunks, evaluation.
#include "engine/sizing_engine.h"
#include "engine/support.h"

namespace quaver::test {
namespace {

struct Factors {
  float logit = 1;
  float gradient = 1;
  float input = 1;
  float weight = 1;
  float z_loss = 0;
};

struct Problem {
  Problem(Size tokens_, Size vocab_, Size width_)
      : tokens(tokens_), vocab(vocab_), width(width_), targets(index(tokens_)) {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      targets[i] = static_cast<std::int32_t>(random_word({6, 0, 0}, i) % static_cast<std::uint32_t>(vocab));
    }
  }
  Size tokens;
  Size vocab;
  Size width;
  std::vector<std::int32_t> targets;
};

double reference_loss(const Problem& p, const Factors& f, const Doubles& x, const Doubles& w) {
  double loss = 0;
  const Doubles logits = product(x, w, p.tokens, p.vocab, p.width);
  for (Size t = 0; t < p.tokens; ++t) {
    if (p.targets[index(t)] < 0) continue;
    double sum = 0;
    for (Size v = 0; v < p.vocab; ++v) sum += std::exp(f.logit * logits[index(t * p.vocab + v)]);
    const double log_sum = std::log(sum);
    loss += log_sum - f.logit * logits[index(t * p.vocab + p.targets[index(t)])] + f.z_loss * log_sum * log_sum;
  }
  return loss;
}

// gradient_factor · d loss / d logits, [tokens × vocab]
Doubles reference_logit_gradient(const Problem& p, const Factors& f, const Doubles& x, const Doubles& w) {
  Doubles d = product(x, w, p.tokens, p.vocab, p.width);
  for (Size t = 0; t < p.tokens; ++t) {
    double* row = &d[index(t * p.vocab)];
    const std::int32_t target = p.targets[index(t)];
    double sum = 0;
    for (Size v = 0; v < p.vocab; ++v) sum += std::exp(f.logit * row[v]);
    const double by_log_sum = 1 + 2 * f.z_loss * std::log(sum);
    for (Size v = 0; v < p.vocab; ++v) {
      const double softmax = std::exp(f.logit * row[v]) / sum;
      row[v] = target < 0 ? 0.0 : f.gradient * (by_log_sum * softmax - (v == target ? 1.0 : 0.0));
    }
  }
  return d;
}

struct Outcome {
  double loss = 0.5;  // added to
  Matrix x_gradient;
  Matrix weight_gradient;
};

const Casting casting{.seed = 1};
constexpr float initial = 0.25F;  // of the weight's gradient, which accumulates

struct HeadOperands {
  const QuantizedTensor& x;
  const QuantizedTensor& w;
};

Outcome compute(Engine& engine, const Problem& p, const Factors& f, HeadOperands operands, Site* gradient_site,
                const Accumulators& accumulators = {}) {
  Outcome outcome{.x_gradient = Matrix(p.tokens, p.width, 99), .weight_gradient = Matrix(p.vocab, p.width, initial)};
  const bool train = gradient_site != nullptr;
  std::vector<double> rows(index(p.tokens), 99);
  engine.run(CrossEntropy{.x = operands.x,
                          .w = operands.w,
                          .logits_gradient = gradient_site,
                          .targets = p.targets,
                          .logit_factor = f.logit,
                          .gradient_factor = f.gradient,
                          .input_factor = f.input,
                          .weight_factor = f.weight,
                          .z_loss = f.z_loss,
                          .loss_sum = &outcome.loss,
                          .row_losses = rows.data(),
                          .x_gradient = train ? outcome.x_gradient.view() : View{},
                          .weight_gradient = train ? outcome.weight_gradient.view() : View{},
                          .accumulators = accumulators,
                          .casting = casting});
  double sum = 0.5;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (p.targets[i] < 0) EXPECT_EQ(rows[i], 0);
    sum += rows[i];
  }
  EXPECT_DOUBLE_EQ(outcome.loss, sum) << "of the rows' losses";
  return outcome;
}

struct Expected {
  Doubles x_gradient;
  Doubles weight_gradient;
};

Expected expected_gradients(const Problem& p, const Factors& f, const Doubles& x, const Doubles& w) {
  const Doubles d = reference_logit_gradient(p, f, x, w);
  Expected want{Doubles(x.size(), 0.0), Doubles(w.size(), initial)};
  for (Size t = 0; t < p.tokens; ++t) {
    for (Size v = 0; v < p.vocab; ++v) {
      for (Size i = 0; i < p.width; ++i) {
        const double slope_here = d[index(t * p.vocab + v)];
        want.x_gradient[index(t * p.width + i)] += f.input * slope_here * w[index(v * p.width + i)];
        want.weight_gradient[index(v * p.width + i)] += f.weight * slope_here * x[index(t * p.width + i)];
      }
    }
  }
  return want;
}

class CrossEntropyTest : public testing::Test {
 protected:
  void check(const Problem& p, const Factors& f, const SiteSpec& x_spec, const SiteSpec& w_spec,
             const SiteSpec& gradient_spec, double tolerance) {
    Matrix x = random_matrix(p.tokens, p.width, 1);
    Matrix w = random_matrix(p.vocab, p.width, 2);
    Stored sx(x_spec, p.tokens, p.width);
    Stored sw(w_spec, p.vocab, p.width);
    engine->run(Quantize{x.view(), sx.tensor, casting});
    engine->run(Quantize{w.view(), sw.tensor, casting});
    Site gradient_site;
    gradient_site.spec = gradient_spec;
    const Outcome got = compute(*engine, p, f, {sx.tensor, sw.tensor}, &gradient_site);
    const Doubles dx = values_of(sx.tensor.rows());
    const Doubles dw = values_of(sw.tensor.rows());
    const double loss = reference_loss(p, f, dx, dw);
    EXPECT_NEAR(got.loss - 0.5, loss, 1e-6 * std::abs(loss) + 1e-6);
    const Expected want = expected_gradients(p, f, dx, dw);
    EXPECT_LT(relative_error(got.x_gradient.values, want.x_gradient), tolerance);
    EXPECT_LT(relative_error(got.weight_gradient.values, want.weight_gradient), tolerance);
  }
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
};

TEST_F(CrossEntropyTest, LossAndGradientsAgreeWithTheFormulas) {
  const Factors plain;
  const Factors scaled{.logit = 0.5F, .gradient = 3, .input = 0.7F, .weight = 1.3F};
  for (const auto& [t, v, d] : {std::array<Size, 3>{1, 16, 8}, {3, 5, 7}, {130, 33, 5}, {4, 1, 3}}) {
    for (const Factors& f : {plain, scaled}) check(Problem(t, v, d), f, both({}), both({}), both({}), 2e-6);
  }
}

TEST_F(CrossEntropyTest, IgnoredTargetsCostNothingAndHaveNoGradient) {
  Problem p(9, 7, 4);
  for (const std::size_t i : {0, 3, 8}) p.targets[i] = -1;
  check(p, {}, both({}), both({}), both({}), 2e-6);
  std::fill(p.targets.begin(), p.targets.end(), -100);
  Stored x(both({}), 9, 4);
  Stored w(both({}), 7, 4);
  Matrix values = random_matrix(9, 4, 1);
  engine->run(Quantize{values.view(), x.tensor, casting});
  engine->run(Quantize{values.view().row_range(0, 7), w.tensor, casting});
  Site site;
  const Outcome got = compute(*engine, p, {}, {x.tensor, w.tensor}, &site);
  EXPECT_EQ(got.loss, 0.5);
  for (const float g : got.x_gradient.values) EXPECT_EQ(g, 0);
  for (const float g : got.weight_gradient.values) EXPECT_EQ(g, initial);
}

// With every factor 1 the engine's gradients are the derivatives of the loss it reports, z-loss included.
TEST_F(CrossEntropyTest, GradientsAreTheDerivativeOfTheLossWithZLoss) {
  Problem p(5, 6, 3);
  p.targets[2] = -1;
  for (const float z : {0.0F, 0.1F, 2.0F}) {
    const Factors f{.z_loss = z};
    Matrix x = random_matrix(5, 3, 1);
    Matrix w = random_matrix(6, 3, 2);
    Stored sx(both({}), 5, 3);
    Stored sw(both({}), 6, 3);
    engine->run(Quantize{x.view(), sx.tensor, casting});
    engine->run(Quantize{w.view(), sw.tensor, casting});
    Site site;
    const Outcome got = compute(*engine, p, f, {sx.tensor, sw.tensor}, &site);
    EXPECT_NEAR(got.loss - 0.5, reference_loss(p, f, x.doubles(), w.doubles()), 1e-5);
    const Doubles by_x =
        gradient([&](const Doubles& values) { return reference_loss(p, f, values, w.doubles()); }, x.doubles());
    Doubles by_w =
        gradient([&](const Doubles& values) { return reference_loss(p, f, x.doubles(), values); }, w.doubles());
    for (double& value : by_w) value += initial;
    expect_close(got.x_gradient.values, by_x, 3e-6, "x");
    expect_close(got.weight_gradient.values, by_w, 3e-6, "weight");
  }
}

TEST_F(CrossEntropyTest, ManyRowsAreDoneInChunksWithoutATrace) {
  const SiteSpec bf16 = both({.format = Format::bf16});
  check(Problem(2300, 5, 3), {.gradient = 0.01F}, both({}), both({}), both({}), 3e-6);
  check(Problem(1025, 4, 6), {}, bf16, bf16, bf16, 6e-3);
}

TEST_F(CrossEntropyTest, EveryKindOfSiteGivesCloseGradients) {
  for (const LayerSpecs& specs : all_layer_specs()) {
    SCOPED_TRACE(specs.name);
    check(Problem(1100, 32, 16), {}, specs.x, specs.w, specs.dy, specs.error + 1e-5);
  }
}

TEST_F(CrossEntropyTest, LossOnlyTouchesNoGradient) {
  const Problem p(6, 5, 4);
  Matrix x = random_matrix(6, 4, 1);
  Matrix w = random_matrix(5, 4, 2);
  for (const Copies copies : {Copies::rows_only, Copies::both}) {
    Stored sx(both({}), 6, 4, copies);
    Stored sw(both({}), 5, 4, copies);
    engine->run(Quantize{x.view(), sx.tensor, casting});
    engine->run(Quantize{w.view(), sw.tensor, casting});
    const Outcome got = compute(*engine, p, {}, {sx.tensor, sw.tensor}, nullptr);
    EXPECT_NEAR(got.loss - 0.5, reference_loss(p, {}, x.doubles(), w.doubles()), 1e-5);
    for (const float g : got.x_gradient.values) EXPECT_EQ(g, 99);
    for (const float g : got.weight_gradient.values) EXPECT_EQ(g, initial);
  }
}

// Row t of x is the t-th unit vector, so that its logits are the t-th column of w.
TEST_F(CrossEntropyTest, CountsTheRowsWhoseTargetHasTheLargestLogit) {
  Matrix x(4, 4, 0);
  for (std::size_t t = 0; t < 4; ++t) x.values[4 * t + t] = 1;
  Matrix w(3, 4, 0);
  w.values = {1, 5, -1, 3,   //
              2, 5, -1, 4,   //
              0, 6, -1, 2};  // largest: the second, the third, the first of equal ones, the second
  Stored sx(both({}), 4, 4);
  Stored sw(both({}), 3, 4);
  engine->run(Quantize{x.view(), sx.tensor, casting});
  engine->run(Quantize{w.view(), sw.tensor, casting});
  const auto counted = [&](std::vector<std::int32_t> targets) {
    double loss = 0;
    std::uint64_t correct = 10;  // added to
    engine->run(CrossEntropy{.x = sx.tensor,
                             .w = sw.tensor,
                             .targets = targets,
                             .loss_sum = &loss,
                             .correct = &correct,
                             .casting = casting});
    return correct - 10;
  };
  EXPECT_EQ(counted({1, 2, 0, 1}), 4U);
  EXPECT_EQ(counted({1, 2, 1, 1}), 3U) << "as large as the first, but not the first";
  EXPECT_EQ(counted({0, 0, 2, 0}), 0U);
  EXPECT_EQ(counted({1, -1, -1, 0}), 1U) << "ignored rows are not counted";
}

// Equal logits and equal rows of w: what the target takes away from the input's gradient, all others together give
// back. One by one they are too small for a short sum that holds the target's already.
TEST_F(CrossEntropyTest, ShortSumsLoseTheSoftmaxBesideTheTarget) {
  Problem p(1, 16384, 4);
  p.targets[0] = 0;
  Matrix x(1, 4, 0);
  Matrix w(p.vocab, 4, 1);
  Stored sx(both({.format = Format::e4m3}), 1, 4);
  Stored sw(both({.format = Format::e4m3}), p.vocab, 4);
  engine->run(Quantize{x.view(), sx.tensor, casting});
  engine->run(Quantize{w.view(), sw.tensor, casting});
  Site site;
  site.spec = both({.format = Format::e5m2});
  const auto gradient_with = [&](const Accumulators& accumulators) {
    return compute(*engine, p, {}, {sx.tensor, sw.tensor}, &site, accumulators).x_gradient(0, 0);
  };
  EXPECT_NEAR(gradient_with({}), 0, 1e-3);
  EXPECT_NEAR(gradient_with({.head_dgrad = Accumulator::hopper_split}), 0, 0.01);
  EXPECT_EQ(gradient_with({.head_dgrad = Accumulator::hopper}), -1);
  // Those of other layers' input gradients are not the head's.
  EXPECT_EQ(gradient_with({.dgrad = Accumulator::hopper}), gradient_with({}));
}

TEST(AccumulatorsTest, AGpuPromotesTheHeadsInputGradient) {
  const Accumulators accumulators = make_cuda_sizing(90, Format::bf16)->accumulators();
  EXPECT_EQ(accumulators.fprop, Accumulator::hopper);
  EXPECT_EQ(accumulators.dgrad, Accumulator::hopper);
  EXPECT_EQ(accumulators.head_dgrad, Accumulator::fp32);
  EXPECT_EQ(accumulators.wgrad, Accumulator::fp32);
}

TEST_F(CrossEntropyTest, HugeLogitsStayFinite) {
  const Problem p(4, 8, 2);
  Matrix x = random_matrix(4, 2, 1, 1000);
  Matrix w = random_matrix(8, 2, 2);
  Stored sx(both({}), 4, 2);
  Stored sw(both({}), 8, 2);
  engine->run(Quantize{x.view(), sx.tensor, casting});
  engine->run(Quantize{w.view(), sw.tensor, casting});
  Site site;
  const Outcome got = compute(*engine, p, {}, {sx.tensor, sw.tensor}, &site);
  EXPECT_TRUE(std::isfinite(got.loss));
  for (const float g : got.x_gradient.values) EXPECT_TRUE(std::isfinite(g));
}

}  // namespace
}  // namespace quaver::test
