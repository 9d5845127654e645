// Patches, batch norm and pooling of feature maps, into every kind of site.
#include "gpu/compare.h"
#include "gpu/specs.h"

namespace quaver::test {
namespace {

const Casting casting{.seed = 41, .step = 3};
constexpr float known_scale = 32;

SiteSpec delayed(Format format) { return both({.format = format, .policy = ScalePolicy::delayed}); }

std::vector<PatchWindow> windows() {
  return some_of<PatchWindow>({
      {.batch = 2, .height = 9, .width = 7, .channels = 16, .kernel = 3, .stride = 1},
      {.batch = 3, .height = 8, .width = 8, .channels = 3, .kernel = 3, .stride = 1},
      {.batch = 2, .height = 8, .width = 6, .channels = 64, .kernel = 3, .stride = 2},
      {.batch = 5, .height = 7, .width = 7, .channels = 24, .kernel = 1, .stride = 2},
      {.batch = 1, .height = 11, .width = 5, .channels = 1, .kernel = 7, .stride = 2},
      {.batch = 4, .height = 1, .width = 9, .channels = 5, .kernel = 3, .stride = 3},
      {.batch = 8, .height = 16, .width = 16, .channels = 128, .kernel = 3, .stride = 1},
  });
}

std::string text_of(const PatchWindow& window) {
  return std::to_string(window.batch) + " × " + std::to_string(window.height) + " × " + std::to_string(window.width) +
         " × " + std::to_string(window.channels) + ", kernel " + std::to_string(window.kernel) + ", stride " +
         std::to_string(window.stride);
}

// As convolutions have it: a multiple of 16.
Size columns_of(const PatchWindow& window) { return (window.taps() + 15) / 16 * 16; }

class ConvolutionTest : public HighPrecisionTest {
 protected:
  SiteSpec high_precision_spec() const { return both({.format = pair().gpu->high_precision()}); }
  std::vector<NamedSpec> producer_specs() const {
    return {{"high precision", high_precision_spec()},
            {"delayed e4m3", delayed(Format::e4m3)},
            {"delayed e5m2", delayed(Format::e5m2)}};
  }

  // Pixels are copied: the codes are those of the CPU, bit for bit.
  void patches(const PatchWindow& window, Size cols, const NamedSpec& named, Copies copies, Kept kept) {
    const std::string what = "patches of " + text_of(window) + " into " + named.name;
    Twin x(pair(), normal_matrix(window.pixels(), window.channels, 1, 2), kept);
    TwinTensor out(pair(), named.spec, window.positions(), cols, copies, {known_scale});
    pair().run([&](On on) { return quaver::Patches{window, x.on(on), out.on(on), casting}; });
    if (exact()) {
      expect_same(what, out);
    } else {
      expect_close(what, pair(), out);
    }
    expect_statistics(what, pair(), out, Detail::counts, exact() ? Statistics::exact : Statistics::close);
    EXPECT_TRUE(out.margins_are_intact()) << what;
  }

  struct NormCase {
    bool residual;
    Rectifier rectifier;
  };

