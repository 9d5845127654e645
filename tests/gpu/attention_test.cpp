// Causal attention, by cuDNN and by the engine's own kernels, forward and backward.
#include <limits>
#include <tuple>

#include "gpu/compare.h"

namespace quaver::test {
namespace {

using Way = std::tuple<Format, AttentionBy>;

class AttentionTest : public GpuTest, public testing::WithParamInterface<Way> {
 protected:
  Pair& pair() const { return pair_of(std::get<0>(GetParam()), std::get<1>(GetParam())); }
  double limit() const { return std::get<0>(GetParam()) == Format::tf32 ? bound::tf32 : gemm_bound(pair()); }
};

constexpr HeadLayout layouts[] = {
    {1, 1, 1, 1, 24},    {3, 1, 4, 2, 64},      {2, 37, 3, 1, 24},  {2, 37, 4, 4, 64},    {1, 37, 6, 2, 128},
    {2, 128, 4, 2, 64},  {1, 128, 2, 2, 128},   {1, 128, 3, 3, 24}, {1, 200, 4, 1, 64},   {1, 200, 2, 1, 128},
    {1, 256, 14, 2, 64}, {2, 256, 2, 2, 24},    {1, 400, 2, 2, 64}, {10, 140, 14, 2, 64}, {9, 129, 16, 16, 64},
    {2, 400, 3, 3, 128}, {12, 130, 12, 2, 128}, {17, 3, 8, 4, 64},  {1, 1500, 14, 2, 64}, {1, 1300, 16, 4, 128}};

bool is_left_out(const HeadLayout& layout) { return is_brief() && layout.tokens() * layout.heads > 2000; }

std::string text_of(const HeadLayout& layout) {
  return std::to_string(layout.batch) + " × " + std::to_string(layout.sequence) + ", " + std::to_string(layout.heads) +
         "/" + std::to_string(layout.kv_heads) + " heads of " + std::to_string(layout.head_size);
}

// Columns [first, first + count) of a matrix.
Matrix columns_of(const Matrix& matrix, Size first, Size count) {
  Matrix part(matrix.rows, count);
  for (Size r = 0; r < matrix.rows; ++r) {
    for (Size c = 0; c < count; ++c) part(r, c) = matrix(r, first + c);
  }
  return part;
}

void expect_near_parts(const std::string& what, const HeadLayout& layout, const Twin& gradient, double limit) {
  const Matrix cpu = gradient.from_cpu();
  const Matrix gpu = gradient.from_gpu();
  const Size queries = layout.heads * layout.head_size;
  const Size keys = layout.kv_heads * layout.head_size;
  const double floor = 0.05;  // typical of gradients behind a softmax over a hundred keys
  const auto compare = [&](const char* part, Size first, Size count) {
    expect_near(what + part, columns_of(cpu, first, count), columns_of(gpu, first, count), limit, floor);
  };
  compare(", queries", 0, queries);
  compare(", keys", queries, keys);
  compare(", values", queries + keys, keys);
  EXPECT_TRUE(gradient.margins_are_intact()) << what;
}

TEST_P(AttentionTest, ForwardAndBackward) {
  for (const HeadLayout& layout : layouts) {
    if (is_left_out(layout)) continue;
    const std::string what = "attention " + text_of(layout);
    const float scale = 1 / std::sqrt(static_cast<float>(layout.head_size));
    const Size out = layout.heads * layout.head_size;
    Twin qkv(pair(), normal_matrix(layout.tokens(), layout.width(), 1));
    Twin result(pair(), layout.tokens(), out, 99);
    Twin log_sum(pair(), layout.batch * layout.heads, layout.sequence, 99, Kept::f32);
    Cells<float> max_logit(pair(), {-1e30F});
    pair().run(
        [&](On on) { return Attention{layout, qkv.on(on), scale, result.on(on), log_sum.on(on), max_logit.on(on)}; });
    expect_near(what + ", result", result, limit(), 0.05);
    expect_near(what + ", log sum", log_sum, limit(), 0.1);
    EXPECT_NEAR(max_logit.from_cpu()[0], max_logit.from_gpu()[0],
                limit() * (1 + std::abs(static_cast<double>(max_logit.from_cpu()[0]))))
        << what << ", max logit";

    Twin dy(pair(), normal_matrix(layout.tokens(), out, 2));
    Twin gradient(pair(), layout.tokens(), layout.width(), 99);
    pair().run([&](On on) {
      return AttentionBackward{layout, qkv.on(on), result.on(on), log_sum.on(on), dy.on(on), scale, gradient.on(on)};
    });
    expect_near_parts(what + ", backward", layout, gradient, limit());
  }
}

Matrix repeated_rows(const Matrix& matrix, Size times) {
  Matrix all(times * matrix.rows, matrix.cols);
  for (Size r = 0; r < all.rows; ++r) {
    for (Size c = 0; c < all.cols; ++c) all(r, c) = matrix(r % matrix.rows, c);
  }
  return all;
}

// The gradient of a sequence, `batch` times the same one.
Matrix gradient_on_gpu(Pair& pair, HeadLayout layout, Size batch) {
  const Size out = layout.heads * layout.head_size;
  const float scale = 1 / std::sqrt(static_cast<float>(layout.head_size));
  layout.batch = batch;
  Twin qkv(pair, repeated_rows(normal_matrix(layout.sequence, layout.width(), 1), batch));
  Twin dy(pair, repeated_rows(normal_matrix(layout.sequence, out, 2), batch));
  Twin result(pair, layout.tokens(), out, 99);
  Twin log_sum(pair, batch * layout.heads, layout.sequence, 99, Kept::f32);
  Twin gradient(pair, layout.tokens(), layout.width(), 99);
  pair.gpu->run(Attention{layout, qkv.gpu(), scale, result.gpu(), log_sum.gpu(), nullptr});
  pair.gpu->run(AttentionBackward{layout, qkv.gpu(), result.gpu(), log_sum.gpu(), dy.gpu(), scale, gradient.gpu()});
  return gradient.from_gpu();
}

// Few heads are spread over thread blocks that take turns, many are not: the sums of queries' gradients, and so their
// bits, are the same. Those of keys and values are added up in another order.
TEST_P(AttentionTest, TurnsDoNotChangeBits) {
  if (std::get<1>(GetParam()) != AttentionBy::own) GTEST_SKIP() << "cuDNN promises nothing of the kind";
  if (is_brief()) GTEST_SKIP() << "takes long";
  for (const HeadLayout& layout : {HeadLayout{1, 1500, 14, 2, 64}, {1, 1000, 16, 4, 128}}) {
    const Size many = 18;
    const Size queries = layout.heads * layout.head_size;
    const Size keys = 2 * layout.kv_heads * layout.head_size;
    const Matrix one = gradient_on_gpu(pair(), layout, 1);
    const Matrix all = gradient_on_gpu(pair(), layout, many);
    EXPECT_EQ(columns_of(repeated_rows(one, many), 0, queries).values, columns_of(all, 0, queries).values)
        << text_of(layout);
    expect_near(text_of(layout) + ", keys and values", columns_of(repeated_rows(one, many), queries, keys),
                columns_of(all, queries, keys), limit(), 0.05);
  }
}

// Rows of documents of these lengths, in turn, until a row is full.
std::vector<std::int32_t> starts_of(const HeadLayout& layout, const std::vector<Size>& lengths) {
  std::vector<std::int32_t> starts;
  std::size_t next = 0;
  for (Size row = 0; row < layout.batch; ++row) {
    Size left = layout.sequence;
    while (left > 0) {
      const Size length = std::min(left, lengths[next++ % lengths.size()]);
      starts.insert(starts.end(), index(length), static_cast<std::int32_t>(layout.sequence - left));
      left -= length;
    }
  }
  return starts;
}

const std::vector<std::vector<Size>> document_lengths = {{1}, {100000}, {64}, {63, 1, 129}, {5, 300, 17, 90, 1}};

TEST_P(AttentionTest, DocumentsForwardAndBackward) {
  for (const HeadLayout& layout : {HeadLayout{2, 37, 4, 4, 64},
                                   {2, 300, 6, 2, 64},
                                   {1, 400, 4, 2, 128},
                                   {2, 129, 3, 1, 24},
                                   {2, 200, 4, 2, 36},
                                   {1, 150, 2, 1, 256}}) {
    if (is_left_out(layout)) continue;
    for (const std::vector<Size>& lengths : document_lengths) {
      const std::string what =
          "attention " + text_of(layout) + ", documents from " + std::to_string(lengths.front()) + " tokens on";
      const float scale = 1 / std::sqrt(static_cast<float>(layout.head_size));
      const Size out = layout.heads * layout.head_size;
      Cells<std::int32_t> starts(pair(), starts_of(layout, lengths));
      Twin qkv(pair(), normal_matrix(layout.tokens(), layout.width(), 1));
      Twin result(pair(), layout.tokens(), out, 99);
      Twin log_sum(pair(), layout.batch * layout.heads, layout.sequence, 99, Kept::f32);
      pair().run([&](On on) {
        return Attention{layout, qkv.on(on), scale, result.on(on), log_sum.on(on), nullptr, starts.span(on)};
      });
      expect_near(what + ", result", result, limit(), 0.05);
      expect_near(what + ", log sum", log_sum, limit(), 0.1);
      Twin dy(pair(), normal_matrix(layout.tokens(), out, 2));
      Twin gradient(pair(), layout.tokens(), layout.width(), 99);
      pair().run([&](On on) {
        return AttentionBackward{layout,    qkv.on(on), result.on(on),   log_sum.on(on),
                                 dy.on(on), scale,      gradient.on(on), starts.span(on)};
      });
      expect_near_parts(what + ", backward", layout, gradient, limit());
    }
  }
}

TEST_P(AttentionTest, MaxLogitIsRaisedNeverLowered) {
  const HeadLayout layout{1, 33, 2, 1, 64};
  Twin qkv(pair(), normal_matrix(layout.tokens(), layout.width(), 1));
  Twin result(pair(), layout.tokens(), 128, 0);
  Twin log_sum(pair(), 2, 33, 0, Kept::f32);
  Cells<float> max_logit(pair(), {1e6F});
  pair().gpu->run(Attention{layout, qkv.gpu(), 0.125F, result.gpu(), log_sum.gpu(), max_logit.gpu()});
  EXPECT_EQ(max_logit.from_gpu()[0], 1e6F);
}

TEST_P(AttentionTest, LargeLogitsDoNotOverflow) {
  const HeadLayout layout{1, 70, 2, 2, 64};
  Twin qkv(pair(), normal_matrix(layout.tokens(), layout.width(), 1, 40));
  Twin result(pair(), layout.tokens(), 128, 0);
  Twin log_sum(pair(), 2, 70, 0, Kept::f32);
  Twin dy(pair(), normal_matrix(layout.tokens(), 128, 2));
  Twin gradient(pair(), layout.tokens(), layout.width(), 99);
  pair().gpu->run(Attention{layout, qkv.gpu(), 1, result.gpu(), log_sum.gpu(), nullptr});
  pair().gpu->run(AttentionBackward{layout, qkv.gpu(), result.gpu(), log_sum.gpu(), dy.gpu(), 1, gradient.gpu()});
  for (const Twin* twin : {&result, &log_sum, &gradient}) {
    for (const float value : twin->from_gpu().values) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST_P(AttentionTest, TenTimesTheSameBytes) {
  for (const HeadLayout& layout : {HeadLayout{2, 200, 4, 2, 64},
                                   {1, 256, 6, 2, 128},
                                   {1, 130, 2, 1, 24},
                                   {10, 260, 14, 7, 64},
                                   {12, 200, 12, 6, 128},
                                   {1, 5000, 14, 2, 64},
                                   {1, 3000, 12, 2, 128}}) {
    if (is_left_out(layout)) continue;
    const Size out = layout.heads * layout.head_size;
    Twin qkv(pair(), normal_matrix(layout.tokens(), layout.width(), 1));
    Twin dy(pair(), normal_matrix(layout.tokens(), out, 2));
    Cells<std::int32_t> starts(pair(), starts_of(layout, {63, 1, 129}));
    const auto run_packed = [&](int run) {
      Twin result(pair(), layout.tokens(), out, 0);
      Twin log_sum(pair(), layout.batch * layout.heads, layout.sequence, 0, Kept::f32);
      Twin gradient(pair(), layout.tokens(), layout.width(), static_cast<float>(run));
      const auto documents = starts.span(On::gpu);
      pair().gpu->run(Attention{layout, qkv.gpu(), 0.1F, result.gpu(), log_sum.gpu(), nullptr, documents});
      pair().gpu->run(
          AttentionBackward{layout, qkv.gpu(), result.gpu(), log_sum.gpu(), dy.gpu(), 0.1F, gradient.gpu(), documents});
      return gradient.gpu_bytes();
    };
    expect_same_bytes("attention of documents " + text_of(layout), run_packed(1), run_packed(2));
    std::vector<std::byte> first;
    for (int run = 0; run < (is_brief() ? 2 : 10); ++run) {
      Twin result(pair(), layout.tokens(), out, 0);
      Twin log_sum(pair(), layout.batch * layout.heads, layout.sequence, 0, Kept::f32);
      Twin gradient(pair(), layout.tokens(), layout.width(), static_cast<float>(run));
      pair().gpu->run(Attention{layout, qkv.gpu(), 0.1F, result.gpu(), log_sum.gpu(), nullptr});
      pair().gpu->run(
          AttentionBackward{layout, qkv.gpu(), result.gpu(), log_sum.gpu(), dy.gpu(), 0.1F, gradient.gpu()});
      std::vector<std::byte> bytes = gradient.gpu_bytes();
      for (const Twin* twin : {&result, &log_sum}) {
        const std::vector<std::byte> more = twin->gpu_bytes();
        bytes.insert(bytes.end(), more.begin(), more.end());
      }
      if (run == 0) first = bytes;
      expect_same_bytes("attention " + text_of(layout) + ", run " + std::to_string(run), first, bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, AttentionTest,
                         testing::Combine(testing::Values(Format::f32, Format::tf32, Format::bf16, Format::f16),
                                          testing::Values(AttentionBy::library, AttentionBy::own)),
                         [](const testing::TestParamInfo<Way>& instance) {
                           return name_of_case(std::get<0>(instance.param)) +
                                  (std::get<1>(instance.param) == AttentionBy::own ? "Own" : "Library");
                         });

}  // namespace
}  // namespace quaver::test
