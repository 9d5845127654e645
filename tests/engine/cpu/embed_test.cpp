// Embedding lookup and its gradient, which gathers over repeated tokens and positions.
#include "engine/support.h"

namespace quaver::test {
namespace {

struct EmbedCase {
  Size batch;
  Size sequence;
  Size width;
};

std::vector<std::int32_t> some_tokens(Size count, std::int32_t vocab) {
  std::vector<std::int32_t> tokens(index(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(random_word({1, 2, 3}, i) % static_cast<std::uint32_t>(vocab));
  }
  return tokens;
}

constexpr EmbedCase embed_cases[] = {{1, 1, 1}, {3, 5, 7}, {2, 65, 33}};

TEST(Embed, AddsTableAndPositionTimesTheFactor) {
  const auto engine = make_cpu_engine(1);
  for (const EmbedCase& c : embed_cases) {
    for (const Format format : {Format::f32, Format::bf16}) {
      for (const bool with_positions : {false, true}) {
        const Size tokens = c.batch * c.sequence;
        const auto ids = some_tokens(tokens, 11);
        Matrix table = random_matrix(11, c.width, 1);
        Matrix positions = random_matrix(c.sequence + 2, c.width, 2);
        std::vector<std::byte> stored_table(index(table.view().count() * 4));
        std::vector<std::byte> stored_positions(index(positions.view().count() * 4));
        encode_array(format, table.values.data(), 1, table.view().count(), stored_table.data());
        encode_array(format, positions.values.data(), 1, positions.view().count(), stored_positions.data());
        decode_array(format, stored_table.data(), 1, table.view().count(), table.values.data());
        decode_array(format, stored_positions.data(), 1, positions.view().count(), positions.values.data());
        Matrix out(tokens, c.width, 77);
        engine->run(
            Embed{.tokens = ids,
                  .sequence = c.sequence,
                  .table = {stored_table.data(), format, 11, c.width},
                  .positions = with_positions ? View{stored_positions.data(), format, positions.rows, c.width} : View{},
                  .factor = 0.7F,
                  .out = out.view()});
        for (Size t = 0; t < tokens; ++t) {
          for (Size i = 0; i < c.width; ++i) {
            const float position = with_positions ? positions(t % c.sequence, i) : 0.0F;
            EXPECT_NEAR(out(t, i), 0.7 * (table(ids[index(t)], i) + position), 2e-7 * 4);
          }
        }
      }
    }
  }
}

TEST(Embed, GradientSumsOverEveryUseOfATokenAndAccumulates) {
  const auto engine = make_cpu_engine(1);
  for (const EmbedCase& c : embed_cases) {
    const Size tokens = c.batch * c.sequence;
    const auto ids = some_tokens(tokens, 4);  // few words: most repeat
    Matrix gradient = random_matrix(tokens, c.width, 3);
    Matrix table = random_matrix(4, c.width, 4);
    Matrix positions = random_matrix(c.sequence, c.width, 5);
    Doubles want_table = table.doubles();
    Doubles want_positions = positions.doubles();
    for (Size t = 0; t < tokens; ++t) {
      for (Size i = 0; i < c.width; ++i) {
        want_table[index(ids[index(t)] * c.width + i)] += 1.25 * gradient(t, i);
        want_positions[index(t % c.sequence * c.width + i)] += 1.25 * gradient(t, i);
      }
    }
    engine->run(EmbedBackward{.tokens = ids,
                              .sequence = c.sequence,
                              .gradient = gradient.view(),
                              .factor = 1.25F,
                              .table_gradient = table.view(),
                              .positions_gradient = positions.view()});
    expect_close(table.values, want_table, 1e-6, "table");
    expect_close(positions.values, want_positions, 1e-6, "positions");
  }
}

TEST(Embed, GradientWithoutPositionsTouchesTheTableOnly) {
  const auto engine = make_cpu_engine(1);
  const std::vector<std::int32_t> ids{2, 2, 0};
  Matrix gradient(3, 2, 1);
  Matrix table(3, 2, 0);
  engine->run(EmbedBackward{.tokens = ids, .sequence = 3, .gradient = gradient.view(), .table_gradient = table.view()});
  EXPECT_EQ(table.values, (std::vector<float>{1, 1, 0, 0, 2, 2}));
}

}  // namespace
}  // namespace quaver::test
