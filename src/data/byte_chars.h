// How tokenizer.json writes bytes as printable characters: a byte that is printable in Latin-1 stands for itself, the
// others for U+0100 upward in order (a space is Ġ, a line feed Ċ).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quaver {

std::string to_byte_chars(std::string_view bytes);

// Nothing where a character stands for no byte.
std::optional<std::string> from_byte_chars(std::string_view text);

}  // namespace quaver
