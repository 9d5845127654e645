// The rows of a matrix in bands that threads share out: what holds all of a band need not hold the matrix.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <vector>

#include "formats/quantize.h"

namespace quaver {

struct Band {
  Size index = 0;
  Size first = 0;  // a multiple of tile_rows
  Size count = 0;
};

// Whole tiles of about a million elements.
inline Size band_rows(Size cols) {
  constexpr Size elements = Size{1} << 20;
  return std::max(Size{1}, elements / std::max(Size{1}, cols) / tile_rows) * tile_rows;
}

inline Size band_count(Size rows, Size cols) {
  if (cols == 0) return 0;  // rows may be any number then
  const Size each = band_rows(cols);
  return rows / each + (rows % each != 0 ? 1 : 0);
}

// Calls work(band) for every band, on all threads; rethrows the first exception once all are done.
template <class Work>
void in_bands(Size rows, Size cols, const Work& work) {
  const Size each = band_rows(cols);
  const Size bands = band_count(rows, cols);
  std::exception_ptr failure;
  std::atomic<bool> failed = false;
#pragma omp parallel for schedule(dynamic) if (bands > 1)
  for (Size index = 0; index < bands; ++index) {
    if (failed) continue;
    try {
      work(Band{index, index * each, std::min(each, rows - index * each)});
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace quaver
