// Tokens that are found in the text: which match wins, what they take with them, and what is left to the model.
#include "data/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/bpe.h"

namespace quaver {
namespace {

using ::testing::ElementsAre;

// What is left as text in quotes, tokens by their ids.
std::vector<std::string> split(const std::vector<AddedToken>& tokens, std::string_view text,
                               SpecialTokens special = SpecialTokens::parsed) {
  std::vector<std::string> parts;
  AddedTokenFinder(tokens, MatchedText::raw)
      .split(
          text, special, [&](std::string_view part) { parts.push_back("'" + std::string(part) + "'"); },
          [&](std::int32_t id) { parts.push_back(std::to_string(id)); });
  return parts;
}

TEST(AddedTokens, TheLeftmostAndThenTheLongestMatchWins) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "ab"},
                                       {.id = 2, .content = "abcd"},
                                       {.id = 3, .content = "bcdef"},
                                       {.id = 4, .content = "c"}};
  EXPECT_THAT(split(tokens, "xabcdef"), ElementsAre("'x'", "2", "'ef'"));
  EXPECT_THAT(split(tokens, "abce"), ElementsAre("1", "4", "'e'"));
  EXPECT_THAT(split(tokens, "bcde"), ElementsAre("'b'", "4", "'de'"));
  EXPECT_THAT(split(tokens, "aab"), ElementsAre("'a'", "1"));
  EXPECT_THAT(split(tokens, "zzz"), ElementsAre("'zzz'"));
  EXPECT_THAT(split(tokens, ""), ElementsAre());
  EXPECT_THAT(split({}, "ab"), ElementsAre("'ab'"));
}

// A special token that is not parsed still stands in the way of what begins inside it, as in Hugging Face's.
TEST(AddedTokens, SpecialOnesAreTextUnlessParsed) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "<s>"},
                                       {.id = 2, .content = "s>x", .role = TokenRole::ordinary},
                                       {.id = 3, .content = "y", .role = TokenRole::ordinary}};
  EXPECT_THAT(split(tokens, "<s>xy"), ElementsAre("1", "'x'", "3"));
  EXPECT_THAT(split(tokens, "<s>xy", SpecialTokens::as_text), ElementsAre("'<s>x'", "3"));
  EXPECT_THAT(split(tokens, "s>xy", SpecialTokens::as_text), ElementsAre("2", "3"));
}

TEST(AddedTokens, SpaceBesideThemIsTaken) {
  const auto taking = [](TakenSpace space) { return AddedToken{.id = 1, .content = "#", .space = space}; };
  EXPECT_THAT(split({taking(TakenSpace::left)}, "a \u3000# b"), ElementsAre("'a'", "1", "' b'"));
  EXPECT_THAT(split({taking(TakenSpace::right)}, "a #\n\t b"), ElementsAre("'a '", "1", "'b'"));
  EXPECT_THAT(split({taking(TakenSpace::both)}, " # # "), ElementsAre("1", "1"));
  EXPECT_THAT(split({taking(TakenSpace::none)}, " # "), ElementsAre("' '", "1", "' '"));
}

// A token of spaces begins in what the one before it took: it is found all the same, and what is behind it comes again.
TEST(AddedTokens, MatchesGoOnWhereTheTokenItselfEnds) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "#", .space = TakenSpace::right},
                                       {.id = 2, .content = "  "}};
  EXPECT_THAT(split(tokens, "#   x"), ElementsAre("1", "2", "' x'"));
}

TEST(AddedTokens, WholeWordsHaveNoWordBesideThem) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "cat", .words = WordRule::whole_word}};
  EXPECT_THAT(split(tokens, "cat, cat-cat"), ElementsAre("1", "', '", "1", "'-'", "1"));
  EXPECT_THAT(split(tokens, "cats _cat \u00E9cat cat\u0301"), ElementsAre("'cats _cat \u00E9cat cat\u0301'"));
}

// The bytes; "ab"; added tokens from 257 on.
BpeDefinition definition_with(const std::vector<AddedToken>& added) {
  BpeDefinition definition;
  for (int byte = 0; byte < 256; ++byte) definition.tokens.emplace_back(1, static_cast<char>(byte));
  definition.tokens.emplace_back("ab");
  definition.in_model.assign(257, true);
  definition.merges = {{'a', 'b', 256}};
  definition.added = added;
  for (AddedToken& token : definition.added) {
    token.id = static_cast<std::int32_t>(definition.tokens.size());
    definition.tokens.push_back(token.content);
    definition.in_model.push_back(false);
  }
  definition.end_of_text = 257;
  return definition;
}

TEST(AddedTokens, AreParsedOutOfTextOnlyWhereAsked) {
  const BpeTokenizer tokenizer(
      definition_with({{.content = "<|endoftext|>"}, {.content = "<a>", .role = TokenRole::ordinary}}));
  EXPECT_THAT(tokenizer.encode("ab<a>ab"), ElementsAre(256, 258, 256));
  EXPECT_THAT(tokenizer.encode("ab<|endoftext|><a>", SpecialTokens::parsed), ElementsAre(256, 257, 258));
  const std::vector<std::int32_t> as_text = tokenizer.encode("<|endoftext|>");
  EXPECT_EQ(as_text.size(), 13U);
  EXPECT_EQ(tokenizer.decode(as_text), "<|endoftext|>");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab<|endoftext|><a>", SpecialTokens::parsed)), "ab<|endoftext|><a>");
  EXPECT_THAT(make_byte_tokenizer()->encode("a<|endoftext|>", SpecialTokens::parsed), ElementsAre('a', 256));
}

// Those of raw text are found first, and what is left is normalized piece by piece.
TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  BpeDefinition definition = definition_with({{.content = "<|endoftext|>"},
                                              {.content = "e\u0301", .matched = MatchedText::normalized},
                                              {.content = "o\u0301", .matched = MatchedText::raw}});
  definition.normalization = TextNormalization::nfc;
  const BpeTokenizer tokenizer(definition);
  EXPECT_THAT(tokenizer.encode("\u00E9e\u0301", SpecialTokens::parsed), ElementsAre(258, 258));
  EXPECT_THAT(tokenizer.encode("o\u0301\u00F3", SpecialTokens::parsed), ElementsAre(259, 0xC3, 0xB3));
  EXPECT_THAT(tokenizer.encode("a\u030A"), ElementsAre(0xC3, 0xA5));
}

// In the vocabulary, too: a whole piece becomes the token as any other, where whole pieces are taken.
TEST(AddedTokens, MayBelongToTheModelAsWell) {
  BpeDefinition definition = definition_with({{.content = "<|endoftext|>"}, {.content = "word"}});
  definition.in_model[258] = true;
  EXPECT_THAT(BpeTokenizer(definition).encode("word"), ElementsAre('w', 'o', 'r', 'd'));
  definition.whole_pieces = WholePieces::take;
  EXPECT_THAT(BpeTokenizer(definition).encode("word"), ElementsAre(258));
}

}  // namespace
}  // namespace quaver
