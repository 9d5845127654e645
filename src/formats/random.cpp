#include "formats/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "formats/philox.h"
#include "formats/simd.h"

namespace quaver {
namespace {

constexpr std::int64_t words_per_block = 4;

// Blocks [counter, counter + blocks) of the stream, one after the other.
QUAVER_SIMD void fill_blocks(const RandomKey& key, std::uint64_t counter, std::uint32_t* out, std::int64_t blocks) {
  const auto key0 = static_cast<std::uint32_t>(key.seed);
  const auto key1 = static_cast<std::uint32_t>(key.seed >> 32);
  const std::uint32_t step = key.step;
  const std::uint32_t stream = key.stream;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::uint64_t c = counter + static_cast<std::uint64_t>(i);
    const PhiloxBlock b =
        philox_block({static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(c >> 32), step, stream}, key0, key1);
    out[4 * i] = b.w0;
    out[4 * i + 1] = b.w1;
    out[4 * i + 2] = b.w2;
    out[4 * i + 3] = b.w3;
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox(const RandomKey& key, std::uint64_t counter) {
  const PhiloxBlock b = philox_block(
      {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), key.step, key.stream},
      static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32));
  return {b.w0, b.w1, b.w2, b.w3};
}

std::uint32_t random_word(const RandomKey& key, std::uint64_t index) { return philox(key, index / 4)[index % 4]; }

void random_words(const RandomKey& key, std::uint64_t first, std::uint32_t* out, std::int64_t count) {
  while (count > 0 && first % words_per_block != 0) {
    *out++ = random_word(key, first++);
    --count;
  }
  const std::int64_t blocks = count / words_per_block;
  fill_blocks(key, first / words_per_block, out, blocks);
  for (std::int64_t i = blocks * words_per_block; i < count; ++i) {
    out[i] = random_word(key, first + static_cast<std::uint64_t>(i));
  }
}

void random_normals(const RandomKey& key, std::uint64_t first, float* out, std::int64_t count) {
  constexpr std::int64_t batch = 256;
  std::array<std::uint32_t, 2 * batch> words{};
  for (std::int64_t done = 0; done < count; done += batch) {
    const std::int64_t n = std::min(batch, count - done);
    random_words(key, 2 * (first + static_cast<std::uint64_t>(done)), words.data(), 2 * n);
    for (std::int64_t i = 0; i < n; ++i) {
      // The half keeps the argument of the logarithm above zero.
      const double u = (static_cast<double>(words[2 * i]) + 0.5) * 0x1p-32;
      const double angle = 2 * std::numbers::pi * 0x1p-32 * static_cast<double>(words[2 * i + 1]);
      out[done + i] = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(angle));
    }
  }
}

std::uint32_t stream_of(const char* name) {
  std::uint32_t hash = 2166136261U;
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 16777619U;
  return hash;
}

}  // namespace quaver
