// Tokens that are decoded one at a time give what the whole sequence gives: attention to a cache, positions that begin
// anywhere, and GEMMs whose rows do not know each other.
#include "engine/support.h"

namespace quaver::test {
namespace {

// A cache of three sequences, of which the test's are 2 and 0.
struct DecodeFixture {
  explicit DecodeFixture(const HeadLayout& layout_)
      : layout(layout_),
        keys(3 * layout_.kv_heads * capacity, layout_.head_size, 99),
        values(3 * layout_.kv_heads * capacity, layout_.head_size, 99) {}

  KeyValues cache() { return {keys.view(), values.view(), capacity}; }
  HeadLayout one_token() const { return {2, 1, layout.heads, layout.kv_heads, layout.head_size}; }

  static constexpr Size capacity = 75;
  HeadLayout layout;
  Matrix keys;
  Matrix values;
  std::vector<std::int32_t> slots{2, 0};
};

Matrix rows_at(const Matrix& matrix, const HeadLayout& layout, Size position) {
  Matrix rows(layout.batch, matrix.cols);
  for (Size b = 0; b < layout.batch; ++b) {
    for (Size c = 0; c < matrix.cols; ++c) rows(b, c) = matrix(b * layout.sequence + position, c);
  }
  return rows;
}

TEST(AttentionDecode, OfEveryTokenIsItsRowOfAttention) {
  const auto engine = make_cpu_engine(2);
  for (const HeadLayout& layout : {HeadLayout{2, 1, 1, 1, 3}, {2, 70, 4, 2, 5}, {2, 70, 3, 1, 16}}) {
    DecodeFixture fixture(layout);
    const Size out = layout.heads * layout.head_size;
    Matrix qkv = random_matrix(layout.tokens(), layout.width(), 1);
    Matrix whole(layout.tokens(), out);
    Matrix log_sum(layout.batch * layout.heads, layout.sequence);
    engine->run(Attention{layout, qkv.view(), 0.7F, whole.view(), log_sum.view()});
    for (Size t = 0; t < layout.sequence; ++t) {
      Matrix row = rows_at(qkv, layout, t);
      Matrix result(2, out, 99);
      const std::vector<std::int32_t> first(2, static_cast<std::int32_t>(t));
      const CachedSequences at{fixture.slots, first};
      engine->run(StoreKeyValues{fixture.one_token(), row.view(), fixture.cache(), at});
      engine->run(AttentionDecode{fixture.one_token(), row.view(), fixture.cache(), at, 0.7F, result.view()});
      expect_close(result.values, rows_at(whole, layout, t).doubles(), 1e-6, "token " + std::to_string(t));
    }
  }
}

// Stored together or one by one, and nothing beyond them.
TEST(StoreKeyValues, WritesItsTokensAlone) {
  const auto engine = make_cpu_engine(1);
  const HeadLayout layout{2, 9, 4, 2, 5};
  DecodeFixture together(layout);
  DecodeFixture apart(layout);
  Matrix qkv = random_matrix(layout.tokens(), layout.width(), 1);
  const std::vector<std::int32_t> begin{3, 40};
  engine->run(StoreKeyValues{layout, qkv.view(), together.cache(), {together.slots, begin}});
  for (std::int32_t t = 0; t < 9; ++t) {
    Matrix row = rows_at(qkv, layout, t);
    const std::vector<std::int32_t> first{3 + t, 40 + t};
    engine->run(StoreKeyValues{apart.one_token(), row.view(), apart.cache(), {apart.slots, first}});
  }
  EXPECT_EQ(together.keys.values, apart.keys.values);
  EXPECT_EQ(together.values.values, apart.values.values);
  const auto written =
      std::count_if(apart.keys.values.begin(), apart.keys.values.end(), [](float x) { return x != 99; });
  EXPECT_EQ(written, layout.tokens() * layout.kv_heads * layout.head_size);
}

TEST(FirstPositions, MoveTheRotationAndTheLearnedPositions) {
  const auto engine = make_cpu_engine(1);
  const HeadLayout layout{2, 11, 2, 1, 6};
  Matrix qkv = random_matrix(layout.tokens(), layout.width(), 1);
  Matrix whole(layout.tokens(), layout.width());
  engine->run(PrepareHeads{.layout = layout, .theta = 100, .in = qkv.view(), .out = whole.view()});
  Matrix table = random_matrix(7, 4, 2);
  Matrix positions = random_matrix(11, 4, 3);
  const std::vector<std::int32_t> tokens(22, 5);
  Matrix embedded(22, 4);
  engine->run(Embed{
      .tokens = tokens, .sequence = 11, .table = table.view(), .positions = positions.view(), .out = embedded.view()});
  for (const std::int32_t t : {0, 4, 10}) {
    const HeadLayout one{2, 1, 2, 1, 6};
    Matrix row = rows_at(qkv, layout, t);
    Matrix rotated(2, layout.width());
    const std::vector<std::int32_t> first{t, t};
    engine->run(PrepareHeads{
        .layout = one, .theta = 100, .in = row.view(), .out = rotated.view(), .first = first, .positions = 11});
    EXPECT_EQ(rotated.values, rows_at(whole, layout, t).values);
    Matrix out(2, 4);
    engine->run(Embed{.tokens = std::span(tokens).first(2),
                      .sequence = 1,
                      .table = table.view(),
                      .positions = positions.view(),
                      .out = out.view(),
                      .first = first});
    EXPECT_EQ(out.values, rows_at(embedded, layout, t).values);
  }
}

class GemmOfRowsApart : public testing::TestWithParam<LayerSpecs> {};

// The same product, and each row the same bits whatever the others are.
TEST_P(GemmOfRowsApart, IsTheSameForARowByItself) {
  const auto engine = make_cpu_engine(2);
  for (const Size n : {1, 5, 37, 130}) {
    Matrix values = random_matrix(6, 160, 1);
    Matrix weights = random_matrix(n, 160, 2);
    Matrix bias = random_matrix(1, n, 3);
    Stored x(GetParam().x, 6, 160, Copies::rows_only);
    Stored w(GetParam().w, n, 160, Copies::both, "site/w");
    engine->run(Quantize{values.view(), x.tensor, {}});
    engine->run(Quantize{weights.view(), w.tensor, {}});
    const auto product = [&](Size first, Size count, GemmRows rows) {
      Matrix out(count, n, 99);
      engine->run(Gemm{.a = {slice_rows(x.tensor.rows_matrix(), first, count), false},
                       .b = w.tensor.rows(),
                       .out = out.view(),
                       .bias = bias.view(),
                       .alpha = 0.5F,
                       .rows = rows});
      return out;
    };
    const Matrix together = product(0, 6, GemmRows::together);
    const Matrix apart = product(0, 6, GemmRows::apart);
    expect_close(apart.values, together.doubles(), 2e-6, "n = " + std::to_string(n));
    for (Size r = 0; r < 6; ++r) {
      const Matrix row = product(r, 1, GemmRows::apart);
      EXPECT_TRUE(std::equal(row.values.begin(), row.values.end(), apart.values.begin() + r * n)) << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, GemmOfRowsApart, testing::ValuesIn(all_layer_specs()), recipe_name);

}  // namespace
}  // namespace quaver::test
