#include "data/unicode.h"

#include <algorithm>
#include <array>
#include <span>

#include "data/unicode_ranges.h"

namespace quaver {
namespace {

constexpr std::array<CharClass, 128> ascii_classes = [] {
  std::array<CharClass, 128> classes{};
  classes.fill(CharClass::other);
  for (const unsigned char c : {'\t', '\n', '\v', '\f', '\r', ' '}) classes[c] = CharClass::space;
  for (unsigned c = '0'; c <= '9'; ++c) classes[c] = CharClass::digit;
  for (unsigned c = 'A'; c <= 'Z'; ++c) classes[c] = CharClass::letter;
  for (unsigned c = 'a'; c <= 'z'; ++c) classes[c] = CharClass::letter;
  return classes;
}();

bool in_ranges(std::span<const unicode::Range> ranges, std::uint32_t code_point) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                      [](std::uint32_t value, const unicode::Range& r) { return value < r.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

bool is_wide_space(std::uint32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

CodePoint decode_utf8(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t lead = byte(position);
  if (lead < 0x80) return {lead, 1, true};
  const CodePoint invalid{lead, 1, false};
  const int length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() - position < static_cast<std::size_t>(length)) return invalid;

  std::uint32_t value = lead & (0x7Fu >> length);
  for (int i = 1; i < length; ++i) {
    const std::uint32_t next = byte(position + static_cast<std::size_t>(i));
    if ((next & 0xC0) != 0x80) return invalid;
    value = (value << 6) | (next & 0x3F);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return invalid;
  return {value, length, true};
}

void append_utf8(std::uint32_t c, std::string& out) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    if (!point.valid) return i;
    i += static_cast<std::size_t>(point.bytes);
  }
  return std::string_view::npos;
}

CharClass char_class(std::uint32_t code_point) {
  if (code_point < 128) return ascii_classes[code_point];
  if (in_ranges(unicode::letters, code_point)) return CharClass::letter;
  if (is_wide_space(code_point)) return CharClass::space;
  if (in_ranges(unicode::numbers, code_point)) return CharClass::digit;
  return CharClass::other;
}

}  // namespace quaver
