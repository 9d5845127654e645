// The three character classes that pre-tokenizers split on.
#pragma once

#include <cstdint>

namespace quaver {

// \s, \p{L}, \p{N} and the rest, as of Unicode 17.
enum class CharClass : std::uint8_t { space, letter, digit, other };
CharClass char_class(std::uint32_t code_point);

}  // namespace quaver
