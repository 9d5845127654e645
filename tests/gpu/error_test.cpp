// What the GPU engine cannot do is an error that says what to do instead.
#include "quaver/error.h"

#include "gpu/compare.h"
#include "support/variable.h"

#include "engine/cuda_module.h"
#include "precision/recipe.h"

namespace quaver::test {
namespace {

const Casting casting{};

class ErrorTest : public HighPrecisionTest {};

TEST_P(ErrorTest, AnAccumulatorThatOnlyTheCpuHasIsAnErrorWithARemedy) {
  if (is_rehearsal()) GTEST_SKIP() << "the CPU engine has them all";
  const SiteSpec spec = both({.format = Format::e4m3, .policy = ScalePolicy::none});
  Twin x(pair(), normal_matrix(16, 32, 1));
  TwinTensor tensor(pair(), spec, 16, 32);
  store(pair(), x, tensor);
  Twin out(pair(), 16, 16, 0);
  for (const Accumulator accumulator : {Accumulator::fp16, Accumulator::fp8}) {
    try {
      pair().gpu->run(
          Gemm{.a = tensor.gpu().rows(), .b = tensor.gpu().rows(), .out = out.gpu(), .accumulator = accumulator});
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
    pair().gpu->run(AddNorm{.norm = {NormKind::rms, gain.gpu()},
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

class AttentionChoiceTest : public GpuTest {};

TEST_F(AttentionChoiceTest, OneThatIsNotKnownIsAnErrorWithARemedy) {
  if (is_rehearsal()) GTEST_SKIP() << "the CPU engine has one way";
  const Variable wish("QUAVER_ATTENTION", "flash");
  try {
    make_tested_engine(Format::bf16);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("flash"), std::string::npos) << error.what();
    EXPECT_NE(error.remedy().find("cudnn"), std::string::npos) << error.remedy();
  }
}

class BlockGemmChoiceTest : public GpuTest {};

TEST_F(BlockGemmChoiceTest, OneThatIsNotKnownIsAnErrorWithARemedy) {
  if (is_rehearsal()) GTEST_SKIP() << "the CPU engine has one way";
  const Variable wish("QUAVER_BLOCK_GEMM", "theirs");
  try {
    make_tested_engine(Format::bf16);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("theirs"), std::string::npos) << error.what();
    EXPECT_NE(error.remedy().find("cublaslt"), std::string::npos) << error.remedy();
  }
}

class NoticeTest : public GpuTest {};

// A model that writes text has another shape for every length of it.
TEST_F(NoticeTest, AShapeThatTensorCoresDoNotTakeIsToldOnceWhateverItsLength) {
  if (is_rehearsal()) GTEST_SKIP() << "the CPU engine takes any shape";
  std::vector<std::string> told;
  Pair own{.high_precision = Format::bf16, .cpu = make_reference_engine(), .gpu = {}};
  own.gpu = make_cuda_engine({.notice = [&](const std::string& text) { told.push_back(text); }});
  const SiteSpec spec = both({.format = Format::e4m3, .policy = ScalePolicy::none});
  Twin w(own, normal_matrix(15, 32, 2));
  TwinTensor weight(own, spec, 15, 32);
  store(own, w, weight);
  for (const Size length : {Size{1}, Size{2}, Size{3}}) {
    Twin x(own, normal_matrix(length, 32, 1));
    TwinTensor tensor(own, spec, length, 32);
    store(own, x, tensor);
    Twin out(own, length, 15, 0);
    own.gpu->run(Gemm{.a = tensor.gpu().rows(), .b = weight.gpu().rows(), .out = out.gpu()});
  }
  own.gpu->device().synchronize();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("FP8 GEMMs of 1 × 15 × 32"), std::string::npos) << told[0];
  EXPECT_NE(told[0].find("multiple of 8"), std::string::npos) << told[0];
}

// A width of 1000, any number of tokens.
TEST_F(NoticeTest, SizesThatArePaddedRunOnTensorCores) {
  if (is_rehearsal()) GTEST_SKIP() << "the CPU engine takes any shape";
  std::vector<std::string> told;
  Pair own{.high_precision = Format::bf16, .cpu = make_reference_engine(), .gpu = {}};
  own.gpu = make_cuda_engine({.notice = [&](const std::string& text) { told.push_back(text); }});
  for (const char* name : {"fp8-delayed", "fp8-current", "fp8-block"}) {
    const Recipe recipe = make_recipe(name, {});
    Twin w(own, normal_matrix(24, 1000, 2));
    TwinTensor weight(own, recipe.w, 24, 1000);
    store(own, w, weight);
    for (const Size length : {Size{1}, Size{37}}) {
      Twin x(own, normal_matrix(length, 1000, 1));
      TwinTensor tensor(own, recipe.x, length, 1000);
      store(own, x, tensor);
      Twin out(own, length, 24, 0);
      own.gpu->run(Gemm{.a = tensor.gpu().rows(), .b = weight.gpu().rows(), .out = out.gpu()});
    }
  }
  own.gpu->device().synchronize();
  for (const std::string& text : told) ADD_FAILURE() << text;
}

QUAVER_HIGH_PRECISION_FORMATS(ErrorTest);

}  // namespace
}  // namespace quaver::test
