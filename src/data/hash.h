// FNV-1a, 64 bits: the checksum of shards and the identity of tokenizers and documents. Stable across machines and
// versions because it is written into files; it detects accidents, not attackers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace quaver {

static_assert(std::endian::native == std::endian::little, "files are read and written in the machine's byte order");

class Fnv64 {
 public:
  void add(std::span<const std::byte> bytes) {
    std::uint64_t h = value_;
    for (const std::byte b : bytes) h = (h ^ static_cast<std::uint64_t>(b)) * prime;
    value_ = h;
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  void add(std::uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }

  std::uint64_t value() const { return value_; }

 private:
  static constexpr std::uint64_t prime = 0x100000001b3;
  std::uint64_t value_ = 0xcbf29ce484222325;
};

// Much faster than FNV-1a over many bytes, eight of which it takes at a time. Pieces but the last must be a multiple of
// eight bytes long. A changed word always changes the value: every step is a bijection of the state.
class WordHash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), sizeof(word));
      add_word(word);
    }
    if (bytes.empty()) return;
    std::uint64_t rest = 0;
    std::memcpy(&rest, bytes.data(), bytes.size());
    add_word(rest);
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_word(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15;
    value_ ^= value_ >> 32;  // multiplying carries upward only
  }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

inline std::uint64_t hash_of(std::string_view text) {
  Fnv64 hash;
  hash.add(text);
  return hash.value();
}

// Spreads every input bit over the whole word (the finalizer of SplitMix64): FNV's high bits alone are not uniform.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The place of mixed bits in [0, 1).
constexpr double unit_interval(std::uint64_t mixed) { return static_cast<double>(mixed >> 11) * 0x1p-53; }

}  // namespace quaver
