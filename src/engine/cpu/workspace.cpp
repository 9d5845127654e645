#include "engine/cpu/workspace.h"

namespace quaver {

namespace {
constexpr Size line = 16;  // floats in 64 bytes
}

float* Workspace::floats(Slot slot, Size count) {
  Block& block = blocks_[static_cast<std::size_t>(slot)];
  if (block.capacity < count) {
    block.memory.reset();
    block.memory = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(count + line));
    block.capacity = count;
  }
  void* start = block.memory.get();
  std::size_t space = static_cast<std::size_t>(block.capacity + line) * sizeof(float);
  return static_cast<float*>(std::align(64, static_cast<std::size_t>(count) * sizeof(float), start, space));
}

std::size_t Workspace::bytes() const {
  std::size_t total = 0;
  for (const Block& block : blocks_) total += static_cast<std::size_t>(block.capacity) * sizeof(float);
  return total;
}

}  // namespace quaver
