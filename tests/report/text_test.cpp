#include "report/text.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace quaver::report {
namespace {

TEST(Escape, LeavesNothingThatMarkupActsOn) {
  EXPECT_EQ(escape("<script>alert('x' & \"y\")</script>"),
            "&lt;script&gt;alert(&#39;x&#39; &amp; &quot;y&quot;)&lt;/script&gt;");
  EXPECT_EQ(escape("β₁ = 0.9, 日本"), "β₁ = 0.9, 日本");
}

TEST(Escape, ReplacesWhatIsNotTextAndKeepsTheRest) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(escape("a\x01z"), "a" + bad + "z");
  EXPECT_EQ(escape("a\xFFz"), "a" + bad + "z");
  EXPECT_EQ(escape("\xC0\xAF"), bad + bad);                      // an overlong slash
  EXPECT_EQ(escape("\xED\xA0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(escape("\xF4\x90\x80\x80"), bad + bad + bad + bad);  // past the last code point
  EXPECT_EQ(escape("\xE6\x97"), bad + bad);                      // cut off
  EXPECT_EQ(escape(std::string_view("a\0b", 3)), "a" + bad + "b");
  EXPECT_EQ(escape("tab\tline\n"), "tab\tline\n");
}

TEST(Escape, RandomBytesNeverOpenATag) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const std::string safe = escape(text);
    EXPECT_EQ(safe.find_first_of("<>\"'"), std::string::npos);
    EXPECT_EQ(shorten(safe, 50, 12).size() <= safe.size() + 3, true);
  }
}

TEST(Shorten, FitsAndCutsBetweenCharacters) {
  EXPECT_EQ(shorten("short", 100, 12), "short");
  for (double width = 0; width < 200; width += 7) {
    const std::string cut = shorten("日本語のとても長い名前です", width, 12);
    EXPECT_EQ(escape(cut), cut);  // still UTF-8
    EXPECT_LE(text_width(cut, 12), std::max(width, 12.0));
  }
}

TEST(FormatValue, UsesUnitsAReaderExpects) {
  EXPECT_EQ(format_value(0), "0");
  EXPECT_EQ(format_value(3.14159), "3.142");
  EXPECT_EQ(format_value(-2.5), "−2.5");
  EXPECT_EQ(format_value(12345), "12.35k");
  EXPECT_EQ(format_value(1.25e8), "125M");
  EXPECT_EQ(format_value(3e-4), "3e−4");
  EXPECT_EQ(format_value(-4.56e-5), "−4.56e−5");
  EXPECT_EQ(format_value(12345678, Unit::bytes), "11.77 MiB");
  EXPECT_EQ(format_value(512, Unit::bytes), "512 B");
  EXPECT_EQ(format_value(0.0032, Unit::seconds), "3.2 ms");
  EXPECT_EQ(format_value(5400, Unit::seconds), "90 min");
  EXPECT_EQ(format_value(0, Unit::seconds), "0 s");
  EXPECT_EQ(format_value(0.412, Unit::percent), "41.2 %");
  EXPECT_EQ(format_value(std::nan("")), "NaN");
  EXPECT_EQ(format_value(-std::numeric_limits<double>::infinity()), "−∞");
}

TEST(FormatValue, AnyNumberGivesAShortText) {
  for (int exponent = -320; exponent <= 308; ++exponent) {
    for (const Unit unit : {Unit::none, Unit::bytes, Unit::seconds, Unit::percent}) {
      const std::string text = format_value(9.99999 * std::pow(10.0, exponent), unit);
      EXPECT_FALSE(text.empty());
      EXPECT_LE(text.size(), 16U) << text;
    }
  }
  EXPECT_EQ(format_fixed(-0.001, 2), "0.00");
  EXPECT_EQ(format_fixed(-1.005, 1), "−1.0");
}

}  // namespace
}  // namespace quaver::report
