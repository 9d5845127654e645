// The random words of stochastic rounding: Philox 4x32-10 as formats/random.h defines it, on the device and on the
// host.
#pragma once

#include <cuda_runtime.h>

#include "formats/lane.h"
#include "formats/random.h"

#define QUAVER_DEVICE __host__ __device__ __forceinline__

#ifdef __CUDA_ARCH__
#define QUAVER_UNROLL _Pragma("unroll")
#else
#define QUAVER_UNROLL
#endif

namespace quaver::cuda::casts {

using lane::Bits;

QUAVER_DEVICE uint4 random_block(const RandomKey& key, std::uint64_t counter) {
  uint4 c{static_cast<Bits>(counter), static_cast<Bits>(counter >> 32), key.step, key.stream};
  auto key0 = static_cast<Bits>(key.seed);
  auto key1 = static_cast<Bits>(key.seed >> 32);
  QUAVER_UNROLL
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c.x;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c.z;
    c = {static_cast<Bits>(p1 >> 32) ^ c.y ^ key0, static_cast<Bits>(p1), static_cast<Bits>(p0 >> 32) ^ c.w ^ key1,
         static_cast<Bits>(p0)};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return c;
}

// Words of consecutive elements, four at a time, from any first index.
class RandomWords {
 public:
  QUAVER_DEVICE RandomWords(const RandomKey& key, std::uint64_t index)
      : key_(key), counter_(index / 4), offset_(static_cast<int>(index % 4)) {
    if (offset_ != 0) last_ = random_block(key_, counter_++);
  }

  QUAVER_DEVICE uint4 next() {
    const uint4 block = random_block(key_, counter_++);
    if (offset_ == 0) return block;
    const uint4 before = last_;
    last_ = block;
    if (offset_ == 1) return {before.y, before.z, before.w, block.x};
    if (offset_ == 2) return {before.z, before.w, block.x, block.y};
    return {before.w, block.x, block.y, block.z};
  }

 private:
  RandomKey key_;
  std::uint64_t counter_;
  int offset_;
  uint4 last_{};
};

}  // namespace quaver::cuda::casts
