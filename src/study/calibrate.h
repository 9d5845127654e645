// Calibration: which ranges a model's tensors have in high precision, and the scales that follow from them. Batches run
// forward and backward with every site in bf16; each site's magnitudes are gathered, and a scale is chosen so that a
// percentile of them fits the format with some headroom. The result is a scale file: what fp8-static trains with, and
// what fp8-delayed can start from.
//
// A run from scratch does not keep the ranges it starts with: weights grow, and the first gradients are unlike later
// ones. A fresh model is therefore trained for some steps while it is measured, the batches spread over them, and the
// range of a site is the largest of all. That still sees the start of a run only; a margin of a binade or two costs
// nothing but the smallest values, for a floating-point format keeps its precision over its whole range.
//
// Percentiles are estimated from the histogram of binades, the only record that does not grow with the data: the count
// above each power of two is exact, and between two of them the logarithm of that count is taken as linear. A
// percentile is thus never wrong by as much as a binade, and by less than a fifth of one for bell-shaped tensors.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "study/subject.h"

namespace quaver {

struct CalibrateOptions {
  Size batches = 16;
  Size warmup_steps = 20;   // of training, over which the batches are spread
  double percentile = 100;  // of a site's non-zero magnitudes that fit: 100 takes the largest
  int margin = 1;           // binades of headroom above that
  StudyProgress progress = {};
};

struct SiteRange {
  std::string site;
  std::string layer;
  Role role = Role::x;
  SiteSpec spec;                  // aimed at
  CastStatistics seen;            // over all batches, in high precision
  std::vector<float> batch_amax;  // largest magnitude of each batch
  float threshold = 0;            // magnitude of the percentile
  float scale = 0;                // s in q = cast(x · s); 0 where the site needs none

  bool has_scale() const { return scale > 0; }
  const FormatInfo& format() const { return info(spec.rows.format); }
};

struct Calibration {
  std::string recipe;   // that the scales are for
  std::string source;   // whose weights
  std::string hash;     // of the config
  Size first_step = 0;  // of the weights, before …
  Size last_step = 0;   // … and after the warm-up
  Size tokens = 0;      // seen; images where there are no tokens
  std::string unit = "tokens";
  std::vector<Size> steps;  // at which each batch was measured
  std::vector<double> losses;
  std::vector<double> accuracies;  // of a classifier; else none
  double percentile = 100;
  int margin = 0;
  std::vector<SiteRange> sites;  // in the plan's order
};

// Throws Error where no batch gives finite values. Recipes without scales of their own (bf16, fp8-current, block
// scales) are calibrated for fp8-static.
Calibration calibrate(Subject& subject, const CalibrateOptions& options);

// Throws Error where none of a site's values is finite, or where it needs a scale and was not seen.
void check_ranges(const std::vector<SiteRange>& sites);

// The share of the non-zero elements above a magnitude, and the magnitude that a share (in [0, 1]) of them does not
// exceed: zeros fit any scale. From the histogram of full statistics; exact at powers of two and for a share of 1.
double share_above(const CastStatistics& seen, double magnitude);
float magnitude_at(const CastStatistics& seen, double share);

// What the scale of one percentile would do to the values that were seen.
struct PercentileEffect {
  double percentile = 100;
  float threshold = 0;
  float scale = 1;
  double saturated_percent = 0;
  double underflow_percent = 0;
  double sqnr_db = 0;
};
inline constexpr std::array<double, 4> shown_percentiles{100, 99.99, 99.9, 99};
PercentileEffect effect_of(const SiteRange& range, double percentile, int margin);

// The scale book's JSON, to be imported with precision.scales. Every scale is a logged change, so that it can be traced
// and taken back; a "calibration" entry of each site, and of the file, says what it was made from.
std::string to_scale_file(const Calibration& calibration);

// The amax of each site of a scale file (a calibration, or one that a run writes); 0 where it is not known. Throws
// Error, with the file's name, where it is none.
std::map<std::string, float> amaxes_in(std::string_view scale_file, const std::string& name);

// How far a site's range has moved between two scale files (calibrations, or those that runs write), largest first.
struct SiteDrift {
  std::string site;
  float amax_before = 0;
  float amax_now = 0;
  double binades = 0;        // log2 of their quotient: above 0 the range has grown
  double headroom_log2 = 0;  // that the earlier scale leaves the range of now; NaN where it had none
};
struct Drift {
  std::vector<SiteDrift> sites;
  std::vector<std::string> only_now;  // sites that one of the files lacks
  std::vector<std::string> only_before;
};
// `name_before` is the file's, for messages.
Drift drift_since(std::string_view file_before, const std::string& name_before, const Calibration& now);

}  // namespace quaver
