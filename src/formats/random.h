// Counter-based random numbers (Philox 4x32-10): the same key and counter give the same bits on every engine, so a
// resumed run repeats itself and threads need no shared state.
#pragma once

#include <array>
#include <cstdint>

namespace quaver {

// Which stream: one per run seed, step and use (site, parameter, initialization …).
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t stream = 0;
};

// 128 random bits for block `counter` of the stream: Philox with the seed as its key (low word first) and (counter low,
// counter high, step, stream) as its counter. Element i of a tensor uses word i % 4 of block i / 4.
std::array<std::uint32_t, 4> philox(const RandomKey& key, std::uint64_t counter);

// The word of element `index`: philox(key, index / 4)[index % 4].
std::uint32_t random_word(const RandomKey& key, std::uint64_t index);

// Words of elements [first, first + count).
void random_words(const RandomKey& key, std::uint64_t first, std::uint32_t* out, std::int64_t count);

// Standard normal numbers for elements [first, first + count): Box–Muller on words 2i and 2i + 1 of the stream.
void random_normals(const RandomKey& key, std::uint64_t first, float* out, std::int64_t count);

// A stream number for a name, the same in every process (FNV-1a).
std::uint32_t stream_of(const char* name);

}  // namespace quaver
