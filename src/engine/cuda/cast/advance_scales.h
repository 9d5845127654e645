// The next step's delayed scales, computed from the amaxes that this step's casts left in the sites' slots.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/cuda/runtime/site_table.h"
#include "engine/operations.h"

namespace quaver::cuda {

// One site with a delayed scale. All pointers are on the device.
struct ScaleJob {
  float* scale;
  const SiteStatistics* statistics;
  float limit;        // scale = limit / amax, its bits masked by `kept`
  unsigned int kept;  // mantissa bits that stay
  float kept_amax;    // as in DelayedScale
  float present_amax;
  bool has_history;
};

struct SkipRule {
  const SiteStatistics* const* must_not_saturate;
  int count;
  const double* loss_sum;
  GradientSummary* summary;
};

void advance_scales(Gpu& gpu, const ScaleJob* jobs, int count, const SkipRule& rule);

}  // namespace quaver::cuda
