// The little Unicode that text needs: decoding UTF-8 from untrusted bytes, and the three character classes that
// pre-tokenizers split on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quaver {

struct CodePoint {
  std::uint32_t value;
  int bytes;   // how many bytes it takes; 1 for an invalid byte
  bool valid;  // false: the byte starts no well-formed sequence (overlong, surrogate, truncated, beyond U+10FFFF)
};

// The code point at text[position]; position < text.size().
CodePoint decode_utf8(std::string_view text, std::size_t position);

void append_utf8(std::uint32_t code_point, std::string& out);

// The position of the first invalid byte, or npos where the whole text is well-formed.
std::size_t find_invalid_utf8(std::string_view text);

// \s, \p{L}, \p{N} and the rest, as of Unicode 17.
enum class CharClass : std::uint8_t { space, letter, digit, other };
CharClass char_class(std::uint32_t code_point);

}  // namespace quaver
