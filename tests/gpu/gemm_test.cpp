// Products of everything recipes multiply: the three of a linear layer, odd sizes, bias, accumulation, both outputs.
#include "gpu/compare.h"
#include "gpu/specs.h"
#include "support/variable.h"

namespace quaver::test {
namespace {

const Casting casting{.seed = 9, .step = 4};

struct LayerSize {
  Size tokens;
  Size in;
  Size out;
};
const std::vector<LayerSize> layer_sizes{
    {1, 16, 8},      {1, 256, 64},   {3, 5, 7},      {130, 48, 33}, {17, 33, 129},   {64, 128, 96},  {48, 896, 160},
    {128, 256, 512}, {256, 512, 64}, {257, 130, 66}, {1, 1, 1},     {130, 1000, 24}, {37, 40, 1000}, {77, 1001, 104}};

class MatmulTest : public HighPrecisionTest {
 protected:
  virtual Pair& pair() { return pair_of(GetParam()); }

  // FP8 operands that both lie in memory as tensor cores want them are added with fewer bits.
  double limit_of(const QuantSpec& a, const QuantSpec& b, Format out) const {
    if (out == Format::bf16) return bound::bf16;
    const double own = is_fp8(a.format) && is_fp8(b.format) ? bound::fp8_gemm : bound::f32_gemm;
    return out == Format::f16 ? own + bound::f16 : own;
  }

  struct Options {
    float alpha = 1;
    bool bias = false;
    bool accumulate = false;
    Kept out = Kept::high_precision;
  };

  void compare(const std::string& what, const Operand& cpu_a, const Operand& cpu_b, const Operand& gpu_a,
               const Operand& gpu_b, const Options& options) {
    const Size m = cpu_a.extent();
    const Size n = cpu_b.extent();
    Twin out(pair(), options.accumulate ? normal_matrix(m, n, 11) : Matrix(m, n, 99), options.out);
    Twin bias(pair(), normal_matrix(1, n, 12), Kept::f32);
    pair().run([&](On on) {
      return Gemm{.a = on == On::cpu ? cpu_a : gpu_a,
                  .b = on == On::cpu ? cpu_b : gpu_b,
                  .out = out.on(on),
                  .bias = options.bias ? bias.on(on) : View{},
                  .alpha = options.alpha,
                  .accumulate = options.accumulate};
    });
    const double typical = 0.5 * std::sqrt(static_cast<double>(cpu_a.reduction()));  // of a sum of that many products
    expect_near(what, out, limit_of(cpu_a.matrix.spec, cpu_b.matrix.spec, out.gpu().format), typical);
  }

