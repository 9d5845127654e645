// The same inputs give the same bytes, run again or replayed from a CUDA graph.
#include "gpu/compare.h"
#include "gpu/workbench.h"

namespace quaver::test {
namespace {

class RepeatTest : public HighPrecisionTest {};

TEST_P(RepeatTest, EveryOperationTwiceGivesTheSameBytes) {
  for (const Scenario& scenario : scenarios()) {
    Workbench bench(*pair().gpu);
    const auto run = scenario.set_up(bench);
    bench.fill(1);
    run();
    const std::vector<std::byte> first = bench.results();
    for (int repeat = 0; repeat < (is_brief() ? 1 : 2); ++repeat) {
      bench.fill(1);
      run();
      expect_same_bytes(scenario.name, first, bench.results());
    }
  }
}

// Run, captured, and replayed twice, each time on other contents of the same memory.
TEST_P(RepeatTest, RepetitionsGiveWhatADirectRunGives) {
  const std::uint32_t replays = is_brief() ? 3 : 4;
  static std::uint64_t key = 0x9000;
  for (const Scenario& scenario : scenarios()) {
    // Optimizers are no part of a CUDA graph.
    if (scenario.name.starts_with("adamw") || scenario.name.starts_with("muon")) continue;
    Workbench bench(*pair().gpu);
    const auto run = scenario.set_up(bench);
    std::vector<std::vector<std::byte>> direct;
    for (std::uint32_t seed = 1; seed <= replays; ++seed) {
      bench.fill(seed);
      run();
      direct.push_back(bench.results());
    }
    EXPECT_NE(direct[0], direct[1]) << scenario.name << ": other contents must give other results";
    ++key;
    for (std::uint32_t seed = 1; seed <= replays; ++seed) {
      bench.fill(seed);
      pair().gpu->device().replay(key, run);
      expect_same_bytes(scenario.name + ", replay " + std::to_string(seed), direct[seed - 1], bench.results());
    }
  }
}

TEST_P(RepeatTest, ARecordingUsesThePublishedScales) {
  Workbench bench(*pair().gpu);
  const View x = bench.input(64, 96);
  QuantizedTensor& out = bench.tensor(both({.format = Format::e4m3, .policy = ScalePolicy::delayed}), 64, 96, 4);
  const Casting casting{.seed = 1};
  const std::function<void()> run = [&] { bench.engine().run(Quantize{x, out, casting}); };
  Site* const sites[] = {&out.site()};
  std::vector<std::vector<std::byte>> direct;
  const std::vector<float> scales{4, 8, 2, 64};
  for (const float scale : scales) {
    bench.fill(1);
    out.site().scale = scale;
    pair().gpu->upload_scales(sites);
    run();
    direct.push_back(bench.results());
  }
  for (std::size_t i = 0; i < scales.size(); ++i) {
    bench.fill(1);
    out.site().scale = scales[i];
    pair().gpu->upload_scales(sites);
    pair().gpu->device().replay(0x8000, run);
    expect_same_bytes("scale " + std::to_string(scales[i]), direct[i], bench.results());
  }
}

QUAVER_HIGH_PRECISION_FORMATS(RepeatTest);

}  // namespace
}  // namespace quaver::test
