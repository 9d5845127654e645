#include "io/utf8.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace quaver
