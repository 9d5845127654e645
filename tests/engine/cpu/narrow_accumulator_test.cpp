// Models of narrow accumulators: against scalar loops, bit for bit, and in the order of accuracy their widths promise.
#include <bit>

#include "engine/support.h"

namespace quaver::test {
namespace {

struct Model {
  Accumulator accumulator;
  int mantissa;
  bool truncates;
  Size chunk;      // products summed before the partial sum is rounded
  Size promotion;  // products after which it moves into an FP32 total; 0: never
};

constexpr Model models[] = {{Accumulator::hopper, 13, true, 32, 0},
                            {Accumulator::hopper_split, 13, true, 32, 128},
                            {Accumulator::fp16, 10, false, 1, 0},
                            {Accumulator::fp8, 3, false, 1, 0}};

// x with `mantissa` explicit bits, toward zero or to the nearest (ties away).
float shortened(float x, int mantissa, bool truncates) {
  if (x == 0) return x;
  const double unit = std::ldexp(1.0, std::ilogb(x) - mantissa);
  const double units = static_cast<double>(x) / unit;
  return static_cast<float>((truncates ? std::trunc(units) : std::round(units)) * unit);
}

float scalar_sum(const Model& model, const float* a, const float* b, Size k) {
  float total = 0;
  float sum = 0;
  for (Size p = 0; p < k;) {
    float partial = 0;
    const Size end = std::min(k, p + model.chunk);
    for (; p < end; ++p) partial += a[p] * b[p];
    sum = shortened(sum + partial, model.mantissa, model.truncates);
    if (p == k || (model.promotion > 0 && p % model.promotion == 0)) {
      total += sum;
      sum = 0;
    }
  }
  return total;
}

Matrix run(Accumulator accumulator, Matrix& a, Matrix& b) {
  const auto engine = make_cpu_engine(1);
  Site site;
  float one = 1;
  const QuantizedTensor qa(site, a.view(), &one);
  const QuantizedTensor qb(site, b.view(), &one);
  Matrix out(a.rows, b.rows);
  engine->matmul({.a = qa.rows(), .b = qb.rows(), .out = out.view(), .accumulator = accumulator});
  return out;
}

// Values on E4M3's grid: their products are exact, so fused and separate multiply-adds agree.
Matrix on_fp8_grid(Size rows, Size cols, std::uint32_t stream, float mean) {
  Matrix matrix = random_matrix(rows, cols, stream, 1, mean);
  for (float& x : matrix.values) x = decode(Format::e4m3, encode(Format::e4m3, x));
  return matrix;
}

TEST(NarrowAccumulator, EqualsAScalarLoop) {
  for (const Model& model : models) {
    for (const Size k : {1, 31, 32, 33, 128, 129, 300, 1000}) {
      Matrix a = on_fp8_grid(3, k, 1, 0.3F);
      Matrix b = on_fp8_grid(5, k, 2, 0.3F);
      const Matrix out = run(model.accumulator, a, b);
      for (Size i = 0; i < 3; ++i) {
        for (Size j = 0; j < 5; ++j) {
          const float want = scalar_sum(model, &a.values[index(i * k)], &b.values[index(j * k)], k);
          ASSERT_EQ(out(i, j), want) << "accumulator " << static_cast<int>(model.accumulator) << " k " << k;
        }
      }
    }
  }
}

TEST(NarrowAccumulator, HopperTruncatesTowardZero) {
  // 1 + 2^-14 needs 14 mantissa bits and more: truncation gives 1, and −1 on the other side.
  for (const float sign : {1.0F, -1.0F}) {
    Matrix a(1, 33, 0);
    Matrix b(1, 33, 1);
    a(0, 0) = sign;
    a(0, 32) = sign * 0x1.8p-14F;  // a second chunk: added to a stored sum
    EXPECT_EQ(run(Accumulator::hopper, a, b)(0, 0), sign);
    a(0, 32) = sign * 0x1p-13F;
    EXPECT_EQ(run(Accumulator::hopper, a, b)(0, 0), sign * (1 + 0x1p-13F));
  }
}

TEST(NarrowAccumulator, IsExactOnSumsThatFit) {
  const Size k = 12;
  Matrix a(4, k);
  Matrix b(3, k);
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] = i % 4 == 0 ? 1.0F : 0.0F;
  for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] = i % 5 == 0 ? -2.0F : 1.0F;
  const Doubles expected = product(a.doubles(), b.doubles(), 4, 3, k);
  for (const Model& model : models) {
    const Matrix out = run(model.accumulator, a, b);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(out.values[i], expected[i]);
  }
}

TEST(NarrowAccumulator, AccuracyFallsWithTheWidth) {
  const Size k = 4096;
  Matrix a = on_fp8_grid(8, k, 3, 0.2F);
  Matrix b = on_fp8_grid(8, k, 4, 0.2F);
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
