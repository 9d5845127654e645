// Cuts text into the pieces that BPE merges within. Hand-written scanners for the regular expressions that byte-level
// tokenizers use; a byte that is not UTF-8 counts as a symbol, so any bytes can be cut and joined again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace quaver {

enum class SplitPattern : std::uint8_t {
  gpt2,    // contractions; words, numbers and symbols, each with a leading space; white space
  llama3,  // contractions in any case; words with any one leading mark; numbers of up to three digits; line ends
  qwen2,   // as llama3, every digit on its own

  digit,   // every digit on its own, and what is between them
  digits,  // runs of digits, and what is between them

  marked_words,  // a word with the spaces before it, which are written ▁
};

// Whether matches of the expression follow one another without a gap, whatever the text.
constexpr bool matches_everything(SplitPattern pattern) {
  return pattern != SplitPattern::digit && pattern != SplitPattern::digits;
}

// The regular expression, as tokenizer.json spells it.
std::string_view regex_of(SplitPattern pattern);
std::optional<SplitPattern> pattern_of(std::string_view regex);

// The end of the piece that begins at text[begin]; begin < text.size(), and the result is greater than begin.
std::size_t piece_end(SplitPattern pattern, std::string_view text, std::size_t begin);

template <class Visitor>
void for_each_piece(SplitPattern pattern, std::string_view text, Visitor&& visit) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = piece_end(pattern, text, begin);
    visit(text.substr(begin, end - begin));
    begin = end;
  }
}

// The same with several patterns, each of which cuts the pieces of the one before; the text itself with none.
template <class Visitor>
void for_each_piece(std::span<const SplitPattern> patterns, std::string_view text, const Visitor& visit) {
  if (patterns.empty()) {
    if (!text.empty()) visit(text);
    return;
  }
  for_each_piece(patterns.front(), text,
                 [&](std::string_view piece) { for_each_piece(patterns.subspan(1), piece, visit); });
}

}  // namespace quaver
