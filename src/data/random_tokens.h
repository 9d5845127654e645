// Endless tokens drawn evenly from a vocabulary of any size: nothing to learn, nothing to read, for measuring speed.
#pragma once

#include "data/loader.h"

namespace quaver {

class RandomTokens final : public TokenSource {
 public:
  RandomTokens(int vocab_size, std::uint64_t seed) : vocab_size_(vocab_size), seed_(seed) {}

  void fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
            std::int32_t* targets) const override;
  int vocab_size() const override { return vocab_size_; }
  std::uint64_t tokens() const override { return 0; }
  std::uint64_t windows(std::int64_t) const override { return 0; }
  std::string describe() const override { return "random tokens"; }
  std::uint64_t content_hash() const override;

 private:
  int vocab_size_;
  std::uint64_t seed_;
};

}  // namespace quaver
