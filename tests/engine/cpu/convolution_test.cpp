// Patches, batch norm and pooling against their definitions in double, and their gradients against differences.
#include "engine/support.h"

namespace quaver::test {
namespace {

constexpr PatchWindow windows[] = {
    {.batch = 2, .height = 5, .width = 4, .channels = 3, .kernel = 3, .stride = 1},
    {.batch = 1, .height = 6, .width = 5, .channels = 2, .kernel = 3, .stride = 2},
    {.batch = 3, .height = 4, .width = 4, .channels = 8, .kernel = 1, .stride = 2},
    {.batch = 1, .height = 3, .width = 2, .channels = 1, .kernel = 5, .stride = 1},
    {.batch = 1, .height = 1, .width = 7, .channels = 4, .kernel = 3, .stride = 3},
};

// From the definition: tap (ky, kx) of position (i, j) is pixel (i · stride + ky − k/2, j · stride + kx − k/2).
Doubles patches_of(const PatchWindow& w, const Doubles& x, Size cols) {
  Doubles out(index(w.positions() * cols), 0.0);
  for (Size b = 0; b < w.batch; ++b) {
    for (Size i = 0; i < w.out_height(); ++i) {
      for (Size j = 0; j < w.out_width(); ++j) {
        const Size row = (b * w.out_height() + i) * w.out_width() + j;
        for (Size tap = 0; tap < w.kernel * w.kernel; ++tap) {
          const Size y = i * w.stride + tap / w.kernel - w.kernel / 2;
          const Size at = j * w.stride + tap % w.kernel - w.kernel / 2;
          if (y < 0 || y >= w.height || at < 0 || at >= w.width) continue;
          for (Size c = 0; c < w.channels; ++c) {
            out[index(row * cols + tap * w.channels + c)] =
                x[index(((b * w.height + y) * w.width + at) * w.channels + c)];
          }
        }
      }
    }
  }
  return out;
}

class Convolutions : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine = make_cpu_engine(2);
  Casting casting;
};

TEST_F(Convolutions, PatchesAreThePixelsOfTheWindowAndZerosAround) {
  for (const PatchWindow& window : windows) {
    Matrix x = random_matrix(window.pixels(), window.channels, 1);
    for (const Size more : {Size{0}, Size{5}}) {
      const Size cols = window.taps() + more;
      Stored out(both({}), window.positions(), cols);
      engine->run(Patches{window, x.view(), out.tensor, casting});
      EXPECT_EQ(values_of(out.tensor.rows()), patches_of(window, x.doubles(), cols));
    }
  }
}

// The transpose of a linear map: ⟨patches(x), g⟩ = ⟨x, backward(g)⟩ for every x.
TEST_F(Convolutions, PatchesBackwardIsTheTranspose) {
  for (const PatchWindow& window : windows) {
    const Size cols = window.taps() + 2;
    Matrix g = random_matrix(window.positions(), cols, 2);
    Matrix next = random_matrix(window.pixels(), window.channels, 3);
    Matrix gradient(window.pixels(), window.channels, 7);
    engine->run(PatchesBackward{.window = window, .patches_gradient = g.view(), .gradient = gradient.view()});
    const auto value = [&](const Doubles& x) { return dot(patches_of(window, x, cols), g.doubles()); };
    const Doubles expected = test::gradient(value, random_matrix(window.pixels(), window.channels, 1).doubles());
    expect_close(gradient.values, expected, 1e-6, "gradient");
    Doubles with_next = expected;
    for (std::size_t i = 0; i < with_next.size(); ++i) with_next[i] += next.values[i];
    engine->run(
        PatchesBackward{.window = window, .patches_gradient = g.view(), .next = next.view(), .gradient = next.view()});
    expect_close(next.values, with_next, 1e-6, "gradient added in place");
  }
}

struct ChannelCase {
  bool residual;
  Rectifier rectifier;
};
constexpr ChannelCase channel_cases[] = {
    {false, Rectifier::none}, {false, Rectifier::relu}, {true, Rectifier::none}, {true, Rectifier::relu}};
constexpr double channel_eps = 1e-3;

struct ExactMoments {
  double mean = 0;
  double variance = 0;
};

ExactMoments moments_of(const Doubles& x, Size rows, Size cols, Size c) {
  ExactMoments moments;
  for (Size r = 0; r < rows; ++r) moments.mean += x[index(r * cols + c)] / static_cast<double>(rows);
  for (Size r = 0; r < rows; ++r) {
    moments.variance += std::pow(x[index(r * cols + c)] - moments.mean, 2) / static_cast<double>(rows);
  }
  return moments;
}

struct ChannelInputs {
  Doubles x;
  Doubles gain;
  Doubles shift;
  Doubles residual;
};

Doubles batch_normalized(const ChannelCase& c, const ChannelInputs& in, Size rows, Size cols) {
  Doubles out(in.x.size());
  for (Size col = 0; col < cols; ++col) {
    const ExactMoments moments = moments_of(in.x, rows, cols, col);
    for (Size r = 0; r < rows; ++r) {
      const std::size_t at = index(r * cols + col);
      double y = (in.x[at] - moments.mean) / std::sqrt(moments.variance + channel_eps) * in.gain[index(col)];
      y += in.shift[index(col)] + (c.residual ? in.residual[at] : 0.0);
      out[at] = c.rectifier == Rectifier::relu ? std::max(0.0, y) : y;
    }
  }
  return out;
}

struct ChannelMatrices {
  ChannelMatrices(Size rows, Size cols)
      : x(random_matrix(rows, cols, 1, 2, 3)),
        gain(random_matrix(1, cols, 2, 0.3F, 1)),
        shift(random_matrix(1, cols, 3)),
        residual(random_matrix(rows, cols, 4)),
        stats(2, cols),
        out(rows, cols) {}

