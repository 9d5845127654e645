// Blockwise and current casts inside their producers leave what a cast of the staged result leaves, bit for bit: codes,
// scales, statistics, column sums. (That a cast of a matrix is the CPU engine's is tested with the casts.)
#include <limits>

#include "gpu/compare.h"
#include "gpu/specs.h"

namespace quaver::test {
namespace {

const Casting casting{.seed = 5, .step = 3};
const Casting unobserved{.seed = 5, .step = 3, .observe = false};

class WholeTilesTest : public GpuTest {
 protected:
  static Pair& pair() { return pair_of(Format::bf16); }
  static Engine& gpu() { return *pair().gpu; }

  static std::vector<NamedSpec> specs() {
    PrecisionConfig powers;
    powers.power_of_two_scales = true;
    PrecisionConfig margin;
    margin.margin = 2;
    return {{"fp8-block", make_recipe("fp8-block", {}).dy},
            {"fp8-block power-of-two", make_recipe("fp8-block", powers).dy},
            {"fp8-block margin", make_recipe("fp8-block", margin).dy},
            {"fp8-block-2d x", block_2d_recipe().x},
            {"fp8-block-2d power-of-two x", block_2d_recipe(powers).x},
            {"fp8-current x", make_recipe("fp8-current", {}).x},
            {"fp8-current dy", make_recipe("fp8-current", {}).dy}};
  }
  // Whole tiles, and what falls back to staging.
  static std::vector<Shape> shapes() {
    return shapes_of({{128, 128}, {256, 384}, {384, 1024}, {130, 256}, {128, 264}, {256, 4096}});
  }
};

struct Function {
  const char* name;
  ActivationKind kind;
  Size inputs;
};
constexpr Function functions[] = {
    {"gelu", ActivationKind::gelu, 1}, {"relu", ActivationKind::relu, 1}, {"swiglu", ActivationKind::swiglu, 2}};

// A high-precision matrix that an operation writes as its result.
class Staged {
 public:
  Staged(Pair& pair, const Shape& shape)
      : shape_(shape),
        format_(pair.gpu->high_precision()),
        tensor_(pair, both({.format = format_}), shape.rows, shape.cols) {}
  QuantizedTensor& tensor() { return tensor_.gpu(); }
  View view() { return {tensor_.gpu().rows_matrix().codes, format_, shape_.rows, shape_.cols}; }

