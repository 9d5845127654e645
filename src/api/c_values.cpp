#include "api/c_values.h"

#include <algorithm>
#include <limits>

namespace quaver::c {

quaver_statistics c_statistics(const CastStatistics& from) {
  quaver_statistics to{};
  to.count = from.count;
  to.nonfinite = from.nonfinite;
  to.saturated = from.saturated;
  to.underflowed = from.underflowed;
  to.amax = from.amax;
  to.full = from.full ? 1 : 0;
  if (!from.full) return to;
  to.min_nonzero = from.min_nonzero;
  to.mean = from.mean();
  to.standard_deviation = from.std();
  to.kurtosis = from.kurtosis();
  to.sqnr_db = from.sqnr_db();
  static_assert(QUAVER_BINADES == binade_count);
  std::ranges::copy(from.binades, to.binades);
  return to;
}

std::size_t extent(std::int64_t rows, std::int64_t cols) {
  if (rows < 1 || cols < 1 || rows > std::numeric_limits<std::int64_t>::max() / 64 / cols) {
    throw Invalid("a matrix of " + std::to_string(rows) + " × " + std::to_string(cols),
                  "give it at least one row and column");
  }
  return static_cast<std::size_t>(rows * cols);
}

void require_length(std::size_t count, std::size_t expected, const char* name) {
  if (count != expected) {
    throw Invalid(std::string(name) + " has " + std::to_string(count) + " elements, not " + std::to_string(expected),
                  "pass an array of that length");
  }
}

}  // namespace quaver::c