  BatchNorm operation(const ChannelCase& c) {
    return {.x = x.view(),
            .gain = gain.view(),
            .shift = shift.view(),
            .eps = static_cast<float>(channel_eps),
            .residual = c.residual ? residual.view() : View{},
            .rectifier = c.rectifier,
            .stats = stats.view(),
            .out = out.view()};
  }
  ChannelInputs inputs() const { return {x.doubles(), gain.doubles(), shift.doubles(), residual.doubles()}; }

  Matrix x;
  Matrix gain;
  Matrix shift;
  Matrix residual;
  Matrix stats;
  Matrix out;
};

constexpr std::pair<Size, Size> channel_shapes[] = {{2, 3}, {9, 5}, {24, 4}};

TEST_F(Convolutions, BatchNormAgreesWithTheFormula) {
  for (const auto& [rows, cols] : channel_shapes) {
    for (const ChannelCase& c : channel_cases) {
      ChannelMatrices matrices(rows, cols);
      engine->run(matrices.operation(c));
      expect_close(matrices.out.values, batch_normalized(c, matrices.inputs(), rows, cols), 1e-5, "batch norm");
    }
  }
}

TEST_F(Convolutions, BatchNormBackwardIsTheDerivative) {
  for (const auto& [rows, cols] : channel_shapes) {
    for (const ChannelCase& c : channel_cases) {
      ChannelMatrices matrices(rows, cols);
      engine->run(matrices.operation(c));
      Matrix dy = random_matrix(rows, cols, 5);
      const Doubles weights = dy.doubles();
      Matrix gain_gradient(1, cols, 0.5F);
      Matrix shift_gradient(1, cols, 0.5F);
      Stored dx(both({}), rows, cols);
      engine->run(BatchNormBackward{.x = matrices.x.view(),
                                    .gain = matrices.gain.view(),
                                    .stats = matrices.stats.view(),
                                    .out = c.rectifier == Rectifier::relu ? matrices.out.view() : View{},
                                    .out_gradient = dy.view(),
                                    .residual_gradient = c.residual ? dy.view() : View{},
                                    .in_gradient = dx.tensor,
                                    .gain_gradient = gain_gradient.view(),
                                    .shift_gradient = shift_gradient.view(),
                                    .casting = casting});
      const auto expected = [&](Doubles ChannelInputs::*of) {
        ChannelInputs in = matrices.inputs();
        return test::gradient(
            [&](const Doubles& moved) {
              in.*of = moved;
              return dot(batch_normalized(c, in, rows, cols), weights);
            },
            in.*of);
      };
      const auto added = [](Doubles gradient) {
        for (double& value : gradient) value += 0.5;
        return gradient;
      };
      expect_close(values_of(dx.tensor.rows()), expected(&ChannelInputs::x), 1e-4, "dx");
      expect_close(gain_gradient.values, added(expected(&ChannelInputs::gain)), 1e-5, "gain");
      expect_close(shift_gradient.values, added(expected(&ChannelInputs::shift)), 1e-5, "shift");
      if (c.residual) expect_close(dy.values, expected(&ChannelInputs::residual), 1e-5, "residual");
    }
  }
}

TEST_F(Convolutions, BatchNormAddsUpMomentsAndReadsRunningOnes) {
  ChannelMatrices matrices(24, 4);
  Matrix mean(1, 4, 1);
  Matrix variance(1, 4, 2);
  BatchNorm op = matrices.operation(channel_cases[0]);
  op.sums = {mean.view(), variance.view()};
  engine->run(op);
  for (Size c = 0; c < 4; ++c) {
    const ExactMoments moments = moments_of(matrices.x.doubles(), 24, 4, c);
    EXPECT_NEAR(mean(0, c), 1 + moments.mean, 1e-5);
    EXPECT_NEAR(variance(0, c), 2 + moments.variance * 24 / 23, 1e-5);
  }
  op.sums = {};
  op.running = {mean.view(), variance.view()};
  engine->run(op);
  for (Size r = 0; r < 24; ++r) {
    for (Size c = 0; c < 4; ++c) {
      const double normed = (matrices.x(r, c) - mean(0, c)) / std::sqrt(variance(0, c) + channel_eps);
      EXPECT_NEAR(matrices.out(r, c), normed * matrices.gain(0, c) + matrices.shift(0, c), 1e-5);
    }
  }
}

TEST_F(Convolutions, PoolingIsTheMeanOfAnImageAndItsTranspose) {
  constexpr Size images = 3;
  constexpr Size pixels = 6;
  constexpr Size channels = 5;
  Matrix x = random_matrix(images * pixels, channels, 1);
  Stored out(both({}), images, channels);
  engine->run(AveragePool{.x = x.view(), .out = out.tensor, .casting = casting});
  const auto mean = [](const Doubles& of) {
    Doubles means(index(images * channels), 0.0);
    for (Size i = 0; i < images * pixels * channels; ++i) {
      means[index(i / (pixels * channels) * channels + i % channels)] += of[index(i)] / pixels;
    }
    return means;
  };
  expect_close(values_of(out.tensor.rows()), mean(x.doubles()), 1e-6, "mean");
  Matrix dy = random_matrix(images, channels, 2);
  Matrix dx(images * pixels, channels);
  engine->run(AveragePoolBackward{.out_gradient = dy.view(), .gradient = dx.view()});
  const Doubles weights = dy.doubles();
  expect_close(dx.values, test::gradient([&](const Doubles& of) { return dot(mean(of), weights); }, x.doubles()), 1e-6,
               "gradient");
}

TEST_F(Convolutions, AMovingAverageStaysWhereTheStepIsSkipped) {
  Matrix average(1, 3, 4);
  Matrix sum(1, 3, 6);
  GradientSummary summary{.skip = 1};
  const MovingAverage op{
      .average = average.view(), .sum = sum.view(), .share = 0.5F, .momentum = 0.25F, .summary = &summary};
  engine->run(op);
  EXPECT_EQ(average.values, std::vector<float>(3, 4.0F));
  summary.skip = 0;
  engine->run(op);
  EXPECT_EQ(average.values, std::vector<float>(3, 3.75F));
}

}  // namespace
}  // namespace quaver::test
