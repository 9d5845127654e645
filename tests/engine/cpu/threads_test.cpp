// Results do not depend on the number of threads: bit for bit where each output has one sum, within rounding where
// threads share one.
#include <atomic>
#include <functional>
#include <omp.h>
#include <thread>

#include "engine/cpu/cpu_engine.h"
#include "engine/support.h"

extern "C" int openblas_get_num_threads(void);  // its header is no part of the tests

namespace quaver::test {
namespace {

template <class Result>
std::pair<Result, Result> with_one_and_two(const std::function<Result(Engine&)>& run) {
  const auto one = make_cpu_engine(1);
  const auto two = make_cpu_engine(2);
  Result first = run(*one);
  return {std::move(first), run(*two)};
}

// A library must not change how many threads the program around it has.
TEST(Threads, OfTheProcessAreLeftAlone) {
  const int openmp = omp_get_max_threads();
  const int openblas = openblas_get_num_threads();
  const auto engine = make_cpu_engine(openmp + 1);
  Matrix x = random_matrix(300, 65, 1);
  engine->run(FillZero{x.view()});
  EXPECT_EQ(omp_get_max_threads(), openmp);
  EXPECT_EQ(openblas_get_num_threads(), openblas);
}

// OpenBLAS has one number of them for all engines of a program: a GEMM for which it changed could wait forever.
TEST(Threads, AreOneNumberAsLongAsAnOperationRuns) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> programs;
  for (const int threads : {2, 3, 2, 4}) {
    programs.emplace_back([threads, &wrong] {
      for (int i = 0; i < 100; ++i) {
        const ThreadScope scope(threads);
        for (int look = 0; look < 3; ++look) {
          if (openblas_get_num_threads() != threads || omp_get_max_threads() != threads) ++wrong;
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& program : programs) program.join();
  EXPECT_EQ(wrong, 0);
}

using Bytes = std::vector<std::byte>;

TEST(Threads, CastsAreIdentical) {
  for (const LayerSpecs& specs : all_layer_specs()) {
    for (const SiteSpec& spec : {specs.x, specs.w, specs.dy}) {
      const auto [one, two] = with_one_and_two<Bytes>([&](Engine& engine) {
        Matrix x = random_matrix(300, 65, 1);
        Stored out(spec, 300, 65);
        engine.run(Quantize{x.view(), out.tensor, {.seed = 1, .step = 2}});
        return bytes_of(out.tensor);
      });
      EXPECT_EQ(one, two) << specs.name;
    }
  }
}

TEST(Threads, EmbeddingsAndTheirGradientsAreIdentical) {
  std::vector<std::int32_t> tokens(130);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * i % 7);
  const auto [one, two] = with_one_and_two<std::vector<float>>([&](Engine& engine) {
    Matrix table = random_matrix(7, 33, 1);
    Matrix out(130, 33);
    Matrix gradient(7, 33);
    engine.run(Embed{.tokens = tokens, .sequence = 65, .table = table.view(), .out = out.view()});
    engine.run(
        EmbedBackward{.tokens = tokens, .sequence = 65, .gradient = out.view(), .table_gradient = gradient.view()});
    out.values.insert(out.values.end(), gradient.values.begin(), gradient.values.end());
    return out.values;
  });
  EXPECT_EQ(one, two);
}

TEST(Threads, AttentionIsIdentical) {
  const HeadLayout layout{2, 70, 4, 2, 8};
  const auto [one, two] = with_one_and_two<std::vector<float>>([&](Engine& engine) {
    Matrix qkv = random_matrix(layout.tokens(), layout.width(), 1);
    Matrix result(layout.tokens(), 32);
    Matrix log_sum(8, 70);
    Matrix gradient(layout.tokens(), layout.width());
    engine.run(Attention{.layout = layout, .qkv = qkv.view(), .result = result.view(), .log_sum = log_sum.view()});
    engine.run(AttentionBackward{.layout = layout,
                                 .qkv = qkv.view(),
                                 .result = result.view(),
                                 .log_sum = log_sum.view(),
                                 .result_gradient = result.view(),
                                 .qkv_gradient = gradient.view()});
    result.values.insert(result.values.end(), gradient.values.begin(), gradient.values.end());
    return result.values;
  });
  EXPECT_EQ(one, two);
}

TEST(Threads, CrossEntropyLossIsIdentical) {
  std::vector<std::int32_t> targets(300);
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>(i % 11) - 1;
  const auto [one, two] = with_one_and_two<double>([&](Engine& engine) {
    Matrix x = random_matrix(300, 24, 1);
    Matrix w = random_matrix(10, 24, 2);
    Stored sx(both({.format = Format::bf16}), 300, 24);
    Stored sw(both({.format = Format::bf16}), 10, 24);
    engine.run(Quantize{x.view(), sx.tensor, {}});
    engine.run(Quantize{w.view(), sw.tensor, {}});
    const Casting casting;
    double loss = 0;
    engine.run(CrossEntropy{.x = sx.tensor, .w = sw.tensor, .targets = targets, .loss_sum = &loss, .casting = casting});
    return loss;
  });
  EXPECT_EQ(one, two);
}

TEST(Threads, GradientNormsAndUpdatesAreIdentical) {
  const auto [one, two] = with_one_and_two<std::vector<float>>([&](Engine& engine) {
    Matrix weight = random_matrix(300, 200, 1);
    Matrix gradient = random_matrix(300, 200, 2);
    FirstAdamWStep step(weight, gradient);
    const std::vector<View> gradients{gradient.view()};
    const std::vector<float> ratios{1};
    double square = 0;
    GradientMeasure measure;
    const std::vector<Size> places{0};
    engine.run(MeasureGradients{.gradients = gradients, .ratios = ratios, .measures = &measure});
    engine.run(ClipGradients{.measures = &measure,
                             .places = places,
                             .factors = &step.gradient_factor,
                             .squares = &square,
                             .summary = &step.summary});
    engine.run(step.operation(0.1F));
    weight.values.push_back(step.gradient_factor);
    weight.values.push_back(static_cast<float>(step.summary.norm));
    return weight.values;
  });
  EXPECT_EQ(one, two);
}

TEST(Threads, NormsAreIdenticalAndTheirParameterGradientsWithinRounding) {
  struct Result {
    Doubles gradient, gain, shift, sums;
  };
  const auto [one, two] = with_one_and_two<Result>([&](Engine& engine) {
    Matrix x = random_matrix(300, 33, 1);
    Matrix dy = random_matrix(300, 33, 2);
    Matrix gain(1, 33, 1);
    Matrix shift(1, 33, 0);
    Matrix stats(300, 2);
    Matrix out(300, 33);
    Matrix gain_gradient(1, 33);
    Matrix shift_gradient(1, 33);
    Matrix sums(1, 33);
    Stored forward(both({}), 300, 33);
    Stored cast(both({}), 300, 33);
    cast.tensor.column_sums = sums.view();
    const Casting casting;
    const NormParameters norm{NormKind::layer, gain.view(), shift.view()};
    engine.run(AddNorm{.norm = norm,
                       .residual = x.view(),
                       .sum = x.view(),
                       .stats = stats.view(),
                       .out = forward.tensor,
                       .casting = casting});
    engine.run(AddNormBackward{.norm = norm,
                               .sum = x.view(),
                               .stats = stats.view(),
                               .out_gradient = dy.view(),
                               .gradient = out.view(),
                               .branch_gradient = &cast.tensor,
                               .gradients = {gain_gradient.view(), shift_gradient.view()},
                               .casting = casting});
    return Result{out.doubles(), gain_gradient.doubles(), shift_gradient.doubles(), sums.doubles()};
  });
  EXPECT_EQ(one.gradient, two.gradient);
  expect_close(two.gain, one.gain, 1e-5, "gain");
  expect_close(two.shift, one.shift, 1e-5, "shift");
  expect_close(two.sums, one.sums, 1e-4, "column sums");
}

TEST(Threads, TheSameCallsTwiceGiveTheSameBits) {
  const auto run = [] {
    const auto engine = make_cpu_engine(2);
    Matrix x = random_matrix(300, 48, 1);
    Matrix w = random_matrix(40, 48, 2);
    Matrix sums(1, 48);
    Stored sx(all_layer_specs().back().dy, 300, 48);
    Stored sw(all_layer_specs().back().w, 40, 48);
    sx.tensor.column_sums = sums.view();
    engine->run(Quantize{x.view(), sx.tensor, {.seed = 1}});
    engine->run(Quantize{w.view(), sw.tensor, {.seed = 1}});
    Matrix out(300, 40);
    engine->run(Gemm{.a = sx.tensor.rows(), .b = sw.tensor.rows(), .out = out.view()});
    out.values.insert(out.values.end(), sums.values.begin(), sums.values.end());
    return out.values;
  };
  const std::vector<float> first = run();
  EXPECT_EQ(first, run());
  make_cpu_engine(1);
}

}  // namespace
}  // namespace quaver::test
