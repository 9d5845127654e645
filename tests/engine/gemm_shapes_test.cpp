// A GEMM that is cut is still the same GEMM: its parts meet every product once, and read and write within its matrices.
#include "engine/cuda/gemm/gemm_shapes.h"

#include <gtest/gtest.h>
#include <map>
#include <tuple>

namespace quaver::test {
namespace {

using cuda::GemmPart;
constexpr int hopper = 90;

struct Shape {
  Size rows;
  Size cols;
  Size reduction;
};

Size padded(Size extent, Size multiple) { return (extent + multiple - 1) / multiple * multiple; }

// Over memory that nobody reads, with rows at multiples of 16 bytes.
struct Storage {
  std::vector<std::byte> a;
  std::vector<std::byte> b;
  std::vector<std::byte> out;
  Gemm op;

  Storage(const QuantSpec& a_spec, const QuantSpec& b_spec, const Shape& shape, bool a_transposed, bool b_transposed) {
    op.a = operand(a, a_spec, shape.rows, shape.reduction, a_transposed);
    op.b = operand(b, b_spec, shape.cols, shape.reduction, b_transposed);
    const Size stride = padded(shape.cols, 8);
    out.resize(static_cast<std::size_t>(shape.rows * stride * 2));
    op.out = {out.data(), Format::bf16, shape.rows, shape.cols, stride};
  }

  static Operand operand(std::vector<std::byte>& memory, const QuantSpec& spec, Size extent, Size reduction,
                         bool transposed) {
    CodeMatrix matrix{.spec = spec, .rows = transposed ? reduction : extent, .cols = transposed ? extent : reduction};
    matrix.stride = padded(matrix.row_bytes(), 16);
    memory.resize(static_cast<std::size_t>(matrix.code_bytes()));
    matrix.codes = memory.data();
    return {matrix, transposed};
  }

  // Where a part begins, from its addresses.
  Size row_of(const Gemm& part) const { return (address(part.out) - out.data()) / row_bytes(); }
  Size col_of(const Gemm& part) const { return (address(part.out) - out.data()) % row_bytes() / 2; }
  Size reduction_of(const Gemm& part) const {
    const CodeMatrix& matrix = part.a.matrix;
    const Size offset = matrix.codes - a.data();
    const Size along_row = offset % op.a.matrix.row_bytes() * 8 / info(matrix.spec.format).storage_bits;
    return part.a.transposed ? offset / op.a.matrix.row_bytes() : along_row;
  }

 private:
  static std::byte* address(const View& view) { return static_cast<std::byte*>(view.data); }
  Size row_bytes() const { return op.out.row_stride() * 2; }
};

const QuantSpec bf16{.format = Format::bf16};
const QuantSpec tensor{.format = Format::e4m3, .policy = ScalePolicy::fixed};
const QuantSpec lines{.format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current};
const QuantSpec squares{.format = Format::e4m3, .block = block::b128x128, .policy = ScalePolicy::current};

void expect_whole(const Storage& storage, const Shape& shape) {
  Size products = 0;
  std::map<std::tuple<Size, Size>, Size> reduced;  // how much of each corner's sum was met
  bool began = false;
  for (const GemmPart& part : cuda::gemm_parts(hopper, storage.op)) {
    const Gemm& op = part.op;
    EXPECT_EQ(op.a.reduction(), op.b.reduction());
    EXPECT_EQ(op.a.extent(), op.out.rows);
    EXPECT_EQ(op.b.extent(), op.out.cols);
    EXPECT_LE(storage.row_of(op) + op.out.rows, shape.rows);
    EXPECT_LE(storage.col_of(op) + op.out.cols, shape.cols);
    EXPECT_LE(storage.reduction_of(op) + op.a.reduction(), shape.reduction);
    products += op.out.count() * op.a.reduction();
    // A part adds to what another has begun, and else replaces.
    Size& met = reduced[{storage.row_of(op), storage.col_of(op)}];
    EXPECT_EQ(op.accumulate, met > 0);
    met += op.a.reduction();
    began = true;
  }
  EXPECT_TRUE(began);
  EXPECT_EQ(products, shape.rows * shape.cols * shape.reduction);
  for (const auto& [corner, met] : reduced) EXPECT_EQ(met, shape.reduction);
}

TEST(GemmShapes, PartsMeetEveryProductOnce) {
  for (const Shape& shape : {Shape{300, 50257, 64}, {2049, 1024, 513}, {1025, 515, 1001}, {1024, 512, 512}}) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        expect_whole(Storage(bf16, bf16, shape, a_transposed, b_transposed), shape);
      }
    }
  }
}

TEST(GemmShapes, WhatIsCutOff16BitsIsSmallerThanEight) {
  const Storage head(bf16, bf16, {300, 50257, 64}, false, false);
  const auto parts = cuda::gemm_parts(hopper, head.op);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].kind, GemmPart::Kind::rest);
  EXPECT_EQ(parts[0].op.out.cols, 1);
  EXPECT_EQ(parts[1].op.out.cols, 50256);
}

// Sizes that are multiples already, small GEMMs, and those whose rows are not aligned, stay as they are.
TEST(GemmShapes, OthersStayWhole) {
  EXPECT_EQ(cuda::gemm_parts(hopper, Storage(bf16, bf16, {300, 50256, 64}, false, false).op).size(), 1U);
  EXPECT_EQ(cuda::gemm_parts(hopper, Storage(bf16, bf16, {3, 5, 7}, false, false).op).size(), 1U);
  Storage close(bf16, bf16, {300, 50257, 64}, false, false);
  close.op.out.stride = 0;
  EXPECT_EQ(cuda::gemm_parts(hopper, close.op).size(), 1U);
}

TEST(GemmShapes, Fp8TakesAnyRowsAndReductionAndIsCutAlongColumns) {
  const Storage width(tensor, tensor, {37, 1000, 1000}, false, false);
  EXPECT_TRUE(cuda::sizes_fit_fp8(hopper, width.op));
  EXPECT_EQ(cuda::gemm_parts(hopper, width.op).size(), 1U);
  const Storage head(tensor, tensor, {37, 97, 40}, false, false);
  EXPECT_FALSE(cuda::sizes_fit_fp8(hopper, head.op));
  const auto parts = cuda::gemm_parts(hopper, head.op);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_TRUE(cuda::sizes_fit_fp8(hopper, parts[1].op));
  Storage unpadded = width;
  unpadded.op.a.matrix.stride = 0;  // as the CPU engine stores codes
  EXPECT_FALSE(cuda::sizes_fit_fp8(hopper, unpadded.op));
}

TEST(GemmShapes, OurBlockwiseKernelTakesAnyColumnsButWithABias) {
  Storage head(lines, squares, {37, 97, 40}, false, false);
  EXPECT_TRUE(cuda::sizes_fit_fp8(hopper, head.op));
  EXPECT_EQ(cuda::gemm_parts(hopper, head.op).size(), 1U);
  std::vector<float> bias(97);
  head.op.bias = {bias.data(), Format::f32, 1, 97};
  EXPECT_FALSE(cuda::sizes_fit_fp8(hopper, head.op));
  const Storage wgrad(lines, lines, {97, 40, 64}, false, false);
  EXPECT_EQ(cuda::gemm_parts(hopper, wgrad.op).size(), 2U);
}

}  // namespace
}  // namespace quaver::test
