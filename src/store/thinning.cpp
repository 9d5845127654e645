#include "store/thinning.h"

#include <algorithm>
#include <set>

#include "store/numerics_table.h"

namespace quaver {

MetricSeries thinned(MetricSeries series, std::size_t points) {
  const std::size_t count = series.step.size();
  const std::size_t buckets = std::max<std::size_t>(1, points / 4);
  if (count <= std::max<std::size_t>(points, 4)) return series;
  MetricSeries kept;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t begin = count * bucket / buckets;
    const std::size_t end = count * (bucket + 1) / buckets;
    if (begin == end) continue;
    std::size_t lowest = end;
    std::size_t highest = end;
    for (std::size_t i = begin; i < end; ++i) {
      const double value = series.value[i];
      if (value != value) continue;
      if (lowest == end || value < series.value[lowest]) lowest = i;
      if (highest == end || value > series.value[highest]) highest = i;
    }
    std::set<std::size_t> chosen{begin, end - 1};
    if (lowest != end) chosen.insert({lowest, highest});
    for (const std::size_t i : chosen) {
      kept.step.push_back(series.step[i]);
      kept.value.push_back(series.value[i]);
    }
  }
  return kept;
}

ColumnPlan plan_columns(std::uint64_t first, std::uint64_t count, std::size_t most_columns, std::size_t bytes_per_bin,
                        std::size_t budget) {
  ColumnPlan plan;
  if (count == 0) return plan;
  most_columns = std::max<std::size_t>(most_columns, 1);
  const auto bins = [&] { return count / samples_per_bin(plan.level); };
  while (plan.level + 1 < numerics_levels && bins() > most_columns &&
         bins() > budget / std::max<std::size_t>(bytes_per_bin, 1)) {
    ++plan.level;
  }
  const std::uint64_t unit = samples_per_bin(plan.level);
  const std::uint64_t last = first + count - 1;
  std::uint64_t per_column = std::max<std::uint64_t>(1, (count / unit + most_columns - 1) / most_columns) * unit;
  while (last / per_column - first / per_column + 1 > most_columns) per_column += unit;
  plan.samples_per_column = per_column;
  plan.first_column = first / per_column;
  plan.columns = static_cast<std::size_t>(last / per_column - first / per_column + 1);
  return plan;
}

}  // namespace quaver
