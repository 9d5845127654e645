// What is shown of a text while it grows: whole characters, nothing of a stop string, all of it in the end.
#include "train/text_stream.h"

#include <gtest/gtest.h>

namespace quaver::test {
namespace {

// Bytes are tokens here, so that characters and stop strings span several.
struct Shown {
  Shown(const std::string& text, std::vector<std::string> stop) {
    const auto tokenizer = make_byte_tokenizer();
    TextStream stream(*tokenizer, {}, std::move(stop));
    for (const char c : text) {
      pieces.push_back(stream.add(static_cast<unsigned char>(c)));
      whole += pieces.back();
      if (stream.has_stopped()) break;
    }
    rest = stream.finish();
    whole += rest;
    stopped = stream.has_stopped();
    EXPECT_EQ(whole, stream.text());
  }
  std::vector<std::string> pieces;
  std::string rest;
  std::string whole;
  bool stopped = false;
};

TEST(TextStream, ShowsCharactersWhenTheyAreWhole) {
  const Shown shown("aé€😀b", {});
  EXPECT_EQ(shown.pieces, (std::vector<std::string>{"a", "", "é", "", "", "€", "", "", "", "😀", "b"}));
  EXPECT_EQ(shown.rest, "");
}

TEST(TextStream, ShowsBytesThatAreNoCharacterAllTheSame) {
  EXPECT_EQ(Shown("a\xE2\x82", {}).whole, "a\xE2\x82");
  const Shown broken("\xE2z\x80\x80\x80\x80y", {});
  EXPECT_EQ(broken.whole, "\xE2z\x80\x80\x80\x80y");
  EXPECT_EQ(broken.rest, "") << "nothing can complete them";
}

TEST(TextStream, EndsBeforeAStopStringThatSpansTokens) {
  const Shown shown("one. two\n\nthree", {"\n\n", "ee"});
  EXPECT_EQ(shown.whole, "one. two");
  EXPECT_TRUE(shown.stopped);
  EXPECT_EQ(shown.pieces.size(), 10U);
}

TEST(TextStream, ShowsWhatOnlyLookedLikeAStopString) {
  const Shown shown("aab aaab aaac", {"aaac"});
  EXPECT_EQ(shown.whole, "aab aaab ");
  EXPECT_EQ(shown.pieces[1], "") << "it could be the beginning";
  EXPECT_EQ(shown.pieces[2], "aab");
  const Shown end("xaa", {"aaac"});
  EXPECT_EQ(end.whole, "xaa");
  EXPECT_EQ(end.rest, "aa");
  EXPECT_FALSE(end.stopped);
}

TEST(TextStream, TheFirstOfSeveralStopStringsCounts) {
  EXPECT_EQ(Shown("abcdef", {"def", "cd"}).whole, "ab");
  EXPECT_EQ(Shown("abcdef", {"a"}).whole, "");
  EXPECT_EQ(Shown("ab€cd", {"€"}).whole, "ab");
}

}  // namespace
}  // namespace quaver::test
