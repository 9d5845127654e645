// A quantized tensor knows which of its copies exist, how GEMMs read them, and how many bytes they need.
#include "tensor/quantized_tensor.h"

#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace quaver::test {
namespace {

constexpr QuantSpec e4m3_current{.format = Format::e4m3, .policy = ScalePolicy::current};
constexpr QuantSpec e4m3_rows{.format = Format::e4m3, .block = block::row, .policy = ScalePolicy::current};
constexpr QuantSpec e4m3_squares{.format = Format::e4m3, .block = block::b128x128, .policy = ScalePolicy::current};
constexpr QuantSpec e4m3_lines{.format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current};
constexpr QuantSpec mxfp4{
    .format = Format::e2m1, .block = block::b1x32, .scale = ScaleFormat::e8m0, .policy = ScalePolicy::current};

// Hands out blocks and remembers their sizes.
class Pool {
 public:
  std::byte* operator()(std::size_t bytes) {
    sizes.push_back(bytes);
    blocks_.push_back(std::make_unique<std::byte[]>(bytes + 1));
    return blocks_.back().get();
  }
  std::vector<std::size_t> sizes;

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

Site site_of(const QuantSpec& rows, const QuantSpec& columns) {
  Site site;
  site.spec = {rows, columns};
  return site;
}

QuantizedTensor make(Site& site, Size rows, Size cols, Copies copies, Pool& pool) {
  return {site, rows, cols, copies, Sharing::where_exact, [&](std::size_t bytes) { return pool(bytes); }};
}

struct SharingCase {
  const char* name;
  QuantSpec rows;
  QuantSpec columns;
  bool shares;
};

QuantSpec stochastic(QuantSpec spec) {
  spec.rounding = Rounding::stochastic;
  return spec;
}

TEST(QuantizedTensor, OneCopyServesBothSidesExactlyWhereItsTransposeIsTheSameCast) {
  const std::vector<SharingCase> cases{
      {"bf16", {.format = Format::bf16}, {.format = Format::bf16}, true},
      {"one scale", e4m3_current, e4m3_current, true},
      {"squares", e4m3_squares, e4m3_squares, true},
      {"rows", e4m3_rows, e4m3_rows, false},
      {"lines", e4m3_lines, e4m3_lines, false},
      {"stochastic", stochastic(e4m3_current), stochastic(e4m3_current), false},
      {"two formats", e4m3_rows, {.format = Format::bf16}, false},
  };
  for (const SharingCase& instance : cases) {
    Pool pool;
    Site site = site_of(instance.rows, instance.columns);
    const QuantizedTensor tensor = make(site, 5, 9, Copies::both, pool);
    EXPECT_EQ(tensor.has_own_columns(), !instance.shares) << instance.name;
    const Operand rows = tensor.rows();
    const Operand columns = tensor.columns();
    EXPECT_FALSE(rows.transposed) << instance.name;
    EXPECT_EQ(rows.extent(), 5) << instance.name;
    EXPECT_EQ(rows.reduction(), 9) << instance.name;
    EXPECT_EQ(columns.extent(), 9) << instance.name;
    EXPECT_EQ(columns.reduction(), 5) << instance.name;
    EXPECT_EQ(columns.transposed, instance.shares) << instance.name;
    EXPECT_EQ(columns.matrix.codes == rows.matrix.codes, instance.shares) << instance.name;
    EXPECT_EQ(columns.matrix.spec, instance.columns) << instance.name;
  }
}

TEST(QuantizedTensor, EvaluationTakesNoMemoryForColumns) {
  Pool both;
  Pool rows_only;
  Site site = site_of(e4m3_rows, e4m3_rows);
  make(site, 8, 16, Copies::both, both);
  const QuantizedTensor tensor = make(site, 8, 16, Copies::rows_only, rows_only);
  EXPECT_EQ(both.sizes.size(), 4U);
  EXPECT_EQ(rows_only.sizes.size(), 2U);
  EXPECT_FALSE(tensor.has_own_columns());
}

TEST(QuantizedTensor, BytesAreCodesAndScales) {
  Pool pool;
  Site one_scale = site_of(e4m3_current, e4m3_current);
  EXPECT_EQ(make(one_scale, 3, 7, Copies::both, pool).bytes(), 3 * 7 + 4);
  Site squares = site_of(e4m3_squares, e4m3_squares);
  EXPECT_EQ(make(squares, 130, 300, Copies::both, pool).bytes(), 130 * 300 + 2 * 3 * 4);
  Site by_row = site_of(e4m3_rows, e4m3_rows);
  EXPECT_EQ(make(by_row, 3, 7, Copies::both, pool).bytes(), 2 * 3 * 7 + (3 + 7) * 4);
  Site fp4 = site_of(mxfp4, mxfp4);  // an odd row of FP4 codes ends in half a byte; 33 columns need two scales
  EXPECT_EQ(make(fp4, 2, 33, Copies::rows_only, pool).bytes(), 2 * 17 + 2 * 2 * 4);
}

// As tensor cores read them; other formats, and rows that are multiples already, take what their codes take.
TEST(QuantizedTensor, StoredApartRowsOfFp8BeginAtMultiplesOf16) {
  Pool pool;
  const auto apart = [&](const QuantSpec& spec, Size rows, Size cols) {
    Site site = site_of(spec, spec);
    const QuantizedTensor tensor(site, rows, cols, Copies::both, Sharing::apart,
                                 [&](std::size_t bytes) { return pool(bytes); });
    return std::pair{tensor.rows_matrix().row_bytes(), tensor.columns_matrix().row_bytes()};
  };
  EXPECT_EQ(apart(e4m3_current, 37, 1000), std::pair(Size{1008}, Size{48}));
  EXPECT_EQ(apart(e4m3_squares, 32, 1024), std::pair(Size{1024}, Size{32}));
  EXPECT_EQ(apart(mxfp4, 2, 33), std::pair(Size{17}, Size{1}));
  EXPECT_EQ(pool.sizes[0], 37U * 1008U);
}

TEST(QuantizedTensor, AHighPrecisionMatrixIsItsOwnCodes) {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  float one = 1;
  Site site = site_of({}, {});
  const QuantizedTensor tensor(site, View{values.data(), Format::f32, 2, 3}, &one);
  EXPECT_EQ(static_cast<void*>(tensor.rows().matrix.codes), static_cast<void*>(values.data()));
  EXPECT_TRUE(tensor.columns().transposed);
  EXPECT_EQ(tensor.rows_count(), 2);
  EXPECT_EQ(tensor.cols_count(), 3);
}

// Every slice decodes to the rows it was cut from.
TEST(SliceRows, DecodesToTheSameRows) {
  for (const QuantSpec& spec :
       {QuantSpec{.format = Format::bf16}, e4m3_current, e4m3_rows, e4m3_lines, e4m3_squares, mxfp4}) {
    const Size rows = 260;
    const Size cols = 133;
    Pool pool;
    Site site = site_of(spec, spec);
    const QuantizedTensor tensor = make(site, rows, cols, Copies::rows_only, pool);
    std::vector<float> x(static_cast<std::size_t>(rows * cols));
    random_normals({1, 2, 3}, 0, x.data(), rows * cols);
    for (Size r = 0; r < rows; ++r) x[static_cast<std::size_t>(r * cols)] *= static_cast<float>(r + 1);
    quantize({x.data(), rows, cols}, {.side = Side::rows, .given_scale = 1, .random = {}, .detail = Detail::counts},
             tensor.rows_matrix());
    std::vector<float> whole(x.size());
    decode_rows(tensor.rows_matrix(), 0, rows, whole.data(), cols);
    for (const auto& [first, count] : {std::pair<Size, Size>{0, 1}, {128, 128}, {256, 4}}) {
      const CodeMatrix slice = slice_rows(tensor.rows_matrix(), first, count);
      std::vector<float> part(static_cast<std::size_t>(count * cols));
      decode_rows(slice, 0, count, part.data(), cols);
      EXPECT_EQ(slice.rows, count);
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + first * cols, part.size() * sizeof(float)), 0)
          << describe(spec) << " from row " << first;
    }
  }
}

}  // namespace
}  // namespace quaver::test