  void compare_layer(const NamedRecipe& named, const LayerSize& size) {
    const Recipe& recipe = named.recipe;
    const std::string where = named.name + " " + std::to_string(size.tokens) + " × " + std::to_string(size.in) + " → " +
                              std::to_string(size.out);
    Twin x(pair(), normal_matrix(size.tokens, size.in, 1));
    Twin w(pair(), normal_matrix(size.out, size.in, 2), Kept::f32);
    Twin dy(pair(), normal_matrix(size.tokens, size.out, 3));
    TwinTensor tx(pair(), recipe.x, size.tokens, size.in, Copies::both, {8, "layer/x"});
    TwinTensor tw(pair(), recipe.w, size.out, size.in, Copies::both, {8, "layer/w"});
    TwinTensor tdy(pair(), recipe.dy, size.tokens, size.out, Copies::both, {8, "layer/dy"});
    store(pair(), x, tx, casting);
    store(pair(), w, tw, casting);
    store(pair(), dy, tdy, casting);
    const auto forward = [&](const char* what, const Options& options) {
      compare(where + what, tx.cpu().rows(), tw.cpu().rows(), tx.gpu().rows(), tw.gpu().rows(), options);
    };
    forward(", forward", {});
    forward(", forward with bias", {.alpha = 0.7F, .bias = true});
    forward(", forward into FP32", {.alpha = 0.7F, .out = Kept::f32});
    forward(", forward with bias into FP32", {.bias = true, .out = Kept::f32});
    forward(", forward added", {.alpha = 0.5F, .accumulate = true});
    compare(where + ", input gradient", tdy.cpu().rows(), tw.cpu().columns(), tdy.gpu().rows(), tw.gpu().columns(),
            {.alpha = 1.3F});
    const auto weights = [&](const char* what, const Options& options) {
      compare(where + what, tdy.cpu().columns(), tx.cpu().columns(), tdy.gpu().columns(), tx.gpu().columns(), options);
    };
    weights(", weight gradient", {.alpha = 0.7F, .accumulate = true, .out = Kept::f32});
    weights(", weight gradient alone", {.out = Kept::f32});
  }
};

TEST_P(MatmulTest, TheThreeProductsOfEveryRecipe) {
  for (const NamedRecipe& named : every_recipe()) {
    for (const LayerSize& size : some_of(layer_sizes)) compare_layer(named, size);
  }
}

// A high-precision matrix that is its own tensor, read along either dimension.
TEST_P(MatmulTest, HighPrecisionMatricesAsTheyLie) {
  const Format format = pair().gpu->high_precision();
  const SiteSpec spec = both({.format = format});
  Cells<float> one(pair(), {1});
  for (const LayerSize& size : some_of(layer_sizes)) {
    Twin a(pair(), normal_matrix(size.tokens, size.in, 1));
    Twin b(pair(), normal_matrix(size.tokens, size.out, 2));
    Site site;
    site.spec = spec;
    Site cpu_site;
    const QuantizedTensor gpu_a(site, a.gpu(), one.gpu());
    const QuantizedTensor gpu_b(site, b.gpu(), one.gpu());
    const QuantizedTensor cpu_a(cpu_site, a.cpu(), one.cpu());
    const QuantizedTensor cpu_b(cpu_site, b.cpu(), one.cpu());
    compare("high-precision aᵀ·b, " + std::to_string(size.tokens), cpu_a.columns(), cpu_b.columns(), gpu_a.columns(),
            gpu_b.columns(), {.out = Kept::f32});
    compare("high-precision a·aᵀ, " + std::to_string(size.tokens), cpu_a.rows(), cpu_a.rows(), gpu_a.rows(),
            gpu_a.rows(), {});
  }
}

// Values over many binades, so that most products lose bits beside the largest.
Matrix uneven_matrix(Size rows, Size cols, std::uint32_t stream) {
  Matrix matrix = normal_matrix(rows, cols, stream);
  for (std::size_t i = 0; i < matrix.values.size(); ++i)
    matrix.values[i] *= std::ldexp(1.0F, -static_cast<int>(i % 11));
  return matrix;
}

// On Hopper the CPU's model and the tensor cores agree bit for bit; other GPUs sum in other ways. Scales are powers of
// two, for cuBLASLt may multiply by them in another order, and the reduction is short, for it may cut a long one
// into parts.
TEST_P(MatmulTest, HoppersAccumulators) {
  PrecisionConfig options;
  options.power_of_two_scales = true;
  const Recipe recipe = make_recipe("fp8-current", options);
  const Size rows = 1024;
  const Size reduction = 288;
  Twin w(pair(), uneven_matrix(rows, reduction, 2), Kept::f32);
  TwinTensor tw(pair(), recipe.w, rows, reduction);
  store(pair(), w, tw);
  const double limit = pair().gpu->device().hardware().architecture == 90 ? 0 : 2 * bound::fp8_gemm;
  for (const SiteSpec& left : {recipe.x, recipe.dy}) {
    Twin x(pair(), uneven_matrix(rows, reduction, 1));
    TwinTensor tx(pair(), left, rows, reduction);
    store(pair(), x, tx);
    const auto compare_sums = [&](const std::string& what, Accumulator on_cpu, Accumulator on_gpu) {
      Twin out(pair(), rows, rows, 0, Kept::f32);
      pair().run([&](On on) {
        return Gemm{.a = tx.on(on).rows(),
                    .b = tw.on(on).rows(),
                    .out = out.on(on),
                    .accumulator = on == On::cpu ? on_cpu : on_gpu};
      });
      expect_near(describe(left.rows) + ", " + what, out, limit);
    };
    compare_sums("short sums", Accumulator::hopper, Accumulator::hopper);
    compare_sums("promoted sums", Accumulator::hopper_split, Accumulator::hopper_split);
    compare_sums("sums in FP32", Accumulator::hopper_split, Accumulator::fp32);
  }
}

// The same result in rows that lie further apart than they are long, in sizes just behind a multiple of eight.
TEST_P(MatmulTest, SizesThatAreCut) {
  if (is_rehearsal()) GTEST_SKIP() << "the CPU engine has no strides";
  const Size tokens = 136;
  const Size in = 1000;
  const Size out = 1009;
  const Size stride = 1016;
  for (const char* name : {"bf16", "fp16", "fp8-current", "fp8-row", "fp8-block"}) {
    const Recipe recipe = make_recipe(name, {});
    Twin x(pair(), normal_matrix(tokens, in, 1));
    Twin w(pair(), normal_matrix(out, in, 2), Kept::f32);
    TwinTensor tx(pair(), recipe.x, tokens, in);
    TwinTensor tw(pair(), recipe.w, out, in);
    store(pair(), x, tx, casting);
    store(pair(), w, tw, casting);
    Twin close(pair(), tokens, out, 99);
    Twin apart(pair(), tokens, stride, 99);
    pair().cpu->run(Gemm{.a = tx.cpu().rows(), .b = tw.cpu().rows(), .out = close.cpu()});
    View strided = apart.gpu();
    strided.cols = out;
    strided.stride = stride;
    pair().gpu->run(Gemm{.a = tx.gpu().rows(), .b = tw.gpu().rows(), .out = strided});
    const Matrix all = apart.from_gpu();
    Matrix inside(tokens, out);
    for (Size r = 0; r < tokens; ++r) {
      std::copy_n(all.values.begin() + r * stride, out, inside.values.begin() + r * out);
    }
    const double limit = limit_of(recipe.x.rows, recipe.w.rows, apart.gpu().format);
    expect_near(std::string(name) + ", cut", close.from_cpu(), inside, limit, 0.5 * std::sqrt(1000.0));
    EXPECT_TRUE(apart.margins_are_intact()) << name << ": written beyond the matrix";
  }
}

QUAVER_HIGH_PRECISION_FORMATS(MatmulTest);

// Our own blockwise kernel, also for shapes that cuBLASLt would get.
class BlockwiseMatmulTest : public MatmulTest {
 protected:
  void SetUp() override {
    MatmulTest::SetUp();
    if (IsSkipped()) return;
    const Variable wish("QUAVER_BLOCK_GEMM", "own");
    own_ = {.high_precision = GetParam(), .cpu = make_reference_engine(), .gpu = make_tested_engine(GetParam())};
  }
  Pair& pair() override { return own_; }