 private:
  Shape shape_;
  Format format_;
  TwinTensor tensor_;
};

void expect_equal(const std::string& what, TwinTensor& expected, TwinTensor& actual) {
  if (actual.gpu().has_rows()) expect_same(what + ", rows", expected.gpu_rows(), actual.gpu_rows());
  if (actual.gpu().has_own_columns()) expect_same(what + ", columns", expected.gpu_columns(), actual.gpu_columns());
  EXPECT_TRUE(actual.margins_are_intact()) << what;
  const CastStatistics want = expected.take_gpu_seen();
  const CastStatistics got = actual.take_gpu_seen();
  EXPECT_EQ(want.count, got.count) << what << ": count";
  EXPECT_EQ(want.nonfinite, got.nonfinite) << what << ": nonfinite";
  EXPECT_EQ(want.saturated, got.saturated) << what << ": saturated";
  EXPECT_EQ(want.underflowed, got.underflowed) << what << ": underflowed";
  EXPECT_EQ(want.amax, got.amax) << what << ": amax";
}

TEST_F(WholeTilesTest, Activation) {
  for (const NamedSpec& named : specs()) {
    for (const Function& function : functions) {
      for (const Shape& shape : shapes()) {
        for (const Contents contents : {Contents::plain, Contents::special}) {
          for (const Copies copies : {Copies::both, Copies::rows_only}) {
            const std::string what = std::string(function.name) + " into " + named.name + ", " + text_of(shape) + ", " +
                                     text_of(contents) + (copies == Copies::both ? "" : ", rows only");
            Twin x(pair(), matrix_with(contents, shape.rows, shape.cols * function.inputs, 1));
            Staged staged(pair(), shape);
            TwinTensor expected(pair(), named.spec, shape.rows, shape.cols, copies);
            TwinTensor actual(pair(), named.spec, shape.rows, shape.cols, copies);
            const auto run = [&](QuantizedTensor& out) {
              gpu().run(Activation{
                  .kind = function.kind, .x = x.gpu(), .factor = 1.3F, .limit = 2, .out = out, .casting = casting});
            };
            run(staged.tensor());
            gpu().run(Quantize{staged.view(), expected.gpu(), casting});
            run(actual.gpu());
            expect_equal(what, expected, actual);
          }
        }
      }
    }
  }
}

TEST_F(WholeTilesTest, ActivationBackward) {
  for (const NamedSpec& named : specs()) {
    for (const Function& function : functions) {
      for (const Shape& shape : shapes()) {
        for (const Contents contents : {Contents::plain, Contents::special}) {
          const std::string what = std::string(function.name) + " backward into " + named.name + ", " + text_of(shape) +
                                   ", " + text_of(contents);
          const Shape wide{shape.rows, shape.cols * function.inputs};
          Twin x(pair(), matrix_with(contents, wide.rows, wide.cols, 1));
          Twin dy(pair(), matrix_with(contents, shape.rows, shape.cols, 2));
          Staged staged(pair(), wide);
          TwinTensor expected(pair(), named.spec, wide.rows, wide.cols);
          TwinTensor actual(pair(), named.spec, wide.rows, wide.cols);
          TwinTensor forward(pair(), named.spec, shape.rows, shape.cols, Copies::columns_only);
          TwinTensor again(pair(), named.spec, shape.rows, shape.cols, Copies::columns_only);
          Twin& expected_sums = expected.sum_columns(0.5F);
          Twin& actual_sums = actual.sum_columns(0.5F);
          const auto run = [&](QuantizedTensor& in_gradient, QuantizedTensor* out) {
            gpu().run(ActivationBackward{.kind = function.kind,
                                         .x = x.gpu(),
                                         .out_gradient = dy.gpu(),
                                         .forward_factor = 1.3F,
                                         .factor = 0.9F,
                                         .limit = 2,
                                         .in_gradient = in_gradient,
                                         .out = out,
                                         .casting = casting});
          };
          run(staged.tensor(), nullptr);
          gpu().run(Quantize{staged.view(), expected.gpu(), casting});
          gpu().run(Activation{.kind = function.kind,
                               .x = x.gpu(),
                               .factor = 1.3F,
                               .limit = 2,
                               .out = forward.gpu(),
                               .casting = unobserved});
          run(actual.gpu(), &again.gpu());
          expect_equal(what, expected, actual);
          expect_equal(what + ", requantized", forward, again);
          if (contents == Contents::plain) {
            expect_same_bytes(what + ", column sums", expected_sums.gpu_bytes(), actual_sums.gpu_bytes());
          }
        }
      }
    }
  }
}

TEST_F(WholeTilesTest, Norm) {
  for (const NamedSpec& named : specs()) {
    for (const Shape& shape : shapes()) {
      for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
        for (const Copies copies : {Copies::both, Copies::rows_only}) {
          const std::string what = "norm into " + named.name + ", " + text_of(shape) +
                                   (kind == NormKind::layer ? ", layer" : ", rms") +
                                   (copies == Copies::both ? "" : ", rows only");
          Matrix values = normal_matrix(shape.rows, shape.cols, 3);
          values(3, 5) = std::numeric_limits<float>::infinity();
          Twin x(pair(), values);
          Twin branch(pair(), normal_matrix(shape.rows, shape.cols, 4));
          Twin sum(pair(), shape.rows, shape.cols, 0);
          Twin stats(pair(), shape.rows, 2, 0, Kept::f32);
          Twin gain(pair(), normal_matrix(1, shape.cols, 1, 0.3F, 1), Kept::f32);
          Twin shift(pair(), normal_matrix(1, shape.cols, 2, 0.2F), Kept::f32);
          Staged staged(pair(), shape);
          TwinTensor expected(pair(), named.spec, shape.rows, shape.cols, copies);
          TwinTensor actual(pair(), named.spec, shape.rows, shape.cols, copies);
          const auto run = [&](QuantizedTensor& out) {
            gpu().run(AddNorm{.norm = {kind, gain.gpu(), kind == NormKind::layer ? shift.gpu() : View{}, 1e-5F},
                              .residual = x.gpu(),
                              .branch = branch.gpu(),
                              .sum = sum.gpu(),
                              .stats = stats.gpu(),
                              .out = out,
                              .casting = casting});
          };
          run(staged.tensor());
          gpu().run(Quantize{staged.view(), expected.gpu(), casting});
          run(actual.gpu());
          expect_equal(what, expected, actual);
        }
      }
    }
  }
}

TEST_F(WholeTilesTest, NormBackward) {
  for (const NamedSpec& named : specs()) {
    for (const Shape& shape : shapes()) {
      const std::string what = "norm backward into " + named.name + ", " + text_of(shape);
      Matrix values = normal_matrix(shape.rows, shape.cols, 3);
      values(2, 7) = std::numeric_limits<float>::infinity();
      Twin dy(pair(), values);
      Twin x(pair(), normal_matrix(shape.rows, shape.cols, 4));
      Twin stats(pair(), normal_matrix(shape.rows, 2, 5, 0.1F, 1), Kept::f32);
      Twin gain(pair(), normal_matrix(1, shape.cols, 1, 0.3F, 1), Kept::f32);
      Twin shift(pair(), normal_matrix(1, shape.cols, 2, 0.2F), Kept::f32);
      Twin sums(pair(), 1, shape.cols, 0, Kept::f32);
      Twin gradient(pair(), shape.rows, shape.cols, 0);
      TwinTensor expected(pair(), named.spec, shape.rows, shape.cols);
      TwinTensor actual(pair(), named.spec, shape.rows, shape.cols);
      gpu().run(AddNormBackward{.norm = {NormKind::layer, gain.gpu(), shift.gpu(), 1e-5F},
                                .sum = x.gpu(),
                                .stats = stats.gpu(),
                                .out_gradient = dy.gpu(),
                                .gradient = gradient.gpu(),
                                .branch_gradient = &actual.gpu(),
                                .gradients = {sums.gpu(), sums.gpu(), 1},
                                .casting = casting});
      gpu().run(Quantize{gradient.gpu(), expected.gpu(), casting});
      expect_equal(what, expected, actual);
    }
  }
}

}  // namespace
}  // namespace quaver::test
