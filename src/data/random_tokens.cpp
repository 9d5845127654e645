#include "data/random_tokens.h"

#include <algorithm>

#include "data/hash.h"
#include "formats/random.h"

namespace quaver {

void RandomTokens::fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
                        std::int32_t* targets) const {
  const RandomKey key{seed_, 0, stream_of("random tokens")};
  std::vector<std::uint32_t> words(static_cast<std::size_t>(context + 1));
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::uint64_t window = batch_index * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
    random_words(key, window * words.size(), words.data(), context + 1);
    const auto token = [&](std::int64_t i) {
      const std::uint64_t word = words[static_cast<std::size_t>(i)];
      return static_cast<std::int32_t>((word * static_cast<std::uint64_t>(vocab_size_)) >> 32);
    };
    for (std::int64_t i = 0; i < context; ++i) {
      inputs[row * context + i] = token(i);
      targets[row * context + i] = token(i + 1);
    }
  }
}

std::uint64_t RandomTokens::content_hash() const {
  Fnv64 hash;
  hash.add("random tokens");
  hash.add(static_cast<std::uint64_t>(vocab_size_));
  hash.add(seed_);
  return hash.value();
}

}  // namespace quaver
