#include "data/pretokenize.h"

#include <algorithm>
#include <limits>

#include "data/unicode.h"
#include "io/utf8.h"

namespace quaver {
namespace {

constexpr SplitPattern all_patterns[] = {SplitPattern::gpt2, SplitPattern::llama3, SplitPattern::qwen2,
                                         SplitPattern::digit, SplitPattern::digits};

constexpr std::size_t any_number = std::numeric_limits<std::size_t>::max();

// A character of the text with its class; past the end it has no bytes and belongs to no class asked for.
struct Char {
  CharClass kind = CharClass::space;
  std::size_t bytes = 0;
  std::uint32_t value = 0;

  bool is(CharClass wanted) const { return bytes > 0 && kind == wanted; }
  bool is_line_end() const { return bytes > 0 && (value == '\n' || value == '\r'); }
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Char at(std::size_t position) const {
    if (position >= text_.size()) return {};
    const auto byte = static_cast<unsigned char>(text_[position]);
    if (byte < ascii_classes.size()) return {ascii_classes[byte], 1, byte};
    const CodePoint point = decode_utf8(text_, position);
    const CharClass kind = point.valid ? char_class(point.value) : CharClass::other;
    return {kind, static_cast<std::size_t>(point.bytes), point.valid ? point.value : 0};
  }

  // Past the run of characters of the class, at most `limit` of them.
  std::size_t skip(CharClass kind, std::size_t position, std::size_t limit = any_number) const {
    for (; limit > 0; --limit) {
      const Char c = at(position);
      if (!c.is(kind)) break;
      position += c.bytes;
    }
    return position;
  }

  std::size_t skip_line_ends(std::size_t position) const {
    while (at(position).is_line_end()) ++position;
    return position;
  }

  // 's 't 'm 'd 're 've 'll: the end of the contraction at begin, or begin where there is none. Without regard to case
  // the long s (ſ) is an s, too; no other letter beyond ASCII is one of these.
  std::size_t contraction_end(std::size_t begin, bool any_case) const {
    if (text_[begin] != '\'') return begin;
    constexpr std::string_view long_s = "\u017F";
    if (any_case && text_.substr(begin + 1).starts_with(long_s)) return begin + 1 + long_s.size();
    const auto letter = [&](std::size_t i) {
      const char c = i < text_.size() ? text_[i] : '\0';
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter(begin + 1);
    const char second = letter(begin + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
    const bool two = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return two ? begin + 3 : begin;
  }

  // \s+(?!\S)|\s+ : a run of white space leaves its last character to the word that follows.
  std::size_t space_end(std::size_t begin) const {
    std::size_t last = begin;
    std::size_t end = begin;
    for (Char c = at(end); c.is(CharClass::space); c = at(end)) {
      last = end;
      end += c.bytes;
    }
    return end < text_.size() && last > begin ? last : end;
  }

  // \s*[\r\n]+ : up to the last line end in the run of white space, or begin where it has none.
  std::size_t last_line_end(std::size_t begin) const {
    std::size_t found = begin;
    std::size_t end = begin;
    for (Char c = at(end); c.is(CharClass::space); c = at(end)) {
      end += c.bytes;
      if (c.is_line_end()) found = end;
    }
    return found;
  }

 private:
  std::string_view text_;
};

std::size_t gpt2_piece_end(std::string_view text, std::size_t begin) {
  const Scanner scan(text);
  if (const std::size_t end = scan.contraction_end(begin, false); end > begin) return end;
  const std::size_t body = text[begin] == ' ' ? begin + 1 : begin;
  const Char first = scan.at(body);
  if (first.bytes > 0 && first.kind != CharClass::space) return scan.skip(first.kind, body + first.bytes);
  return scan.space_end(begin);
}

std::size_t llama_piece_end(std::string_view text, std::size_t begin, std::size_t digits) {
  const Scanner scan(text);
  if (const std::size_t end = scan.contraction_end(begin, true); end > begin) return end;
  const Char first = scan.at(begin);
  const Char second = scan.at(begin + first.bytes);
  if (first.is(CharClass::letter)) return scan.skip(CharClass::letter, begin);
  if (first.is(CharClass::digit)) return scan.skip(CharClass::digit, begin, digits);
  if (!first.is_line_end() && second.is(CharClass::letter)) return scan.skip(CharClass::letter, begin + first.bytes);

  const std::size_t body = text[begin] == ' ' ? begin + 1 : begin;
  if (scan.at(body).is(CharClass::other)) return scan.skip_line_ends(scan.skip(CharClass::other, body));
  if (const std::size_t end = scan.last_line_end(begin); end > begin) return end;
  return scan.space_end(begin);
}

// Isolated matches of \p{N} or \p{N}+.
std::size_t digit_piece_end(std::string_view text, std::size_t begin, std::size_t digits) {
  const Scanner scan(text);
  if (scan.at(begin).is(CharClass::digit)) return scan.skip(CharClass::digit, begin, digits);
  std::size_t end = begin;
  for (Char c = scan.at(end); c.bytes > 0 && c.kind != CharClass::digit; c = scan.at(end)) end += c.bytes;
  return end;
}

std::size_t marked_word_end(std::string_view text, std::size_t begin) {
  constexpr std::string_view mark = "\u2581";
  std::size_t end = begin;
  while (text.substr(end).starts_with(mark)) end += mark.size();
  return std::min(text.find(mark, end), text.size());
}

}  // namespace

std::string_view regex_of(SplitPattern pattern) {
  switch (pattern) {
    case SplitPattern::gpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case SplitPattern::llama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
             R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case SplitPattern::qwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
             R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case SplitPattern::digit:
      return R"(\p{N})";
    case SplitPattern::digits:
      return R"(\p{N}+)";
    case SplitPattern::marked_words:
      return "\u2581*[^\u2581]+|\u2581+";
  }
  return "";
}

std::optional<SplitPattern> pattern_of(std::string_view regex) {
  for (const SplitPattern pattern : all_patterns) {
    if (regex == regex_of(pattern)) return pattern;
  }
  return std::nullopt;
}

std::size_t piece_end(SplitPattern pattern, std::string_view text, std::size_t begin) {
  switch (pattern) {
    case SplitPattern::gpt2:
      return gpt2_piece_end(text, begin);
    case SplitPattern::llama3:
      return llama_piece_end(text, begin, 3);
    case SplitPattern::qwen2:
      return llama_piece_end(text, begin, 1);
    case SplitPattern::digit:
      return digit_piece_end(text, begin, 1);
    case SplitPattern::digits:
      return digit_piece_end(text, begin, any_number);
    case SplitPattern::marked_words:
      return marked_word_end(text, begin);
  }
  return text.size();
}

}  // namespace quaver
