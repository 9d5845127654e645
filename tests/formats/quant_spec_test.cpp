#include "formats/quant_spec.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <utility>
#include <vector>

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
      {.format = Format::e2m1,
       .block = block::b1x32,
       .scale = ScaleFormat::e4m3_4over6,
       .policy = ScalePolicy::current},
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

// Every member with every value that means something, and shrinks that decimals do not hold.
std::vector<QuantSpec> all_valid_specs() {
  std::vector<QuantSpec> valid;
  const Block blocks[] = {block::tensor, block::row,   block::b1x128, block::b128x128,
                          block::b1x32,  block::b1x16, block::b16x16, Block{3, 5}};
  for (const Format format : all_formats) {
    for (const Block& block : blocks) {
      for (int bits = 0; bits < 6 * 4 * 2 * 2; ++bits) {
        for (const float shrink : {1.0F, 0.75F, 0.1F, 1.0F / 3, 1e-30F, std::nextafter(1.0F, 0.0F)}) {
          for (const int margin : {0, 1, 16, 17}) {
            const QuantSpec spec{.format = format,
                                 .block = block,
                                 .scale = static_cast<ScaleFormat>(bits % 6),
                                 .policy = static_cast<ScalePolicy>(bits / 6 % 4),
                                 .rounding = static_cast<Rounding>(bits / 24 % 2),
                                 .rotation = static_cast<Rotation>(bits / 48),
                                 .shrink = shrink,
                                 .margin = margin};
            try {
              check(spec, "");
              valid.push_back(spec);
            } catch (const Error&) {
              continue;
            }
          }
        }
      }
    }
  }
  return valid;
}

TEST(QuantSpec, TextAndSpecAreInverses) {
  const std::vector<QuantSpec> specs = all_valid_specs();
  ASSERT_GT(specs.size(), 5000U);
  for (const QuantSpec& spec : specs) ASSERT_EQ(parse_quant_spec(describe(spec)), spec) << describe(spec);
}

TEST(QuantSpec, TextMayHaveSpacesAndAnotherOrder) {
  EXPECT_EQ(describe(parse_quant_spec("  e2m1  1x32/e8m0 current shrink 0.75   hadamard stochastic ")),
            "e2m1 1x32/e8m0 current stochastic hadamard shrink 0.75");
  EXPECT_EQ(describe(parse_quant_spec("e4m3 tensor/f32 delayed margin 2")), "e4m3 tensor delayed margin 2");
}

TEST(QuantSpec, TextThatIsNoSpecIsRefusedWithWhatIsKnown) {
  const std::pair<const char*, const char*> wrong[] = {{"", "f32"},
                                                       {"fp8", "e4m3"},
                                                       {"e4m3", "1x128"},
                                                       {"e4m3 1x129 current", "1x128"},
                                                       {"e4m3 1x32/e8 current", "e8m0-floor"},
                                                       {"e4m3 tensor", "delayed"},
                                                       {"e4m3 tensor static", "fixed"},
                                                       {"e4m3 tensor current nearest", "stochastic"},
                                                       {"e4m3 tensor current shrink", "0.75"},
                                                       {"e4m3 tensor current shrink 2", "at most 1"},
                                                       {"e4m3 tensor current shrink nan", "above 0"},
                                                       {"e4m3 tensor current margin 1.5", "margin 2"},
                                                       {"e4m3 1x128 delayed", "current"},
                                                       {"bf16 tensor unscaled", "stochastic"},
                                                       {"bf16 hadamard", "8 bits"}};
  for (const auto& [text, hint] : wrong) {
    try {
      parse_quant_spec(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(error.remedy().find(hint), std::string::npos) << text << ": " << error.remedy();
    }
  }
}

TEST(SiteSpec, SidesShareAGivenScale) {
  const QuantSpec delayed{.format = Format::e4m3, .policy = ScalePolicy::delayed};
  QuantSpec other = delayed;
  EXPECT_NO_THROW(check(SiteSpec{delayed, delayed}, "x"));
  EXPECT_NO_THROW(check(SiteSpec{delayed, QuantSpec{.format = Format::bf16}}, "x"));
  other.format = Format::e5m2;
  EXPECT_THROW(check(SiteSpec{delayed, other}, "x"), Error);
  other = delayed;
  other.margin = 1;
  EXPECT_THROW(check(SiteSpec{delayed, other}, "x"), Error);
  EXPECT_THROW(check(SiteSpec{QuantSpec{.format = Format::bf16}, delayed}, "x"), Error) << "the scale follows the rows";
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
                      .block = block::b16x16,
                      .scale = ScaleFormat::e4m3_4over6,
                      .policy = ScalePolicy::current}),
            "e2m1 16x16/e4m3-4over6 current");
  EXPECT_EQ(describe({.format = Format::e2m1,
                      .block = block::b1x32,
                      .scale = ScaleFormat::e8m0,
                      .policy = ScalePolicy::current,
                      .shrink = 0.75F}),
            "e2m1 1x32/e8m0 current shrink 0.75");
}

}  // namespace
}  // namespace quaver
