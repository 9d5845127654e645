// The comparisons themselves: each must notice the smallest difference of its kind.
#include <gtest/gtest-spi.h>

#include "gpu/compare.h"

namespace quaver::test {
namespace {

class HarnessTest : public HighPrecisionTest {};

TEST_P(HarnessTest, OneDifferingCodeIsNoticed) {
  Twin x(pair(), normal_matrix(17, 33, 1));
  TwinTensor out(pair(), both({.format = Format::e4m3, .policy = ScalePolicy::delayed}), 17, 33, Copies::both, {8});
  store(pair(), x, out);
  expect_same("the same", out);
  HostSide changed = out.gpu_rows();
  changed.codes[40] ^= 1U;
  EXPECT_NONFATAL_FAILURE(expect_same("changed", out.cpu_rows(), changed), "1 of 561 codes differ");
  changed = out.gpu_rows();
  changed.tensor_scale *= 2;
  EXPECT_NONFATAL_FAILURE(expect_same_bytes("changed", {std::byte{1}}, {std::byte{2}}), "1 of 1 bytes differ");
  EXPECT_NONFATAL_FAILURE(expect_same("changed", out.cpu_rows(), changed), "the tensor's scale");
}

TEST_P(HarnessTest, OnlyIn32BitsAreAllNanTheSame) {
  const auto side = [](Format format, std::uint32_t code) {
    return HostSide{.spec = {.format = format}, .rows = 1, .cols = 1, .codes = {code}};
  };
  expect_same("two NaN", side(Format::f32, 0x7FC00000U), side(Format::f32, 0x7FFFFFFFU));
  EXPECT_NONFATAL_FAILURE(expect_same("NaN", side(Format::f32, 0x7FC00000U), side(Format::f32, 0x7F800000U)),
                          "1 of 1 codes differ");
  EXPECT_NONFATAL_FAILURE(expect_same("NaN", side(Format::e5m2, 0x7EU), side(Format::e5m2, 0x7FU)),
                          "1 of 1 codes differ");
}

TEST_P(HarnessTest, OneWrongElementIsNoticed) {
  Twin x(pair(), normal_matrix(64, 96, 1));
  expect_near("the same", x, 0);
  Matrix wrong = x.from_cpu();
  wrong(3, 4) += 40;
  EXPECT_NONFATAL_FAILURE(expect_near("wrong", x.from_cpu(), wrong, bound::bf16), "the worst at (3, 4)");
  wrong = x.from_cpu();
  wrong(63, 95) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NONFATAL_FAILURE(expect_near("NaN", x.from_cpu(), wrong, bound::bf16), "the worst at (63, 95)");
}

TEST_P(HarnessTest, AStepToTheNextCodeIsCloseAndMoreIsNot) {
  Twin x(pair(), normal_matrix(64, 96, 1));
  Twin other(pair(), normal_matrix(64, 96, 2));
  TwinTensor out(pair(), both({.format = Format::e4m3, .policy = ScalePolicy::current}), 64, 96);
  store(pair(), x, out);
  expect_close("the same", pair(), out);
  pair().gpu->run(Quantize{other.gpu(), out.gpu(), {}});
  testing::TestPartResultArray failures;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    expect_close("others", pair(), out);
    expect_statistics("others", pair(), out, Detail::counts);
  }
  EXPECT_GE(failures.size(), 4);
}

TEST_P(HarnessTest, WritingBeyondAMatrixIsNoticed) {
  Twin x(pair(), normal_matrix(3, 5, 1));
  EXPECT_TRUE(x.margins_are_intact());
  const View beyond{x.gpu().row_data(3), x.gpu().format, 1, 1};
  pair().gpu->run(FillZero{beyond});
  EXPECT_FALSE(x.margins_are_intact());
}

QUAVER_HIGH_PRECISION_FORMATS(HarnessTest);

}  // namespace
}  // namespace quaver::test
