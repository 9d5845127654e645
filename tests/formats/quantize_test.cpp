// Matrix casts against the plain reference: every block, scale, rounding and side, over awkward shapes.
#include "formats/quantize.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "support/every.h"

#include "formats/naive.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr RandomKey key{11, 22, 33};

RandomKey key_of(Side side) {
  return {key.seed, key.step, side == Side::rows ? key.stream : key.stream ^ columns_stream};
}

struct Shape {
  Size rows, cols;
};
constexpr Shape shapes[] = {{1, 1}, {3, 5}, {130, 129}, {257, 48}};

enum class Inputs : std::uint8_t { tame, wild };

// Normal numbers whose size varies from row to row and column to column; wild ones have zeros, tiny, huge and
// non-finite values and a block of zeros among them.
std::vector<float> make_input(Shape shape, Inputs inputs) {
  std::vector<float> x(static_cast<std::size_t>(shape.rows * shape.cols));
  random_normals({1, 2, 3}, 0, x.data(), shape.rows * shape.cols);
  for (Size r = 0; r < shape.rows; ++r) {
    for (Size c = 0; c < shape.cols; ++c)
      x[r * shape.cols + c] *= std::exp2(static_cast<float>((r / 9 + c / 20) % 11 - 7));
  }
  if (inputs == Inputs::tame) return x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % 13 == 5) x[i] = 0;
    if (i % 101 == 50) x[i] *= 1e-7F;
    if (i % 1009 == 77) x[i] = i % 2 == 0 ? infinity : nan;
    if (i % 1511 == 99) x[i] = -infinity;
    if (i / 64 % 9 == 8) x[i] = 0;
  }
  return x;
}

std::vector<QuantSpec> all_specs() {
  std::vector<QuantSpec> specs;
  for (const Format format : all_formats) {
    for (const Block block :
         {block::tensor, block::row, block::b1x128, block::b128x128, block::b1x32, block::b1x16, block::b16x16}) {
      for (int scale = 0; scale < 6; ++scale) {
        for (int policy = 0; policy < 4; ++policy) {
          for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic}) {
            for (const Rotation rotation : {Rotation::none, Rotation::hadamard}) {
              const QuantSpec spec{.format = format,
                                   .block = block,
                                   .scale = static_cast<ScaleFormat>(scale),
                                   .policy = static_cast<ScalePolicy>(policy),
                                   .rounding = rounding,
                                   .rotation = rotation};
              try {
                check(spec, "");
                specs.push_back(spec);
              } catch (const Error&) {
              }
            }
          }
        }
      }
    }
  }
  return specs;
}

void expect_same_statistics(const CastStatistics& a, const CastStatistics& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.nonfinite, b.nonfinite);
  EXPECT_EQ(a.saturated, b.saturated);
  EXPECT_EQ(a.underflowed, b.underflowed);
  EXPECT_EQ(a.amax, b.amax);
  EXPECT_EQ(a.min_nonzero, b.min_nonzero);
  EXPECT_EQ(a.binades, b.binades);
  EXPECT_NEAR(a.sum, b.sum, 1e-9 * (std::sqrt(b.sum2) + 1));
  EXPECT_NEAR(a.sum2, b.sum2, 1e-9 * b.sum2);
  EXPECT_NEAR(a.sum4, b.sum4, 1e-9 * b.sum4);
  EXPECT_NEAR(a.error2, b.error2, 1e-4 * b.error2 + 1e-13 * b.sum2);
}

void expect_reference(const QuantSpec& spec, Shape shape, Side side, Inputs inputs) {
  SCOPED_TRACE(describe(spec) + " " + std::to_string(shape.rows) + "x" + std::to_string(shape.cols) +
               (side == Side::rows ? " rows" : " columns"));
  const std::vector<float> x = make_input(shape, inputs);
  const Size rows = side == Side::rows ? shape.rows : shape.cols;
  const Size cols = side == Side::rows ? shape.cols : shape.rows;
  constexpr float given_scale = 3.7F;
  const naive::Reference wanted = naive::quantize(side == Side::rows ? x : naive::transpose(x, shape.rows, shape.cols),
                                                  rows, cols, spec, given_scale, key_of(side));
  naive::Storage got(spec, rows, cols);
  const CastStatistics stats =
      quantize({x.data(), shape.rows, shape.cols},
               {.side = side, .given_scale = given_scale, .random = key, .detail = Detail::full}, got.matrix);
  ASSERT_EQ(got.tensor_scale, wanted.tensor_scale);
  std::vector<float> decoded(x.size());
  decode_rows(got.matrix, 0, rows, decoded.data(), cols);
  for (Size r = 0; r < rows; ++r) {
    for (Size c = 0; c < cols; ++c) {
      const Size i = r * cols + c;
      ASSERT_EQ(got.block_scale(r, c), wanted.block_scales[i]) << r << " " << c;
      ASSERT_EQ(got.code(r, c), wanted.codes[i]) << r << " " << c;
      const float value = decode(spec.format, wanted.codes[i]) * wanted.block_scales[i];
      if (!std::isnan(value)) {
        ASSERT_EQ(decoded[i], value);
      }
    }
  }
  expect_same_statistics(stats, wanted.stats);
}

