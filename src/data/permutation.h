// A shuffle without memory: a bijection of [0, size) computed per index, different for every key.
#pragma once

#include <bit>
#include <cstdint>

#include "data/hash.h"

namespace quaver {

// A Feistel network on the smallest square power of two that holds `size`; values that fall outside are sent through
// again until they are inside (at most four times on average).
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t key)
      : size_(size), key_(key), half_bits_(size < 2 ? 1 : static_cast<int>(std::bit_width(size - 1) + 1) / 2) {}

  std::uint64_t operator()(std::uint64_t index) const {
    do index = encrypt(index);
    while (index >= size_);
    return index;
  }

 private:
  static constexpr std::uint64_t rounds = 6;

  std::uint64_t encrypt(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t mixed = mix_bits(mix_bits(right + (round << 56)) ^ key_);
      const std::uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t size_;
  std::uint64_t key_;
  int half_bits_;
};

// The row that an endless shuffled pass over `size` rows comes to: every epoch visits each row once, in an order of its
// own that depends only on seed and epoch.
inline std::uint64_t shuffled_row(std::uint64_t example, std::uint64_t size, std::uint64_t seed) {
  const std::uint64_t epoch = example / size;
  return Permutation(size, mix_bits(seed + 0x9e3779b97f4a7c15) ^ mix_bits(epoch))(example % size);
}

}  // namespace quaver
