// What the public headers compute is what the internals compute, bit for bit.
#include "quaver/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/random_matrix.h"

#include "formats/quantize.h"
#include "quaver/error.h"
#include "quaver/recipe.h"
#include "quaver/scales.h"

namespace quaver {
namespace {

// Every spec of every recipe, both sides.
std::vector<QuantSpec> all_specs() {
  std::vector<QuantSpec> specs;
  for (const RecipeInfo& known : recipes()) {
    const Recipe recipe = find_recipe(known.name);
    for (const SiteSpec* site : {&recipe.x, &recipe.w, &recipe.dy}) {
      specs.push_back(site->rows);
      specs.push_back(site->columns);
    }
  }
  return specs;
}

TEST(QuantizedMatrixTest, HasTheCodesAndScalesOfTheCast) {
  const Size rows = 130;
  const Size cols = 96;
  const std::vector<float> x = test::random_matrix(rows, cols, 1);
  for (const QuantSpec& spec : all_specs()) {
    for (const Side side : {Side::rows, Side::columns}) {
      SCOPED_TRACE(describe(spec));
      const QuantizedMatrix made({x, rows, cols}, {.spec = spec, .side = side, .scale = 3, .seed = 5, .step = 2});
      CodeMatrix expected{spec, side == Side::rows ? rows : cols, side == Side::rows ? cols : rows};
      std::vector<std::byte> codes(static_cast<std::size_t>(expected.code_bytes()));
      std::vector<float> scales(static_cast<std::size_t>(expected.scale_rows() * expected.scale_cols()));
      float tensor_scale = 0;
      expected.codes = codes.data();
      expected.block_scales = expected.has_block_scales() ? scales.data() : nullptr;
      expected.tensor_scale = &tensor_scale;
      const CastStatistics seen = quantize({x.data(), rows, cols}, {side, 3, {5, 2, 0}, Detail::counts}, expected);
      EXPECT_TRUE(std::ranges::equal(made.codes(), codes));
      EXPECT_EQ(made.tensor_scale(), tensor_scale);
      if (!expected.has_block_scales()) scales.clear();
      EXPECT_TRUE(std::ranges::equal(made.block_scales(), scales));
      EXPECT_EQ(made.statistics().amax, seen.amax);
      EXPECT_EQ(made.statistics().underflowed, seen.underflowed);
      EXPECT_EQ(made.rows(), expected.rows);
    }
  }
}

TEST(QuantizedMatrixTest, DequantizesToWithinTheFormatsPrecision) {
  const std::vector<float> x = test::random_matrix(64, 64, 2);
  for (const QuantSpec& spec : all_specs()) {
    SCOPED_TRACE(describe(spec));
    const QuantizedMatrix made({x, 64, 64}, {.spec = spec, .scale = 16, .seed = 5, .detail = Detail::full});
    const std::vector<float> back = made.dequantize();
    double error = 0;
    double power = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      error += std::pow(back[i] - x[i], 2);
      power += std::pow(x[i], 2);
    }
    EXPECT_LT(error, 0.05 * power);
    EXPECT_NEAR(error, made.statistics().error2, 1e-3 * error);
  }
}

TEST(QuantizedMatrixTest, AGemmIsTheProductOfTheDequantizedMatrices) {
  const QuantSpec spec = find_recipe("mxfp8").x.rows;
  const QuantizedMatrix a({test::random_matrix(5, 64, 1), 5, 64}, {.spec = spec});
  const QuantizedMatrix b({test::random_matrix(64, 3, 2), 64, 3}, {.spec = spec, .side = Side::columns});
  std::vector<float> out(15);
  gemm(a, b, out);
  const std::vector<float> va = a.dequantize();
  const std::vector<float> vb = b.dequantize();
  for (std::size_t i = 0; i < 15; ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < 64; ++k) sum += static_cast<double>(va[i / 3 * 64 + k]) * vb[i % 3 * 64 + k];
    EXPECT_NEAR(out[i], sum, 1e-4);
  }
}

TEST(QuantizedMatrixTest, RefusesWhatHasNoMeaning) {
  const std::vector<float> x(12, 1.0F);
  const QuantSpec e4m3{.format = Format::e4m3, .policy = ScalePolicy::current};
  EXPECT_THROW(QuantizedMatrix({x, 3, 5}, {.spec = e4m3}), Error);
  EXPECT_THROW(QuantizedMatrix({x, -3, -4}, {.spec = e4m3}), Error);
  EXPECT_THROW(QuantizedMatrix({x, Size{1} << 62, Size{1} << 62}, {.spec = e4m3}), Error);
  EXPECT_THROW(QuantizedMatrix({x, 3, 4}, {.spec = {.format = Format::e4m3, .block = {3, 3}}}), Error);
  EXPECT_THROW(QuantizedMatrix({x, 3, 4}, {.spec = e4m3, .scale = -1}), Error);
  const QuantizedMatrix a({x, 3, 4}, {.spec = e4m3});
  const QuantizedMatrix b({x, 4, 3}, {.spec = e4m3});
  std::vector<float> out(9);
  EXPECT_THROW(gemm(a, b, out), Error);
  EXPECT_THROW(gemm(a, a, std::span(out).first(8)), Error);
}

// Matrices in the memory of a device, which may be the host's: the same codes, scales and statistics.
DeviceMatrix on_cpu(std::vector<float>& values, Size rows, Size cols) {
  return {.values = values.data(), .rows = rows, .cols = cols, .device = DeviceKind::cpu};
}

