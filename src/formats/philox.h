// The rounds of Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3") on plain integers, so
// that a loop over counters vectorizes.
#pragma once

#include <cstdint>

namespace quaver {

struct PhiloxBlock {
  std::uint32_t w0, w1, w2, w3;
};

[[gnu::always_inline]] inline PhiloxBlock philox_block(PhiloxBlock c, std::uint32_t key0, std::uint32_t key1) {
  constexpr std::uint64_t multiplier0 = 0xD2511F53U;
  constexpr std::uint64_t multiplier1 = 0xCD9E8D57U;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = multiplier0 * c.w0;
    const std::uint64_t p1 = multiplier1 * c.w2;
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c.w1 ^ key0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c.w3 ^ key1, static_cast<std::uint32_t>(p0)};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return c;
}

}  // namespace quaver
