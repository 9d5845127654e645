// How CPU operations write into a site. The operation fills tiles of rows in FP32; each tile is cast while it is still
// in cache, unless the scale depends on the whole tensor, which is then staged first. Operations therefore have no
// branch on precision.
#pragma once

#include <algorithm>
#include <omp.h>
#include <vector>

#include "engine/cpu/workspace.h"
#include "engine/cpu/workspace_sizes.h"

namespace quaver {

inline RandomKey key_of(const Casting& casting, const Site& site) {
  return {casting.seed, casting.step + (casting.micro_step != nullptr ? *casting.micro_step : 0), site.stream};
}

// Staging memory for a tensor that is not written directly, until it is cast.
constexpr Workspace::Slot slot_of(SiteWritePlan::Mode mode) {
  return mode == SiteWritePlan::Mode::staged ? Workspace::Slot::staging : Workspace::Slot::tiles;
}

class SiteWriter {
 public:
  SiteWriter(Workspace& workspace, QuantizedTensor& out, const Casting& casting);

  // Calls body(first_row, rows, tile, thread) for every tile over threads; the body fills tile[rows × cols].
  template <class Body>
  void write(Body&& body) {
    const Size tiles = (rows_ + tile_rows - 1) / tile_rows;
#pragma omp parallel if (tiles > 1)
    {
      const int thread = omp_get_thread_num();
#pragma omp for schedule(static)
      for (Size tile = 0; tile < tiles; ++tile) {
        const Size first = tile * tile_rows;
        const Size count = std::min(tile_rows, rows_ - first);
        float* values = tile_memory(first, thread);
        body(first, count, values, thread);
        finish_tile(first, count, values, thread);
      }
    }
    finish();
  }

 private:
  using Mode = SiteWritePlan::Mode;

  void prepare(const float* values);
  float* tile_memory(Size first, int thread);
  void finish_tile(Size first, Size count, const float* values, int thread);
  void cast_tile(Size first, Size count, const float* values, CastStatistics& stats);
  void cast_staged();
  void finish();

  QuantizedTensor& out_;
  const Casting& casting_;
  Size rows_;
  Size cols_;
  Mode mode_;
  float scale_;             // s for delayed and fixed
  CodeMatrix rows_matrix_;  // as out's, with the policy of this very cast
  CodeMatrix columns_matrix_;
  float* memory_ = nullptr;
  float* sums_ = nullptr;             // column sums, one row per thread
  std::vector<CastStatistics> seen_;  // one per thread
};

}  // namespace quaver
