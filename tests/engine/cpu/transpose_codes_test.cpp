// Columnwise codes made from the rowwise ones are those that a cast of both sides gives.
#include "engine/support.h"

namespace quaver::test {
namespace {

void check(const QuantSpec& spec, Size rows, Size cols) {
  const auto engine = make_cpu_engine(2);
  Site site{.name = "layer/w", .role = Role::w, .spec = {spec, spec}, .scale = 3};
  std::vector<std::vector<std::byte>> memory;
  const auto take = [&](std::size_t bytes) { return memory.emplace_back(bytes + 64).data(); };
  QuantizedTensor cast(site, rows, cols, Copies::both, Sharing::apart, take);
  QuantizedTensor made(site, rows, cols, Copies::both, Sharing::apart, take);
  ASSERT_TRUE(cast.has_own_columns());
  Matrix x = random_matrix(rows, cols, 5);
  engine->run(Quantize{x.view(), cast, {}});
  engine->run(TransposeCodes{cast.rows_matrix(), made.columns_matrix()});
  const CodeMatrix& want = cast.columns_matrix();
  const CodeMatrix& got = made.columns_matrix();
  EXPECT_TRUE(std::equal(want.codes, want.codes + want.code_bytes(), got.codes));
  EXPECT_EQ(*got.tensor_scale, *want.tensor_scale);
  if (!want.has_block_scales()) return;
  EXPECT_TRUE(
      std::equal(want.block_scales, want.block_scales + want.scale_rows() * want.scale_cols(), got.block_scales));
}

TEST(TransposeCodes, GivesWhatACastOfTheColumnsGives) {
  const QuantSpec delayed{.format = Format::e4m3, .policy = ScalePolicy::delayed};
  const QuantSpec blocks{.format = Format::e4m3, .block = block::b128x128, .policy = ScalePolicy::current};
  for (const auto& [rows, cols] : {std::pair<Size, Size>{1, 1}, {3, 200}, {130, 260}, {256, 128}}) {
    check(delayed, rows, cols);
    check(blocks, rows, cols);
  }
}

}  // namespace
}  // namespace quaver::test
