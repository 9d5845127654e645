// The head with its loss: the loss itself, both gradients, ignored targets, z-loss, scales on the device.
#include "gpu/compare.h"
#include "gpu/specs.h"

namespace quaver::test {
namespace {

const Casting casting{.seed = 5, .step = 3};

struct Problem {
  Size tokens;
  Size vocab;
  Size width;
};
constexpr Problem problems[] = {{1, 1, 1}, {3, 5, 7}, {17, 33, 24}, {130, 257, 48}, {64, 1000, 128}, {128, 512, 256}};

std::string text_of(const Problem& problem) {
  return std::to_string(problem.tokens) + " tokens of " + std::to_string(problem.vocab) + ", width " +
         std::to_string(problem.width);
}

struct Factors {
  float logit = 1;
  float gradient = 1;
  float scale = 0;  // on the device; 0: none given
  float input = 1;
  float weight = 1;
  float z_loss = 0;
  int ignore_every = 0;  // every how many-th target is ignored; 0: none
};

class LossTest : public HighPrecisionTest {
 protected:
  Pair& pair() { return in_chunks_ ? *in_chunks_ : HighPrecisionTest::pair(); }

  // From here on the GPU has room for no more than 128 rows of logits.
  void compare_in_chunks(Size vocab) {
    in_chunks_ = std::make_unique<Pair>();
    in_chunks_->high_precision = GetParam();
    in_chunks_->cpu = make_reference_engine();
    in_chunks_->gpu = make_tested_engine(
        CudaOptions{.high_precision = GetParam(), .logits_limit = 128 * vocab * info(GetParam()).storage_bits / 8});
  }

  std::vector<std::int32_t> targets_of(const Problem& problem, const Factors& factors) const {
    std::vector<std::int32_t> targets(index(problem.tokens));
    for (std::size_t i = 0; i < targets.size(); ++i) {
      targets[i] = static_cast<std::int32_t>(random_word({6, 0, 0}, i) % static_cast<std::uint32_t>(problem.vocab));
      if (factors.ignore_every > 0 && i % static_cast<std::size_t>(factors.ignore_every) == 0) targets[i] = -100;
    }
    return targets;
  }

  void compare(const std::string& name, const Recipe& recipe, const Problem& problem, const Factors& f, bool train,
               double limit) {
    const std::string what = "cross_entropy " + name + ", " + text_of(problem);
    // Logits of about 1, as at the start of a training run: BF16 keeps them to 2^-9.
    const float weight_std = 1 / std::sqrt(static_cast<float>(problem.width));
    Twin x(pair(), normal_matrix(problem.tokens, problem.width, 1));
    Twin w(pair(), normal_matrix(problem.vocab, problem.width, 2, weight_std), Kept::f32);
    TwinTensor tx(pair(), recipe.x, problem.tokens, problem.width, Copies::both, {16, "head/x"});
    TwinTensor tw(pair(), recipe.w, problem.vocab, problem.width, Copies::both, {64, "head/w"});
    TwinTensor tdy(pair(), recipe.dy, 1, 1, Copies::both, {64, "head/dy"});
    store(pair(), x, tx, casting);
    store(pair(), w, tw, casting);
    Cells<std::int32_t> targets(pair(), targets_of(problem, f));
    Cells<float> scale(pair(), {f.scale});
    Cells<double> loss(pair(), {0.5});
    Cells<double> rows(pair(), std::vector<double>(index(problem.tokens), 99));
    Twin x_gradient(pair(), problem.tokens, problem.width, 99);
    Twin w_gradient(pair(), problem.vocab, problem.width, 0.25F, Kept::f32);
    pair().run([&](On on) {
      return CrossEntropy{.x = tx.on(on),
                          .w = tw.on(on),
                          .logits_gradient = train ? &tdy.site(on) : nullptr,
                          .targets = targets.span(on),
                          .logit_factor = f.logit,
                          .gradient_factor = f.gradient,
                          .gradient_scale = f.scale != 0 ? scale.on(on) : nullptr,
                          .input_factor = f.input,
                          .weight_factor = f.weight,
                          .z_loss = f.z_loss,
                          .loss_sum = loss.on(on),
                          .row_losses = train ? nullptr : rows.on(on),
                          .x_gradient = train ? x_gradient.on(on) : View{},
                          .weight_gradient = train ? w_gradient.on(on) : View{},
                          .casting = casting};
    });
    // Errors of the logits average out over the tokens, and one token's logits are within 2^-9 of some units.
    const double loss_bound = rounding_bound(GetParam(), bound::f32_gemm);
    expect_near(what + ", loss", loss.from_cpu()[0], loss.from_gpu()[0], loss_bound);
    if (!train) {
      double sum = 0.5;
      for (const double row : rows.from_gpu()) sum += row;
      expect_near(what + ", sum of the rows' losses", loss.from_gpu()[0], sum, 1e-9);
    }
    const double typical = static_cast<double>(f.gradient * (f.scale != 0 ? f.scale : 1)) * 0.1;
    expect_near(what + ", x gradient", x_gradient, limit, typical * static_cast<double>(f.input));
    expect_near(what + ", weight gradient", w_gradient, limit, typical * static_cast<double>(f.weight));
  }

