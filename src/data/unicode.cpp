#include "data/unicode.h"

#include <algorithm>
#include <span>
#include <vector>

#include "data/unicode_ranges.h"

namespace quaver {
namespace {

constexpr std::uint32_t code_points = 0x110000;

// Text is looked up character by character: a byte for each code point is a megabyte, of which a text touches little.
class ClassTable {
 public:
  ClassTable() : classes_(code_points, CharClass::other) {
    for (const unicode::Range& range : unicode::letters) fill(range, CharClass::letter);
    for (const unicode::Range& range : unicode::numbers) fill(range, CharClass::digit);
    for (const unicode::Range& range : spaces) fill(range, CharClass::space);
  }

  CharClass operator[](std::uint32_t code_point) const { return classes_[code_point]; }

 private:
  static constexpr unicode::Range spaces[] = {{0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                                              {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};

  void fill(const unicode::Range& range, CharClass kind) {
    std::fill(classes_.begin() + range.first, classes_.begin() + range.last + 1, kind);
  }

  std::vector<CharClass> classes_;
};

bool in_ranges(std::span<const unicode::Range> ranges, std::uint32_t code_point) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                      [](std::uint32_t value, const unicode::Range& r) { return value < r.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

}  // namespace

CharClass wide_char_class(std::uint32_t code_point) {
  static const ClassTable table;
  return code_point < code_points ? table[code_point] : CharClass::other;
}

bool is_word_char(std::uint32_t code_point) {
  if (code_point >= ascii_classes.size()) return in_ranges(unicode::words, code_point);
  const CharClass kind = ascii_classes[code_point];
  return kind == CharClass::letter || kind == CharClass::digit || code_point == '_';
}

}  // namespace quaver
