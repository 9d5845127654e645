// What if this tensor were stored in another format, or with another scale? Answered from the histogram of binades that
// full statistics keep of a site, without the tensor itself.
//
// The model: one scale for the whole tensor. Within a binade the density of log|x| follows the parabola through the
// counts of the binade and its two neighbors; the first and last binade end at the smallest and largest magnitude, and
// the largest element counts exactly. Over that density the format's rounding is integrated cell by cell (E4M3, E5M2,
// E2M1), or as uniform noise of a step where steps are fine (BF16, F16, TF32). Against real casts of normal, uniform,
// lognormal, Student, GELU and half-zero data at many scales (tests/numerics/what_if_test.cpp) underflow agrees within
// 1.5 percentage points (9 for GELU in 4 bits, most of which shares a binade with the limit), saturation within 2.5,
// and SQNR within 1.6 dB; within 3.5 dB where a few elements carry most of the sum of squares (lognormal with σ = 3,
// Student with 1.5 degrees of freedom); where such outliers saturate only the order of the SQNR is right. Block
// scales cannot be predicted this way: a histogram does not say which elements share a block.
#pragma once

#include <span>

#include "numerics/statistics.h"

namespace quaver {

// What a site's statistics say about the magnitudes of its elements.
struct Distribution {
  Binades binades{};
  float amax = 0;         // 0: not known, the last binade is taken as full
  float min_nonzero = 0;  // 0: not known
  double count = 0;       // all finite elements, zeros among them; 0: not known
  double rms = 0;         // 0: not known. Tells how many zeros there are where `count` is not known
};

Distribution distribution_of(const CastStatistics& seen);
Distribution distribution_of(const SiteSample& sample, const Binades& binades);

// Statistics of one cast, named as in Statistic. All NaN where the distribution has no element.
struct CastPrediction {
  Format format = Format::f32;
  float scale = 1;  // s in q = cast(x · s)
  double underflow_percent = 0;
  double saturated_percent = 0;
  double sqnr_db = 0;        // +inf where nothing is lost
  double headroom_log2 = 0;  // binades from the scaled amax to the format's largest value
};

// The scale that maps the amax to the format's largest value in low precision; 1 in high precision.
float natural_scale(const Distribution& distribution, Format format);

CastPrediction what_if(const Distribution& distribution, Format format, Rounding rounding = Rounding::nearest_even);

// With a given scale. Throws Error where it is not positive and finite.
CastPrediction what_if(const Distribution& distribution, Format format, float scale,
                       Rounding rounding = Rounding::nearest_even);

// The formats that are worth showing side by side: e2m1, e4m3, e5m2, f16, bf16.
std::span<const Format> what_if_formats();

// Where a format's range lies on the axis of a tensor's exponents: log2 of magnitudes of x, before the scale.
struct FormatRange {
  double lowest = 0;           // up to here nearest rounding gives zero: half the smallest subnormal
  double smallest_normal = 0;  // below here precision falls
  double largest = 0;          // beyond here values saturate
};
FormatRange format_range(Format format, float scale);

}  // namespace quaver
