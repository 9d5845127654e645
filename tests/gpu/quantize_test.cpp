// Casts are the CPU engine's bit for bit: codes, scales, counts, both sides, for everything any recipe asks for.
#include <bit>

#include "gpu/compare.h"
#include "gpu/specs.h"

namespace quaver::test {
namespace {

constexpr float known_scale = 8;  // of sites whose scale comes from the steps before
const Casting casting{.seed = 0x123456789ULL, .step = 77};

class QuantizeTest : public HighPrecisionTest {
 protected:
  struct Options {
    Copies copies = Copies::both;
    float scale = known_scale;
    float factor = 1;
    Kept source = Kept::high_precision;
    Casting how = casting;
  };

  // Casts the same matrix on both engines and compares everything the cast leaves behind.
  void compare(const NamedSpec& named, Matrix values, const Options& options) {
    const Shape shape{values.rows, values.cols};
    const std::string what = "quantize " + named.name + ", " + text_of(shape);
    Twin x(pair(), std::move(values), options.source);
    TwinTensor out(pair(), named.spec, shape.rows, shape.cols, options.copies, {options.scale});
    pair().run([&](On on) { return Quantize{x.on(on), out.on(on), options.how, options.factor}; });
    expect_same(what, out);
    if (!options.how.observe) {
      EXPECT_EQ(out.take_gpu_seen().count, 0U) << what << ": seen though not observed";
    } else if (out.gpu().has_rows()) {
      expect_statistics(what, pair(), out, options.how.detail);
    }
  }
};

TEST_P(QuantizeTest, CodesScalesAndCountsOfEverySpecAndShape) {
  for (const NamedSpec& named : every_spec()) {
    std::uint32_t stream = 1;
    for (const Shape& shape : all_shapes()) {
      compare(named, matrix_with(Contents::plain, shape.rows, shape.cols, ++stream), {});
    }
  }
}

TEST_P(QuantizeTest, SpecialAndHugeValues) {
  for (const NamedSpec& named : every_spec()) {
    for (const Contents contents : {Contents::special, Contents::huge}) {
      SCOPED_TRACE(text_of(contents));
      for (const Shape& shape : shapes_of({{3, 5}, {17, 33}, {129, 257}, {64, 896}, {128, 512}})) {
        compare(named, matrix_with(contents, shape.rows, shape.cols, 5), {});
      }
    }
  }
}

TEST_P(QuantizeTest, ZerosAlone) {
  for (const NamedSpec& named : every_spec()) {
    for (const Shape& shape : {Shape{1, 1}, {130, 48}}) compare(named, Matrix(shape.rows, shape.cols), {});
  }
}

// What ranks do with codes that they are sent: columnwise ones from rowwise ones, as a cast of both sides gives them.
// The target holds others before.
TEST_P(QuantizeTest, TransposedCodesAreThoseOfACast) {
  const auto bytes_of = [&](const void* device, Size bytes) {
    std::vector<std::byte> host(static_cast<std::size_t>(bytes));
    pair().gpu->device().download(device, host.data(), host.size());
    return host;
  };
  int compared = 0;
  for (const NamedSpec& named : every_spec()) {
    const bool eight_bits = info(named.spec.rows.format).storage_bits == 8;
    if (!eight_bits || !columns_share_rows(named.spec.rows, named.spec.columns)) continue;
    for (const Shape& shape : all_shapes()) {
      SCOPED_TRACE(named.name + ", " + text_of(shape));
      Twin x(pair(), matrix_with(Contents::plain, shape.rows, shape.cols, 4));
      Twin y(pair(), matrix_with(Contents::plain, shape.rows, shape.cols, 9));
      TwinTensor cast(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
      TwinTensor made(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
      pair().run([&](On on) { return Quantize{x.on(on), cast.on(on), casting}; });
      pair().run([&](On on) { return Quantize{y.on(on), made.on(on), casting}; });
      pair().gpu->run(TransposeCodes{cast.gpu().rows_matrix(), made.gpu().columns_matrix()});
      const CodeMatrix& want = cast.gpu().columns_matrix();
      const CodeMatrix& got = made.gpu().columns_matrix();
      expect_same("transposed", cast.gpu_columns(), made.gpu_columns());
      EXPECT_EQ(bytes_of(got.tensor_scale, 4), bytes_of(want.tensor_scale, 4));
      if (want.has_block_scales()) {
        const Size scales = 4 * want.scale_rows() * want.scale_cols();
        EXPECT_EQ(bytes_of(got.block_scales, scales), bytes_of(want.block_scales, scales));
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

// Both columns and rows of codes, also those that are padded or rotated, back to FP32 and BF16.
TEST_P(QuantizeTest, DequantizedCodes) {
  const RandomKey random{casting.seed, casting.step, 0};
  for (const NamedSpec& named : every_spec()) {
    for (const Shape& shape : shapes_of({{1, 1}, {17, 33}, {129, 257}, {64, 896}})) {
      Twin x(pair(), matrix_with(Contents::plain, shape.rows, shape.cols, 4));
      TwinTensor cast(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
      pair().run([&](On on) { return Quantize{x.on(on), cast.on(on), casting}; });
      const bool apart = cast.cpu().has_own_columns() && cast.gpu().has_own_columns();
      for (const Side side : {Side::rows, Side::columns}) {
        if (side == Side::columns && !apart) continue;
        const auto matrix = [&](On on) {
          return side == Side::rows ? cast.on(on).rows_matrix() : cast.on(on).columns_matrix();
        };
        const std::string what = named.name + ", " + text_of(shape) + (side == Side::rows ? ", rows" : ", columns");
        Twin values(pair(), matrix(On::cpu).rows, matrix(On::cpu).cols, 99, Kept::f32);
        pair().run([&](On on) { return Dequantize{matrix(on), random, values.on(on)}; });
        EXPECT_EQ(values.from_gpu().values, values.from_cpu().values) << what;
        EXPECT_TRUE(values.margins_are_intact()) << what;
        if (is_rehearsal()) continue;
        Twin rounded(pair(), values.from_cpu(), Kept::bf16);
        const std::vector<std::byte> expected = rounded.gpu_bytes();
        rounded.set(Matrix(rounded.rows(), rounded.cols(), 99));
        pair().gpu->run(Dequantize{matrix(On::gpu), random, rounded.gpu()});
        EXPECT_EQ(rounded.gpu_bytes(), expected) << what;
      }
    }
  }
}

// Weights are FP32, or BF16, whatever high-precision matrices are.
TEST_P(QuantizeTest, SourcesInFp32AndBf16WithFactors) {
  for (const NamedSpec& named : every_spec()) {
    for (const Kept source : {Kept::f32, Kept::bf16}) {
      SCOPED_TRACE(source == Kept::f32 ? "from FP32" : "from BF16");
      compare(named, matrix_with(Contents::plain, 129, 257, 3), {.source = source});
      compare(named, matrix_with(Contents::special, 64, 512, 4), {.factor = 0.37F, .source = source});
      compare(named, matrix_with(Contents::plain, 40, 1024, 4), {.factor = -3.3F, .source = source});
      compare(named, matrix_with(Contents::plain, 40, 1000, 4), {.factor = -3.3F, .source = source});
    }
  }
}

TEST_P(QuantizeTest, FactorsOtherThanOne) {
  for (const NamedSpec& named : every_spec()) {
    for (const float factor : {0.125F, 0.7F, 1e-3F}) {
      compare(named, matrix_with(Contents::plain, 17, 33, 3), {.factor = factor});
      compare(named, matrix_with(Contents::plain, 64, 896, 3), {.factor = factor});
    }
  }
}

TEST_P(QuantizeTest, EitherSideAlone) {
  const Casting unobserved{.seed = casting.seed, .step = casting.step, .observe = false};
  for (const NamedSpec& named : every_spec()) {
    for (const Shape& shape : shapes_of({{17, 33}, {129, 257}, {64, 896}, {128, 384}})) {
      const Matrix values = matrix_with(Contents::plain, shape.rows, shape.cols, 6);
      compare(named, values, {.copies = Copies::rows_only});
      compare(named, values, {.copies = Copies::columns_only, .how = unobserved});
    }
  }
}

TEST_P(QuantizeTest, AnUnknownScaleIsTheTensorsOwn) {
  for (const NamedSpec& named : every_spec()) {
    const ScalePolicy policy = named.spec.rows.policy;
    if (policy != ScalePolicy::delayed && policy != ScalePolicy::fixed) continue;
    for (const Shape& shape : shapes_of({{1, 1}, {17, 33}, {129, 257}, {256, 512}})) {
      compare(named, matrix_with(Contents::plain, shape.rows, shape.cols, 7), {.scale = 0});
    }
    for (const float scale : {1e-3F, 0.3F, 1024.0F}) {
      compare(named, matrix_with(Contents::plain, 129, 256, 7), {.scale = scale});
    }
  }
}

TEST_P(QuantizeTest, FullStatistics) {
  const Casting full{.seed = casting.seed, .step = casting.step, .detail = Detail::full};
  for (const NamedSpec& named : every_spec()) {
    for (const Shape& shape : shapes_of({{1, 1}, {3, 5}, {17, 33}, {129, 257}, {64, 896}, {256, 512}})) {
      compare(named, matrix_with(Contents::plain, shape.rows, shape.cols, 8), {.how = full});
      compare(named, matrix_with(Contents::special, shape.rows, shape.cols, 8), {.factor = 0.7F, .how = full});
    }
  }
}

TEST_P(QuantizeTest, StatisticsOfSeveralCastsAddUp) {
  for (const Detail detail : {Detail::counts, Detail::full}) {
    const Casting how{.seed = 1, .detail = detail};
    TwinTensor out(pair(), both({.format = Format::e4m3, .policy = ScalePolicy::delayed}), 33, 48, Copies::both, {400});
    for (std::uint32_t stream = 1; stream <= 3; ++stream) {
      Twin x(pair(), matrix_with(Contents::special, 33, 48, stream));
      store(pair(), x, out, how);
    }
    expect_statistics("quantize three times", pair(), out, detail);
  }
}

TEST_P(QuantizeTest, EvaluationLeavesNoTrace) {
  for (const Detail detail : {Detail::counts, Detail::full}) {
    const Casting how{.seed = 9, .step = 2, .detail = detail, .observe = false};
    for (const NamedSpec& named : every_spec()) compare(named, matrix_with(Contents::plain, 33, 48, 1), {.how = how});
  }
}

TEST_P(QuantizeTest, ColumnSumsAreAdded) {
  constexpr double reordered = 1e-5;  // of the sum of magnitudes
  for (const NamedSpec& named : every_spec()) {
    for (const Shape& shape : shapes_of({{1, 1}, {17, 33}, {129, 257}, {300, 512}, {256, 512}})) {
      const float factor = shape.rows % 128 == 0 ? 1.0F : 0.7F;
      Twin x(pair(), matrix_with(Contents::plain, shape.rows, shape.cols, 9));
      TwinTensor out(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
      Twin& sums = out.sum_columns(0.5F);
      pair().run([&](On on) { return Quantize{x.on(on), out.on(on), casting, factor}; });
      const std::string what = "column sums " + named.name + ", " + text_of(shape);
      expect_near(what, sums, reordered, 0.8 * static_cast<double>(shape.rows));
      expect_same(what, out);
    }
  }
}

// The device's counter is added to the step: two ways to say the same random stream.
TEST_P(QuantizeTest, MicroStepsChangeStochasticCodesAsStepsDo) {
  for (const NamedSpec& named : every_spec()) {
    if (named.spec.rows.rounding == Rounding::nearest_even && named.spec.columns.rounding == Rounding::nearest_even) {
      continue;
    }
    Twin x(pair(), matrix_with(Contents::plain, 64, 96, 10));
    Cells<std::uint32_t> micro(pair(), {5});
    TwinTensor by_step(pair(), named.spec, 64, 96);
    TwinTensor by_micro(pair(), named.spec, 64, 96);
    TwinTensor before(pair(), named.spec, 64, 96);
    const auto cast_gpu = [&](TwinTensor& out, std::uint32_t step, const std::uint32_t* counter) {
      pair().gpu->run(Quantize{x.gpu(), out.gpu(), {.seed = 3, .step = step, .micro_step = counter}});
    };
    cast_gpu(by_step, 105, nullptr);
    cast_gpu(by_micro, 100, micro.gpu());
    cast_gpu(before, 100, nullptr);
    expect_same_bytes("micro step of " + named.name, by_step.gpu_bytes(), by_micro.gpu_bytes());
    EXPECT_NE(before.gpu_bytes(), by_micro.gpu_bytes()) << named.name;
    pair().cpu->run(Quantize{x.cpu(), by_micro.cpu(), {.seed = 3, .step = 100, .micro_step = micro.cpu()}});
    expect_same("micro step of " + named.name, by_micro);
  }
}

TEST_P(QuantizeTest, AScaleChangedOnTheHostIsUsedByTheNextCast) {
  const SiteSpec spec = both({.format = Format::e4m3, .policy = ScalePolicy::delayed});
  Twin x(pair(), matrix_with(Contents::plain, 32, 64, 1));
  TwinTensor out(pair(), spec, 32, 64, Copies::both, {4});
  for (const float scale : {4.0F, 16.0F, 0.0F, 2.0F}) {
    out.set_scale(scale);
    Site* const sites[] = {&out.site(On::gpu)};
    pair().gpu->upload_scales(sites);
    store(pair(), x, out);
    expect_same("scale " + std::to_string(scale), out);
  }
}

TEST_P(QuantizeTest, EveryBf16ValueInEveryFormat) {
  Matrix values(256, 256);
  for (std::uint32_t code = 0; code < 65536; ++code) values.values[code] = decode(Format::bf16, code);
  for (const Format format : {Format::e4m3, Format::e5m2, Format::bf16, Format::f16, Format::tf32, Format::f32}) {
    const NamedSpec named{"every BF16 value in " + std::string(info(format).name), both({.format = format})};
    for (const Kept source : {Kept::high_precision, Kept::f32, Kept::bf16}) compare(named, values, {.source = source});
    compare(named, values, {.factor = 0.3F, .source = Kept::f32});
  }
}

TEST_P(QuantizeTest, ADenseSweepOfFp32InEveryFormat) {
  constexpr Size rows = 1024;
  constexpr Size cols = 2048;
  constexpr std::uint32_t stride = 2039;  // a prime: 2^32 / 2^21 and a bit less
  Matrix values(rows, cols);
  for (Size i = 0; i < rows * cols; ++i) {
    const auto bits = static_cast<std::uint32_t>(i) * stride;
    float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) value = std::bit_cast<float>(bits | 0x00400000U);  // signalling NaN do not survive copies
    values.values[index(i)] = value;
  }
  for (const Format format : {Format::e4m3, Format::e5m2, Format::bf16, Format::f16, Format::tf32}) {
    const NamedSpec named{"FP32 sweep in " + std::string(info(format).name), both({.format = format})};
    compare(named, values, {.source = Kept::f32});
  }
}

QUAVER_HIGH_PRECISION_FORMATS(QuantizeTest);

}  // namespace
}  // namespace quaver::test
