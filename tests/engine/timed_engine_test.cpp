#include "engine/timed_engine.h"

#include "engine/support.h"

namespace quaver::test {
namespace {

class TimedEngineTest : public ::testing::Test {
 protected:
  Gemm forward() { return {.a = x_.tensor.rows(), .b = w_.tensor.rows(), .out = y_.view()}; }

  std::unique_ptr<Engine> cpu_ = make_cpu_engine(1);
  TimedEngine timed_{*cpu_};
  Matrix in_ = random_matrix(32, 16, 1);
  Matrix y_ = Matrix(32, 32);
  Stored x_{both({.format = Format::e4m3}), 32, 16};
  Stored w_{both({.format = Format::e4m3}), 32, 16, Copies::both, "site/w"};
  Casting casting_;
};

TEST_F(TimedEngineTest, GivesTheWrappedEnginesResultsWhetherItWatchesOrNot) {
  cpu_->run(Quantize{in_.view(), x_.tensor, casting_});
  cpu_->run(Quantize{in_.view(), w_.tensor, casting_});
  cpu_->run(forward());
  const std::vector<float> expected = y_.values;
  for (const auto mode : {TimedEngine::Mode::idle, TimedEngine::Mode::watching}) {
    y_ = Matrix(32, 32);
    timed_.set_mode(mode);
    timed_.device().replay(7, [&] { timed_.run(forward()); });
    EXPECT_EQ(y_.values, expected);
  }
  EXPECT_EQ(timed_.name(), cpu_->name());
}

TEST_F(TimedEngineTest, AddsTimeToTheKindOfTheOperation) {
  const auto calls = [&](OperationKind kind) { return timed_.time(kind).calls; };
  timed_.run(Quantize{in_.view(), x_.tensor, casting_, 1});
  EXPECT_EQ(calls(OperationKind::cast), 0) << "idle";
  timed_.set_mode(TimedEngine::Mode::watching);
  timed_.run(Quantize{in_.view(), x_.tensor, casting_, 1});
  timed_.run(Quantize{in_.view(), w_.tensor, casting_, 1});
  EXPECT_EQ(calls(OperationKind::cast), 2);

  timed_.run(forward());
  EXPECT_EQ(calls(OperationKind::gemm_fprop), 1);
  Gemm gradient = forward();
  gradient.pass = GemmPass::wgrad;
  timed_.run(gradient);
  EXPECT_EQ(calls(OperationKind::gemm_wgrad), 1);
  gradient.pass = GemmPass::dgrad;
  timed_.run(gradient);
  EXPECT_EQ(calls(OperationKind::gemm_dgrad), 1);

  const std::vector<std::int32_t> targets(32, 3);
  double loss = 0;
  timed_.run(CrossEntropy{.x = x_.tensor, .w = w_.tensor, .targets = targets, .loss_sum = &loss, .casting = casting_});
  EXPECT_EQ(calls(OperationKind::loss), 1);

  double sum = 0;
  for (std::size_t kind = 0; kind < operation_kinds; ++kind) {
    EXPECT_FALSE(name_of(static_cast<OperationKind>(kind)).empty());
    sum += timed_.time(static_cast<OperationKind>(kind)).seconds;
  }
  EXPECT_GT(sum, 0);
  EXPECT_DOUBLE_EQ(timed_.total_seconds(), sum);
  timed_.reset();
  EXPECT_EQ(timed_.total_seconds(), 0);
}

}  // namespace
}  // namespace quaver::test
