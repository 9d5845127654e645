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

CharClass char_class(std::uint32_t code_point) {
  if (code_point < 128) return ascii_classes[code_point];
  if (in_ranges(unicode::letters, code_point)) return CharClass::letter;
  if (is_wide_space(code_point)) return CharClass::space;
  if (in_ranges(unicode::numbers, code_point)) return CharClass::digit;
  return CharClass::other;
}

}  // namespace quaver
