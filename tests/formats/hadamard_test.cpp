#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "formats/quantize.h"

namespace quaver {
namespace {

constexpr RandomKey rotation_key{77, 5, 1};

std::vector<float> normals(Size count, std::uint32_t stream) {
  std::vector<float> x(static_cast<std::size_t>(count));
  random_normals({1, 1, stream}, 0, x.data(), count);
  return x;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

TEST(Hadamard, IsTheSignedHadamardMatrix) {
  // Column j of the transform: the image of a unit vector is a quarter of ± the Hadamard matrix's column.
  for (std::uint32_t j = 0; j < 16; ++j) {
    std::vector<float> x(16, 0.0F);
    x[j] = 1;
    rotate_row(x.data(), 16, rotation_key);
    const float sign = x[0] > 0 ? 1.0F : -1.0F;
    for (std::uint32_t i = 0; i < 16; ++i) {
      EXPECT_EQ(x[i], sign * (std::popcount(i & j) % 2 == 0 ? 0.25F : -0.25F));
    }
  }
}

TEST(Hadamard, KeepsLengthsAndUnrotates) {
  for (const Size count : {16, 48, 128, 1000}) {
    const std::vector<float> x = normals(count, 1);
    std::vector<float> y = x;
    rotate_row(y.data(), count, rotation_key);
    EXPECT_NEAR(dot(y, y), dot(x, x), 1e-5 * dot(x, x));
    unrotate_row(y.data(), count, rotation_key);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-5F);
  }
}

TEST(Hadamard, LeavesARaggedEndAlone) {
  const std::vector<float> x = normals(39, 1);
  std::vector<float> y = x;
  rotate_row(y.data(), 39, rotation_key);
  EXPECT_NE(y[31], x[31]);
  for (std::size_t i = 32; i < 39; ++i) EXPECT_EQ(y[i], x[i]);
}

// The two operands of a GEMM have different streams; their signs must agree all the same.
TEST(Hadamard, GemmsOfRotatedRowsAreUnchanged) {
  const std::vector<float> a = normals(200, 1), b = normals(200, 2);
  std::vector<float> ra = a, rb = b;
  rotate_row(ra.data(), 200, {rotation_key.seed, rotation_key.step, 111});
  rotate_row(rb.data(), 200, {rotation_key.seed, rotation_key.step + 7, 222});
  EXPECT_NEAR(dot(ra, rb), dot(a, b), 1e-4);
}

TEST(Hadamard, SignsChangeWithTheSeed) {
  int different = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<float> a = normals(16, 1), b = a;
    rotate_row(a.data(), 16, {seed, 0, 0});
    rotate_row(b.data(), 16, {seed + 1, 0, 0});
    different += a != b ? 1 : 0;
  }
  EXPECT_GT(different, 15);
}

TEST(Hadamard, SpreadsAnOutlier) {
  std::vector<float> x(16, 0.0F);
  x[3] = 16;
  rotate_row(x.data(), 16, rotation_key);
  for (const float v : x) EXPECT_EQ(std::abs(v), 4.0F);
}

}  // namespace
}  // namespace quaver