  // All operands in the engine's own format.
  Recipe own_recipe() const {
    Recipe recipe = all_in(GetParam());
    recipe.name = info(GetParam()).name;
    return recipe;
  }

  // dlogits that are cast may land on the next code: see expect_close.
  double limit_of(const Recipe& recipe) const {
    if (recipe.dy.rows.format == Format::e2m1) return exact() ? 3e-2 : 0.12;
    if (is_low_precision(recipe.dy.rows.format)) return exact() ? 1e-2 : 5e-2;
    return rounding_bound(GetParam(), recipe.dy.rows.format == Format::f32 ? bound::f32_gemm : 2e-3);
  }

 private:
  std::unique_ptr<Pair> in_chunks_;
};

constexpr Factors plain{};
constexpr Factors scaled{
    .logit = 0.5F, .gradient = 3, .scale = 0.25F, .input = 0.7F, .weight = 1.3F, .z_loss = 0.1F, .ignore_every = 3};

TEST_P(LossTest, WithGradients) {
  const Recipe recipe = own_recipe();
  for (const Problem& problem : problems) {
    compare(recipe.name, recipe, problem, plain, true, limit_of(recipe));
    compare(recipe.name + " scaled", recipe, problem, scaled, true, limit_of(recipe));
  }
}

TEST_P(LossTest, WithoutGradients) {
  for (const NamedRecipe& named : every_recipe()) {
    compare(named.name + " loss only", named.recipe, problems[3], scaled, false, 0);
    compare(named.name + " loss only", named.recipe, problems[4], plain, false, 0);
  }
}

TEST_P(LossTest, EveryRecipe) {
  for (const NamedRecipe& named : every_recipe()) {
    for (const Problem& problem : {problems[2], problems[3], problems[5]}) {
      compare(named.name, named.recipe, problem, scaled, true, limit_of(named.recipe));
    }
  }
}

// GPT-2's vocabulary, whose GEMMs are cut, and a small one, whose are not; widths that are padded.
TEST_P(LossTest, OddVocabularies) {
  for (const char* name : {"fp32", "bf16", "fp16", "fp8-current", "fp8-block", "mxfp8"}) {
    const Recipe recipe = make_recipe(name, {});
    compare(name, recipe, {48, 97, 40}, scaled, true, limit_of(recipe));
    if (!is_brief()) compare(name, recipe, {100, 50257, 40}, scaled, true, limit_of(recipe));
  }
}

// Recipes whose scales do not depend on how many rows are cast at once. The last chunk is shorter, and not as tensor
// cores want it.
TEST_P(LossTest, InChunks) {
  const Problem problem{300, 512, 256};
  compare_in_chunks(problem.vocab);
  for (const NamedRecipe& named : every_recipe()) {
    const QuantSpec& dy = named.recipe.dy.columns;
    if (dy.policy == ScalePolicy::current && dy.block != block::b1x128) continue;
    compare(named.name + " in chunks", named.recipe, problem, scaled, true, limit_of(named.recipe));
  }
}

TEST_P(LossTest, NothingButIgnoredTargets) {
  const Recipe recipe = own_recipe();
  const Factors ignored{.ignore_every = 1};
  compare("all ignored", recipe, problems[2], ignored, true, limit_of(recipe));
}

// Whole numbers below 256, which BF16 holds exactly, with many logits alike.
TEST_P(LossTest, CountsTheRowsWhoseTargetHasTheLargestLogit) {
  const Recipe recipe = own_recipe();
  for (const Problem& problem : {Problem{300, 10, 32}, Problem{300, 2000, 32}}) {
    Matrix one_hot(problem.tokens, problem.width, 0);
    Matrix small(problem.vocab, problem.width, 0);
    for (Size t = 0; t < problem.tokens; ++t) one_hot.values[index(t * problem.width + t % problem.width)] = 1;
    for (std::size_t i = 0; i < small.values.size(); ++i) {
      const auto different = static_cast<std::uint32_t>(std::min<Size>(problem.vocab / 2, 256));
      small.values[i] = static_cast<float>(random_word({8, 0, 0}, i) % different);
    }
    Twin x(pair(), one_hot);
    Twin w(pair(), small, Kept::f32);
    TwinTensor tx(pair(), recipe.x, problem.tokens, problem.width, Copies::both, {0, "head/x"});
    TwinTensor tw(pair(), recipe.w, problem.vocab, problem.width, Copies::both, {0, "head/w"});
    store(pair(), x, tx);
    store(pair(), w, tw);
    std::vector<std::int32_t> likeliest = targets_of(problem, {.ignore_every = 3});
    for (std::size_t t = 0; t < likeliest.size(); t += 4) {  // the first of the largest, or the one behind it
      const Size column = static_cast<Size>(t) % problem.width;
      Size best = 0;
      for (Size v = 1; v < problem.vocab; ++v) {
        if (small.values[index(v * problem.width + column)] > small.values[index(best * problem.width + column)])
          best = v;
      }
      likeliest[t] = static_cast<std::int32_t>(t % 8 == 0 ? best : (best + 1) % problem.vocab);
    }
    Cells<std::int32_t> targets(pair(), likeliest);
    Cells<double> loss(pair(), {0});
    Cells<std::uint64_t> correct(pair(), {5});
    pair().run([&](On on) {
      return CrossEntropy{.x = tx.on(on),
                          .w = tw.on(on),
                          .targets = targets.span(on),
                          .loss_sum = loss.on(on),
                          .correct = correct.on(on),
                          .casting = casting};
    });
    EXPECT_EQ(correct.from_gpu()[0], correct.from_cpu()[0]) << text_of(problem);
    EXPECT_GE(correct.from_cpu()[0], 5U + 38U);
  }
}

TEST_P(LossTest, HugeLogitsStayFinite) {
  const Recipe recipe = own_recipe();
  // Logits beyond exp's range; what FP16 cannot hold is another matter, and becomes infinite.
  const Factors huge{.logit = GetParam() == Format::f16 ? 1000.0F : 3000.0F};
  Twin x(pair(), normal_matrix(32, 16, 1));
  TwinTensor tx(pair(), recipe.x, 32, 16, Copies::both, {0, "head/x"});
  TwinTensor tdy(pair(), recipe.dy, 1, 1, Copies::both, {0, "head/dy"});
  store(pair(), x, tx);
  Cells<std::int32_t> targets(pair(), std::vector<std::int32_t>(32, 1));
  Cells<double> loss(pair(), {0});
  Twin x_gradient(pair(), 32, 16, 99);
  Twin w_gradient(pair(), 32, 16, 0, Kept::f32);
  pair().gpu->run(CrossEntropy{.x = tx.gpu(),
                               .w = tx.gpu(),
                               .logits_gradient = &tdy.site(On::gpu),
                               .targets = targets.span(On::gpu),
                               .logit_factor = huge.logit,
                               .loss_sum = loss.gpu(),
                               .x_gradient = x_gradient.gpu(),
                               .weight_gradient = w_gradient.gpu(),
                               .casting = casting});
  EXPECT_TRUE(std::isfinite(loss.from_gpu()[0]));
  for (const float value : x_gradient.from_gpu().values) EXPECT_TRUE(std::isfinite(value));
}

QUAVER_HIGH_PRECISION_FORMATS(LossTest);

}  // namespace
}  // namespace quaver::test
