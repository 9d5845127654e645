#include "data/random_tokens.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace quaver {
namespace {

TEST(RandomTokens, CoverTheVocabularyEvenlyAndFollowOneAnother) {
  constexpr int vocab = 50;
  const RandomTokens source(vocab, 3);
  std::vector<std::int32_t> inputs(64 * 128);
  std::vector<std::int32_t> targets(inputs.size());
  source.fill(2, 64, 128, inputs.data(), targets.data());
  std::vector<int> counts(vocab);
  for (const std::int32_t token : inputs) {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, vocab);
    ++counts[static_cast<std::size_t>(token)];
  }
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 8192 / vocab * 6 / 10);
  EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 8192 / vocab * 14 / 10);
  for (std::size_t i = 0; i + 1 < 128; ++i) EXPECT_EQ(targets[i], inputs[i + 1]);

  std::vector<std::int32_t> again(inputs.size());
  source.fill(2, 64, 128, again.data(), targets.data());
  EXPECT_EQ(again, inputs);
  source.fill(3, 64, 128, again.data(), targets.data());
  EXPECT_NE(again, inputs);
}

}  // namespace
}  // namespace quaver
