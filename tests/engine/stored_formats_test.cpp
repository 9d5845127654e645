// What kernels of the CUDA engine store themselves, and what a pass of its own rounds afterwards.
#include <gtest/gtest.h>

#include "engine/cuda/gemm/gemm_shapes.h"
#include "engine/cuda/workspace_sizes.h"

namespace quaver::test {
namespace {

using cuda::can_fuse;
using cuda::logits_are_cast;
using cuda::rounds_result;

// A tensor of a site with one format, in memory that nobody reads.
struct TensorOf {
  Site site;
  std::byte nowhere{};
  QuantizedTensor tensor;

  explicit TensorOf(const QuantSpec& spec) {
    site.spec = {spec, spec};
    tensor =
        QuantizedTensor(site, 16, 16, Copies::both, Sharing::where_exact, [this](std::size_t) { return &nowhere; });
  }
};

bool is_fused(const QuantSpec& spec, Format high, Detail detail = Detail::counts) {
  const TensorOf stored(spec);
  Casting casting;
  casting.detail = detail;
  return can_fuse(stored.tensor, casting, high);
}

TEST(StoredFormats, WhatIsStoredAsHighPrecisionIsNeedsNoCast) {
  for (const Format high : {Format::f32, Format::bf16, Format::f16}) {
    for (const Format format : {Format::f32, Format::tf32, Format::bf16, Format::f16}) {
      const bool rounded_on_the_way = high == Format::f32 && format == Format::tf32;
      EXPECT_EQ(is_fused({.format = format}, high), format == high || rounded_on_the_way);
      EXPECT_FALSE(is_fused({.format = format}, high, Detail::full)) << "statistics need the values before the cast";
      EXPECT_EQ(logits_are_cast({{.format = format}, {.format = format}}, high), format != high);
    }
  }
  EXPECT_FALSE(is_fused({.format = Format::tf32, .rounding = Rounding::stochastic}, Format::f32));
}

TEST(StoredFormats, OnlyBf16IsCastToFp8OnTheWay) {
  const QuantSpec unscaled{.format = Format::e4m3};
  EXPECT_TRUE(is_fused(unscaled, Format::bf16));
  EXPECT_FALSE(is_fused(unscaled, Format::f16));
  EXPECT_FALSE(is_fused(unscaled, Format::f32));
}

TEST(StoredFormats, LibrariesGiveResultsOf16BitsInTheirOperandsFormat) {
  const auto rounded = [](Format operand, Format out) {
    Gemm op;
    op.out.format = out;
    return rounds_result(op, operand);
  };
  for (const Format operand : {Format::f32, Format::tf32, Format::bf16, Format::f16, Format::e4m3, Format::e5m2}) {
    EXPECT_FALSE(rounded(operand, Format::f32));
    EXPECT_EQ(rounded(operand, Format::f16), operand != Format::f16);
    EXPECT_EQ(rounded(operand, Format::bf16), operand != Format::bf16 && !is_fp8(operand));
  }
}

// It writes BF16 and FP32; FP16 is rounded from cuBLASLt's FP32.
TEST(StoredFormats, OurBlockwiseKernelLeavesFp16ToTheLibrary) {
  Gemm op{.a = {{.spec = {.format = Format::e4m3, .block = block::b1x128}, .rows = 256, .cols = 256}, false},
          .b = {{.spec = {.format = Format::e4m3, .block = block::b128x128}, .rows = 256, .cols = 256}, false}};
  for (const Format format : {Format::f32, Format::bf16, Format::f16}) {
    op.out = {nullptr, format, 256, 256};
    EXPECT_EQ(cuda::block_gemm_supports(90, op), format != Format::f16);
  }
}

}  // namespace
}  // namespace quaver::test
