// What the updates of all optimizers do alike: moments in their storage formats, and weights that are updated tile by
// tile, rounded, stored and compared with what they were.
#pragma once

#include <algorithm>
#include <omp.h>
#include <vector>

#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/workspace_sizes.h"

namespace quaver {

// A stored moment's rows as FP32: in place where it is FP32, else decoded into buffer.
float* load_moment(const CodeMatrix& moment, Size first, Size rows, float* buffer);
// Nothing where it is FP32, and changed in place.
void store_moment(const CodeMatrix& moment, Size first, Size rows, const float* values, const RandomKey& random);

// The random words of a weight's moments.
inline RandomKey moment_stream(RandomKey key, std::uint32_t which) {
  key.stream = key.stream * 31U + which;
  return key;
}

struct StoredWeight {
  View view;
  Rounding rounding;
  RandomKey random;
};
// Rounds the rows as they are stored; the values become what was stored. Nothing where they are FP32, in place.
void store_weight(const StoredWeight& weight, Size first, Size rows, float* values);

// Rows of a weight before and after an update.
struct ComparedRows {
  const float* before;
  const float* direction;  // 0 where the update was: such a weight was not asked to move
  const float* after;
  float decay;
};
void compare_rows(const ComparedRows& rows, Size count, UpdateStatistics& statistics);

void add_up(const std::vector<UpdateStatistics>& parts, UpdateStatistics& total);

struct WeightTile {
  Size first;
  Size rows;
  float* weight;  // to be updated
  float* spare;   // the tiles that the operation has beside weight and its copy
};

// Has move(tile) update the weight's tiles, of `tiles` tiles in the workspace for each thread; it returns the update's
// direction.
template <class Operation, class Move>
void update_weight(Workspace& workspace, const Operation& op, Size tiles, const Move& move) {
  const View& view = op.weight;
  const StoredWeight stored{view, op.rounding, op.random};
  const Size count = (view.rows + tile_rows - 1) / tile_rows;
  const Size tile_floats = update_tile_floats(view);
  std::vector<UpdateStatistics> statistics(static_cast<std::size_t>(count));
  float* memory = workspace.floats(Workspace::Slot::tiles, tiles * tile_floats * omp_get_max_threads());
#pragma omp parallel for schedule(static)
  for (Size i = 0; i < count; ++i) {
    const Size first = i * tile_rows;
    const Size rows = std::min(tile_rows, view.rows - first);
    float* before = memory + tiles * tile_floats * omp_get_thread_num();
    float* weight = before + tile_floats;
    const float* values = rows_as_floats(view, first, rows, weight);
    std::copy_n(values, rows * view.cols, before);
    if (view.format == Format::f32) weight = view.f32() + first * view.cols;
    const float* direction = move(WeightTile{first, rows, weight, before + 2 * tile_floats});
    store_weight(stored, first, rows, weight);
    compare_rows({before, direction, weight, op.decay}, rows * view.cols, statistics[static_cast<std::size_t>(i)]);
  }
  if (op.statistics != nullptr) add_up(statistics, *op.statistics);
}

}  // namespace quaver
