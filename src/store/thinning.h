// Fewer points of a series, and which level of the pyramid to read for a picture of a given width.
#pragma once

#include <cstddef>
#include <cstdint>

#include "store/reader.h"

namespace quaver {

// At most `points` of the series (four at the least), of equal buckets each the first, lowest, highest and last value,
// in order. NaNs are neither lowest nor highest.
MetricSeries thinned(MetricSeries series, std::size_t points);

// How samples [first, first + count) become columns: each stands for samples_per_column, counted from the run's first
// sample, so that columns keep their samples while the run grows. Read at `level`, whose bins never cross a column.
struct ColumnPlan {
  int level = 0;
  std::uint64_t samples_per_column = 1;
  std::uint64_t first_column = 0;  // first / samples_per_column
  std::size_t columns = 0;
};

// bytes_per_bin: what one bin of a level costs to read; budget: what may be read in all, if a coarser level is enough.
ColumnPlan plan_columns(std::uint64_t first, std::uint64_t count, std::size_t most_columns, std::size_t bytes_per_bin,
                        std::size_t budget);

}  // namespace quaver
