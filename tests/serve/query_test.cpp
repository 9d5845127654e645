// Queries: decoding, repeated names, invalid escapes.
#include "serve/query.h"

#include <gtest/gtest.h>
#include <random>

namespace quaver::test {
namespace {

TEST(Query, NamesAndValuesAreDecoded) {
  const Query query("site=blocks.3.mlp%2Fx&a+b=c%20d&empty=&flag&&twice=1&twice=2");
  EXPECT_EQ(query.text("site"), "blocks.3.mlp/x");
  EXPECT_EQ(query.text("a b"), "c d");
  EXPECT_EQ(query.text("empty"), "");
  EXPECT_EQ(query.text("flag"), "");
  EXPECT_EQ(query.text("twice"), "1");
  EXPECT_EQ(query.text("absent"), std::nullopt);
}

TEST(Query, EscapesThatAreNoneStayAsTheyAre) {
  EXPECT_EQ(percent_decoded("%"), "%");
  EXPECT_EQ(percent_decoded("%4"), "%4");
  EXPECT_EQ(percent_decoded("%zz%41"), "%zzA");
  EXPECT_EQ(percent_decoded("%2541"), "%41") << "decoded once";
  EXPECT_EQ(percent_decoded("%00").size(), 1U);
}

TEST(Query, NumbersAreWholeAndBounded) {
  const Query query("good=12&negative=-1&fraction=1.5&text=abc&huge=99999999999999999999&empty=&space=+1&hex=0x10");
  EXPECT_EQ(query.number("good", 0, 1, 12), 12U);
  EXPECT_EQ(query.number("absent", 7, 1, 9), 7U);
  EXPECT_THROW(query.number("good", 0, 13, 20), BadParameter);
  EXPECT_THROW(query.number("good", 0, 0, 11), BadParameter);
  for (const char* name : {"negative", "fraction", "text", "huge", "empty", "space", "hex"}) {
    EXPECT_THROW(query.number(name, 0, 0, UINT64_MAX), BadParameter) << name;
  }
}

TEST(Query, ListsAreSplitAndBounded) {
  const Query query("names=loss,,gradient_norm,&many=a,b,c,d");
  EXPECT_EQ(query.list("names", 10), (std::vector<std::string>{"loss", "gradient_norm"}));
  EXPECT_EQ(query.list("many", 2), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(query.list("absent", 10).empty());
}

TEST(Query, NamesAreTextOfABoundedLength) {
  EXPECT_EQ(name_in(Query("site=%C3%A9"), "site"), "é");
  for (const char* text : {"", "site=", "site=a%00b", "site=a%0Ab", "site=%C3", "site=%C0%80", "site=%ED%A0%80"}) {
    EXPECT_THROW(name_in(Query(text), "site"), BadParameter) << text;
  }
  EXPECT_THROW(name_in(Query("site=" + std::string(257, 'a')), "site"), BadParameter);
}

TEST(Query, PlainTextIsUtf8WithoutControls) {
  for (const char* text : {"", "plain", "ä ö", "日本", "🎵", "\U0010ffff"}) EXPECT_TRUE(is_clean_text(text)) << text;
  for (const char* text : {"\x01", "\x7f", "\xc2\x80", "\x80", "\xc1\xbf", "\xe0\x80\x80", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe6\x97", "\xed\xbf\xbf"}) {
    EXPECT_FALSE(is_clean_text(text)) << ::testing::PrintToString(text);
  }
}

TEST(Query, TakesAnyBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    std::string text(random() % 60, '\0');
    for (char& c : text) c = random() % 3 == 0 ? "&=%+,"[random() % 5] : static_cast<char>(random());
    const Query query(text);
    const std::string decoded = percent_decoded(text);
    EXPECT_LE(decoded.size(), text.size());
    for (const std::string& part : query.list("", 5)) EXPECT_FALSE(part.empty());
  }
}

}  // namespace
}  // namespace quaver::test
