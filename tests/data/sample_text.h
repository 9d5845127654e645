// Text and bytes that the data tests share.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace quaver::test {

inline std::string random_bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(count, '\0');
  for (char& c : bytes) c = static_cast<char>(random() & 0xFF);
  return bytes;
}

// Words, numbers, marks, white space and some letters beyond ASCII, in no order: what pre-tokenizers must cope with.
inline std::string random_text(std::size_t words, std::uint32_t seed) {
  static const char* const parts[] = {"the",   " the", " quick", "ing",   " 1234",
                                      "5",     "\n",   "\n\n",   "  ",    "\t",
                                      "don't", "'ll",  " 'S",    "!?",    " ...",
                                      "é",     " жук", "漢字",   "\r\n",  "—",
                                      "a",     "aa",   "aaa",    " aaaa", "\xF0\x9F\x99\x82",
                                      "\xFF",  "\xC3", "_x_"};
  std::mt19937 random(seed);
  std::string text;
  for (std::size_t i = 0; i < words; ++i) text += parts[random() % std::size(parts)];
  return text;
}

}  // namespace quaver::test