  void norm(const Shape& shape, const NormCase& c, const NamedSpec& named);
};

TEST_P(ConvolutionTest, Patches) {
  for (const PatchWindow& window : windows()) {
    for (const NamedSpec& named : producer_specs()) {
      for (const Kept kept : {Kept::high_precision, Kept::f32}) {
        patches(window, columns_of(window), named, Copies::both, kept);
        patches(window, window.taps(), named, Copies::rows_only, kept);
      }
    }
  }
}

TEST_P(ConvolutionTest, PatchesIntoEverySpec) {
  const PatchWindow window{.batch = 3, .height = 9, .width = 8, .channels = 16, .kernel = 3, .stride = 2};
  for (const NamedSpec& named : every_spec_of(Role::x)) {
    patches(window, columns_of(window), named, Copies::both, Kept::high_precision);
  }
}

// The columnwise codes of the backward pass are those that the forward pass would have written.
TEST_P(ConvolutionTest, PatchesCastAgainAreTheForwardsCast) {
  for (const PatchWindow& window : windows()) {
    for (const NamedSpec& named : some_of(every_spec_of(Role::x))) {
      const std::string what = "patches cast again into " + named.name + ", " + text_of(window);
      const Size cols = columns_of(window);
      Twin x(pair(), normal_matrix(window.pixels(), window.channels, 1, 2));
      TwinTensor first(pair(), named.spec, window.positions(), cols, Copies::both, {known_scale});
      TwinTensor again(pair(), named.spec, window.positions(), cols, Copies::columns_only, {known_scale});
      const Casting unobserved = casting.unobserved();
      pair().gpu->run(quaver::Patches{window, x.gpu(), first.gpu(), casting});
      pair().gpu->run(quaver::Patches{window, x.gpu(), again.gpu(), unobserved});
      expect_same(what, first.gpu_columns(), again.gpu_columns());
      EXPECT_EQ(again.take_gpu_seen().count, 0U) << what << ": observed a second time";
    }
  }
}

TEST_P(ConvolutionTest, PatchesBackward) {
  for (const PatchWindow& window : windows()) {
    for (const bool has_next : {false, true}) {
      const std::string what = "patches backward of " + text_of(window) + (has_next ? ", added" : "");
      Twin from(pair(), normal_matrix(window.positions(), columns_of(window), 1));
      Twin gradient(pair(), normal_matrix(window.pixels(), window.channels, 2));
      pair().run([&](On on) {
        return quaver::PatchesBackward{.window = window,
                                       .patches_gradient = from.on(on),
                                       .next = has_next ? gradient.on(on) : View{},
                                       .gradient = gradient.on(on)};
      });
      expect_near(what, gradient, high_precision_bound(pair()));
      EXPECT_TRUE(gradient.margins_are_intact()) << what;
    }
  }
}

void ConvolutionTest::norm(const Shape& shape, const NormCase& c, const NamedSpec& named) {
  const std::string what = "batch norm of " + test::text_of(shape) + (c.residual ? " with residual" : "") +
                           (c.rectifier == Rectifier::relu ? " and relu" : "") + ", into " + named.name;
  Twin x(pair(), normal_matrix(shape.rows, shape.cols, 1, 2, 3));
  Twin gain(pair(), normal_matrix(1, shape.cols, 2, 0.3F, 1), Kept::f32);
  Twin shift(pair(), normal_matrix(1, shape.cols, 3), Kept::f32);
  Twin residual(pair(), normal_matrix(shape.rows, shape.cols, 4));
  Twin stats(pair(), 2, shape.cols, 0, Kept::f32);
  Twin means(pair(), 1, shape.cols, 1, Kept::f32);
  Twin variances(pair(), 1, shape.cols, 2, Kept::f32);
  Twin out(pair(), shape.rows, shape.cols, 0);
  pair().run([&](On on) {
    return quaver::BatchNorm{.x = x.on(on),
                             .gain = gain.on(on),
                             .shift = shift.on(on),
                             .sums = {means.on(on), variances.on(on)},
                             .residual = c.residual ? residual.on(on) : View{},
                             .rectifier = c.rectifier,
                             .stats = stats.on(on),
                             .out = out.on(on)};
  });
  const double limit = high_precision_bound(pair());
  expect_near(what + ", statistics", stats, bound::f32);
  expect_near(what + ", means", means, bound::f32);
  expect_near(what + ", variances", variances, bound::f32);
  expect_near(what, out, limit);
  out.set(out.from_cpu());  // the same rectified elements
  stats.set(stats.from_cpu());
  Twin dy(pair(), normal_matrix(shape.rows, shape.cols, 5));
  Twin gain_gradient(pair(), 1, shape.cols, 0.5F, Kept::f32);
  Twin shift_gradient(pair(), 1, shape.cols, 0.5F, Kept::f32);
  TwinTensor dx(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
  pair().run([&](On on) {
    return BatchNormBackward{.x = x.on(on),
                             .gain = gain.on(on),
                             .stats = stats.on(on),
                             .out = c.rectifier == Rectifier::relu ? out.on(on) : View{},
                             .out_gradient = dy.on(on),
                             .residual_gradient = c.residual ? dy.on(on) : View{},
                             .in_gradient = dx.on(on),
                             .gain_gradient = gain_gradient.on(on),
                             .shift_gradient = shift_gradient.on(on),
                             .casting = casting};
  });
  const double floor = std::sqrt(static_cast<double>(shape.rows));
  expect_near(what + ", gain's gradient", gain_gradient, limit, floor);
  expect_near(what + ", shift's gradient", shift_gradient, limit, floor);
  expect_near(what + ", residual's gradient", dy, limit);
  if (shape.rows > 1) expect_close(what + ", dx", pair(), dx);  // of one row all of it cancels
  EXPECT_TRUE(dx.margins_are_intact() && out.margins_are_intact() && dy.margins_are_intact()) << what;
}

TEST_P(ConvolutionTest, BatchNorm) {
  for (const Shape& shape : shapes_of({{1, 1}, {3, 5}, {17, 33}, {129, 257}, {2048, 64}, {70000, 16}, {500, 512}})) {
    for (const NamedSpec& named : producer_specs()) {
      for (const NormCase& c : {NormCase{false, Rectifier::none}, NormCase{false, Rectifier::relu},
                                NormCase{true, Rectifier::none}, NormCase{true, Rectifier::relu}}) {
        norm(shape, c, named);
      }
    }
  }
}

TEST_P(ConvolutionTest, BatchNormBackwardIntoEverySpec) {
  for (const NamedSpec& named : every_spec_of(Role::dy)) norm({256, 128}, {true, Rectifier::relu}, named);
}

TEST_P(ConvolutionTest, BatchNormWithRunningMoments) {
  const Shape shape{200, 24};
  Twin x(pair(), normal_matrix(shape.rows, shape.cols, 1, 2, 3));
  Twin gain(pair(), normal_matrix(1, shape.cols, 2, 0.3F, 1), Kept::f32);
  Twin shift(pair(), normal_matrix(1, shape.cols, 3), Kept::f32);
  Twin mean(pair(), normal_matrix(1, shape.cols, 4), Kept::f32);
  Twin variance(pair(), 1, shape.cols, 1.5F, Kept::f32);
  Twin stats(pair(), 2, shape.cols, 0, Kept::f32);
  Twin out(pair(), shape.rows, shape.cols, 0);
  pair().run([&](On on) {
    return quaver::BatchNorm{.x = x.on(on),
                             .gain = gain.on(on),
                             .shift = shift.on(on),
                             .running = {mean.on(on), variance.on(on)},
                             .stats = stats.on(on),
                             .out = out.on(on)};
  });
  expect_near("running moments", stats, bound::f32);
  expect_near("norm by running moments", out, high_precision_bound(pair()));
}

TEST_P(ConvolutionTest, AveragePool) {
  for (const Size channels : {3, 64, 200}) {
    for (const NamedSpec& named : producer_specs()) {
      const std::string what = "mean of pixels, " + std::to_string(channels) + " channels, into " + named.name;
      constexpr Size images = 9;
      constexpr Size pixels = 20;
      Twin x(pair(), normal_matrix(images * pixels, channels, 1, 2, 1));
      TwinTensor out(pair(), named.spec, images, channels, Copies::both, {known_scale});
      pair().run([&](On on) { return quaver::AveragePool{.x = x.on(on), .out = out.on(on), .casting = casting}; });
      expect_close(what, pair(), out);
      Twin dy(pair(), normal_matrix(images, channels, 2));
      Twin dx(pair(), images * pixels, channels, 0);
      pair().run([&](On on) { return AveragePoolBackward{.out_gradient = dy.on(on), .gradient = dx.on(on)}; });
      expect_near(what + ", backward", dx, high_precision_bound(pair()));
    }
  }
}

TEST_P(ConvolutionTest, MovingAverage) {
  for (const std::uint64_t skip : {0, 1}) {
    Twin average(pair(), normal_matrix(1, 300, 1), Kept::f32);
    Twin sum(pair(), normal_matrix(1, 300, 2), Kept::f32);
    Cells<GradientSummary> summary(pair(), {{.skip = skip}});
    pair().run([&](On on) {
      return quaver::MovingAverage{
          .average = average.on(on), .sum = sum.on(on), .share = 0.25F, .summary = summary.on(on)};
    });
    expect_near("moving average", average, bound::f32);
  }
}

QUAVER_HIGH_PRECISION_FORMATS(ConvolutionTest);

}  // namespace
}  // namespace quaver::test
