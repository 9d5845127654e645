#include "data/normalize.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "data/normalization_data.h"
#include "io/utf8.h"

namespace quaver {
namespace {

// Syllables of Hangul are computed from their letters: leading consonant, vowel, trailing consonant.
constexpr std::uint32_t syllable_base = 0xAC00;
constexpr std::uint32_t leading_base = 0x1100;
constexpr std::uint32_t vowel_base = 0x1161;
constexpr std::uint32_t trailing_base = 0x11A7;  // one before the first
constexpr std::uint32_t leading_count = 19;
constexpr std::uint32_t vowel_count = 21;
constexpr std::uint32_t trailing_count = 28;
constexpr std::uint32_t syllable_count = leading_count * vowel_count * trailing_count;
constexpr std::uint32_t code_point_count = 0x110000;
constexpr std::uint32_t first_affected = 0x300;  // text below it is in NFC

std::uint64_t pair_of(std::uint32_t first, std::uint32_t second) { return std::uint64_t{first} << 32 | second; }

std::optional<std::uint32_t> compose_hangul(std::uint32_t first, std::uint32_t second) {
  if (first - leading_base < leading_count && second - vowel_base < vowel_count) {
    return syllable_base + ((first - leading_base) * vowel_count + (second - vowel_base)) * trailing_count;
  }
  const std::uint32_t syllable = first - syllable_base;
  const bool open = syllable < syllable_count && syllable % trailing_count == 0;
  if (open && second > trailing_base && second - trailing_base < trailing_count) return first + second - trailing_base;
  return std::nullopt;
}

class Tables {
 public:
  Tables() : classes_(code_point_count), stays_(code_point_count, true) {
    for (const unicode::ClassRange& range : unicode::combining_classes) {
      for (std::uint32_t c = range.first; c <= range.last; ++c) mark(c, range.combining_class);
    }
    for (const unicode::Single& single : unicode::singles) decompose_to(single.composed, {single.decomposed, 0});
    for (const unicode::Pair& pair : unicode::decomposed_pairs) decompose_to(pair.composed, {pair.first, pair.second});
    for (const unicode::Pair& pair : unicode::composed_pairs) {
      parts_[pair.composed] = {pair.first, pair.second};
      composed_[pair_of(pair.first, pair.second)] = pair.composed;
      stays_[pair.second] = false;
    }
    for (std::uint32_t i = 0; i < vowel_count; ++i) stays_[vowel_base + i] = false;
    for (std::uint32_t i = 1; i < trailing_count; ++i) stays_[trailing_base + i] = false;
  }

  std::uint8_t combining_class(std::uint32_t c) const { return classes_[c]; }

  // It neither changes nor joins what is before it, whatever that is.
  bool stays(std::uint32_t c) const { return stays_[c]; }

  std::optional<std::uint32_t> compose(std::uint32_t first, std::uint32_t second) const {
    if (const auto syllable = compose_hangul(first, second)) return syllable;
    const auto found = composed_.find(pair_of(first, second));
    return found == composed_.end() ? std::nullopt : std::optional(found->second);
  }

  template <class Visitor>
  void decompose(std::uint32_t c, const Visitor& visit) const {
    if (const std::uint32_t syllable = c - syllable_base; syllable < syllable_count) {
      visit(leading_base + syllable / (vowel_count * trailing_count));
      visit(vowel_base + syllable / trailing_count % vowel_count);
      if (syllable % trailing_count > 0) visit(trailing_base + syllable % trailing_count);
      return;
    }
    const auto found = parts_.find(c);
    if (found == parts_.end()) return visit(c);
    decompose(found->second.first, visit);  // four levels at most
    if (found->second.second != 0) visit(found->second.second);
  }

 private:
  struct Parts {
    std::uint32_t first;
    std::uint32_t second;  // 0: none
  };

  void mark(std::uint32_t c, std::uint8_t combining_class) {
    classes_[c] = combining_class;
    stays_[c] = false;
  }

  void decompose_to(std::uint32_t c, Parts parts) {
    parts_[c] = parts;
    stays_[c] = false;
  }

  std::vector<std::uint8_t> classes_;
  std::vector<bool> stays_;
  std::unordered_map<std::uint32_t, Parts> parts_;
  std::unordered_map<std::uint64_t, std::uint32_t> composed_;
};

const Tables& tables() {
  static const Tables made;
  return made;
}

struct Mark {
  std::uint32_t value;
  std::uint8_t combining_class;
};

// Marks of one base character in canonical order: by class, and as they came within a class.
void sort_marks(std::vector<Mark>& marks) {
  for (auto begin = marks.begin(); begin != marks.end();) {
    if (begin->combining_class == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, marks.end(), [](const Mark& mark) { return mark.combining_class == 0; });
    std::stable_sort(begin, end, [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
    begin = end;
  }
}

// Joins characters with the last one before them of class 0, unless one of the same or a higher class is in between.
void compose_marks(std::vector<Mark>& marks) {
  std::optional<std::size_t> base;
  std::size_t kept = 0;
  for (const Mark& mark : marks) {
    if (base) {
      const bool adjacent = kept == *base + 1;
      const bool reaches = adjacent || (marks[kept - 1].combining_class < mark.combining_class);
      const auto joined = reaches ? tables().compose(marks[*base].value, mark.value) : std::nullopt;
      if (joined) {
        marks[*base].value = *joined;
        continue;
      }
    }
    if (mark.combining_class == 0) base = kept;
    marks[kept++] = mark;
  }
  marks.resize(kept);
}

void append_normalized(std::string_view text, std::string& out) {
  std::vector<Mark> marks;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    i += static_cast<std::size_t>(point.bytes);
    tables().decompose(point.value, [&](std::uint32_t c) { marks.push_back({c, tables().combining_class(c)}); });
  }
  sort_marks(marks);
  compose_marks(marks);
  for (const Mark& mark : marks) append_utf8(mark.value, out);
}

// Where the character at `position` ends if it stays as it is after anything; or else `position`.
std::size_t skip_stable(std::string_view text, std::size_t position) {
  if (static_cast<unsigned char>(text[position]) < 0x80) return position + 1;
  const CodePoint point = decode_utf8(text, position);
  const bool stable = !point.valid || point.value < first_affected || tables().stays(point.value);
  return stable ? position + static_cast<std::size_t>(point.bytes) : position;
}

}  // namespace

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  std::size_t base = 0;    // of the last character that stays, which what follows may join
  std::size_t copied = 0;  // bytes of text that storage has
  storage.clear();
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t next = skip_stable(text, i); next > i) {
      base = i;
      i = next;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && skip_stable(text, end) == end) {
      end += static_cast<std::size_t>(decode_utf8(text, end).bytes);
    }
    const bool has_base = base >= copied && base < i && decode_utf8(text, base).valid;
    const std::size_t from = has_base ? base : i;
    storage.append(text.substr(copied, from - copied));
    append_normalized(text.substr(from, end - from), storage);
    copied = i = base = end;
  }
  if (copied == 0) return text;
  storage.append(text.substr(copied));
  return storage;
}

}  // namespace quaver
