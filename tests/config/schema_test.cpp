#include "config/schema.h"

#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <set>

#include "config/dump.h"
#include "config/recipe_table.h"
#include "config/settings.h"
#include "config/support.h"
#include "config/value_text.h"

namespace quaver {
namespace {

using test::load_flags;
using test::load_text;
using test::refused_flag;
using test::refused_text;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The number of members of a plain struct: how many values its braces take.
struct Anything {
  template <class T>
  operator T() const;
};

template <class Struct, class... Given>
consteval std::size_t member_count() {
  if constexpr (requires { Struct{Given{}..., Anything{}}; }) {
    return member_count<Struct, Given..., Anything>();
  } else {
    return sizeof...(Given);
  }
}

std::size_t keys_in(std::string_view section) {
  return static_cast<std::size_t>(
      std::ranges::count_if(schema(), [&](const Key& key) { return key.section() == section; }));
}

TEST(Schema, HasAKeyForEveryMemberOfTheConfig) {
  EXPECT_EQ(keys_in("model") + keys_in("lora"), member_count<ModelConfig>()) << "adapters are a part of the model";
  EXPECT_EQ(keys_in("data"), member_count<DataConfig>());
  EXPECT_EQ(keys_in("train"), member_count<TrainConfig>());
  EXPECT_EQ(keys_in("optim"), member_count<OptimConfig>());
  EXPECT_EQ(keys_in("precision") + 1, member_count<PrecisionConfig>()) << "recipes have a table of their own";
  EXPECT_EQ(keys_in("guard"), member_count<GuardConfig>());
  EXPECT_EQ(keys_in("run"), member_count<RunConfig>());
  EXPECT_EQ(section_names().size(), member_count<Config>()) << "preset is no section, and lora no member";
}

TEST(Schema, NamesAreUniqueAndDocumented) {
  std::set<std::string> names;
  for (const Key& key : schema()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_EQ(find_key(key.name), &key);
    EXPECT_TRUE(key.doc.ends_with(".")) << key.name << ": " << key.doc;
    EXPECT_FALSE(describe_type(key).empty());
  }
  EXPECT_EQ(find_key("optim.nothing"), nullptr);
}

TEST(Schema, DefaultsAreWithinTheirOwnLimits) {
  for (const Key& key : schema()) EXPECT_EQ(conform(key, default_of(key), "default"), default_of(key)) << key.name;
}

// A value of the key's type that differs from its default and contradicts no other key's default.
Value another_value(const Key& key, const Value& current) {
  std::vector<Value> candidates;
  switch (key.type) {
    case ValueType::boolean:
      return !std::get<bool>(current);
    case ValueType::integer:
      candidates = {2 * std::get<std::int64_t>(current), std::int64_t{2}};
      break;
    case ValueType::number: {
      const double x = std::get<double>(current);
      candidates = {x > 0 ? 0.5 * x : 0.5, 2 * x};
      break;
    }
    case ValueType::text:
      return std::string("some \"other\" text = 1");
    case ValueType::choice:
    case ValueType::recipe:
      return key.choices[key.choices[0] == std::get<std::string>(current) ? 1 : 0];
    case ValueType::number_table:
      return NumberTable{{"blocks.*.mlp in fp8-row", 0.25}};
    case ValueType::text_table:
      return TextTable{{"blocks.*.mlp", "bf16"}};
    case ValueType::recipe_table: {
      const SiteSpec spec{parse_quant_spec("int8 row current"), parse_quant_spec("bf16")};
      return RecipeTable{{"mine", {.name = "mine", .x = spec, .w = spec, .dy = spec}}};
    }
  }
  for (const Value& value : candidates) {
    try {
      if (value != current) return conform(key, value, "candidate");
    } catch (const Error&) {
      continue;
    }
  }
  ADD_FAILURE() << key.name << ": the test knows no other value";
  return current;
}

std::string as_flag(const Key& key, const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return fmt::format("--{}={}", key.name, *text);
  if (const auto* table = std::get_if<NumberTable>(&value)) {
    return fmt::format("--{}.{}={}", key.name, table->begin()->first, table->begin()->second);
  }
  if (const auto* table = std::get_if<TextTable>(&value)) {
    return fmt::format("--{}.{}={}", key.name, table->begin()->first, table->begin()->second);
  }
  if (const auto* table = std::get_if<RecipeTable>(&value)) {
    return fmt::format("--{}.{}={}", key.name, table->begin()->first, inline_recipe(table->begin()->second));
  }
  return fmt::format("--{}={}", key.name, toml_value(value));
}

TEST(Schema, EveryKeyCanBeSetByFlagAndByFile) {
  const Config usual = load_flags({});
  for (const Key& key : schema()) {
    if (key.name == "preset") continue;      // it moves other keys too: presets_test.cpp
    if (key.name == "model.from") continue;  // as does this: load_test.cpp
    const Value value = another_value(key, key.get(usual));
    Config expected = usual;
    key.set(expected, value);
    ASSERT_FALSE(expected == usual) << key.name;
    EXPECT_EQ(config_difference(load_flags({as_flag(key, value)}), expected), "") << as_flag(key, value);
    const std::string toml = fmt::format("{} = {}\n", key.name, toml_value(value));
    EXPECT_EQ(config_difference(load_text(toml), expected), "") << toml;
  }
}

TEST(Schema, EveryChoiceSetsItsOwnValue) {
  for (const Key& key : schema()) {
    if (key.type != ValueType::choice && key.type != ValueType::recipe) continue;
    EXPECT_GE(key.choices.size(), 2U) << key.name;
    for (const std::string& choice : key.choices) {
      Config config;
      apply(read_flag(key.name + "=" + choice), config);
      EXPECT_EQ(key.get(config), Value(choice)) << key.name;
    }
    const std::string message = refused_flag("--" + key.name + "=nonsense");
    EXPECT_THAT(message, AllOf(HasSubstr(key.name), HasSubstr("one of"), HasSubstr("nonsense")));
  }
}

TEST(Schema, ChoicesAreNamedAsPeopleTypeThem) {
  EXPECT_EQ(load_text("model.family = 'llama'").model.family, Family::llama);
  EXPECT_EQ(load_text("model.init = 'auto'").model.init, Init::automatic);
  EXPECT_EQ(load_text("optim.master = 'bf16-stochastic'").optim.master, MasterWeights::bf16_stochastic);
  EXPECT_EQ(load_text("precision.history_rule = 'most-recent'").precision.history_rule, HistoryRule::most_recent);
  EXPECT_EQ(load_text("precision.accumulator = 'hopper-split'").precision.accumulator, AccumulatorChoice::hopper_split);
}

// Values just outside a key's limits, as TOML.
std::vector<std::string> values_outside(const Key& key) {
  std::vector<std::string> outside;
  if (key.type == ValueType::integer) {
    if (key.integers.low > IntegerRange{}.low) outside.push_back(toml_value(key.integers.low - 1));
    if (key.integers.high < IntegerRange{}.high) outside.push_back(toml_value(key.integers.high + 1));
  } else if (key.type == ValueType::number) {
    const NumberRange& range = key.numbers;
    if (range.low_end == RangeEnd::open) outside.push_back(toml_value(range.low));
    if (range.low > NumberRange{}.low) outside.push_back(toml_value(std::nextafter(range.low, -HUGE_VAL)));
    if (range.high_end == RangeEnd::open) outside.push_back(toml_value(range.high));
    if (range.high < NumberRange{}.high) outside.push_back(toml_value(std::nextafter(range.high, HUGE_VAL)));
  }
  return outside;
}

TEST(Schema, EveryLimitIsKeptByFilesAndFlags) {
  for (const Key& key : schema()) {
    for (const std::string& value : values_outside(key)) {
      EXPECT_THAT(refused_text(key.name + " = " + value),
                  AllOf(HasSubstr("run.toml:1:"), HasSubstr(key.name), HasSubstr("expected " + describe_type(key)),
                        HasSubstr("found"), HasSubstr(value)));
      const std::string flag = "--" + key.name + "=" + value;
      EXPECT_THAT(refused_flag(flag), AllOf(HasSubstr(flag), HasSubstr("expected " + describe_type(key))));
    }
  }
}

// For every key, one value of each wrong kind.
TEST(Schema, EveryKeyRefusesTheWrongType) {
  const std::vector<std::pair<std::string, std::set<ValueType>>> values = {{"true", {ValueType::boolean}},
                                                                           {"1.5", {ValueType::number}},
                                                                           {"'words'", {ValueType::text}},
                                                                           {"[1, 2]", {}},
                                                                           {"1979-05-27", {}},
                                                                           {"07:32:00", {}},
                                                                           {"{ a.b = [] }", {}},
                                                                           {"nan", {}},
                                                                           {"inf", {}},
                                                                           {"-inf", {}}};
  for (const Key& key : schema()) {
    for (const auto& [value, right] : values) {
      if (right.contains(key.type)) continue;
      EXPECT_THAT(refused_text("\n  " + key.name + " = " + value),
                  AllOf(HasSubstr("run.toml:2:"), HasSubstr(key.name), HasSubstr("expected"), HasSubstr("found")))
          << key.name << " = " << value;
    }
  }
}

TEST(Schema, ConformWidensIntegersAndTruncatesNothing) {
  const Key& number = *find_key("optim.weight_decay");
  EXPECT_EQ(conform(number, std::int64_t{3}, "here"), Value(3.0));
  const std::int64_t no_double = (std::int64_t{1} << 53) + 1;
  EXPECT_THROW(conform(number, no_double, "here"), Error);
  const Key& integer = *find_key("train.steps");
  EXPECT_THROW(conform(integer, 3.0, "here"), Error);
}

TEST(Schema, EqualityNoticesEveryKey) {
  const Config usual;
  for (const Key& key : schema()) {
    Config other = usual;
    key.set(other, another_value(key, key.get(usual)));
    EXPECT_FALSE(usual == other) << key.name;
    EXPECT_THAT(config_difference(usual, other), HasSubstr(key.name + ": "));
  }
  EXPECT_TRUE(usual == Config{});
}

}  // namespace
}  // namespace quaver
