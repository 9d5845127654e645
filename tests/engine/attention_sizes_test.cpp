// Workspace of attention's backward pass on Hopper, and what decides how it is spread over thread blocks.
#include "engine/cuda/attention/attention_sizes.h"

#include <gtest/gtest.h>

namespace quaver::test {
namespace {

using cuda::AttentionUnit;
using cuda::hopper_attention_is_faster;
using cuda::hopper_attention_unit;

// Never more than sums in FP32, and gradients of keys and values in BF16, of each query head.
TEST(AttentionSizes, MemoryOfLongSequencesIsLinear) {
  for (const Size head : {64, 128}) {
    for (const Size batch : {1, 8, 200}) {
      for (Size sequence = 1024; sequence <= 1048576; sequence *= 2) {
        const HeadLayout layout{batch, sequence, 14, 2, head};
        EXPECT_LE(cuda::attention_backward_bytes(layout, Format::bf16, 90), 9 * layout.tokens() * layout.heads * head)
            << batch << " × " << sequence;
      }
    }
  }
}

// A block for every head where they come out even, or nearly so for short ones.
TEST(AttentionSizes, ManyHeadsAreUnits) {
  for (const HeadLayout& layout : {HeadLayout{64, 1024, 16, 16, 64},
                                   {32, 1024, 14, 2, 64},
                                   {8, 1024, 12, 12, 64},
                                   {8, 2048, 14, 2, 64},
                                   {16, 2048, 16, 16, 64},
                                   {200, 8192, 14, 2, 64},
                                   {132, 32768, 1, 1, 64}}) {
    EXPECT_EQ(hopper_attention_unit(layout), AttentionUnit::head) << layout.batch << " × " << layout.sequence;
    EXPECT_TRUE(hopper_attention_is_faster(layout));
  }
}

TEST(AttentionSizes, FewLongHeadsAreShared) {
  for (const HeadLayout& layout : {HeadLayout{4, 8192, 14, 2, 64},
                                   {1, 32768, 14, 2, 64},
                                   {5, 8192, 14, 2, 64},
                                   {4, 1024, 12, 12, 64},
                                   {8, 4096, 28, 4, 128},
                                   {16, 1024, 12, 2, 128}}) {
    EXPECT_EQ(hopper_attention_unit(layout), AttentionUnit::key_tile) << layout.batch << " × " << layout.sequence;
    EXPECT_TRUE(hopper_attention_is_faster(layout));
  }
}

TEST(AttentionSizes, BothFormatsOf16BitsNeedTheSame) {
  for (const int architecture : {80, 90, 100}) {
    for (const HeadLayout& layout : {HeadLayout{64, 1024, 16, 16, 64}, {4, 512, 6, 2, 80}, {1, 100, 2, 2, 256}}) {
      EXPECT_EQ(cuda::attention_backward_bytes(layout, Format::f16, architecture),
                cuda::attention_backward_bytes(layout, Format::bf16, architecture));
    }
  }
}

}  // namespace
}  // namespace quaver::test
