// CRC-32C by its definition, bit by bit: what the library's tables and instructions are held against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace quaver::test {

inline std::uint32_t crc32c_by_bits(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

inline std::uint32_t crc32c_by_bits(std::string_view text) { return crc32c_by_bits(std::as_bytes(std::span(text))); }

}  // namespace quaver::test
