// Activation functions and their derivatives, into every kind of site.
#include "gpu/compare.h"
#include "gpu/specs.h"

namespace quaver::test {
namespace {

const Casting casting{.seed = 31, .step = 2};
constexpr float known_scale = 32;

struct Function {
  const char* name;
  ActivationKind kind;
  Size inputs;  // columns read for each column written
};
constexpr Function functions[] = {
    {"gelu", ActivationKind::gelu, 1}, {"relu", ActivationKind::relu, 1}, {"swiglu", ActivationKind::swiglu, 2}};

class ActivationTest : public HighPrecisionTest {
 protected:
  SiteSpec high_precision_spec() const { return both({.format = pair().gpu->high_precision()}); }
  static SiteSpec delayed(Format format) { return both({.format = format, .policy = ScalePolicy::delayed}); }

  void forward(const Function& function, const NamedSpec& named, const Shape& shape, float limit, float factor = 1.3F) {
    const std::string what =
        std::string(function.name) + " into " + named.name + ", " + text_of(shape) + ", limit " + std::to_string(limit);
    Twin x(pair(), normal_matrix(shape.rows, shape.cols * function.inputs, 1, 2));
    TwinTensor out(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
    pair().run([&](On on) {
      return Activation{.kind = function.kind,
                        .x = x.on(on),
                        .factor = factor,
                        .limit = limit,
                        .out = out.on(on),
                        .casting = casting};
    });
    expect_close(what, pair(), out);
    expect_statistics(what, pair(), out, Detail::counts, Statistics::close);
  }

  void backward(const Function& function, const NamedSpec& named, const Shape& shape, float limit,
                float forward_factor = 1.3F, float factor = 0.9F) {
    const std::string what = std::string(function.name) + " backward into " + named.name + ", " + text_of(shape) +
                             ", limit " + std::to_string(limit);
    const Size width = shape.cols * function.inputs;
    Twin x(pair(), normal_matrix(shape.rows, width, 1, 2));
    Twin dy(pair(), normal_matrix(shape.rows, shape.cols, 2));
    TwinTensor out(pair(), named.spec, shape.rows, width, Copies::both, {known_scale});
    Twin& sums = out.sum_columns(0.5F);
    pair().run([&](On on) {
      return ActivationBackward{.kind = function.kind,
                                .x = x.on(on),
                                .out_gradient = dy.on(on),
                                .forward_factor = forward_factor,
                                .factor = factor,
                                .limit = limit,
                                .in_gradient = out.on(on),
                                .casting = casting};
    });
    expect_close(what, pair(), out);
    expect_statistics(what, pair(), out, Detail::counts, Statistics::close);
    expect_near(what + ", column sums", sums, high_precision_bound(pair()), std::sqrt(static_cast<double>(shape.rows)));
  }
};

TEST_P(ActivationTest, ForwardAndBackward) {
  const std::vector<NamedSpec> specs{{"high precision", high_precision_spec()},
                                     {"delayed e4m3", delayed(Format::e4m3)},
                                     {"delayed e5m2", delayed(Format::e5m2)}};
  for (const Function& function : functions) {
    for (const Shape& shape : all_shapes()) {
      for (const NamedSpec& named : specs) {
        for (const float limit : {0.0F, 1.0F}) {
          if (!is_small(shape) && (limit == 0) != (shape.cols % 3 == 0)) continue;
          forward(function, named, shape, limit);
          backward(function, named, shape, limit);
        }
      }
    }
  }
}

// More tiles than a GPU has blocks at once, so that a block goes on from one to the next; factors of 1, which nearly
// all models have.
TEST_P(ActivationTest, ManyTilesABlock) {
  const Shape shape = is_brief() ? Shape{300, 264} : Shape{6001, 1536};
  for (const Function& function : functions) {
    forward(function, {"delayed e4m3", delayed(Format::e4m3)}, shape, 0, 1);
    backward(function, {"delayed e5m2", delayed(Format::e5m2)}, shape, 0, 1, 1);
  }
}

TEST_P(ActivationTest, IntoEverySpec) {
  for (const Function& function : functions) {
    for (const Shape& shape : shapes_of({{17, 33}, {64, 896}, {128, 512}})) {
      for (const NamedSpec& named : every_spec_of(Role::x)) forward(function, named, shape, 0);
      for (const NamedSpec& named : every_spec_of(Role::dy)) backward(function, named, shape, 0);
    }
  }
}

// Backward may cast the function's result once more: the codes must be those of the forward pass, bit for bit.
TEST_P(ActivationTest, CastAgainInBackwardIsTheForwardsCast) {
  Engine& gpu = *pair().gpu;
  for (const Function& function : functions) {
    for (const NamedSpec& named : some_of(every_spec_of(Role::x))) {
      for (const SiteSpec& gradient_spec :
           {high_precision_spec(), delayed(Format::e5m2), make_recipe("fp8-block", {}).dy}) {
        for (const Shape& shape : shapes_of({{3, 5}, {17, 33}, {129, 257}, {64, 896}, {256, 512}})) {
          const std::string what =
              std::string(function.name) + " cast again into " + named.name + ", " + text_of(shape);
          const Size width = shape.cols * function.inputs;
          Twin x(pair(), normal_matrix(shape.rows, width, 1, 2));
          Twin dy(pair(), normal_matrix(shape.rows, shape.cols, 2));
          TwinTensor first(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
          TwinTensor again(pair(), named.spec, shape.rows, shape.cols, Copies::columns_only, {known_scale});
          TwinTensor gradient(pair(), gradient_spec, shape.rows, width, Copies::both, {known_scale, "gradient/dy"});
          gpu.run(Activation{
              .kind = function.kind, .x = x.gpu(), .factor = 1.3F, .limit = 2, .out = first.gpu(), .casting = casting});
          gpu.run(ActivationBackward{.kind = function.kind,
                                     .x = x.gpu(),
                                     .out_gradient = dy.gpu(),
                                     .forward_factor = 1.3F,
                                     .limit = 2,
                                     .in_gradient = gradient.gpu(),
                                     .out = &again.gpu(),
                                     .casting = casting});
          expect_same(what, first.gpu_columns(), again.gpu_columns());
          EXPECT_TRUE(again.margins_are_intact()) << what;
          EXPECT_EQ(again.take_gpu_seen().count, 0U) << what << ": observed a second time";
        }
      }
    }
  }
}

QUAVER_HIGH_PRECISION_FORMATS(ActivationTest);

}  // namespace
}  // namespace quaver::test
