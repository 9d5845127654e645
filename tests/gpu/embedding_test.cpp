// The embedding, and what is done to heads before attention, forward and backward.
#include "gpu/compare.h"

namespace quaver::test {
namespace {

class EmbeddingTest : public HighPrecisionTest {};

struct EmbedCase {
  Size batch;
  Size sequence;
  Size vocab;
  Size width;
};
constexpr EmbedCase embed_cases[] = {{1, 1, 1, 1}, {2, 7, 5, 3}, {3, 37, 50, 33}, {2, 128, 1000, 896}, {4, 64, 7, 512}};

std::string text_of(const EmbedCase& size) {
  return std::to_string(size.batch) + " × " + std::to_string(size.sequence) + " tokens of " +
         std::to_string(size.vocab) + ", width " + std::to_string(size.width);
}

std::vector<std::int32_t> tokens_of(const EmbedCase& size) {
  std::vector<std::int32_t> tokens(index(size.batch * size.sequence));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(random_word({8, 0, 0}, i) % static_cast<std::uint32_t>(size.vocab));
  }
  return tokens;
}

TEST_P(EmbeddingTest, Forward) {
  for (const EmbedCase& size : embed_cases) {
    for (const Kept kept : {Kept::f32, Kept::bf16}) {
      for (const bool has_positions : {true, false}) {
        const std::string what = "embed " + text_of(size) + (kept == Kept::f32 ? ", FP32 table" : ", BF16 table") +
                                 (has_positions ? ", positions" : "");
        Cells<std::int32_t> tokens(pair(), tokens_of(size));
        Twin table(pair(), normal_matrix(size.vocab, size.width, 1), kept);
        Twin positions(pair(), normal_matrix(size.sequence + 3, size.width, 2), kept);
        Twin out(pair(), size.batch * size.sequence, size.width, 99);
        pair().run([&](On on) {
          return Embed{.tokens = tokens.span(on),
                       .sequence = size.sequence,
                       .table = table.on(on),
                       .positions = has_positions ? positions.on(on) : View{},
                       .factor = 1.3F,
                       .out = out.on(on)};
        });
        expect_near(what, out, high_precision_bound(pair()));
      }
    }
  }
}

TEST_P(EmbeddingTest, Backward) {
  for (const EmbedCase& size : embed_cases) {
    for (const bool has_positions : {true, false}) {
      const std::string what = "embed_backward " + text_of(size);
      Cells<std::int32_t> tokens(pair(), tokens_of(size));
      Twin gradient(pair(), normal_matrix(size.batch * size.sequence, size.width, 1));
      Twin table(pair(), size.vocab, size.width, 0.5F, Kept::f32);
      Twin positions(pair(), size.sequence, size.width, 0.25F, Kept::f32);
      pair().run([&](On on) {
        return EmbedBackward{.tokens = tokens.span(on),
                             .sequence = size.sequence,
                             .gradient = gradient.on(on),
                             .factor = 1.3F,
                             .table_gradient = table.on(on),
                             .positions_gradient = has_positions ? positions.on(on) : View{}};
      });
      // Sums of FP32 products whatever the gradient is stored in.
      expect_near(what + ", table", table, bound::f32);
      expect_near(what + ", positions", positions, bound::f32);
    }
  }
}

// Positions count from the start of each document.
TEST_P(EmbeddingTest, Documents) {
  for (const EmbedCase& size : embed_cases) {
    const std::string what = "embed documents " + text_of(size);
    Cells<std::int32_t> tokens(pair(), tokens_of(size));
    std::vector<std::int32_t> each(index(size.batch * size.sequence));
    for (Size t = 0; t < size.batch * size.sequence; ++t) {
      each[index(t)] = static_cast<std::int32_t>(t % size.sequence / 5 * 5);
    }
    Cells<std::int32_t> starts(pair(), each);
    Twin table(pair(), normal_matrix(size.vocab, size.width, 1), Kept::f32);
    Twin positions(pair(), normal_matrix(size.sequence, size.width, 2), Kept::f32);
    Twin out(pair(), size.batch * size.sequence, size.width, 99);
    pair().run([&](On on) {
      return Embed{.tokens = tokens.span(on),
                   .document_starts = starts.span(on),
                   .sequence = size.sequence,
                   .table = table.on(on),
                   .positions = positions.on(on),
                   .out = out.on(on)};
    });
    expect_near(what, out, high_precision_bound(pair()));
    Twin table_gradient(pair(), size.vocab, size.width, 0.5F, Kept::f32);
    Twin positions_gradient(pair(), size.sequence, size.width, 0.25F, Kept::f32);
    Twin gradient(pair(), normal_matrix(size.batch * size.sequence, size.width, 3));
    pair().run([&](On on) {
      return EmbedBackward{.tokens = tokens.span(on),
                           .document_starts = starts.span(on),
                           .sequence = size.sequence,
                           .gradient = gradient.on(on),
                           .factor = 1.3F,
                           .table_gradient = table_gradient.on(on),
                           .positions_gradient = positions_gradient.on(on)};
    });
    expect_near(what + ", table", table_gradient, bound::f32);
    expect_near(what + ", positions", positions_gradient, bound::f32);
  }
}

TEST_P(EmbeddingTest, PositionsAloneWhereTheTableIsFrozen) {
  const EmbedCase size{2, 7, 5, 3};
  Cells<std::int32_t> tokens(pair(), tokens_of(size));
  Twin gradient(pair(), normal_matrix(size.batch * size.sequence, size.width, 1));
  Twin positions(pair(), size.sequence, size.width, 0.25F, Kept::f32);
  pair().run([&](On on) {
    return EmbedBackward{.tokens = tokens.span(on),
                         .sequence = size.sequence,
                         .gradient = gradient.on(on),
                         .table_gradient = {},
                         .positions_gradient = positions.on(on)};
  });
  expect_near("embed_backward of a frozen table", positions, bound::f32);
}

QUAVER_HIGH_PRECISION_FORMATS(EmbeddingTest);

class HeadsTest : public HighPrecisionTest {
 protected:
  void compare(const HeadLayout& layout, float theta, bool has_gains, const RotaryScaling& scaling = {}) {
    const std::string what = "prepare_heads " + std::to_string(layout.batch) + " × " + std::to_string(layout.sequence) +
                             ", " + std::to_string(layout.heads) + "/" + std::to_string(layout.kv_heads) +
                             " heads of " + std::to_string(layout.head_size) + ", theta " + std::to_string(theta) +
                             (has_gains ? ", gains" : "") + ", factor " + std::to_string(scaling.factor);
    Twin in(pair(), normal_matrix(layout.tokens(), layout.width(), 1));
    Twin out(pair(), layout.tokens(), layout.width(), 99);
    Twin gradient(pair(), normal_matrix(layout.tokens(), layout.width(), 2));
    Twin query_gain(pair(), normal_matrix(1, layout.head_size, 3, 0.3F, 1), Kept::f32);
    Twin key_gain(pair(), normal_matrix(1, layout.head_size, 4, 0.3F, 1), Kept::f32);
    Twin query_gradient(pair(), 1, layout.head_size, 0.5F, Kept::f32);
    Twin key_gradient(pair(), 1, layout.head_size, 0.5F, Kept::f32);
    const auto optional = [&](View view) { return has_gains ? view : View{}; };
    const auto prepare = [&](On on, Twin& to) {
      return PrepareHeads{.layout = layout,
                          .theta = theta,
                          .query_gain = optional(query_gain.on(on)),
                          .key_gain = optional(key_gain.on(on)),
                          .in = in.on(on),
                          .out = to.on(on),
                          .scaling = scaling};
    };
    pair().run([&](On on) { return prepare(on, out); });
    expect_near(what, out, high_precision_bound(pair()), 0.1);
    pair().run([&](On on) {
      return PrepareHeadsBackward{.forward = prepare(on, out),
                                  .gradient = gradient.on(on),
                                  .query_gain_gradient = optional(query_gradient.on(on)),
                                  .key_gain_gradient = optional(key_gradient.on(on)),
                                  .factor = 1.5F};
    });
    expect_near(what + ", backward", gradient, high_precision_bound(pair()), 0.1);
    const double floor = std::sqrt(static_cast<double>(layout.tokens() * layout.heads));
    expect_near(what + ", query gain", query_gradient, high_precision_bound(pair()), floor);
    expect_near(what + ", key gain", key_gradient, high_precision_bound(pair()), floor);
    pair().run([&](On on) { return prepare(on, in); });
    expect_near(what + ", in place", in, high_precision_bound(pair()), 0.1);
  }
};

TEST_P(HeadsTest, NormAndRotation) {
  for (const HeadLayout& layout : {HeadLayout{1, 1, 1, 1, 2},
                                   {2, 7, 3, 1, 6},
                                   {2, 37, 4, 2, 24},
                                   {1, 200, 6, 6, 64},
                                   {2, 64, 14, 2, 64},
                                   {1, 128, 12, 2, 128}}) {
    for (const float theta : {0.0F, 10000.0F, 1e6F}) {
      for (const bool has_gains : {false, true}) compare(layout, theta, has_gains);
    }
  }
}

// Two scalings of one shape and base are two tables.
TEST_P(HeadsTest, ScaledRotation) {
  const HeadLayout layout{1, 128, 6, 3, 80};
  for (const float factor : {1.0F, 8.0F, 32.0F}) {
    compare(layout, 500000, false, {.factor = factor, .original_context = 64});
  }
}

QUAVER_HIGH_PRECISION_FORMATS(HeadsTest);

}  // namespace
}  // namespace quaver::test
