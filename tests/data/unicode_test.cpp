#include "data/unicode.h"

#include <array>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "io/file_io.h"

namespace quaver {
namespace {

TEST(Unicode, EveryCodePointSurvivesEncodingAndDecoding) {
  for (std::uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(c, text);
    const CodePoint point = decode_utf8(text, 0);
    ASSERT_TRUE(point.valid) << std::hex << c;
    ASSERT_EQ(point.value, c);
    ASSERT_EQ(static_cast<std::size_t>(point.bytes), text.size());
  }
}

TEST(Unicode, IllFormedBytesAreFoundWhereTheyAre) {
  const std::string_view bad[] = {
      "ab\x80",              // a continuation out of nowhere
      "ab\xC0\xAF",          // overlong
      "ab\xE0\x80\x80",      // overlong
      "ab\xF0\x80\x80\x80",  // overlong
      "ab\xED\xA0\x80",      // a surrogate
      "ab\xF4\x90\x80\x80",  // beyond U+10FFFF
      "ab\xF8\x88\x80\x80",  // no such lead byte
      "ab\xE2\x82",          // cut short
      "ab\xC3",
      "ab\xF0\x9F\x99",
      "ab\xE2(\xA1",
  };
  for (const std::string_view text : bad) EXPECT_EQ(find_invalid_utf8(text), 2u);
  EXPECT_EQ(find_invalid_utf8("plain, é, 漢, \xF0\x9F\x99\x82"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
}

TEST(Unicode, ClassesOfKnownCharacters) {
  for (const std::uint32_t c : {0x41u, 0x7Au, 0xAAu, 0xE9u, 0x436u, 0x5D0u, 0x905u, 0x6F22u, 0xAC00u, 0x20000u}) {
    EXPECT_EQ(char_class(c), CharClass::letter) << std::hex << c;
  }
  for (const std::uint32_t c : {0x30u, 0xB2u, 0xBDu, 0x663u, 0x2167u, 0x1D7CEu}) {
    EXPECT_EQ(char_class(c), CharClass::digit) << std::hex << c;
  }
  for (const std::uint32_t c : {0x09u, 0x0Bu, 0x20u, 0x85u, 0xA0u, 0x2003u, 0x2028u, 0x3000u}) {
    EXPECT_EQ(char_class(c), CharClass::space) << std::hex << c;
  }
  for (const std::uint32_t c : {0x00u, 0x21u, 0x5Fu, 0x301u, 0x200Bu, 0x2014u, 0x201Cu, 0x1F642u, 0x10FFFFu}) {
    EXPECT_EQ(char_class(c), CharClass::other) << std::hex << c;
  }
}

// Computed from the Unicode data of Node.js (17.0), apart from the tables here: white space, letters, numbers, the
// rest.
TEST(Unicode, ClassesOfAllCodePointsAreThoseOfUnicode17) {
  std::vector<CharClass> classes;
  std::array<std::size_t, 4> counts{};
  for (std::uint32_t c = 0; c <= 0x10FFFF; ++c) {
    classes.push_back(char_class(c));
    ++counts[static_cast<std::size_t>(classes.back())];
  }
  EXPECT_EQ(counts, (std::array<std::size_t, 4>{25, 145672, 1924, 966491}));
  EXPECT_EQ(crc32c(std::as_bytes(std::span(classes))), 0x66CB55A7u);
}

}  // namespace
}  // namespace quaver
