// Private memory of CPU operations while they run. It grows to what the largest call needs and is
// kept, so that a training step allocates nothing after the first.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "formats/quant_spec.h"

namespace quaver {

class Workspace {
 public:
  enum class Slot : std::uint8_t { operand_a, operand_b, staging, tiles, reductions, logits, heads, count };

  // At least `count` floats, 64-byte aligned; the contents of an earlier call on the same slot are lost when it grows.
  float* floats(Slot slot, Size count);

  std::size_t bytes() const;

 private:
  struct Block {
    std::unique_ptr<float[]> memory;
    Size capacity = 0;
  };
  std::array<Block, static_cast<std::size_t>(Slot::count)> blocks_;
};

}  // namespace quaver
