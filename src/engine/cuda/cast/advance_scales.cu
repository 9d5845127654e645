#include "engine/cuda/cast/advance_scales.h"
#include "engine/cuda/cast/cast_device.cuh"

namespace quaver::cuda {

namespace {

constexpr int threads = 256;

__device__ bool is_skipped(const SkipRule& rule) {
  int bad = 0;
  for (int i = static_cast<int>(threadIdx.x); i < rule.count; i += threads) {
    bad |= rule.must_not_saturate[i]->saturated > 0 ? 1 : 0;
  }
  bad |= rule.summary->skip != 0 || !isfinite(*rule.loss_sum) ? 1 : 0;
  return __syncthreads_or(bad) != 0;
}

// As ScaleBook::end_step: an amax joins the history unless every element was not finite.
__device__ void advance(const ScaleJob& job) {
  const SiteStatistics& seen = *job.statistics;
  if (seen.count == 0) return;
  const bool joins = seen.nonfinite < seen.count;
  if (!joins && !job.has_history) return;
  const float amax = joins ? fmaxf(job.kept_amax, __uint_as_float(seen.amax)) : job.present_amax;
  const bool usable = isfinite(amax) && amax > 0;
  *job.scale = usable ? lane::value(lane::bits(casts::scale_for(job.limit, amax)) & job.kept) : 1.0F;
}

// One block: a model has a few hundred sites.
__global__ void __launch_bounds__(threads) advance_scales_kernel(const ScaleJob* jobs, int count, SkipRule rule) {
  const bool skipped = is_skipped(rule);
  if (skipped) {
    if (threadIdx.x == 0) rule.summary->skip = 1;
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) advance(jobs[i]);
}

}  // namespace

void advance_scales(Gpu& gpu, const ScaleJob* jobs, int count, const SkipRule& rule) {
  advance_scales_kernel<<<1, threads, 0, gpu.stream()>>>(jobs, count, rule);
  check_launch("advance_scales");
}

}  // namespace quaver::cuda
