// Figures of small tensors and small scales.
#include <cmath>
#include <gtest/gtest.h>

#include "numerics/statistics.h"

namespace quaver::test {
namespace {

TEST(SmallFigures, HaveAScaleAndHeadroomAsLargeOnesDo) {
  ScaleBook book;
  const QuantSpec spec{.format = Format::e4m3, .policy = ScalePolicy::fixed};
  Site& site =
      book.add({.site = "a/x", .layer = {}, .role = Role::x, .recipe = {}, .reason = {}, .spec = {spec, spec}});
  site.scale = 0.25F;
  site.seen.count = 8;
  site.seen.amax = 0x1p-10F;
  site.seen.nonfinite = 2;
  book.end_step(1);
  const SiteSample values = sample_of(book, 1).sites[0];
  EXPECT_EQ(values[Statistic::scale], 0.25F);
  EXPECT_EQ(values[Statistic::amax], 0x1p-10F);
  EXPECT_EQ(values[Statistic::nonfinite], 2);
  EXPECT_NEAR(values[Statistic::headroom_log2], std::log2(448.0) + 10 + 2, 1e-5);
}

TEST(StatisticTable, SaysTheUnitAndWhichWayIsWorse) {
  EXPECT_EQ(info(Statistic::underflow_percent).unit, "%");
  EXPECT_EQ(info(Statistic::saturated_percent).unit, "%");
  EXPECT_EQ(info(Statistic::unmoved_percent).unit, "%");
  EXPECT_EQ(info(Statistic::sqnr_db).unit, "dB");
  EXPECT_EQ(info(Statistic::headroom_log2).unit, "bits");
  for (const Statistic lower : {Statistic::min_nonzero, Statistic::sqnr_db, Statistic::headroom_log2,
                                Statistic::gradient_snr, Statistic::shadow_cosine}) {
    EXPECT_EQ(info(lower).worse, Worse::lower) << info(lower).name;
  }
  for (const Statistic higher : {Statistic::amax, Statistic::underflow_percent, Statistic::saturated_percent,
                                 Statistic::nonfinite, Statistic::kurtosis, Statistic::shadow_error}) {
    EXPECT_EQ(info(higher).worse, Worse::higher) << info(higher).name;
  }
  EXPECT_EQ(info(Statistic::mean).worse, Worse::larger_magnitude);
}

}  // namespace
}  // namespace quaver::test
