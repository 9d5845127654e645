// Calibration on a GPU: the ranges that the CPU finds, that of the logits' gradient among them.
#include "study/calibrate.h"

#include "gpu/compare.h"

#include "train/support.h"

namespace quaver::test {
namespace {

class CalibrationTest : public GpuTest {
 protected:
  static Calibration calibrated_on(DeviceChoice device) {
    Config config = small_config("fp8-static", "unused");
    config.precision.layers["head"] = "fp8-static";
    config.train.device = device;
    config.train.statistics_every = 0;  // of a run; a calibration gathers its own
    const auto subject = open_subject(config, [](const std::string&) {});
    return calibrate(*subject, {.batches = 2, .warmup_steps = 1});
  }
};

TEST_F(CalibrationTest, FindsTheRangesThatTheCpuFinds) {
  const Calibration cpu = calibrated_on(DeviceChoice::cpu);
  const Calibration gpu = calibrated_on(is_rehearsal() ? DeviceChoice::cpu : DeviceChoice::cuda);
  ASSERT_EQ(gpu.sites.size(), cpu.sites.size());
  bool saw_logits = false;
  for (std::size_t i = 0; i < cpu.sites.size(); ++i) {
    const SiteRange& expected = cpu.sites[i];
    const SiteRange& found = gpu.sites[i];
    ASSERT_EQ(found.site, expected.site);
    ASSERT_TRUE(found.has_scale()) << found.site;
    // BF16 between operations, and a first update whose signs may differ where a gradient is near zero.
    EXPECT_NEAR(found.seen.amax, expected.seen.amax, 0.1 * expected.seen.amax) << found.site;
    saw_logits = saw_logits || found.site == "head/dy";
  }
  EXPECT_TRUE(saw_logits);
}

}  // namespace
}  // namespace quaver::test