 private:
  Pair own_;
};

// Whole tiles and parts of them; reductions that end within a slice of 128; wgrad whose reduction is split: all tiles
// into parts of one length, into long and short ones, and only those that are left over.
TEST_P(BlockwiseMatmulTest, TheThreeProductsOfALayer) {
  const std::vector<LayerSize> sizes{{16, 16, 16},      {128, 128, 256},  {256, 512, 256},   {272, 400, 144},
                                     {528, 1040, 304},  {2064, 256, 272}, {4096, 512, 1536}, {272, 1000, 40},
                                     {77, 40, 1000},    {130, 1001, 504}, {2064, 136, 1000}, {8208, 1040, 264},
                                     {2064, 136, 16912}};
  PrecisionConfig powers;
  powers.power_of_two_scales = true;
  for (const LayerSize& size : some_of(sizes)) {
    compare_layer({"fp8-block", make_recipe("fp8-block", {})}, size);
    compare_layer({"fp8-block with powers of two", make_recipe("fp8-block", powers)}, size);
    compare_layer({"fp8-block-2d", block_2d_recipe()}, size);
  }
}

TEST_P(BlockwiseMatmulTest, TheSameInputGivesTheSameBits) {
  const Recipe recipe = make_recipe("fp8-block", {});
  const Size tokens = is_brief() ? 256 : 16384;
  const Size width = 528;
  Twin x(pair(), normal_matrix(tokens, width, 1));
  Twin w(pair(), normal_matrix(width, width, 2), Kept::f32);
  TwinTensor tx(pair(), recipe.x, tokens, width, Copies::both, {8, "layer/x"});
  TwinTensor tw(pair(), recipe.w, width, width, Copies::both, {8, "layer/w"});
  store(pair(), x, tx, casting);
  store(pair(), w, tw, casting);
  const auto product = [&] {
    Twin out(pair(), tokens, width, 99);
    pair().gpu->run(Gemm{.a = tx.gpu().rows(), .b = tw.gpu().rows(), .out = out.gpu()});
    return out.gpu_bytes();
  };
  const std::vector<std::byte> first = product();
  for (int again = 0; again < 5; ++again) EXPECT_EQ(first, product());
}

// wgrad of few tiles, whose parts are added in one order, also from a CUDA graph.
TEST_P(BlockwiseMatmulTest, SplitSumsHaveTheSameBits) {
  const Recipe recipe = block_2d_recipe();
  const Size tokens = is_brief() ? 1040 : 16400;
  const Size in = 528;
  const Size out = 272;
  Twin x(pair(), normal_matrix(tokens, in, 1));
  Twin dy(pair(), normal_matrix(tokens, out, 2));
  TwinTensor tx(pair(), recipe.x, tokens, in, Copies::both, {8, "layer/x"});
  TwinTensor tdy(pair(), recipe.dy, tokens, out, Copies::both, {8, "layer/dy"});
  store(pair(), x, tx, casting);
  store(pair(), dy, tdy, casting);
  Twin dw(pair(), out, in, 0, Kept::f32);
  const auto product = [&](const auto& run) {
    pair().gpu->run(FillZero{dw.gpu()});
    run();
    return dw.gpu_bytes();
  };
  const std::function<void()> wgrad = [&] {
    for (int micro_step = 0; micro_step < 2; ++micro_step) {
      pair().gpu->run(Gemm{.a = tdy.gpu().columns(), .b = tx.gpu().columns(), .out = dw.gpu(), .accumulate = true});
    }
  };
  const std::vector<std::byte> first = product(wgrad);
  for (int again = 0; again < 5; ++again) {
    EXPECT_EQ(first, product(wgrad));
    EXPECT_EQ(first, product([&] { pair().gpu->device().replay(0x7000, wgrad); }));
  }
  EXPECT_TRUE(dw.margins_are_intact());
}

QUAVER_HIGH_PRECISION_FORMATS(BlockwiseMatmulTest);

}  // namespace
}  // namespace quaver::test
