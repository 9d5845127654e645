// What several tests of studies need.
#pragma once

#include <string>
#include <vector>

#include "formats/quantize.h"

namespace quaver::test {

inline void ignore(const std::string&) {}

// Of a row of numbers that stays as wide as it is.
inline CastStatistics statistics_of(const std::vector<float>& values) {
  std::vector<std::byte> codes(values.size() * sizeof(float));
  float one = 1;
  const CodeMatrix out{{}, 1, static_cast<Size>(values.size()), codes.data(), nullptr, &one};
  return quantize(values.data(), 1, static_cast<Size>(values.size()), Side::rows, 1, {}, Detail::full, out);
}

}  // namespace quaver::test
