// The percentile and the margin that were asked for are those of the scales.
#include <cmath>

#include "study/calibrate.h"
#include "train/support.h"

namespace quaver {
namespace {

TEST(CalibratedPercentile, IsWhatTheScalesAreMadeFor) {
  const test::TemporaryFolder folder;
  const Config config = test::small_config("fp8-static", folder.path() / "run");
  auto subject = open_subject(config, [](const std::string&) {});
  const Calibration calibration = calibrate(*subject, {.batches = 2, .warmup_steps = 0, .percentile = 90, .margin = 3});
  EXPECT_EQ(calibration.percentile, 90);
  EXPECT_EQ(calibration.margin, 3);
  EXPECT_EQ(calibration.tokens, 2 * 4 * 32);
  int scaled = 0;
  for (const SiteRange& range : calibration.sites) {
    EXPECT_LT(range.threshold, 0.95F * range.seen.amax) << range.site;
    EXPECT_NEAR(share_above(range.seen, range.threshold), 0.1, 0.001) << range.site;
    if (!range.has_scale()) continue;
    ++scaled;
    const float end = range.role == Role::dy ? 57344.0F : 448.0F;  // of e5m2 and e4m3
    EXPECT_FLOAT_EQ(range.scale * range.threshold * 8, end) << range.site;
  }
  EXPECT_EQ(scaled, 24);
}

// Eight magnitudes in eight binades: three quarters of them lie below 2^5.
TEST(CalibratedPercentile, IsExactAtPowersOfTwo) {
  CastStatistics seen;
  seen.full = true;
  for (int i = 0; i < 8; ++i) seen.binades[static_cast<std::size_t>(i - lowest_binade)] = 100;
  seen.count = 800;
  seen.amax = 255;
  seen.min_nonzero = 1;
  EXPECT_FLOAT_EQ(magnitude_at(seen, 0.75), 64);
  EXPECT_FLOAT_EQ(magnitude_at(seen, 0.5), 16);
  EXPECT_NEAR(share_above(seen, 64), 0.25, 1e-12);
  EXPECT_NEAR(share_above(seen, 2), 0.875, 1e-12);
  // Half of a binade in the logarithm of the count: between 200 and 100 above, at √(200 · 100).
  EXPECT_NEAR(share_above(seen, 96), std::sqrt(200.0 * 100) / 800, 1e-9);
}

}  // namespace
}  // namespace quaver
