// The second group of a cast's statistics (Detail::full): a pass of its own after the cast, which repeats the rounding
// from the scales that were stored, so that the casts of all other steps carry nothing for it.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/cuda/runtime/site_table.h"

namespace quaver::cuda {

namespace casts {
struct Source;
struct SideJob;
}  // namespace casts

// Adds moments, errors, binades and the smallest magnitude of what the rows side saw. The sums are added in an order
// that depends on the shape alone.
void gather_full_statistics(Gpu& gpu, const casts::Source& x, const casts::SideJob& rows, Format format,
                            SiteStatistics* statistics);

}  // namespace quaver::cuda