TEST(Quantize, AgreesWithThePlainReference) {
  const std::vector<QuantSpec> specs = all_specs();
  ASSERT_GT(specs.size(), 100U);
  for (std::size_t i = 0; i < specs.size(); i += test::every_nth) {
    const QuantSpec& spec = specs[i];
    if (spec.format > Format::e2m1 && i % 4 != 0) continue;  // blocks and scales are the same code for every format
    for (const Shape shape : shapes) {
      for (const Side side : {Side::rows, Side::columns}) {
        expect_reference(spec, shape, side, Inputs::tame);
        expect_reference(spec, shape, side, Inputs::wild);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Quantize, ShrinkAndMarginAgreeWithThePlainReference) {
  const QuantSpec specs[] = {
      {.format = Format::e2m1,
       .block = block::b1x32,
       .scale = ScaleFormat::e8m0,
       .policy = ScalePolicy::current,
       .rounding = Rounding::stochastic,
       .shrink = 0.75F},
      {.format = Format::e2m1,
       .block = block::b1x16,
       .scale = ScaleFormat::e4m3,
       .policy = ScalePolicy::current,
       .shrink = 0.75F},
      {.format = Format::e4m3, .policy = ScalePolicy::delayed, .shrink = 0.5F},
      {.format = Format::e4m3, .policy = ScalePolicy::current, .margin = 2},
      {.format = Format::e5m2, .block = block::row, .policy = ScalePolicy::current, .margin = 1},
      {.format = Format::e4m3,
       .block = block::b1x128,
       .scale = ScaleFormat::f32_power_of_two,
       .policy = ScalePolicy::current,
       .margin = 3},
  };
  for (const QuantSpec& spec : specs) {
    check(spec, "test");
    for (const Side side : {Side::rows, Side::columns}) expect_reference(spec, {130, 129}, side, Inputs::wild);
  }
}

TEST(Quantize, LongRowsAreCastInPiecesLikeShortOnes) {
  for (const Block block : {block::tensor, block::row, block::b1x16, block::b16x16, block::b128x128}) {
    QuantSpec spec{.format = Format::e2m1, .block = block, .policy = ScalePolicy::current};
    spec.rounding = Rounding::stochastic;
    for (const Side side : {Side::rows, Side::columns}) expect_reference(spec, {5, 2500}, side, Inputs::wild);
  }
}

TEST(Quantize, SeveralThreadsAgreeWithThePlainReference) {
  for (const Block block : {block::tensor, block::row, block::b1x32, block::b16x16}) {
    const QuantSpec spec{.format = Format::e4m3, .block = block, .policy = ScalePolicy::current};
    for (const Side side : {Side::rows, Side::columns}) expect_reference(spec, {1000, 150}, side, Inputs::wild);
  }
  const QuantSpec rotated{.format = Format::e2m1,
                          .block = block::b1x16,
                          .scale = ScaleFormat::e4m3,
                          .policy = ScalePolicy::current,
                          .rotation = Rotation::hadamard};
  for (const Side side : {Side::rows, Side::columns}) expect_reference(rotated, {1000, 150}, side, Inputs::tame);
}

// Tiles may come in any order, each from memory with a stride of its own, and give what the whole matrix gives.
TEST(Quantize, TilesAreIndependent) {
  const Shape shape{300, 70};
  const std::vector<float> x = make_input(shape, Inputs::wild);
  const Size stride = 77;
  std::vector<float> strided(static_cast<std::size_t>(shape.rows * stride), nan);
  for (Size r = 0; r < shape.rows; ++r) std::copy_n(x.data() + r * shape.cols, shape.cols, strided.data() + r * stride);
  for (const QuantSpec& spec : all_specs()) {
    for (const Side side : {Side::rows, Side::columns}) {
      const Size rows = side == Side::rows ? shape.rows : shape.cols;
      const Size cols = side == Side::rows ? shape.cols : shape.rows;
      naive::Storage whole(spec, rows, cols), tiled(spec, rows, cols);
      quantize({x.data(), shape.rows, shape.cols},
               {.side = side, .given_scale = 2.0F, .random = key, .detail = Detail::counts}, whole.matrix);
      prepare_scales({x.data(), shape.rows, shape.cols}, {.side = side, .given_scale = 2.0F, .random = key},
                     tiled.matrix);
      CastStatistics stats;
      for (const Size first : {Size{256}, Size{0}, Size{128}}) {
        quantize_tile({strided.data() + first * stride, stride, first, std::min(tile_rows, shape.rows - first)},
                      {.side = side, .random = key, .detail = Detail::counts}, tiled.matrix, stats);
      }
      ASSERT_EQ(whole.codes, tiled.codes) << describe(spec);
      ASSERT_EQ(whole.scales, tiled.scales) << describe(spec);
      ASSERT_EQ(stats.count, static_cast<std::uint64_t>(shape.rows * shape.cols));
    }
  }
}

TEST(Quantize, ScalesThatDoNotNeedTheTensorArePreparedWithoutIt) {
  for (const QuantSpec& spec : all_specs()) {
    for (const Side side : {Side::rows, Side::columns}) {
      if (needs_whole_tensor(spec, side)) continue;
      naive::Storage out(spec, 4, 4);
      prepare_scales({nullptr, 4, 4}, {.side = side, .given_scale = 2.0F, .random = key}, out.matrix);
      const bool given = spec.policy == ScalePolicy::delayed || spec.policy == ScalePolicy::fixed;
      EXPECT_EQ(out.tensor_scale, given ? 0.5F : 1.0F) << describe(spec);
    }
  }
}

TEST(Quantize, WhereColumnsShareRowsTheyAreTheTranspose) {
  const Shape shape{150, 67};
  const std::vector<float> x = make_input(shape, Inputs::wild);
  int shared = 0;
  for (const QuantSpec& spec : all_specs()) {
    if (!columns_share_rows(spec, spec)) continue;
    ++shared;
    naive::Storage rows(spec, shape.rows, shape.cols), columns(spec, shape.cols, shape.rows);
    quantize({x.data(), shape.rows, shape.cols},
             {.side = Side::rows, .given_scale = 2.0F, .random = key, .detail = Detail::counts}, rows.matrix);
    quantize({x.data(), shape.rows, shape.cols},
             {.side = Side::columns, .given_scale = 2.0F, .random = key, .detail = Detail::counts}, columns.matrix);
    ASSERT_EQ(rows.tensor_scale, columns.tensor_scale);
    for (Size r = 0; r < shape.rows; ++r) {
      for (Size c = 0; c < shape.cols; ++c) {
        ASSERT_EQ(rows.code(r, c), columns.code(c, r)) << describe(spec);
        ASSERT_EQ(rows.block_scale(r, c), columns.block_scale(c, r)) << describe(spec);
      }
    }
  }
  EXPECT_GT(shared, 10);
  const QuantSpec one_row{.format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current};
  EXPECT_FALSE(columns_share_rows(one_row, one_row));
}

TEST(Quantize, TheTwoSidesDrawDifferentRandomWords) {
  const QuantSpec spec{.format = Format::e2m1, .rounding = Rounding::stochastic};
  const std::vector<float> x(64, 1.25F);
  naive::Storage rows(spec, 8, 8), columns(spec, 8, 8);
  quantize({x.data(), 8, 8}, {.side = Side::rows, .given_scale = 1.0F, .random = key, .detail = Detail::counts},
           rows.matrix);
  quantize({x.data(), 8, 8}, {.side = Side::columns, .given_scale = 1.0F, .random = key, .detail = Detail::counts},
           columns.matrix);
  EXPECT_NE(rows.codes, columns.codes);
}

TEST(Quantize, F32MayBeCastInPlace) {
  std::vector<float> x = make_input({130, 10}, Inputs::wild);
  const std::vector<float> before = x;
  naive::Storage out({}, 130, 10);
  out.matrix.codes = reinterpret_cast<std::byte*>(x.data());
  const CastStatistics stats =
      quantize({x.data(), 130, 10}, {.side = Side::rows, .given_scale = 1.0F, .random = key, .detail = Detail::full},
               out.matrix);
  EXPECT_EQ(stats.error2, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(x[i] == before[i] || (std::isnan(x[i]) && std::isnan(before[i])));
  }
}

TEST(Quantize, BadCallsAreErrors) {
  const float x[4] = {1, 2, 3, 4};
  naive::Storage out({.format = Format::e4m3, .policy = ScalePolicy::delayed}, 2, 2);
  EXPECT_THROW(prepare_scales({x, 2, 2}, {.side = Side::rows, .given_scale = 0.0F, .random = key}, out.matrix), Error);
  EXPECT_THROW(prepare_scales({x, 2, 2}, {.side = Side::rows, .given_scale = infinity, .random = key}, out.matrix),
               Error);
  EXPECT_THROW(quantize({x, 1, 4}, {.side = Side::rows, .given_scale = 1.0F, .random = key, .detail = Detail::counts},
                        out.matrix),
               Error);
}

TEST(Quantize, EmptyMatricesAreFine) {
  naive::Storage out({.format = Format::e4m3, .policy = ScalePolicy::current}, 0, 16);
  const CastStatistics stats = quantize(
      {nullptr, 0, 16}, {.side = Side::rows, .given_scale = 1.0F, .random = key, .detail = Detail::full}, out.matrix);
  EXPECT_EQ(stats.count, 0U);
  EXPECT_EQ(out.tensor_scale, 1.0F);
}

}  // namespace
}  // namespace quaver
