#include "data/byte_chars.h"

#include <array>
#include <cstdint>

#include "io/utf8.h"

namespace quaver {
namespace {

constexpr std::array<std::uint16_t, 256> char_of_byte = [] {
  std::array<std::uint16_t, 256> chars{};
  std::uint16_t next = 256;
  for (std::uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    chars[byte] = printable ? byte : next++;
  }
  return chars;
}();

constexpr std::size_t last_char = 256 + 67;  // 68 bytes are not printable
constexpr std::array<std::int16_t, last_char + 1> byte_of_char = [] {
  std::array<std::int16_t, last_char + 1> bytes{};
  bytes.fill(-1);
  for (std::int16_t byte = 0; byte < 256; ++byte) bytes[char_of_byte[static_cast<std::size_t>(byte)]] = byte;
  return bytes;
}();

}  // namespace

std::string to_byte_chars(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(char_of_byte[static_cast<unsigned char>(c)], text);
  return text;
}

std::optional<std::string> from_byte_chars(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    if (!point.valid || point.value > last_char || byte_of_char[point.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of_char[point.value]));
    i += static_cast<std::size_t>(point.bytes);
  }
  return bytes;
}

}  // namespace quaver
