#include "data/synthetic.h"

#include <cmath>
#include <gtest/gtest.h>

#include "data/expect_error.h"

namespace quaver {
namespace {

using Ids = std::vector<std::int32_t>;
using test::expect_error;

Ids row_of(const SyntheticSource& source, std::uint64_t index, std::int64_t context) {
  Ids inputs(static_cast<std::size_t>(context));
  Ids targets(inputs.size());
  source.fill(index, 1, context, inputs.data(), targets.data());
  for (std::size_t i = 0; i + 1 < inputs.size(); ++i) EXPECT_EQ(targets[i], inputs[i + 1]);
  inputs.push_back(targets.back());
  return inputs;
}

TEST(Synthetic, TheTrueModelReachesTheEntropy) {
  for (const SyntheticKind kind : {SyntheticKind::markov, SyntheticKind::skip_markov}) {
    for (const int vocab_size : {16, 64, 200}) {
      const SyntheticSource source({kind, vocab_size, 3, 0});
      double loss = 0;
      double count = 0;
      for (std::uint64_t row = 0; row < 400; ++row) {
        const Ids ids = row_of(source, row, 512);
        for (std::size_t t = 2; t < ids.size(); ++t, ++count) {
          loss -= std::log(source.probability(std::span(ids).first(t), ids[t]));
        }
      }
      EXPECT_NEAR(loss / count, source.entropy(), 0.01 * source.entropy()) << source.describe();
    }
  }
}

TEST(Synthetic, RowsStartFromTheStationaryDistribution) {
  // What is frequent at the start of rows is as frequent deep inside them.
  const SyntheticSource source({SyntheticKind::skip_markov, 16, 3, 0});
  constexpr int rows = 20000;
  std::vector<double> first(16);
  std::vector<double> later(16);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const Ids ids = row_of(source, row, 40);
    first[static_cast<std::size_t>(ids[0])] += 1.0 / rows;
    later[static_cast<std::size_t>(ids[40])] += 1.0 / rows;
  }
  for (std::size_t id = 0; id < 16; ++id) EXPECT_NEAR(first[id], later[id], 0.016);
}

TEST(Synthetic, ProbabilitiesSumToOne) {
  for (const SyntheticKind kind : {SyntheticKind::markov, SyntheticKind::skip_markov}) {
    const SyntheticSource source({kind, 50, 4, 0});
    for (std::int32_t a = 0; a < 50; a += 7) {
      for (std::int32_t b = 0; b < 50; b += 3) {
        double sum = 0;
        for (std::int32_t c = 0; c < 50; ++c) sum += source.probability(Ids{a, b}, c);
        EXPECT_NEAR(sum, 1, 1e-12);
      }
    }
  }
}

TEST(Synthetic, IsNeitherTrivialNorNoise) {
  for (const SyntheticKind kind : {SyntheticKind::markov, SyntheticKind::skip_markov}) {
    const SyntheticSource source({kind, 64, 7, 0});
    EXPECT_GT(source.entropy(), 1.0);
    EXPECT_LT(source.entropy(), 0.75 * std::log(64));
    EXPECT_GE(source.best_loss(32), source.entropy());
    EXPECT_GE(source.best_loss(32), source.best_loss(64));
  }
  const SyntheticSource markov({SyntheticKind::markov, 64, 7, 0});
  EXPECT_DOUBLE_EQ(markov.best_loss(8), markov.entropy());
}

TEST(Synthetic, SeedMakesTheChainAndStreamMakesTheText) {
  const SyntheticSource train({SyntheticKind::markov, 64, 7, 0});
  const SyntheticSource valid({SyntheticKind::markov, 64, 7, 1});
  const SyntheticSource other({SyntheticKind::markov, 64, 8, 0});
  EXPECT_EQ(row_of(train, 5, 100), row_of(SyntheticSource({SyntheticKind::markov, 64, 7, 0}), 5, 100));
  EXPECT_NE(row_of(train, 5, 100), row_of(valid, 5, 100));
  EXPECT_NE(row_of(train, 5, 100), row_of(train, 6, 100));
  EXPECT_DOUBLE_EQ(train.entropy(), valid.entropy());
  EXPECT_NE(train.entropy(), other.entropy());
}

TEST(Synthetic, RowsDoNotDependOnTheBatchSize) {
  const SyntheticSource source({SyntheticKind::skip_markov, 32, 7, 0});
  Ids inputs(4 * 20);
  Ids targets(4 * 20);
  source.fill(3, 4, 20, inputs.data(), targets.data());
  for (std::uint64_t row = 0; row < 4; ++row) {
    const Ids alone = row_of(source, 12 + row, 20);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end() - 1, inputs.begin() + static_cast<std::ptrdiff_t>(20 * row)));
  }
}

TEST(Synthetic, RefusesWhatItCannotCompute) {
  expect_error([] { SyntheticSource({SyntheticKind::markov, 1, 0, 0}); }, "1 tokens");
  expect_error([] { SyntheticSource({SyntheticKind::skip_markov, 257, 0, 0}); }, "257");
  const SyntheticSource source({SyntheticKind::skip_markov, 16, 0, 0});
  expect_error([&] { source.probability(Ids{1}, 2); }, "history");
  expect_error([&] { source.probability(Ids{1, 16}, 2); }, "history");
}

}  // namespace
}  // namespace quaver
