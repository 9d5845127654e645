// libstdc++'s <regex> trips this warning in sanitized builds (a known false positive of GCC 12).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "data/pretokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <string>
#include <vector>

#include "data/sample_text.h"

namespace quaver {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces(SplitPattern pattern, std::string_view text) {
  std::vector<std::string> result;
  for_each_piece(pattern, text, [&](std::string_view piece) { result.emplace_back(piece); });
  return result;
}

// The published expressions by the standard library's engine, with the Unicode classes written out for ASCII.
std::vector<std::string> regex_pieces(SplitPattern pattern, const std::string& text) {
  std::string expression(regex_of(pattern));
  const auto replace_all = [&](const std::string& from, const std::string& to) {
    for (std::size_t at = expression.find(from); at != std::string::npos; at = expression.find(from, at + to.size())) {
      expression.replace(at, from.size(), to);
    }
  };
  replace_all(R"([^\s\p{L}\p{N}])", R"([^\sA-Za-z0-9])");
  replace_all(R"([^\r\n\p{L}\p{N}])", R"([^\r\nA-Za-z0-9])");
  replace_all(R"(\p{L})", "[A-Za-z]");
  replace_all(R"(\p{N})", "[0-9]");
  replace_all("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]");
  const std::regex regex(expression, std::regex::ECMAScript);
  // ECMAScript takes the first alternative that matches, as the original engines do.
  std::vector<std::string> result;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match) {
    result.push_back(match->str());
  }
  return result;
}

TEST(Pretokenize, Gpt2CutsAsPublished) {
  EXPECT_THAT(pieces(SplitPattern::gpt2, "Hello world, it's 2024!"),
              ElementsAre("Hello", " world", ",", " it", "'s", " 2024", "!"));
  EXPECT_THAT(pieces(SplitPattern::gpt2, "a  b\n\n c"), ElementsAre("a", " ", " b", "\n\n", " c"));
  EXPECT_THAT(pieces(SplitPattern::gpt2, "we'll we'LL  "), ElementsAre("we", "'ll", " we", "'", "LL", "  "));
  EXPECT_THAT(pieces(SplitPattern::gpt2, "naïve “café” 漢字"), ElementsAre("naïve", " “", "café", "”", " 漢字"));
}

TEST(Pretokenize, LlamaAndQwenCutAsPublished) {
  EXPECT_THAT(pieces(SplitPattern::llama3, "we'LL pay $12345.\n\nOK"),
              ElementsAre("we", "'LL", " pay", " $", "123", "45", ".\n\n", "OK"));
  EXPECT_THAT(pieces(SplitPattern::llama3, "x = (y)\n\n    z"),
              ElementsAre("x", " =", " (", "y", ")\n\n", "   ", " z"));
  EXPECT_THAT(pieces(SplitPattern::qwen2, "in 2024"), ElementsAre("in", " ", "2", "0", "2", "4"));
}

// As Oniguruma folds case: of all letters beyond ASCII, only the long s is one of a contraction.
TEST(Pretokenize, ContractionsInAnyCaseKnowTheLongS) {
  EXPECT_THAT(pieces(SplitPattern::llama3, "it'\u017Fo"), ElementsAre("it", "'\u017F", "o"));
  EXPECT_THAT(pieces(SplitPattern::gpt2, "it'\u017Fo"), ElementsAre("it", "'", "\u017Fo"));
  EXPECT_THAT(pieces(SplitPattern::llama3, "x'\u212A"), ElementsAre("x", "'\u212A")) << "the Kelvin sign: a letter";
}

TEST(Pretokenize, DigitsAreIsolated) {
  EXPECT_THAT(pieces(SplitPattern::digit, "a 12\u0663!"), ElementsAre("a ", "1", "2", "\u0663", "!"));
  EXPECT_THAT(pieces(SplitPattern::digits, "a 12\u0663!"), ElementsAre("a ", "12\u0663", "!"));
  std::vector<std::string> both;
  const std::vector<SplitPattern> smollm{SplitPattern::digit, SplitPattern::gpt2};
  for_each_piece(smollm, "in 20 years", [&](std::string_view piece) { both.emplace_back(piece); });
  EXPECT_THAT(both, ElementsAre("in", " ", "2", "0", " years"));
}

TEST(Pretokenize, AgreesWithTheExpressionOnRandomAscii) {
  std::mt19937 random(5);
  const std::string alphabet = "   \n\r\t''''abcdelmrstvDELMRSTV0123.,!_-(";
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (int i = 0; i < 300; ++i) text += alphabet[random() % alphabet.size()];
    for (const SplitPattern pattern : {SplitPattern::gpt2, SplitPattern::llama3, SplitPattern::qwen2}) {
      ASSERT_EQ(pieces(pattern, text), regex_pieces(pattern, text)) << text;
    }
  }
}

TEST(Pretokenize, PiecesJoinToTheTextWhateverTheBytes) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    for (const std::string& text : {test::random_bytes(2000, seed), test::random_text(500, seed)}) {
      for (const SplitPattern pattern : {SplitPattern::gpt2, SplitPattern::llama3, SplitPattern::qwen2}) {
        std::string joined;
        for (const std::string& piece : pieces(pattern, text)) {
          ASSERT_FALSE(piece.empty());
          joined += piece;
        }
        ASSERT_EQ(joined, text);
      }
    }
  }
}

TEST(Pretokenize, PatternsAreFoundByTheirExpression) {
  for (const SplitPattern pattern : {SplitPattern::gpt2, SplitPattern::llama3, SplitPattern::qwen2}) {
    EXPECT_EQ(pattern_of(regex_of(pattern)), pattern);
  }
  EXPECT_EQ(pattern_of(R"(\w+)"), std::nullopt);
}

}  // namespace
}  // namespace quaver
