// Causal attention against a plain softmax in double, over block boundaries and grouped heads; gradients by
// differences.
#include <limits>

#include "engine/support.h"

namespace quaver::test {
namespace {

struct AttentionCase {
  const char* name;
  HeadLayout layout;
};

void PrintTo(const AttentionCase& instance, std::ostream* out) { *out << instance.name; }

// 64 query rows make a block.
constexpr AttentionCase attention_cases[] = {{"OneToken", {2, 1, 2, 2, 4}},
                                             {"Seven", {2, 7, 2, 1, 4}},
                                             {"OneBlock", {1, 64, 1, 1, 8}},
                                             {"BlockAndOne", {1, 65, 2, 1, 3}},
                                             {"ThreeBlocks", {2, 130, 4, 2, 5}}};

constexpr double scale = 0.7F;

struct AttentionReference {
  Doubles result;
  Doubles log_sum;
  double max_logit = -std::numeric_limits<double>::infinity();
};

AttentionReference attend(const HeadLayout& layout, const Doubles& qkv) {
  const Size e = layout.head_size;
  const Size group = layout.heads / layout.kv_heads;
  AttentionReference out{Doubles(index(layout.tokens() * layout.heads * e), 0.0),
                         Doubles(index(layout.batch * layout.heads * layout.sequence))};
  Doubles p(index(layout.sequence));
  for (Size b = 0; b < layout.batch; ++b) {
    for (Size head = 0; head < layout.heads; ++head) {
      const Size key = (layout.heads + head / group) * e;
      const Size value = (layout.heads + layout.kv_heads + head / group) * e;
      for (Size t = 0; t < layout.sequence; ++t) {
        const double* query = &qkv[index((b * layout.sequence + t) * layout.width() + head * e)];
        double sum = 0;
        for (Size u = 0; u <= t; ++u) {
          const double* other = &qkv[index((b * layout.sequence + u) * layout.width() + key)];
          double logit = 0;
          for (Size i = 0; i < e; ++i) logit += scale * query[i] * other[i];
          out.max_logit = std::max(out.max_logit, logit);
          p[index(u)] = std::exp(logit);
          sum += p[index(u)];
        }
        out.log_sum[index((b * layout.heads + head) * layout.sequence + t)] = std::log(sum);
        double* result = &out.result[index((b * layout.sequence + t) * layout.heads * e + head * e)];
        for (Size u = 0; u <= t; ++u) {
          const double* other = &qkv[index((b * layout.sequence + u) * layout.width() + value)];
          for (Size i = 0; i < e; ++i) result[i] += p[index(u)] / sum * other[i];
        }
      }
    }
  }
  return out;
}

struct Attended {
  explicit Attended(const HeadLayout& layout_, Matrix& qkv)
      : layout(layout_),
        result(layout.tokens(), layout.heads * layout.head_size, 99),
        log_sum(layout.batch * layout.heads, layout.sequence) {
    engine->run(Attention{.layout = layout,
                          .qkv = qkv.view(),
                          .scale = static_cast<float>(scale),
                          .result = result.view(),
                          .log_sum = log_sum.view(),
                          .max_logit = &max_logit});
  }
  HeadLayout layout;
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  Matrix result;
  Matrix log_sum;
  float max_logit = -1e30F;
};

class AttentionCases : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionCases, ForwardAgreesWithAPlainSoftmax) {
  const HeadLayout layout = GetParam().layout;
  Matrix qkv = random_matrix(layout.tokens(), layout.width(), 1);
  const Attended run(layout, qkv);
  const AttentionReference want = attend(layout, qkv.doubles());
  expect_close(run.result.values, want.result, 3e-6, "result");
  expect_close(run.log_sum.values, want.log_sum, 3e-6, "log sum");
  EXPECT_EQ(run.max_logit, *std::max_element(run.log_sum.values.begin(), run.log_sum.values.end()));
  EXPECT_GE(run.max_logit, want.max_logit - 1e-5);
  EXPECT_LE(run.max_logit, want.max_logit + std::log(static_cast<double>(layout.sequence)) + 1e-5);
}

TEST_P(AttentionCases, BackwardIsTheDerivative) {
  const HeadLayout layout = GetParam().layout;
  Matrix qkv = random_matrix(layout.tokens(), layout.width(), 1);
  Attended run(layout, qkv);
  Matrix dy = random_matrix(layout.tokens(), layout.heads * layout.head_size, 2);
  Matrix gradient(layout.tokens(), layout.width(), 99);  // set, not added to
  run.engine->run(AttentionBackward{.layout = layout,
                                    .qkv = qkv.view(),
                                    .result = run.result.view(),
                                    .log_sum = run.log_sum.view(),
                                    .result_gradient = dy.view(),
                                    .scale = static_cast<float>(scale),
                                    .qkv_gradient = gradient.view()});
  Doubles x = qkv.doubles();
  const Doubles weights = dy.doubles();
  const auto loss = [&](const Doubles& values) { return dot(attend(layout, values).result, weights); };
  const std::size_t samples = std::min<std::size_t>(x.size(), 60);
  for (std::size_t s = 0; s < samples; ++s) {
    const std::size_t i = x.size() <= 60 ? s : random_word({3, 0, 0}, s) % x.size();
    const double want = slope(loss, x, i);
    ASSERT_NEAR(gradient.values[i], want, 2e-5 * (1 + std::abs(want))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, AttentionCases, testing::ValuesIn(attention_cases),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Each document by itself, in matrices of its own.
TEST(Attention, DocumentsOfARowDoNotSeeEachOther) {
  const HeadLayout layout{2, 140, 4, 2, 5};
  const Size width = layout.width();
  const Size out = layout.heads * layout.head_size;
  std::vector<std::int32_t> starts(index(layout.tokens()), 0);
  for (Size t = 0; t < 140; ++t) starts[index(140 + t)] = static_cast<std::int32_t>(t < 63 ? 0 : t < 64 ? 63 : 64);
  Matrix qkv = random_matrix(layout.tokens(), width, 1);
  Matrix dy = random_matrix(layout.tokens(), out, 2);
  const auto engine = make_cpu_engine(2);
  struct Part {
    Size first;
    HeadLayout layout;
  };
  const auto run = [&](const Part& part, DocumentStarts documents) {
    const Size rows = part.layout.tokens();
    Matrix result(rows, out, 99);
    Matrix log_sum(part.layout.batch * layout.heads, part.layout.sequence, 99);
    Matrix gradient(rows, width, 99);
    const View x = qkv.view().row_range(part.first, rows);
    engine->run(Attention{part.layout, x, 0.7F, result.view(), log_sum.view(), nullptr, documents});
    engine->run(AttentionBackward{part.layout, x, result.view(), log_sum.view(), dy.view().row_range(part.first, rows),
                                  0.7F, gradient.view(), documents});
    return std::pair(result, gradient);
  };
  const auto [result, gradient] = run({0, layout}, starts);
  for (const auto& [first, length] : std::vector<std::pair<Size, Size>>{{0, 140}, {140, 63}, {203, 1}, {204, 76}}) {
    const auto [part, part_gradient] = run({first, {1, length, 4, 2, 5}}, {});
    for (Size r = 0; r < length; ++r) {
      for (Size c = 0; c < out; ++c) ASSERT_NEAR(result(first + r, c), part(r, c), 1e-5) << first + r;
      for (Size c = 0; c < width; ++c) ASSERT_NEAR(gradient(first + r, c), part_gradient(r, c), 2e-5) << first + r;
    }
  }
}

TEST(Attention, LaterTokensChangeNothingBefore) {
  const HeadLayout layout{1, 70, 2, 1, 4};
  Matrix qkv = random_matrix(70, layout.width(), 1);
  const Attended before(layout, qkv);
  for (Size c = 0; c < layout.width(); ++c) qkv(66, c) += 3;
  const Attended after(layout, qkv);
  for (Size t = 0; t < 66; ++t) {
    for (Size c = 0; c < 8; ++c) ASSERT_EQ(before.result(t, c), after.result(t, c)) << t;
  }
  EXPECT_NE(before.result(66, 0), after.result(66, 0));
}

TEST(Attention, LargeLogitsDoNotOverflow) {
  const HeadLayout layout{1, 5, 1, 1, 2};
  Matrix qkv = random_matrix(5, layout.width(), 1, 300);
  const Attended run(layout, qkv);
  for (const float x : run.result.values) EXPECT_TRUE(std::isfinite(x));
  EXPECT_GT(run.max_logit, 1000);
}

TEST(Attention, MaxLogitIsRaisedNeverLowered) {
  const HeadLayout layout{1, 3, 1, 1, 2};
  Matrix qkv = random_matrix(3, layout.width(), 1);
  Attended run(layout, qkv);
  run.max_logit = 1e6F;
  run.engine->run(Attention{.layout = layout,
                            .qkv = qkv.view(),
                            .result = run.result.view(),
                            .log_sum = run.log_sum.view(),
                            .max_logit = &run.max_logit});
  EXPECT_EQ(run.max_logit, 1e6F);
}

}  // namespace
}  // namespace quaver::test
