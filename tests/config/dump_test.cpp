#include "config/dump.h"

#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <random>

#include "config/presets.h"
#include "config/schema.h"
#include "config/support.h"
#include "config/value_text.h"

namespace quaver {
namespace {

using test::load_flags;
using test::load_text;
using ::testing::HasSubstr;

TEST(Dump, EveryPresetReadsBackTheSame) {
  for (const std::string& name : preset_names()) {
    const Config config = load_flags({"preset=" + name});
    EXPECT_EQ(config_difference(config, load_text(to_toml(config))), "");
    EXPECT_TRUE(config == load_text(to_toml(config)));
  }
}

TEST(Dump, NamesEveryKeyUnderItsSection) {
  const std::string text = to_toml(Config{});
  for (const std::string& section : section_names()) EXPECT_THAT(text, HasSubstr("\n[" + section + "]\n"));
  for (const Key& key : schema()) {
    if (key.type == ValueType::recipe_table) continue;  // without any there is nothing to say: recipes_test.cpp
    EXPECT_THAT(text, HasSubstr(key.is_table() ? "\n[" + key.name + "]\n" : std::string(key.leaf()) + " = "));
  }
}

TEST(Dump, TextOfAnyKindReadsBackTheSame) {
  std::string controls;
  for (char c = 1; c > 0 && c < 127; ++c) controls += c;
  controls += '\x7f';
  for (const std::string& text : {controls, std::string("\"\\\"\"\"'''"),
                                  std::string("µ \u0080 \uFEFF \uFFFF \U0010FFFF"), std::string("\r\n \t")}) {
    Config config = load_flags({});
    config.run.name = text;
    config.precision.layers[text] = "bf16";
    config.optim.learning_rate_of[text] = 0.1;
    EXPECT_EQ(config_difference(config, load_text(to_toml(config))), "");
  }
}

// Doubles of every magnitude that the widest range admits.
TEST(Dump, NumbersReadBackBitForBit) {
  std::mt19937_64 random(1);
  Config config = load_flags({});
  for (int i = 0; i < 300; ++i) {
    double x = 0;
    const std::uint64_t bits = random() & ~(std::uint64_t{1} << 63);
    std::memcpy(&x, &bits, sizeof x);
    if (!(x <= 1000)) continue;  // the largest that is taken
    config.optim.weight_decay = x;
    config.optim.weight_decay_of["x"] = x;
    ASSERT_EQ(config_difference(config, load_text(to_toml(config))), "") << number_text(x);
  }
  for (const double x : {0.0, 1.0, 1e6, 1e11, 999999999999.9999, 1e12, 5e-324, 0.1}) {
    config.alerts.harmless_sqnr = x;
    ASSERT_EQ(config_difference(config, load_text(to_toml(config))), "") << number_text(x);
  }
}

TEST(Dump, AnEmptyTableIsSaid) {
  const Config config = load_flags({"preset=small"});
  EXPECT_THAT(to_toml(config), HasSubstr("[precision.layers]\n"));
}

TEST(Difference, ShowsBothValuesOfEachChangedKey) {
  Config a, b;
  EXPECT_EQ(config_difference(a, b), "");
  b.optim.learning_rate = 3e-4;
  b.model.family = Family::llama;
  b.precision.layers["head"] = "bf16";
  EXPECT_EQ(config_difference(a, b),
            "model.family: \"gpt\" → \"llama\"\n"
            "optim.learning_rate: 0.001 → 0.0003\n"
            "precision.layers: {} → { \"head\" = \"bf16\" }\n");
}

TEST(ValueText, NumbersAreShort) {
  EXPECT_EQ(number_text(1e-8), "1e-8");
  EXPECT_EQ(number_text(1.5e300), "1.5e300");
  EXPECT_EQ(number_text(10000), "10000");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(toml_value(2.0), "2.0");
  EXPECT_EQ(toml_value(1e6), "1000000.0");
}

TEST(ValueText, PlainTextIsWellFormedUtf8WithoutNul) {
  for (const char* good : {"", "abc\n", "é", "\u0800", "\uD7FF", "\U00010000", "\U0010FFFF"})
    EXPECT_TRUE(is_plain_text(good));
  const std::string_view bad[] = {{"a\0b", 3},        "\x80",
                                  "\xc0\xaf",         "\xc3",
                                  "\xe0\x80\xaf",     "\xed\xa0\x80",
                                  "\xe2\x82",         "\xf0\x80\x80\x80",
                                  "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80",
                                  "\xf0\x9f\x98",     "\xffxx"};
  for (const std::string_view text : bad) EXPECT_FALSE(is_plain_text(text));
}

TEST(ValueText, ExcerptsAreShortAndPrintable) {
  EXPECT_EQ(quoted_excerpt("plain µ"), "\"plain µ\"");
  EXPECT_EQ(quoted_excerpt("\x1b[31m\n"), "\"\\x1b[31m\\x0a\"");
  EXPECT_EQ(quoted_excerpt("\xff"), "\"\\xff\"");
  std::string many;
  for (int i = 0; i < 100; ++i) many += "µ";
  EXPECT_TRUE(is_plain_text(quoted_excerpt("x" + many)));
  EXPECT_LT(quoted_excerpt(many).size(), 70U);
}

}  // namespace
}  // namespace quaver
