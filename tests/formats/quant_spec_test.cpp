#include "formats/quant_spec.h"

#include <gtest/gtest.h>
#include <limits>

#include "quaver/error.h"

namespace quaver {
namespace {

TEST(QuantSpec, TheSpecsOfTheRecipesAreAccepted) {
  const QuantSpec good[] = {
      {},
      {.format = Format::tf32},
      {.format = Format::bf16, .rounding = Rounding::stochastic},
      {.format = Format::e4m3},
      {.format = Format::e4m3, .policy = ScalePolicy::current},
      {.format = Format::e5m2, .policy = ScalePolicy::delayed, .margin = 1},
      {.format = Format::e4m3, .scale = ScaleFormat::f32_power_of_two, .policy = ScalePolicy::fixed},
      {.format = Format::e4m3, .block = block::row, .policy = ScalePolicy::current},
      {.format = Format::e4m3, .block = block::b128x128, .policy = ScalePolicy::current},
      {.format = Format::e4m3, .block = block::b1x32, .scale = ScaleFormat::e8m0, .policy = ScalePolicy::current},
      {.format = Format::e2m1,
       .block = block::b1x16,
       .scale = ScaleFormat::e4m3,
       .policy = ScalePolicy::current,
       .rounding = Rounding::stochastic,
       .rotation = Rotation::hadamard},
      {.format = Format::e2m1, .block = block::b16x16, .scale = ScaleFormat::e4m3, .policy = ScalePolicy::current},
  };
  for (const QuantSpec& spec : good) EXPECT_NO_THROW(check(spec, "site")) << describe(spec);
}

TEST(QuantSpec, NonsenseIsRejectedWithTheSiteAndARemedy) {
  const QuantSpec bad[] = {
      {.format = Format::bf16, .policy = ScalePolicy::current},
      {.format = Format::f32, .block = block::row},
      {.format = Format::bf16, .rotation = Rotation::hadamard},
      {.format = Format::f16, .shrink = 0.5F},
      {.format = Format::e4m3, .block = block::b1x32, .scale = ScaleFormat::e8m0, .policy = ScalePolicy::delayed},
      {.format = Format::e4m3, .block = block::row, .policy = ScalePolicy::none},
      {.format = Format::e4m3, .block = block::b1x16, .scale = ScaleFormat::e4m3, .policy = ScalePolicy::current},
      {.format = Format::e4m3, .scale = ScaleFormat::e8m0, .policy = ScalePolicy::current},
      {.format = Format::e2m1, .block = block::row, .scale = ScaleFormat::e4m3, .policy = ScalePolicy::current},
      {.format = Format::e4m3, .block = {2, 64}, .policy = ScalePolicy::current},
      {.format = Format::e4m3, .block = {1, 48}, .policy = ScalePolicy::current},
      {.format = Format::e4m3, .margin = 1},
      {.format = Format::e4m3, .policy = ScalePolicy::current, .margin = -1},
      {.format = Format::e4m3, .policy = ScalePolicy::current, .margin = 99},
      {.format = Format::e2m1, .policy = ScalePolicy::current, .shrink = 0.0F},
      {.format = Format::e2m1, .policy = ScalePolicy::current, .shrink = std::numeric_limits<float>::quiet_NaN()},
      {.format = Format::e2m1,
       .block = block::b16x16,
       .scale = ScaleFormat::e4m3,
       .policy = ScalePolicy::current,
       .rotation = Rotation::hadamard},
  };
  for (const QuantSpec& spec : bad) {
    try {
      check(spec, "blocks.3.mlp.up/x");
      ADD_FAILURE() << describe(spec) << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).rfind("blocks.3.mlp.up/x: ", 0), 0U) << e.what();
      EXPECT_FALSE(e.remedy().empty());
    }
  }
}

TEST(QuantSpec, DescriptionsAreShort) {
  EXPECT_EQ(describe({.format = Format::bf16}), "bf16");
  EXPECT_EQ(describe({.format = Format::e4m3, .policy = ScalePolicy::delayed}), "e4m3 tensor delayed");
  EXPECT_EQ(describe({.format = Format::e4m3}), "e4m3 tensor unscaled");
  EXPECT_EQ(describe({.format = Format::e2m1,
                      .block = block::b1x16,
                      .scale = ScaleFormat::e4m3,
                      .policy = ScalePolicy::current,
                      .rounding = Rounding::stochastic,
                      .rotation = Rotation::hadamard}),
            "e2m1 1x16/e4m3 current stochastic hadamard");
  EXPECT_EQ(describe({.format = Format::e2m1,
                      .block = block::b1x32,
                      .scale = ScaleFormat::e8m0,
                      .policy = ScalePolicy::current,
                      .shrink = 0.75F}),
            "e2m1 1x32/e8m0 current shrink 0.75");
}

}  // namespace
}  // namespace quaver
