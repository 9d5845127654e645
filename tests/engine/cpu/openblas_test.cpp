#include "engine/cpu/openblas.h"

#include <gtest/gtest.h>

namespace quaver {
namespace {

TEST(OpenBlas, IsAskedForKernelsThatUseTheWholeUnit) {
  EXPECT_EQ(openblas_core_to_ask_for("Haswell", VectorUnit::avx512), "SkylakeX");
  EXPECT_EQ(openblas_core_to_ask_for("Zen", VectorUnit::avx512), "SkylakeX");
  EXPECT_EQ(openblas_core_to_ask_for("Prescott", VectorUnit::avx512), "SkylakeX");
  EXPECT_EQ(openblas_core_to_ask_for("Prescott", VectorUnit::avx2), "Haswell");
}

TEST(OpenBlas, IsLeftItsChoiceOtherwise) {
  EXPECT_EQ(openblas_core_to_ask_for("SkylakeX", VectorUnit::avx512), "");
  EXPECT_EQ(openblas_core_to_ask_for("Cooperlake", VectorUnit::avx512), "");
  EXPECT_EQ(openblas_core_to_ask_for("SapphireRapids", VectorUnit::avx512), "");
  EXPECT_EQ(openblas_core_to_ask_for("Haswell", VectorUnit::avx2), "");
  EXPECT_EQ(openblas_core_to_ask_for("Zen", VectorUnit::avx2), "");
  EXPECT_EQ(openblas_core_to_ask_for("Prescott", VectorUnit::older), "");
  EXPECT_EQ(openblas_core_to_ask_for("armv8", VectorUnit::older), "");
}

}  // namespace
}  // namespace quaver
