// Normalization form C, against pairs worked out by the rules of UAX #15 and the properties that any normalization has.
#include "data/normalize.h"

#include <gtest/gtest.h>
#include <random>

#include "data/sample_text.h"
#include "io/utf8.h"

namespace quaver {
namespace {

std::string nfc(std::string_view text) {
  std::string storage;
  return std::string(normalize_nfc(text, storage));
}

TEST(Normalize, ComposesLettersAndMarks) {
  EXPECT_EQ(nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(nfc("cafe\u0301s and e\u0301"), "caf\u00E9s and \u00E9");
  EXPECT_EQ(nfc("\u00E9\u0323"), "\u1EB9\u0301") << "the dot below comes first, and joins the letter";
  EXPECT_EQ(nfc("e\u0323\u0302"), "\u1EC7");
  EXPECT_EQ(nfc("e\u0302\u0323"), "\u1EC7");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307") << "nothing to join, but an order";
  EXPECT_EQ(nfc("a\u0328\u0301\u0301"), "\u0105\u0301\u0301") << "the second acute is blocked by the first";
  EXPECT_EQ(nfc("\u0301e"), "\u0301e") << "a mark without a letter";
}

TEST(Normalize, ReplacesWhatIsAnotherCharacter) {
  EXPECT_EQ(nfc("\u212B"), "\u00C5");
  EXPECT_EQ(nfc("\u2126"), "\u03A9");
  EXPECT_EQ(nfc("\uF900"), "\u8C48");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C") << "excluded from composition";
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(nfc("\uFB1D"), "\u05D9\u05B4");
  EXPECT_EQ(nfc("\U0001D15E"), "\U0001D157\U0001D165");
  EXPECT_EQ(nfc("\uFB01"), "\uFB01") << "a compatibility character stays";
}

TEST(Normalize, ComposesHangul) {
  EXPECT_EQ(nfc("\u1112\u1161\u11AB\u1100\u1173\u11AF"), "\uD55C\uAE00");
  EXPECT_EQ(nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\uAC01\u11A8"), "\uAC01\u11A8") << "closed already";
  EXPECT_EQ(nfc("\u1100\u11A8"), "\u1100\u11A8");
}

// U+11935 U+11930 compose since Unicode 13, U+1ACF is a mark since 17.
TEST(Normalize, LeavesCharactersThatUnicode9DoesNotHave) {
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(nfc("\U00011131\U00011127"), "\U0001112E") << "since Unicode 6.1";
}

TEST(Normalize, LeavesOtherTextAndBytesThatAreNotUtf8) {
  std::string storage;
  const std::string_view text = "plain caf\u00E9 \u6F22\u5B57";
  EXPECT_EQ(normalize_nfc(text, storage).data(), text.data()) << "not copied";
  EXPECT_EQ(nfc(""), "");
  EXPECT_EQ(nfc("e\xCC"), "e\xCC");
  EXPECT_EQ(nfc("\xFF\u0301"), "\xFF\u0301");
  EXPECT_EQ(nfc("\xED\xA0\x80 e\u0301"), "\xED\xA0\x80 \u00E9");
  for (std::uint32_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(nfc(nfc(test::random_bytes(500, seed))), nfc(test::random_bytes(500, seed)));
}

// Of marks in random order, and whatever the text is cut into at letters.
TEST(Normalize, IsIdempotentAndLocal) {
  const std::vector<std::uint32_t> marks{0x300, 0x301, 0x307, 0x308, 0x323, 0x327, 0x328, 0x345, 0x5B4, 0x93C};
  const std::vector<std::uint32_t> letters{'a', 'e', 'u', 0xE9, 0x1EA5, 0x3B1, 0x1F00, 0x915, 0xAC00, 0x1100, 0x1161};
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::string whole;
    std::string parts;
    for (int word = 0; word < 4; ++word) {
      std::string text = " ";
      append_utf8(letters[random() % letters.size()], text);
      for (auto i = random() % 5; i > 0; --i) append_utf8(marks[random() % marks.size()], text);
      whole += text;
      parts += nfc(text);
    }
    EXPECT_EQ(nfc(whole), parts);
    EXPECT_EQ(nfc(parts), parts);
  }
}

}  // namespace
}  // namespace quaver
