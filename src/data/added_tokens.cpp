#include "data/added_tokens.h"

#include <algorithm>

#include "data/unicode.h"
#include "io/utf8.h"

namespace quaver {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

// The character that ends at `end`, which is not 0.
CodePoint character_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && continues(text[begin])) --begin;
  const CodePoint point = decode_utf8(text, begin);
  if (point.valid && begin + static_cast<std::size_t>(point.bytes) == end) return point;
  return {0, 1, false};
}

bool is_space(const CodePoint& point) { return point.valid && char_class(point.value) == CharClass::space; }
bool is_word(const CodePoint& point) { return point.valid && is_word_char(point.value); }

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, MatchedText matched) {
  for (const AddedToken& token : tokens) {
    if (token.matched != matched || token.content.empty()) continue;
    tokens_.push_back(token);
    begins_[static_cast<unsigned char>(token.content.front())] = true;
    has_ordinary_ = has_ordinary_ || token.role == TokenRole::ordinary;
  }
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
}

AddedTokenFinder::Match AddedTokenFinder::next(std::string_view text, std::size_t from) const {
  for (std::size_t i = from; i < text.size(); ++i) {
    if (!begins_[static_cast<unsigned char>(text[i])]) continue;
    if (const AddedToken* token = longest_at(text, i)) return {token, i, i + token->content.size()};
  }
  return {};
}

// Narrows the range of tokens that begin as the text does, byte by byte; of those that end on the way, the last.
const AddedToken* AddedTokenFinder::longest_at(std::string_view text, std::size_t position) const {
  const AddedToken* found = nullptr;
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (std::size_t depth = 0; first != last; ++depth) {
    while (first != last && first->content.size() == depth) found = &*first++;  // the shortest are the first
    if (position + depth >= text.size()) break;
    const auto byte = [depth](const AddedToken& token) { return static_cast<unsigned char>(token.content[depth]); };
    const auto wanted = static_cast<unsigned char>(text[position + depth]);
    first = std::partition_point(first, last, [&](const AddedToken& token) { return byte(token) < wanted; });
    last = std::partition_point(first, last, [&](const AddedToken& token) { return byte(token) == wanted; });
  }
  return found;
}

bool AddedTokenFinder::stands_alone(const Match& match, std::string_view text) {
  if (match.token->words == WordRule::anywhere) return true;
  if (match.begin > 0 && is_word(character_before(text, match.begin))) return false;
  return match.end == text.size() || !is_word(decode_utf8(text, match.end));
}

// Space on the left goes to the token unless another token has it already.
AddedTokenFinder::Span AddedTokenFinder::with_space(const Match& match, std::string_view text, std::size_t done) {
  Span span{match.begin, match.end};
  const TakenSpace space = match.token->space;
  if (space == TakenSpace::left || space == TakenSpace::both) {
    while (span.begin > 0) {
      const CodePoint before = character_before(text, span.begin);
      if (!is_space(before)) break;
      span.begin -= static_cast<std::size_t>(before.bytes);
    }
    span.begin = std::max(span.begin, done);
  }
  if (space == TakenSpace::right || space == TakenSpace::both) {
    while (span.end < text.size()) {
      const CodePoint after = decode_utf8(text, span.end);
      if (!is_space(after)) break;
      span.end += static_cast<std::size_t>(after.bytes);
    }
  }
  return span;
}

}  // namespace quaver
