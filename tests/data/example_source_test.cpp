// Rows of examples: what is packed together, what has a loss, and in which order rows come.
#include "data/example_source.h"

#include <gmock/gmock.h>
#include <map>
#include <set>

#include "data/expect_error.h"
#include "data/permutation.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;

// Example i is `length` tokens 100·i, 100·i + 1, …, all but the first two with a loss.
Examples counting(const std::vector<std::int32_t>& lengths) {
  Examples examples;
  std::int32_t first = 0;
  for (const std::int32_t length : lengths) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t t = 0; t < length; ++t) tokens.push_back(t < 2 ? ~(first + t) : first + t);
    examples.append(tokens);
    first += 100;
  }
  return examples;
}

struct Filled {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  std::vector<std::int32_t> starts;
};

Filled filled(const ExampleSource& source, std::uint64_t index, std::int64_t batch, std::int64_t context) {
  const auto count = static_cast<std::size_t>(batch * context);
  Filled rows{std::vector<std::int32_t>(count), std::vector<std::int32_t>(count), std::vector<std::int32_t>(count)};
  source.fill(index, batch, context, rows.inputs.data(), rows.targets.data());
  source.fill_document_starts(index, batch, context, rows.starts.data());
  return rows;
}

TEST(ExampleSource, PutsEachExampleIntoTheFirstRowWithRoom) {
  const ExampleSource source(counting({4, 6, 5, 3}), {.context = 7, .order = WindowOrder::sequential});
  EXPECT_TRUE(source.packs_documents());
  EXPECT_EQ(source.windows(7), 2U);  // 3 + 4 (the third example), 5 + 2
  const Filled rows = filled(source, 0, 2, 7);
  EXPECT_THAT(rows.inputs, ElementsAre(0, 1, 2, 200, 201, 202, 203, 100, 101, 102, 103, 104, 300, 301));
  EXPECT_THAT(rows.targets, ElementsAre(-1, 2, 3, -1, 202, 203, 204, -1, 102, 103, 104, 105, -1, 302));
  EXPECT_THAT(rows.starts, ElementsAre(0, 0, 0, 3, 3, 3, 3, 0, 0, 0, 0, 0, 5, 5));
  EXPECT_EQ(source.targets_with_loss(0, 2, 7), 10);
  EXPECT_EQ(source.cut(), 0U);
}

TEST(ExampleSource, PadsWithoutLoss) {
  const ExampleSource packed(counting({4, 3}), {.context = 8, .order = WindowOrder::sequential});
  EXPECT_THAT(filled(packed, 0, 1, 8).targets, ElementsAre(-1, 2, 3, -1, 102, -1, -1, -1));
  EXPECT_THAT(filled(packed, 0, 1, 8).starts, ElementsAre(0, 0, 0, 3, 3, 5, 5, 5));
  const ExampleSource apart(counting({4, 3}), {.context = 4, .layout = RowLayout::one_example});
  EXPECT_FALSE(apart.packs_documents());
  EXPECT_EQ(apart.windows(4), 2U);
  EXPECT_EQ(apart.targets_with_loss(0, 2, 4), 3);
}

// Validation counts each example once: behind the last there is nothing.
TEST(ExampleSource, SequentialRowsEnd) {
  const ExampleSource source(counting({4, 4, 4}), {.context = 3, .order = WindowOrder::sequential});
  EXPECT_EQ(source.targets_with_loss(1, 2, 3), 2);
  EXPECT_THAT(filled(source, 1, 2, 3).targets, ElementsAre(-1, 202, 203, -1, -1, -1));
}

TEST(ExampleSource, CutsWhatIsTooLongAndLeavesOutWhatHasNoLossLeft) {
  const ExampleSource source(counting({9, 3}), {.context = 2, .order = WindowOrder::sequential});
  EXPECT_EQ(source.cut(), 1U);
  EXPECT_THAT(filled(source, 0, 2, 2).targets, ElementsAre(-1, 2, -1, 102));
  Examples late;
  late.append(std::vector<std::int32_t>{~1, ~2, ~3, 4});
  late.append(std::vector<std::int32_t>{~1, 2});
  const ExampleSource some(late, {.context = 2});
  EXPECT_EQ(some.left_out(), 1U);
  EXPECT_EQ(some.windows(2), 1U);
  expect_error([&] { ExampleSource(counting({2}), {.context = 8}); }, "no example has a loss within 8 tokens");
}

// Whatever the lengths: every example that fits is there once per epoch, whole; counts agree with the targets.
TEST(ExampleSource, EveryEpochHasEachExampleOnce) {
  std::vector<std::int32_t> lengths;
  for (std::uint64_t i = 0; i < 97; ++i) lengths.push_back(static_cast<std::int32_t>(3 + mix_bits(i) % 30));
  const ExampleSource source(counting(lengths), {.context = 32, .seed = 5});
  const std::uint64_t rows = source.windows(32);
  std::vector<std::vector<std::int32_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::map<std::int32_t, std::int32_t> seen;  // positions of each example
    std::int64_t losses = 0;
    orders.emplace_back();
    for (std::uint64_t row = epoch * rows; row < (epoch + 1) * rows; ++row) {
      const Filled batch = filled(source, row, 1, 32);
      orders.back().push_back(batch.inputs.front());
      for (std::size_t t = 0; t < 32; ++t) {
        if (batch.targets[t] < 0) continue;
        ASSERT_EQ(batch.targets[t], batch.inputs[t] + 1);
        ASSERT_EQ(batch.inputs[t] % 100, static_cast<std::int32_t>(t) - batch.starts[t]);
        ++seen[batch.inputs[t] / 100];
      }
      const auto counted = std::ranges::count_if(batch.targets, [](std::int32_t target) { return target >= 0; });
      ASSERT_EQ(source.targets_with_loss(row, 1, 32), counted);
      losses += counted;
    }
    ASSERT_EQ(seen.size(), lengths.size());
    for (const auto& [example, count] : seen) EXPECT_EQ(count, lengths[static_cast<std::size_t>(example)] - 2);
    std::int64_t want = 0;
    for (const std::int32_t length : lengths) want += length - 2;
    EXPECT_EQ(losses, want);
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST(ExampleSource, IsIdentifiedByTokensLossesAndBounds) {
  const auto hash = [](const std::vector<std::vector<std::int32_t>>& examples) {
    Examples all;
    for (const auto& example : examples) all.append(example);
    return ExampleSource(all, {.context = 8}).content_hash();
  };
  const std::set<std::uint64_t> hashes{hash({{1, 2, 3}, {4, 5}}), hash({{1, 2}, {3, 4, 5}}), hash({{1, 2, ~3}, {4, 5}}),
                                       hash({{1, 2, 3}, {4, 6}})};
  EXPECT_EQ(hashes.size(), 4U);
  EXPECT_TRUE(hashes.contains(hash({{1, 2, 3}, {4, 5}})));
}

TEST(ExampleSource, HasOneContext) {
  const ExampleSource source(counting({4}), {.context = 8});
  expect_error([&] { filled(source, 0, 1, 4); }, "rows of 8 tokens, and a batch of 4");
}

}  // namespace
}  // namespace quaver::test
