// Tokens that are found in the text itself, before it is cut into pieces: a tokenizer.json's added_tokens. They match
// as Hugging Face's tokenizers match them: the leftmost first, of several there the longest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quaver {

// Which text a token takes with it.
enum class TakenSpace : std::uint8_t { none, left, right, both };
enum class WordRule : std::uint8_t { anywhere, whole_word };  // whole_word: not beside another \w
// What the token is looked for in: the text as it is, or the normalized text.
enum class MatchedText : std::uint8_t { raw, normalized };
enum class TokenRole : std::uint8_t { special, ordinary };  // special: plain text cannot stand for it

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  TokenRole role = TokenRole::special;
  MatchedText matched = MatchedText::raw;
  TakenSpace space = TakenSpace::none;
  WordRule words = WordRule::anywhere;
};

// Whether special tokens are recognized in text, or their names are text like any other.
enum class SpecialTokens : std::uint8_t { as_text, parsed };

class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  AddedTokenFinder(const std::vector<AddedToken>& tokens, MatchedText matched);

  // Calls on_text(part) and on_token(id) in the order of the text; parts are not empty.
  template <class OnText, class OnToken>
  void split(std::string_view text, SpecialTokens special, const OnText& on_text, const OnToken& on_token) const {
    std::size_t done = 0;
    for (std::size_t from = 0; has_any(special);) {
      const Match match = next(text, from);
      if (match.token == nullptr) break;
      from = match.end;
      if (!applies(*match.token, special) || !stands_alone(match, text)) continue;
      const Span span = with_space(match, text, done);
      if (span.begin > done) on_text(text.substr(done, span.begin - done));
      on_token(match.token->id);
      done = span.end;
    }
    if (done < text.size()) on_text(text.substr(done));
  }

 private:
  struct Match {
    const AddedToken* token = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct Span {
    std::size_t begin;
    std::size_t end;
  };

  bool has_any(SpecialTokens special) const {
    return special == SpecialTokens::parsed ? !tokens_.empty() : has_ordinary_;
  }
  static bool applies(const AddedToken& token, SpecialTokens special) {
    return token.role == TokenRole::ordinary || special == SpecialTokens::parsed;
  }
  Match next(std::string_view text, std::size_t from) const;
  const AddedToken* longest_at(std::string_view text, std::size_t position) const;
  static bool stands_alone(const Match& match, std::string_view text);
  static Span with_space(const Match& match, std::string_view text, std::size_t done);

  std::vector<AddedToken> tokens_;  // by content
  std::array<bool, 256> begins_{};  // whether a token begins with the byte
  bool has_ordinary_ = false;
};

}  // namespace quaver
