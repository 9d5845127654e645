#include "data/unicode.h"

#include <array>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "io/file_io.h"

namespace quaver {
namespace {

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

TEST(Unicode, WordCharactersAreThoseOfRegularExpressions) {
  for (const std::uint32_t c : {0x5Fu, 0x61u, 0x39u, 0xE9u, 0x301u, 0x203Fu, 0x200Du, 0x663u, 0x6F22u}) {
    EXPECT_TRUE(is_word_char(c)) << std::hex << c;
  }
  for (const std::uint32_t c : {0x20u, 0x2Du, 0x7Fu, 0xB2u, 0x2014u, 0x1F642u, 0x10FFFFu}) {
    EXPECT_FALSE(is_word_char(c)) << std::hex << c;
  }
}

// White space, letters, numbers, the rest: by Oniguruma 6.9.10 for every code point.
TEST(Unicode, ClassesOfAllCodePointsAreThoseOfUnicode16) {
  std::vector<CharClass> classes;
  std::array<std::size_t, 4> counts{};
  for (std::uint32_t c = 0; c <= 0x10FFFF; ++c) {
    classes.push_back(char_class(c));
    ++counts[static_cast<std::size_t>(classes.back())];
  }
  EXPECT_EQ(counts, (std::array<std::size_t, 4>{25, 141028, 1911, 971148}));
  EXPECT_EQ(crc32c(std::as_bytes(std::span(classes))), 0xC3EABE36u);
}

}  // namespace
}  // namespace quaver