struct OnDevice {
  OnDevice(DeviceMatrix x, const CastSettings& settings)
      : needed(QuantizedMatrix::memory(x, settings)),
        kept(needed.kept),
        scratch(needed.scratch),
        matrix(x, settings, {kept, scratch}) {}
  CastMemory needed;
  std::vector<std::byte> kept;
  std::vector<std::byte> scratch;
  QuantizedMatrix matrix;
};

TEST(QuantizedMatrixTest, OnADeviceIsWhatItIsOnTheHost) {
  const Size rows = 130;
  const Size cols = 96;
  std::vector<float> x = test::random_matrix(rows, cols, 1);
  for (const QuantSpec& spec : all_specs()) {
    for (const Side side : {Side::rows, Side::columns}) {
      SCOPED_TRACE(describe(spec));
      const CastSettings settings{.spec = spec, .side = side, .scale = 3, .seed = 5, .step = 2, .detail = Detail::full};
      const QuantizedMatrix expected({x, rows, cols}, settings);
      const OnDevice made(on_cpu(x, rows, cols), settings);
      EXPECT_FALSE(made.matrix.on_gpu());
      EXPECT_TRUE(std::ranges::equal(made.matrix.codes(), expected.codes()));
      EXPECT_TRUE(std::ranges::equal(made.matrix.block_scales(), expected.block_scales()));
      EXPECT_EQ(made.matrix.tensor_scale(), expected.tensor_scale());
      EXPECT_EQ(made.matrix.statistics().saturated, expected.statistics().saturated);
      EXPECT_EQ(made.matrix.statistics().underflowed, expected.statistics().underflowed);
      EXPECT_EQ(made.matrix.statistics().binades, expected.statistics().binades);
      std::vector<float> values(x.size());
      made.matrix.dequantize(on_cpu(values, made.matrix.rows(), made.matrix.cols()));
      EXPECT_EQ(values, expected.dequantize());
      std::vector<float> product(static_cast<std::size_t>(expected.rows() * expected.rows()));
      std::vector<float> expected_product(product.size());
      gemm(made.matrix, made.matrix, on_cpu(product, expected.rows(), expected.rows()));
      gemm(expected, expected, expected_product);
      EXPECT_EQ(product, expected_product);
    }
  }
}

TEST(QuantizedMatrixTest, RefusesDeviceMatricesThatItCannotUse) {
  std::vector<float> x = test::random_matrix(16, 32, 1);
  const CastSettings settings{.spec = {.format = Format::e4m3, .policy = ScalePolicy::current}};
  const DeviceMatrix good = on_cpu(x, 16, 32);
  const auto with = [&](auto change) {
    DeviceMatrix matrix = good;
    change(matrix);
    return matrix;
  };
  for (const DeviceMatrix& bad :
       {with([](DeviceMatrix& m) { m.rows = 0; }), with([](DeviceMatrix& m) { m.values = nullptr; }),
        with([](DeviceMatrix& m) { m.format = Format::bf16; }), with([](DeviceMatrix& m) { m.rows = Size{1} << 62; }),
        with([](DeviceMatrix& m) { m.device = DeviceKind::automatic; })}) {
    EXPECT_THROW(QuantizedMatrix::memory(bad, settings), Error);
  }
  std::vector<std::byte> little(16);
  EXPECT_THROW(QuantizedMatrix(good, settings, {little, {}}), Error);
  const OnDevice made(good, settings);
  EXPECT_THROW(made.matrix.dequantize(with([](DeviceMatrix& m) { m.cols = 16; })), Error);
  EXPECT_THROW(gemm(made.matrix, made.matrix, good), Error);
}

TEST(RecipesTest, AreFoundByNameAndTakeSettings) {
  EXPECT_GE(recipes().size(), 13U);
  EXPECT_EQ(find_recipe("fp8-delayed", {"precision.margin=2"}).x.rows.margin, 2);
  EXPECT_THROW(find_recipe("fp9"), Error);
  const std::string own = "recipes.own={ x = \"int8 row current\", w = \"int8 row current\", dy = \"bf16\" }";
  EXPECT_EQ(describe(find_recipe("own", {own}).w.columns), "int8 row current");
  EXPECT_THROW(find_recipe("bf16", {"train.steps=3"}), Error);
  EXPECT_THAT(describe(find_recipe("nvfp4")), testing::HasSubstr("w   rowwise e2m1 16x16/e4m3 current"));
}

TEST(ScalesTest, ADelayedScaleFollowsTheLargestAmaxOfItsHistory) {
  Scales scales({.history = 2});
  scales.add("x", find_recipe("fp8-delayed").x.rows);
  EXPECT_EQ(scales.scale("x"), 0);
  for (const float amax : {7.0F, 2.0F, 1.0F}) {
    CastStatistics seen;
    seen.count = 1;
    seen.amax = amax;
    scales.observe("x", seen);
    scales.end_step();
  }
  EXPECT_EQ(scales.scale("x"), 448.0F / 2);
  EXPECT_THAT(scales.history("x"), testing::ElementsAre(2, 1));
  Scales copy({.history = 2});
  copy.add("x", find_recipe("fp8-delayed").x.rows);
  EXPECT_THAT(copy.load(scales.to_json()), testing::IsEmpty());
  EXPECT_EQ(copy.scale("x"), scales.scale("x"));
  EXPECT_THROW(copy.load("[[["), Error);
  EXPECT_THROW(copy.add("x", {}), Error);
  EXPECT_THROW(scales.scale("y"), Error);
}

}  // namespace
}  // namespace quaver
