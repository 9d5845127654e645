// Matrices in an engine's memory, for benchmarks: they live as long as this.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"

namespace quaver {

inline constexpr float typical_amax = 5;  // of normal values

class BenchMatrices {
 public:
  explicit BenchMatrices(Engine& engine) : engine_(engine) {}

  std::byte* take(std::size_t bytes);
  View make(Size rows, Size cols, Format format);
  // Normal values, the same 64 rows of them again and again: the host is slow at making them.
  View normal(Size rows, Size cols, Format format, std::uint32_t stream);

 private:
  Engine& engine_;
  std::vector<std::shared_ptr<std::byte>> memory_;
};

}  // namespace quaver
