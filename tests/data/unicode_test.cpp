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
