// Models of low-precision accumulators: against scalar loops, bit for bit, and in the order of accuracy their widths
// promise.
#include <stdexcept>

#include "engine/cpu/gemm.h"
#include "engine/support.h"

namespace quaver::test {
namespace {

// x with `mantissa` explicit bits, toward zero or to the nearest (ties away).
enum class Toward : std::uint8_t { zero, nearest };
double shortened(double x, int mantissa, Toward toward) {
  if (x == 0) return x;
  const double unit = std::ldexp(1.0, std::ilogb(x) - mantissa);
  return (toward == Toward::zero ? std::trunc(x / unit) : std::round(x / unit)) * unit;
}

float rounded_sum(int mantissa, const float* a, const float* b, Size k) {
  float sum = 0;
  for (Size p = 0; p < k; ++p) sum = static_cast<float>(shortened(sum + a[p] * b[p], mantissa, Toward::nearest));
  return sum;
}

// An exponent as a tensor core sees it: that of subnormal values is the format's least.
int exponent(Format format, float x) { return std::max(std::ilogb(x), std::ilogb(info(format).min_normal)); }

struct ProductFactors {
  Format a_format;
  Format b_format;
  const float* a;
  const float* b;
};

float aligned_sum(const ProductFactors& f, Size k, Size promotion) {
  float total = 0;
  double sum = 0;
  for (Size first = 0; first < k; first += 32) {
    const Size last = std::min(k, first + 32);
    int top = sum == 0 ? -200 : std::ilogb(sum);
    for (Size p = first; p < last; ++p) {
      if (f.a[p] * f.b[p] != 0) top = std::max(top, exponent(f.a_format, f.a[p]) + exponent(f.b_format, f.b[p]));
    }
    const double unit = std::ldexp(1.0, top - 13);
    double units = std::trunc(sum / unit);
    for (Size p = first; p < last; ++p) units += std::trunc(static_cast<double>(f.a[p]) * f.b[p] / unit);
    sum = shortened(units * unit, 13, Toward::zero);
    if (last == k || (promotion > 0 && last % promotion == 0)) {
      total += static_cast<float>(sum);
      sum = 0;
    }
  }
  return total;
}

float scalar_sum(Accumulator accumulator, const ProductFactors& f, Size k) {
  switch (accumulator) {
    case Accumulator::hopper:
      return aligned_sum(f, k, 0);
    case Accumulator::hopper_split:
      return aligned_sum(f, k, 128);
    case Accumulator::fp16:
      return rounded_sum(10, f.a, f.b, k);
    case Accumulator::fp8:
      return rounded_sum(3, f.a, f.b, k);
    case Accumulator::fp32:
      break;
  }
  throw std::logic_error("not a low-precision accumulator");
}

constexpr Accumulator low_precision[] = {Accumulator::hopper, Accumulator::hopper_split, Accumulator::fp16,
                                         Accumulator::fp8};

// Values that their formats hold.
Matrix run(Accumulator accumulator, Matrix& a, Matrix& b, Format a_format = Format::e4m3,
           Format b_format = Format::e4m3) {
  const auto engine = make_cpu_engine(1);
  Stored left(both({.format = a_format}), a.rows, a.cols);
  Stored right(both({.format = b_format}), b.rows, b.cols);
  engine->run(Quantize{a.view(), left.tensor, {}});
  engine->run(Quantize{b.view(), right.tensor, {}});
  Matrix out(a.rows, b.rows);
  engine->run(Gemm{.a = left.tensor.rows(), .b = right.tensor.rows(), .out = out.view(), .accumulator = accumulator});
  return out;
}

// Values on the format's grid: their products are exact, so fused and separate multiply-adds agree.
Matrix on_grid(Format format, Size rows, Size cols, std::uint32_t stream, float deviation, float mean = 0) {
  Matrix matrix = random_matrix(rows, cols, stream, deviation, mean);
  for (float& x : matrix.values) x = decode(format, encode(format, x));
  return matrix;
}

TEST(LowPrecisionAccumulator, EqualsAScalarLoop) {
  for (const Accumulator accumulator : low_precision) {
    for (const Format format : {Format::e4m3, Format::e5m2}) {
      // About 1, with a sum that grows; about the smallest normal value, half of them subnormal.
      for (const float deviation : {1.0F, info(format).min_normal}) {
        for (const Size k : {1, 31, 32, 33, 128, 129, 300, 1000}) {
          Matrix a = on_grid(format, 3, k, 1, deviation, 0.3F * deviation);
          Matrix b = on_grid(Format::e4m3, 5, k, 2, 1, 0.3F);
          const Matrix out = run(accumulator, a, b, format);
          for (Size i = 0; i < 3; ++i) {
            for (Size j = 0; j < 5; ++j) {
              const ProductFactors f{format, Format::e4m3, &a.values[index(i * k)], &b.values[index(j * k)]};
              ASSERT_EQ(out(i, j), scalar_sum(accumulator, f, k))
                  << "accumulator " << static_cast<int>(accumulator) << " k " << k << " deviation " << deviation;
            }
          }
        }
      }
    }
  }
}

TEST(LowPrecisionAccumulator, HopperTruncatesTowardZero) {
  // 1 + 2^-14 needs 14 mantissa bits and more: truncation gives 1, and −1 on the other side.
  for (const float sign : {1.0F, -1.0F}) {
    Matrix a(1, 33, 0);
    Matrix b(1, 33, 1);
    a(0, 0) = sign;
    a(0, 32) = sign * 0x1.8p-14F;  // a second chunk: added to a stored sum
    EXPECT_EQ(run(Accumulator::hopper, a, b, Format::e5m2)(0, 0), sign);
    a(0, 32) = sign * 0x1p-13F;
    EXPECT_EQ(run(Accumulator::hopper, a, b, Format::e5m2)(0, 0), sign * (1 + 0x1p-13F));
  }
}

TEST(LowPrecisionAccumulator, HopperCutsEveryProduct) {
  // Many small products beside a large one are lost one by one, though together they are as large as it.
  const Size k = 16384;
  Matrix a(1, k, 0x1p-14F);
  Matrix b(1, k, 1);
  a(0, 0) = 1;
  EXPECT_EQ(run(Accumulator::hopper, a, b, Format::e5m2)(0, 0), 1);
  // Promoted, all but those that share their 128 products with it count.
  EXPECT_EQ(run(Accumulator::hopper_split, a, b, Format::e5m2)(0, 0), 1 + static_cast<float>(k - 128) * 0x1p-14F);
}

TEST(LowPrecisionAccumulator, HopperHasFastAccumulationOfFp8Only) {
  Matrix a(1, 64, 0x1p-14F);
  Matrix b(1, 64, 1);
  a(0, 0) = 1;
  const float exact = 1 + 63 * 0x1p-14F;
  for (const Accumulator accumulator : {Accumulator::hopper, Accumulator::hopper_split}) {
    EXPECT_EQ(run(accumulator, a, b, Format::bf16, Format::bf16)(0, 0), exact);
    EXPECT_EQ(run(accumulator, a, b, Format::e5m2, Format::bf16)(0, 0), exact);
    EXPECT_EQ(run(accumulator, a, b, Format::e5m2, Format::e5m2)(0, 0), exact);  // no GPU multiplies these as FP8
    EXPECT_EQ(run(accumulator, a, b, Format::e5m2, Format::e4m3)(0, 0), 1);
  }
}

// As on a GPU: sums of blocks of 128 are promoted to be scaled, and MX is multiplied as BF16.
TEST(LowPrecisionAccumulator, ScalesDecideWhatHopperSumsIn) {
  const auto sums_of = [](Block block) {
    Stored x(both({.format = Format::e4m3, .block = block, .policy = ScalePolicy::current}), 128, 128);
    const Gemm op{.a = x.tensor.rows(), .b = x.tensor.rows(), .out = {}, .accumulator = Accumulator::hopper};
    return accumulator_of(op);
  };
  EXPECT_EQ(sums_of(block::tensor), Accumulator::hopper);
  EXPECT_EQ(sums_of(block::row), Accumulator::hopper);
  EXPECT_EQ(sums_of(block::b1x128), Accumulator::hopper_split);
  EXPECT_EQ(sums_of(block::b1x32), Accumulator::fp32);
}

TEST(LowPrecisionAccumulator, IsExactOnSumsThatFit) {
  const Size k = 12;
  Matrix a(4, k);
  Matrix b(3, k);
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] = i % 4 == 0 ? 1.0F : 0.0F;
  for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] = i % 5 == 0 ? -2.0F : 1.0F;
  const Doubles expected = product(a.doubles(), b.doubles(), 4, 3, k);
  for (const Accumulator accumulator : low_precision) {
    const Matrix out = run(accumulator, a, b);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(out.values[i], expected[i]);
  }
}

TEST(LowPrecisionAccumulator, AccuracyFallsWithTheWidth) {
  const Size k = 4096;
  Matrix a = on_grid(Format::e4m3, 8, k, 3, 1, 0.2F);
  Matrix b = on_grid(Format::e4m3, 8, k, 4, 1, 0.2F);
  const Doubles exact = product(a.doubles(), b.doubles(), 8, 8, k);
  double last = 0;
  for (const Accumulator accumulator :
       {Accumulator::fp32, Accumulator::hopper_split, Accumulator::hopper, Accumulator::fp16, Accumulator::fp8}) {
    const double error = relative_error(run(accumulator, a, b).values, exact);
    EXPECT_GE(error, last) << static_cast<int>(accumulator);
    last = error;
  }
  EXPECT_LT(relative_error(run(Accumulator::fp32, a, b).values, exact), 1e-5);
  EXPECT_LT(relative_error(run(Accumulator::hopper_split, a, b).values, exact), 1e-3);
  EXPECT_GT(relative_error(run(Accumulator::fp8, a, b).values, exact), 0.05);
}

}  // namespace
}  // namespace quaver::test
