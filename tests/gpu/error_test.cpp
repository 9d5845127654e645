// What the GPU engine cannot do is an error that says what to do instead.
#include "quaver/error.h"

#include "gpu/compare.h"

namespace quaver::test {
namespace {

const Casting casting{};

class ErrorTest : public WideTest {};

TEST_P(ErrorTest, AnAccumulatorThatOnlyTheCpuHasIsAnErrorWithARemedy) {
  if (is_rehearsal()) GTEST_SKIP() << "the CPU engine has them all";
  const SiteSpec spec = both({.format = Format::e4m3, .policy = ScalePolicy::none});
  Twin x(pair(), normal_matrix(16, 32, 1));
  TwinTensor tensor(pair(), spec, 16, 32);
  store(pair(), x, tensor);
  Twin out(pair(), 16, 16, 0);
  for (const Accumulator accumulator : {Accumulator::fp16, Accumulator::fp8}) {
    try {
      pair().gpu->matmul(
          {.a = tensor.gpu().rows(), .b = tensor.gpu().rows(), .out = out.gpu(), .accumulator = accumulator});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(error.remedy().find("precision.accumulator"), std::string::npos) << error.what();
    }
  }
}

TEST_P(ErrorTest, TooWideARowForTheNormsIsAnErrorWithARemedy) {
  if (is_rehearsal()) GTEST_SKIP() << "the CPU engine takes any width";
  constexpr Size width = 9000;
  Twin x(pair(), 2, width, 1);
  Twin gain(pair(), 1, width, 1, Kept::f32);
  Twin stats(pair(), 2, 2, 0, Kept::f32);
  TwinTensor out(pair(), both({.format = Format::e4m3, .policy = ScalePolicy::none}), 2, width);
  try {
    pair().gpu->add_norm({.norm = {NormKind::rms, gain.gpu()},
                          .residual = x.gpu(),
                          .sum = x.gpu(),
                          .stats = stats.gpu(),
                          .out = out.gpu(),
                          .casting = casting});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("9000"), std::string::npos) << error.what();
    EXPECT_NE(error.remedy().find("model.width"), std::string::npos) << error.remedy();
  }
}

QUAVER_BOTH_WIDE_FORMATS(ErrorTest);

}  // namespace
}  // namespace quaver::test
