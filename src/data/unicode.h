// The character classes that tokenizers split text by, as of Unicode 16, whose tables Hugging Face's tokenizers use.
#pragma once

#include <array>
#include <cstdint>

namespace quaver {

// \s, \p{L}, \p{N} and the rest.
enum class CharClass : std::uint8_t { space, letter, digit, other };

inline constexpr std::array<CharClass, 128> ascii_classes = [] {
  std::array<CharClass, 128> classes{};
  classes.fill(CharClass::other);
  for (const unsigned char c : {'\t', '\n', '\v', '\f', '\r', ' '}) classes[c] = CharClass::space;
  for (unsigned c = '0'; c <= '9'; ++c) classes[c] = CharClass::digit;
  for (unsigned c = 'A'; c <= 'Z'; ++c) classes[c] = CharClass::letter;
  for (unsigned c = 'a'; c <= 'z'; ++c) classes[c] = CharClass::letter;
  return classes;
}();

CharClass wide_char_class(std::uint32_t code_point);  // from U+0080 up

inline CharClass char_class(std::uint32_t code_point) {
  return code_point < ascii_classes.size() ? ascii_classes[code_point] : wide_char_class(code_point);
}

// \w: letters, marks, decimal digits, connecting punctuation such as the underscore.
bool is_word_char(std::uint32_t code_point);

}  // namespace quaver
