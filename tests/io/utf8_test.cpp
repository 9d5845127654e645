#include "io/utf8.h"

#include <gtest/gtest.h>
#include <random>

namespace quaver {
namespace {

TEST(Utf8, EveryCodePointSurvivesEncodingAndDecoding) {
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

TEST(Utf8, IllFormedBytesAreFoundWhereTheyAre) {
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

// The examples of the Unicode standard (chapter 3, "U+FFFD Substitution of Maximal Subparts"), and a few more.
TEST(Utf8, WhatIsIllFormedIsReplaced) {
  const std::string mark = "\xEF\xBF\xBD";
  const auto marks = [&](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += mark;
    return text;
  };
  EXPECT_EQ(replace_invalid_utf8(""), "");
  EXPECT_EQ(replace_invalid_utf8("plain, é, 漢, \xF0\x9F\x99\x82"), "plain, é, 漢, \xF0\x9F\x99\x82");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                                 "A"),
            marks(8) + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                                 "A"),
            marks(8) + "A");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x91\x92\x93\xFF"
                                 "A\x80\xBF"
                                 "B"),
            marks(5) + "A" + marks(2) + "B");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                                 "A"),
            marks(4) + "A");
  EXPECT_EQ(replace_invalid_utf8("ab\xF0\x9F\x99"), "ab" + mark);
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90"), marks(2));
}

TEST(Utf8, WhatIsReplacedIsWellFormed) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int length = 0; length < 20; ++length)
      text.push_back(static_cast<char>(random() % 2 == 0 ? random() : 0xE0 + random() % 24));
    EXPECT_EQ(find_invalid_utf8(replace_invalid_utf8(text)), std::string_view::npos);
    EXPECT_EQ(replace_invalid_utf8(replace_invalid_utf8(text)), replace_invalid_utf8(text));
  }
}

}  // namespace
}  // namespace quaver
