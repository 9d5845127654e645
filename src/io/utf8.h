// UTF-8 from bytes that nobody has checked: files, requests, settings.
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

// How much of the text does not end within a character: all of it, but for a last one whose bytes are still to come.
std::size_t whole_characters(std::string_view text);

// The position of the first invalid byte, or npos where the whole text is well-formed.
std::size_t find_invalid_utf8(std::string_view text);

// The text with U+FFFD in place of what is ill-formed: one for each maximal part of a character, as Unicode recommends
// and as Python's and Rust's readers do.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace quaver
