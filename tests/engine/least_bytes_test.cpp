// The bytes that operations have to move, from their shapes alone.
#include "engine/least_bytes.h"

#include "engine/support.h"
#include "engine/timed_engine.h"

namespace quaver::test {
namespace {

const SiteSpec e4m3 = both({.format = Format::e4m3});

TEST(LeastBytes, OfAGemmAreItsOperandsAndItsResult) {
  const Stored x(e4m3, 32, 16);
  const Stored w(e4m3, 8, 16);
  Matrix y(32, 8);
  Matrix bias(1, 8);
  Gemm op{.a = x.tensor.rows(), .b = w.tensor.rows(), .out = y.view()};
  const Size operands = (32 * 16 + 4) + (8 * 16 + 4);
  EXPECT_EQ(least_bytes(op), operands + 32 * 8 * 4);
  op.bias = bias.view();
  EXPECT_EQ(least_bytes(op), operands + 32 * 8 * 4 + 8 * 4);
  op.bias = {};
  op.accumulate = true;
  EXPECT_EQ(least_bytes(op), operands + 2 * 32 * 8 * 4);
}

TEST(LeastBytes, OfACastAreWhatItReadsAndTheCodesOfBothSides) {
  Matrix x(256, 128);
  const Casting casting;
  const SiteSpec blocks = both({.format = Format::e4m3, .block = {1, 128}});
  Stored rowwise(blocks, 256, 128, Copies::rows_only);
  Stored both_sides(blocks, 256, 128);
  EXPECT_EQ(least_bytes(Quantize{x.view(), rowwise.tensor, casting}), 256 * 128 * 5 + 256 * 4);
  EXPECT_EQ(least_bytes(Quantize{x.view(), both_sides.tensor, casting}), 256 * 128 * 6 + 256 * 4 + 128 * 2 * 4);
}

TEST(LeastBytes, OfWhatIsItsOwnCodesAreNone) {
  Matrix x(8, 8);
  Site site;
  float one = 1;
  QuantizedTensor own(site, x.view(), &one);
  const Casting casting;
  EXPECT_EQ(least_bytes(Quantize{x.view(), own, casting}), 0);
}

TEST(LeastBytes, OfANormAreTheStreamItsSumAndTheOperand) {
  Matrix stream(16, 8), branch(16, 8), stats(16, 2), gain(1, 8);
  Stored out(e4m3, 16, 8, Copies::rows_only);
  const Casting casting;
  AddNorm op{.norm = {.kind = NormKind::rms, .gain = gain.view()},
             .residual = stream.view(),
             .sum = stream.view(),
             .stats = stats.view(),
             .out = out.tensor,
             .casting = casting};
  const Size small = 16 * 2 * 4 + 8 * 4;
  const Size codes = 16 * 8 + 4;
  EXPECT_EQ(least_bytes(op), 16 * 8 * 4 + small + codes);
  op.branch = branch.view();
  EXPECT_EQ(least_bytes(op), 3 * 16 * 8 * 4 + small + codes);
}

TEST(LeastBytes, AreCountedByKindWhileATimedEngineLooks) {
  const std::unique_ptr<Engine> cpu = make_cpu_engine(1);
  TimedEngine timed(*cpu);
  Matrix x(32, 16);
  timed.run(FillZero{x.view()});
  EXPECT_EQ(timed.time(OperationKind::copy).bytes, 0) << "idle";
  timed.set_mode(TimedEngine::Mode::recording);
  timed.run(FillZero{x.view()});
  timed.device().upload(x.values.data(), x.values.data(), 64);
  const auto memory = timed.device().allocate(4096);
  EXPECT_EQ(timed.time(OperationKind::copy).bytes, 32 * 16 * 4 + 64);
  EXPECT_EQ(timed.allocations().bytes, 4096);
  EXPECT_EQ(timed.allocations().calls, 1);
  timed.reset();
  EXPECT_EQ(timed.time(OperationKind::copy).bytes, 0);
  EXPECT_EQ(timed.allocations().calls, 0);
}

}  // namespace
}  // namespace quaver::test
