// Normally distributed matrices, the same in every test.
#pragma once

#include <vector>

#include "formats/random.h"
#include "quaver/quant_spec.h"

namespace quaver::test {

inline std::vector<float> random_matrix(Size rows, Size cols, std::uint32_t stream) {
  std::vector<float> x(static_cast<std::size_t>(rows * cols));
  random_normals({11, 0, stream}, 0, x.data(), rows * cols);
  return x;
}

}  // namespace quaver::test
